//! The cluster of a scenario: the environment, its load, and the steps that scenarios share.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::tools::Tool;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::ControllerStatus;
use outrigger_timeline::Join;

use super::options::Size;
use crate::demo::migrate::{self, LOAD, QUIET, ROLL};
use crate::faults::Relays;
use crate::load::Load;
use crate::operator::{NEW_MANAGER, OLD_MANAGER, has_flag};
use crate::{CLUSTER, CONTROL_PLANE, Environment, Progress};

/// The machines. The third is for a Node that joins later.
const INSTANCES: usize = 3;
/// Longer than any bound, so that a gap that is too long is measured.
pub(super) const TAKEN: Duration = Duration::from_secs(60);
/// After its start a process of ours watches the leases.
const STANDBY: SignedDuration = SignedDuration::from_secs(4);

pub(super) struct Cluster {
    pub(super) environment: Environment,
    pub(super) progress: Progress,
    pub(super) random: Random,
    /// AWS identifiers that no write may name.
    pub(super) unchanged: BTreeSet<String>,
    /// Figures of this scenario alone.
    pub(super) notes: Vec<String>,
    /// The violations of the bounds of this scenario alone.
    pub(super) problems: Vec<String>,
    pub(super) size: Size,
    /// Nodes that joined while M changed hands.
    pub(super) joins: Vec<Join>,
    /// The bound of reads after an acquisition of M, where the scenario has one.
    pub(super) observed: Option<Duration>,
    pub(super) loads: Vec<Load>,
}

impl Cluster {
    pub(super) async fn build(
        run: &Path,
        tools: &[Tool],
        random: Random,
        options: (Size, bool),
        progress: &Progress,
    ) -> Result<Self> {
        let (size, node_restriction) = options;
        let environment = Environment::build_with(run, INSTANCES, tools, node_restriction, progress).await?;
        Ok(Self {
            environment,
            progress: progress.clone(),
            random,
            unchanged: BTreeSet::new(),
            notes: Vec::new(),
            problems: Vec::new(),
            size,
            joins: Vec::new(),
            observed: None,
            loads: Vec::new(),
        })
    }

    /// An in-tree cluster with a classic and a network load balancer, and our manager beside it in phase InTree.
    pub(super) async fn hosted(&mut self) -> Result<()> {
        for index in 0..2 {
            self.environment.join_in_tree(index).await?;
        }
        self.environment.deploy_old_manager(&[]).await?;
        self.wait_rolled(OLD_MANAGER, "the old kube-controller-manager runs", |_| true)
            .await?;
        self.services(2).await?;

        migrate::install(&mut self.environment, &self.progress).await
    }

    /// As [`Cluster::hosted`], in phase Migrate.
    pub(super) async fn migrated(&mut self) -> Result<()> {
        self.hosted().await?;
        self.prepare().await?;
        self.migrate().await
    }

    /// A classic and a network load balancer, created by the old manager, and a load on both.
    pub(super) async fn services(&mut self, targets: usize) -> Result<()> {
        let environment = &self.environment;
        self.wait_holder(Lease::K, None).await?;
        environment.create_load_balancer_service("web", 80).await?;
        environment.create_network_load_balancer_service("api", 443).await?;
        environment
            .wait_load_balancers(&["web", "api"], targets, &self.progress)
            .await?;

        for service in ["web", "api"] {
            self.loads
                .push(migrate::start_load_on(environment, service, LOAD).await?);
        }
        self.unchanged = environment.unchanged().await?;
        environment.snapshot().await
    }

    pub(super) async fn prepare(&self) -> Result<()> {
        migrate::prepare(&self.environment, &self.progress).await
    }

    /// Phase Migrate, until our manager holds M.
    pub(super) async fn migrate(&self) -> Result<()> {
        migrate::take_over(&self.environment, &self.progress).await?;
        self.settle().await
    }

    /// Both sides run under load, so that an idle owner shows.
    pub(super) async fn settle(&self) -> Result<()> {
        tokio::time::sleep(QUIET).await;
        self.environment.snapshot().await
    }

    /// Waits until a lease is held by another than `before`, and returns the holder.
    pub(super) async fn wait_holder(&self, lease: Lease, before: Option<&str>) -> Result<String> {
        let environment = &self.environment;
        environment.wait_holder(lease, before, TAKEN, &self.progress).await
    }

    /// Waits until the one Pod of a Deployment runs with a command line that is `wanted`.
    pub(super) async fn wait_rolled(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&[String]) -> bool,
    ) -> Result<String> {
        let environment = &self.environment;
        environment.wait_rolled(name, what, ROLL, &self.progress, wanted).await
    }

    pub(super) async fn wait_condition(&self, condition: &str) -> Result<()> {
        let environment = &self.environment;
        environment.wait_condition(condition, TAKEN, &self.progress).await
    }

    /// When the present holder of a lease acquired it.
    pub(super) fn acquired(&self, lease: Lease) -> Timestamp {
        let latest = self.environment.leases.latest(lease);
        latest.and_then(|change| change.acquired).unwrap_or_else(Timestamp::now)
    }

    /// A step back or forth, with an end of a process in the middle of it.
    pub(super) async fn step_beside(&self, back: bool, end: impl Future<Output = Result<()>>) -> Result<()> {
        let step = async {
            match back {
                true => self.roll_back().await,
                false => self.migrate().await,
            }
        };
        let (stepped, ended) = tokio::join!(step, end);
        stepped.and(ended)
    }

    /// Rolls our manager, so that it reaches the API servers and AWS through relays, and waits until it holds M.
    pub(super) async fn run_behind_relays(&self) -> Result<Relays> {
        let environment = &self.environment;
        let relays = environment.start_relays().await?;
        let before = environment.holder(Lease::M);
        let flags = environment.arguments_through(&relays)?;
        environment.install_manager_with(flags).await?;
        let relayed = |argv: &[String]| argv.iter().any(|flag| flag.ends_with(".relayed"));
        self.wait_rolled(NEW_MANAGER, "our manager runs behind relays", relayed)
            .await?;
        self.wait_holder(Lease::M, before.as_deref()).await?;

        Ok(relays)
    }

    /// Back to phase Prepare, until the old manager holds M.
    pub(super) async fn roll_back(&self) -> Result<()> {
        let (environment, progress) = (&self.environment, &self.progress);
        progress.step("Back to Prepare: the old manager is rolled with the in-tree provider and leader migration");
        environment.set_phase("Prepare").await?;
        environment.apply_phase("Prepare").await?;

        let (in_tree, guarded) = (has_flag("--cloud-provider=aws"), has_flag("--enable-leader-migration"));
        self.old_manager_is_back(|argv| in_tree(argv) && guarded(argv)).await
    }

    /// As [`Cluster::roll_back`], where the old manager is rolled by hand.
    pub(super) async fn roll_back_by_hand(&self) -> Result<()> {
        self.environment.deploy_guarded().await?;
        self.old_manager_is_back(has_flag("--cloud-provider=aws")).await
    }

    async fn old_manager_is_back(&self, wanted: impl Fn(&[String]) -> bool) -> Result<()> {
        let what = "the old manager runs in-tree with leader migration";
        self.wait_rolled(OLD_MANAGER, what, wanted).await?;
        self.old_manager_holds().await?;
        self.settle().await
    }

    pub(super) async fn old_manager_holds(&self) -> Result<()> {
        let old_holds = async || {
            let holder = self.environment.holder(Lease::M);
            let is_old = |holder: &String| self.process(holder).is_ok_and(|span| span.component == OLD_MANAGER);
            Ok(match holder {
                Some(holder) if is_old(&holder) => Ok(()),
                holder => Err(format!("held by {}", holder.as_deref().unwrap_or("nobody"))),
            })
        };
        self.progress.wait("the old manager holds M", TAKEN, old_holds).await
    }

    /// Waits until the status does not name our manager as the owner of a controller that both managers have. Until then
    /// the API server refuses phase InTree.
    pub(super) async fn old_manager_owns(&self) -> Result<()> {
        let owns = async || {
            let object = self.environment.migrations().get(CLUSTER).await?;
            let rows = object.status.unwrap_or_default().controllers;
            let shared = Controller::SHARED.map(Controller::canonical_name);
            let is_ours = |row: &ControllerStatus| row.owner == Some(Party::CloudControllerManager);
            let ours = rows
                .iter()
                .find(|row| shared.contains(&row.name.as_str()) && is_ours(row));
            Ok(ours.map_or(Ok(()), |row| Err(format!("ours owns {}", row.name))))
        };
        self.progress
            .wait("the status does not name our manager as the owner", TAKEN, owns)
            .await
    }

    pub(super) async fn complete(&self) -> Result<()> {
        self.progress.step("Complete");
        self.environment.set_phase("Complete").await?;
        let observed = async || {
            let object = self.environment.migrations().get(CLUSTER).await?;
            let status = object.status.unwrap_or_default();
            let done = status.observed_generation == object.metadata.generation;
            Ok(if done {
                Ok(())
            } else {
                Err("the status is older".to_owned())
            })
        };
        self.progress
            .wait("the manager observed phase Complete", TAKEN, observed)
            .await
    }

    /// Two managers of ours, one of which leads.
    pub(super) async fn two_managers(&self) -> Result<()> {
        self.environment.install_manager(2).await?;
        self.standby_waits().await?;
        tokio::time::sleep(QUIET).await;
        Ok(())
    }

    /// Waits until one manager of ours leads and another one has watched the leases for a while.
    pub(super) async fn standby_waits(&self) -> Result<()> {
        let environment = &self.environment;
        let two = async || {
            let now = Timestamp::now();
            let waited = |span: &ProcessSpan| now.duration_since(span.started) > STANDBY;
            let spans = environment.runner.spans();
            let is_ours = |span: &&ProcessSpan| span.component == NEW_MANAGER && span.ended.is_none();
            let running = spans.iter().filter(is_ours).filter(|span| waited(span)).count();
            let leads = environment
                .holder(Lease::C)
                .is_some_and(|holder| self.process(&holder).is_ok_and(|span| span.ended.is_none()));
            Ok(if running == 2 && leads {
                Ok(())
            } else {
                Err(format!("{running} run, one leads: {leads}"))
            })
        };
        self.progress.wait("two managers run, and one leads", ROLL, two).await
    }

    /// Ends our leader, and deletes its Pod, so that another one starts without backoff.
    pub(super) async fn end_leader(&self, kill: bool) -> Result<()> {
        let holder = self.environment.holder(Lease::C).context("nobody holds C")?;
        let pod = self.process(&holder)?.pod;
        self.environment.mark(if kill {
            "SIGKILL of our leader"
        } else {
            "SIGTERM of our leader"
        });
        self.progress.say(&format!("ending our leader {pod}, SIGKILL: {kill}"));
        self.end_pod(&pod, kill).await
    }

    /// Ends a running process of the old manager, and deletes its Pod, so that another one starts without backoff.
    pub(super) async fn end_old_manager(&self, kill: bool) -> Result<()> {
        let spans = self.environment.runner.spans();
        let mut running = spans
            .iter()
            .filter(|span| span.component == OLD_MANAGER && span.ended.is_none());
        let pod = &running.next().context("no old manager runs")?.pod;
        self.environment.mark("the old manager ends");
        self.progress
            .say(&format!("ending the old manager {pod}, SIGKILL: {kill}"));
        self.end_pod(pod, kill).await
    }

    async fn end_pod(&self, pod: &str, kill: bool) -> Result<()> {
        if kill {
            self.environment.runner.kill(pod).await?;
        }

        let pods: Api<Pod> = Api::namespaced(self.environment.management_admin.clone(), CONTROL_PLANE);
        match pods.delete(pod, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    /// Reason and message of a condition, as the status has it now.
    pub(super) async fn condition(&self, kind: &str) -> Result<String> {
        let object = self.environment.migrations().get(CLUSTER).await?;
        let conditions = object.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        Ok(found.map_or_else(String::new, |found| format!("{}: {}", found.reason, found.message)))
    }

    /// Waits until a condition has all these words, and returns its reason and message.
    pub(super) async fn wait_message(&self, kind: &str, words: &[&str], what: &str) -> Result<String> {
        let named = async || {
            let said = self.condition(kind).await?;
            let all = words.iter().all(|word| said.contains(word));
            Ok(if all { Ok(said) } else { Err(said) })
        };
        self.progress.wait(what, TAKEN, named).await
    }

    pub(super) async fn condition_is_true(&self, kind: &str) -> Result<bool> {
        let object = self.environment.migrations().get(CLUSTER).await?;
        Ok(object.has_condition(kind))
    }

    /// The process behind a holder identity.
    pub(super) fn process(&self, identity: &str) -> Result<ProcessSpan> {
        let known = self.environment.process_of(identity);
        known.with_context(|| format!("no process has the identity {identity}: run where unshare --uts works"))
    }

    pub(super) fn is_ours(&self, identity: &str) -> bool {
        self.process(identity).is_ok_and(|span| span.component == NEW_MANAGER)
    }

    /// The Pod of our manager that holds M.
    pub(super) fn leader(&self) -> Result<String> {
        let holder = self.environment.holder(Lease::M).context("nobody holds M")?;
        let span = self.process(&holder)?;
        ensure!(span.component == NEW_MANAGER, "{} holds M", span.process);
        Ok(span.pod)
    }

    /// A figure of this scenario, which must not exceed `limit`.
    pub(super) fn measured(&mut self, what: &str, from: Timestamp, until: Timestamp, limit: Duration) {
        let took = Duration::try_from(from.duration_until(until)).unwrap_or_default();
        let note = format!("{what}: {:.1} s (bound {} s)", took.as_secs_f64(), limit.as_secs());
        self.progress.say(&note);
        if took > limit {
            self.problems.push(note.clone());
        }
        self.notes.push(note);
    }

    /// M must have had this one holder since a moment, without a break.
    pub(super) fn keeps_m(&mut self, what: &str, since: Timestamp, holder: Option<&str>) {
        let changes = self.environment.leases.changes().into_iter();
        let of_m = changes.filter(|change| change.lease == Lease::M && change.at >= since);
        let first = of_m.into_iter().find(|change| change.holder.as_deref() != holder);
        let lost = first.map(|change| {
            let after = change.at.duration_since(since).as_secs_f64();
            format!(
                " after {after:.1} s, then {}",
                change.holder.as_deref().unwrap_or("nobody")
            )
        });
        let text = format!(
            "{what}: {holder:?} keeps M; it lost M{}",
            lost.as_deref().unwrap_or_default()
        );
        self.expect(lost.is_none() && holder.is_some(), &text);
    }

    /// A statement about this scenario that must hold.
    pub(super) fn expect(&mut self, holds: bool, text: &str) {
        if !holds {
            self.progress.say(&format!("NOT SO: {text}"));
            self.problems.push(format!("not so: {text}"));
        }
    }

    pub(super) async fn end(self, grace: Duration) {
        drop(self.loads);
        self.environment.end(grace).await;
    }
}

/// Random moments that a seed repeats, by `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Whole milliseconds below `limit`.
    pub(super) fn below(&mut self, limit: Duration) -> Duration {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.next() % limit)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_moments_and_another_has_others() {
        let moments = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.below(Duration::from_secs(1)))
        };
        assert_eq!(moments(1), moments(1));
        assert_ne!(moments(1), moments(2));
        assert!(moments(3).iter().all(|moment| *moment < Duration::from_secs(1)));
    }
}
