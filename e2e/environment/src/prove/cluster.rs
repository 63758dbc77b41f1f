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
use outrigger_timeline::Join;

use super::random::Random;
use super::size::Size;
use crate::demo::migrate::{self, QUIET, ROLL};
use crate::load::Load;
use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::relays::Relays;
use crate::{Environment, Progress};

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
    loads: Vec<Load>,
}

impl Cluster {
    pub(super) async fn build(
        run: &Path,
        tools: &[Tool],
        random: Random,
        size: Size,
        progress: &Progress,
    ) -> Result<Self> {
        let environment = Environment::build(run, INSTANCES, tools, progress).await?;
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
        let (what, progress) = ("the old kube-controller-manager runs", self.progress.clone());
        self.environment
            .wait_rolled(OLD_MANAGER, what, ROLL, &progress, |_| true)
            .await?;
        self.services(2).await?;

        migrate::install(&mut self.environment, &progress).await
    }

    /// A classic and a network load balancer, created by the old manager, and a load on both.
    pub(super) async fn services(&mut self, targets: usize) -> Result<()> {
        let environment = &self.environment;
        environment.wait_holder(Lease::K, None, TAKEN, &self.progress).await?;
        environment.create_load_balancer_service("web", 80).await?;
        environment.create_network_load_balancer_service("api", 443).await?;
        environment
            .wait_load_balancers(&["web", "api"], targets, &self.progress)
            .await?;

        for service in ["web", "api"] {
            self.loads.push(migrate::start_load_on(environment, service).await?);
        }
        self.unchanged = environment.unchanged().await?;
        environment.snapshot().await
    }

    /// A load that is slower than the usual one, because its reads count against the limit of ours.
    pub(super) async fn slow_load(&mut self, service: &str, every: Duration) -> Result<()> {
        let load = migrate::start_load_every(&self.environment, service, every).await?;
        self.loads.push(load);
        Ok(())
    }

    pub(super) async fn prepare(&self) -> Result<()> {
        migrate::prepare(&self.environment, &self.progress).await
    }

    /// Phase Migrate, until our manager holds M.
    pub(super) async fn migrate(&self) -> Result<()> {
        migrate::take_over(&self.environment, &self.progress).await?;
        tokio::time::sleep(QUIET).await;
        self.environment.snapshot().await
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
        let (environment, progress) = (&self.environment, &self.progress);
        let relays = environment.start_relays().await?;
        let before = environment.holder(Lease::M);
        let flags = environment.arguments_through(&relays)?;
        environment.install_manager_with(flags).await?;
        let relayed = |argv: &[String]| argv.iter().any(|flag| flag.ends_with(".relayed"));
        let what = "our manager runs behind relays";
        environment
            .wait_rolled(NEW_MANAGER, what, ROLL, progress, relayed)
            .await?;
        environment
            .wait_holder(Lease::M, before.as_deref(), TAKEN, progress)
            .await?;

        Ok(relays)
    }

    /// Back to phase Prepare, until the old manager holds M.
    pub(super) async fn roll_back(&self) -> Result<()> {
        let (environment, progress) = (&self.environment, &self.progress);
        progress.step("Back to Prepare: the old manager is rolled with the in-tree provider and leader migration");
        environment.set_phase("Prepare").await?;
        environment.apply_phase("Prepare").await?;

        let guarded = |argv: &[String]| {
            let has = |text: &str| argv.iter().any(|flag| flag.starts_with(text));
            has("--cloud-provider=aws") && has("--enable-leader-migration")
        };
        let what = "the old manager runs in-tree with leader migration";
        environment
            .wait_rolled(OLD_MANAGER, what, ROLL, progress, guarded)
            .await?;

        self.old_manager_holds().await?;
        tokio::time::sleep(QUIET).await;
        environment.snapshot().await
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

    pub(super) async fn complete(&self) -> Result<()> {
        self.progress.step("Complete");
        self.environment.set_phase("Complete").await?;
        let observed = async || {
            let object = self.environment.migrations().get(crate::CLUSTER).await?;
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
            let running = spans
                .iter()
                .filter(|span| span.component == NEW_MANAGER && span.ended.is_none());
            let running = running.filter(|span| waited(span)).count();
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

        let pods: Api<Pod> = Api::namespaced(self.environment.management_admin.clone(), crate::CONTROL_PLANE);
        match pods.delete(pod, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    /// Reason and message of a condition, as the status has it now.
    pub(super) async fn condition(&self, kind: &str) -> Result<String> {
        let object = self.environment.migrations().get(crate::CLUSTER).await?;
        let conditions = object.status.unwrap_or_default().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        Ok(found.map_or_else(String::new, |found| format!("{}: {}", found.reason, found.message)))
    }

    pub(super) async fn condition_is_true(&self, kind: &str) -> Result<bool> {
        let object = self.environment.migrations().get(crate::CLUSTER).await?;
        Ok(object.has_condition(kind))
    }

    /// The process behind a holder identity.
    pub(super) fn process(&self, identity: &str) -> Result<ProcessSpan> {
        let known = self.environment.process_of(identity);
        known.with_context(|| format!("no process has the identity {identity}: run where unshare --uts works"))
    }

    /// The Pod of our manager that holds M.
    pub(super) fn leader(&self) -> Result<String> {
        let holder = self.environment.holder(Lease::M).context("nobody holds M")?;
        let span = self.process(&holder)?;
        ensure!(span.component == NEW_MANAGER, "{} holds M", span.process);
        Ok(span.pod)
    }

    /// Waits until M is free, and returns the time of its release.
    pub(super) async fn released(&self, limit: Duration) -> Result<Timestamp> {
        let change = self
            .environment
            .leases
            .wait_until(Lease::M, limit, |change| change.holder.is_none())
            .await;
        change.map(|change| change.at).context("M was not released")
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
