//! Bringing one Service to its desired state: observe, desired, plan, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::InstanceId;
use outrigger_leader::Permit;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::annotations::{Annotations, Kind};
use super::apply::{Executor, Made, apply};
use super::cause::{Cause, cause};
use super::creation::{Lines, makes_one};
use super::desired::desired;
use super::error::Error;
use super::looking::{About, Looked};
use super::memory::{CONFIRMATION, Memories, Memory, SUBNET_CONFIRMATION, Settled};
use super::network::listing::Search;
use super::node_sync::NodeSync;
use super::owner::other_owner;
use super::plan::Plan;
use super::reads::{Aws, Look, group_by_name, referencing};
use super::security_groups::quota;
use super::security_groups::room::with_room;
use super::settings::Settings;
use super::shape::Shape;
use super::targets::{self, Candidate, candidates};
use super::tell::{self, Doing, Failure};
use super::work::{Work, has_class, has_finalizer, work};
use super::writer::{Found, Writer};
use super::{classic, hostname, names, network, patches, release, request, resync};
use crate::node_cache::NodeCache;

/// So long after a look began the address that it wrote may be missing in what is known of the Service: the watch is behind.
const STORE_LAG: Duration = Duration::from_secs(5);

/// The service controller's state and tools.
pub struct Reconciler {
    /// AWS.
    pub aws: Aws,
    /// What holds for all Services.
    pub settings: Settings,
    /// The Nodes.
    pub nodes: NodeCache,
    /// The API server.
    pub writer: Arc<dyn Writer>,
    /// The right to write.
    pub permit: Permit,
    /// What is remembered.
    pub memories: Memories,
    /// Counts updates of targets.
    pub node_sync: NodeSync,
    /// Until then no target goes because its Node is not there: what is known may not be complete yet.
    pub settled_at: Instant,
    /// Held from the look before a deletion to its last write: load balancers share rules of nodes' groups, and of two that
    /// go at once each would leave a rule to the other.
    pub deleting: Mutex<()>,
    /// Who waits to have a load balancer made.
    pub lines: Lines,
}

/// When to look at a Service again, if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Not by itself.
    OnChange,
    /// After this time.
    After(Duration),
}

impl Reconciler {
    /// Looks at a Service and does what it needs. A failure is told by an Event and remembered for
    /// [`Reconciler::retry_after`].
    ///
    /// # Errors
    /// What kept the Service from its desired state.
    pub async fn reconcile(&self, service: &Service) -> Result<Next, Error> {
        let result = match work(service) {
            Work::Nothing => self.let_go(service).await,
            Work::Ensure => {
                let ensured = self.ensure(service).await;
                if let Err(failure) = &ensured {
                    self.follow_nodes(service, &failure.error).await;
                }
                ensured
            }
            Work::CleanUp => self.clean_up(service).await,
        };
        if let Err(failure) = &result {
            self.tell_failure(service, failure).await;
        }
        self.tell_unread_tags(service).await;
        self.tell_unlisted_zones(service).await;
        result.map_err(|failure| *failure.error)
    }

    /// How long to wait after a failure.
    #[must_use]
    pub fn retry_after(&self, service: &Service) -> Duration {
        self.memories.of(uid(service)).retry_after()
    }

    async fn ensure(&self, service: &Service) -> Result<Next, Failure> {
        let now = Instant::now();
        let shape = Shape::of(service);
        let memory = self.memories.of(uid(service));
        if Annotations::of(service).kind() == Kind::Elsewhere {
            return self.leave_elsewhere(service, shape, &memory).await;
        }
        let desired = desired(service, &self.settings);
        if Annotations::of(service).kind() == Kind::Network {
            for port in network::ports::without_node_port(service) {
                tracing::warn!(port, "port has no node port and so no listener");
            }
        }
        let labels = desired.as_ref().map(|desired| desired.node_labels().clone());
        let nodes = self.nodes.snapshot();
        let candidates = candidates(&nodes, &labels.unwrap_or_default());
        let likely = likely_targets(&candidates, &memory.targets);
        let settled = memory.settled.as_ref();
        let same_targets = settled.is_some_and(|settled| settled.targets == likely);
        let cause = cause(&memory, &shape, has_finalizer(service), same_targets);
        if let Some(rest) = self.rest(service, &memory, cause, now) {
            return Ok(rest);
        }
        self.delete_earlier(service).await?;
        self.memories.begin(uid(service), &namespaced_name(service), shape);
        self.tell_begin(service, cause).await;
        if self.hold(service).await.doing(tell::ADD_FINALIZER)? == Found::Gone {
            return Ok(Next::OnChange);
        }
        let eligible = targets::eligible(&nodes);
        self.tell_no_nodes(service, eligible.is_empty(), cause).await;
        let names = || eligible.iter().map(|node| node.name().to_owned()).collect();
        let desired = desired.doing(tell::ENSURE)?;
        let going = &memory.confirmed_gone(now) | &targets::excluded(&nodes);
        // The finalizer comes before the load balancer: who has none needs one made, and costs no look until its turn.
        let is_new = !has_finalizer(service);
        if (is_new || self.lines.has(uid(service)))
            && let Some(later) = self.wait_in_line(service, &desired).await
        {
            return Ok(later);
        }
        let about = About {
            service,
            desired: &desired,
            candidates: &candidates,
            going: &going,
            cause,
            due: self.until_due(service, &memory, now).is_some_and(|left| left.is_zero()),
            no_nodes: eligible.is_empty(),
        };
        let ended = self
            .bring_about(&about, memory.search(has_finalizer(service)), now)
            .await;
        if !self.lines.has(uid(service)) {
            self.lines.done(uid(service));
        }
        if self.memories.of(uid(service)).name.is_empty() {
            // It was found missing and forgotten meanwhile. Remembered again, what was made for it goes.
            let shape = Shape::of(service);
            self.memories.begin(uid(service), &namespaced_name(service), shape);
        }
        ended.map_err(|failure| failure.following(cause, names))
    }

    /// Looks at AWS and does what is needed there, and writes the address.
    async fn bring_about(&self, about: &About<'_>, search: Search, now: Instant) -> Result<Next, Failure> {
        let About { service, desired, .. } = *about;
        let look = self.look(about, search).await;
        let looked = look.doing(tell::ENSURE)?;
        let owned = self.check_owner(service, looked.standing.as_ref(), &looked.plan).await;
        owned.doing(tell::ENSURE)?;
        if makes_one(&looked.plan)
            && let Some(later) = self.wait_in_line(service, desired).await
        {
            return Ok(later);
        }
        // Also when a step fails, or a full target group, which needs the loss confirmed, would keep it from ever being so.
        self.memories.update(uid(service), |memory| {
            memory.note_gone(&looked.plan.unconfirmed, &looked.plan.targets, now);
            memory.note_unchosen(&looked.plan.unchosen_subnets, now);
            memory.given_names.extend(looked.given_names.iter().cloned());
        });
        self.tell_scheme(service, desired, looked.scheme.as_deref()).await;
        let made = self.carry_out(about, &looked).await.doing(tell::ENSURE)?;
        if let Some(dns_name) = &made.dns_name {
            self.remember_owned(service, dns_name);
        }
        if let Some(refused) = looked.plan.refused.clone() {
            return Err(Error::World(refused)).doing(tell::ENSURE);
        }
        let refused = made.refused.into_iter().map(|refused| refused.instance).collect();
        let hostname = made.dns_name.or(looked.hostname).unwrap_or_default();
        if self.publish(service, &hostname).await.doing(tell::WRITE_STATUS)? == Found::Gone {
            return Ok(Next::OnChange);
        }
        if let Some(denied) = looked.denied {
            return Err(Error::Aws(denied)).doing(tell::ENSURE);
        }
        self.memories.update(uid(service), |memory| {
            memory.tags_set = desired.annotated_tags();
            memory.given_names.clone_from(&looked.given_names);
        });
        let settled = Settled {
            targets: likely_targets(about.candidates, &looked.plan.targets),
            at: now,
            hostname,
        };
        if looked.whole {
            self.memories.update(uid(service), |memory| memory.whole = Some(now));
        }
        Ok(self.settle(service, settled, looked.plan, &refused))
    }

    /// When to look again, if nothing has to be done now: the last look was made from the same, not too long ago, and
    /// its address stands in the status.
    fn rest(&self, service: &Service, memory: &Memory, cause: Cause, now: Instant) -> Option<Next> {
        let settled = memory.settled.as_ref().filter(|_| cause == Cause::Resync)?;
        if !patches::has_address(service, &settled.hostname) {
            let wait = STORE_LAG.checked_sub(now.saturating_duration_since(settled.at))?;
            return (!wait.is_zero()).then_some(Next::After(wait));
        }
        match self.until_due(service, memory, now) {
            None => Some(Next::OnChange),
            Some(left) => (!left.is_zero()).then_some(Next::After(left)),
        }
    }

    /// How long until everything is to be looked at again, in search of drift; `None`: never.
    fn until_due(&self, service: &Service, memory: &Memory, now: Instant) -> Option<Duration> {
        let Some(whole) = memory.whole else {
            return Some(Duration::ZERO);
        };
        let after = resync::after(self.settings.resync_period, uid(service))?;
        Some(after.saturating_sub(now.saturating_duration_since(whole)))
    }

    /// The finalizer comes before anything that would have to be cleaned up.
    async fn hold(&self, service: &Service) -> Result<Found, Error> {
        if has_finalizer(service) {
            return Ok(Found::There);
        }
        self.writer
            .patch(service, "add the finalizer", patches::add_finalizer(service))
            .await
    }

    /// A Service for the AWS load balancer controller: it gets the finalizer, as it always did, and nothing else.
    async fn leave_elsewhere(&self, service: &Service, shape: Shape, memory: &Memory) -> Result<Next, Failure> {
        let cause = cause(memory, &shape, has_finalizer(service), true);
        self.memories.begin(uid(service), &namespaced_name(service), shape);
        self.tell_begin(service, cause).await;
        self.hold(service).await.doing(tell::ADD_FINALIZER)?;
        let nodes = self.nodes.snapshot();
        self.tell_no_nodes(service, targets::eligible(&nodes).is_empty(), cause)
            .await;
        Ok(Next::OnChange)
    }

    async fn carry_out(&self, about: &About<'_>, looked: &Looked) -> Result<Made, Error> {
        let About {
            service,
            cause,
            no_nodes,
            ..
        } = *about;
        let plan = &with_room(looked.plan.clone(), &looked.groups, self.settings.rules_quota);
        let fullness = quota::check(plan, &looked.groups, self.settings.rules_quota)?;
        self.tell_fullness(service, fullness).await;
        self.tell_writes(service, plan, cause).await;
        let began = Instant::now();
        let made = apply(plan, &self.executor(service, about.desired.name())).await;
        if plan.changes_targets_only() || (cause == Cause::Nodes && !plan.steps.is_empty()) {
            let done = plan.refused.is_none() && made.as_ref().is_ok_and(|made| made.refused.is_empty());
            self.node_sync.ended(began, done);
        }
        let made = made?;
        self.tell_refused(service, &made.refused).await;
        if plan.refused.is_none() {
            self.tell_done(service, plan, cause, no_nodes || !made.refused.is_empty())
                .await;
        }
        Ok(made)
    }

    pub(super) fn executor<'a>(&'a self, service: &'a Service, load_balancer: &'a str) -> Executor<'a> {
        Executor {
            ec2: self.aws.ec2.as_ref(),
            elb: self.aws.elb.as_ref(),
            elbv2: self.aws.elbv2.as_ref(),
            permit: &self.permit,
            load_balancer,
            shared: &self.aws.shared,
            lines: &self.lines,
            uid: uid(service),
        }
    }

    async fn publish(&self, service: &Service, hostname: &str) -> Result<Found, Error> {
        if hostname.is_empty() || patches::has_address(service, hostname) {
            return Ok(Found::There);
        }
        self.writer
            .patch(
                service,
                "write the load balancer's address",
                patches::address(service, hostname),
            )
            .await
    }

    /// Remembers the look, and says when the next is due: soon, while a loss of targets waits to be confirmed, a
    /// Ready node's instance is not listed by EC2 yet, AWS has refused a target, the address is not known, or a rule may just
    /// be going with the load balancer that has brought it.
    fn settle(&self, service: &Service, settled: Settled, plan: Plan, refused: &BTreeSet<InstanceId>) -> Next {
        let only_targets = plan.changes_targets_only();
        let (unconfirmed, targets) = (plan.unconfirmed, &plan.targets - refused);
        if !unconfirmed.is_empty() {
            let service = uid(service);
            tracing::warn!(service, targets = ?unconfirmed, "many targets look gone at once; looking again before they go");
        }
        let losing = !unconfirmed.is_empty();
        // A target without a candidate is one that is held back until everything is known.
        let held = targets.difference(&settled.targets).any(|id| !unconfirmed.contains(id));
        let until_settled = self.settled_at.saturating_duration_since(settled.at);
        let missing = !settled.targets.is_subset(&targets) || !refused.is_empty();
        // A rule that another load balancer has brought may just be going with it: who has relied on it when something was made
        // looks again, until no deletion is under way.
        let made = !plan.steps.is_empty() && !only_targets;
        let relied = self.memories.of(uid(service)).relies;
        let relies = plan.borrowed && (made || (relied && self.deleting.try_lock().is_err()));
        let unchosen = !plan.unchosen_subnets.is_empty();
        let open = relies || losing || held || unchosen || settled.hostname.is_empty() || missing;
        self.memories.update(uid(service), |memory| {
            if !losing {
                memory.all_there();
            }
            if !unchosen {
                memory.all_chosen();
            }
            memory.relies = relies;
            memory.waiting = losing || held || !refused.is_empty();
            if open {
                memory.leave_open(targets);
                return Next::After(match (losing, held) {
                    (true, _) => CONFIRMATION,
                    (false, true) => until_settled.max(CONFIRMATION),
                    (false, false) if unchosen => SUBNET_CONFIRMATION,
                    (false, false) => memory.look_again_after(),
                });
            }
            let now = settled.at;
            memory.settle(settled, targets);
            self.until_due(service, memory, now).map_or(Next::OnChange, Next::After)
        })
    }

    async fn clean_up(&self, service: &Service) -> Result<Next, Failure> {
        let (name, shape) = (namespaced_name(service), Shape::of(service));
        self.memories.begin(uid(service), &name, shape);
        self.lines.done(uid(service));
        let complete = {
            let alone = self.deleting.lock().await;
            match self.delete(service, &alone).await {
                Ok(_) => true,
                Err(failure) => self.end_denied_deletion(service, failure).await?,
            }
        };
        let had = self.memories.of(uid(service)).had || hostname::is_of(service, &names::load_balancer(uid(service)));
        if !had && has_class(service) {
            // The finalizer is that of the class's own controller, which may still need it.
            self.memories.forget(uid(service));
            return Ok(Next::OnChange);
        }
        let release = patches::release(service);
        let released = self.writer.patch(service, "remove the finalizer", release).await;
        released.doing(tell::REMOVE_FINALIZER)?;
        if complete {
            self.tell_deleted(service).await;
        }
        self.memories.forget(uid(service));
        Ok(Next::OnChange)
    }

    /// Deletes what a Service has at AWS, and says whether there was anything.
    pub(super) async fn delete(&self, service: &Service, _alone: &MutexGuard<'_, ()>) -> Result<bool, Failure> {
        if Annotations::of(service).kind() == Kind::Elsewhere {
            return Ok(false);
        }
        // Who has waited for others may have no right to write any more, and then reads nothing either.
        self.permit.check().doing(tell::LOOK_BEFORE_CLEANUP)?;
        let name = names::load_balancer(uid(service));
        let plan = self.deletion(service).await;
        let plan = plan.doing(tell::LOOK_BEFORE_CLEANUP)?;
        self.tell_deletion(service, &plan).await;
        self.memories
            .update(uid(service), |memory| release::note(memory, &plan));
        if !plan.steps.is_empty() {
            self.memories.update(uid(service), |memory| memory.had = true);
        }
        apply(&plan, &self.executor(service, &name)).await.doing(tell::DELETE)?;
        Ok(!plan.steps.is_empty())
    }

    /// What deletes load balancers of both kinds: the annotation may have changed since one was made.
    pub(super) async fn deletion(&self, service: &Service) -> Result<Plan, Error> {
        let nodes = candidates(&self.nodes.snapshot(), &BTreeMap::new());
        let nodes = nodes.into_iter().map(|candidate| candidate.id).collect();
        let given = &self.memories.of(uid(service)).given_names;
        let network = network::doomed::doomed(&self.aws, service, &self.settings, &nodes, given).await?;
        let mut plan = network::plan::plan_deletion(&network, &self.settings);
        let classic = self
            .doomed(Annotations::of(service), &names::load_balancer(uid(service)))
            .await?;
        for tags in [&network.tags, &classic.tags] {
            if let Some(owner) = other_owner(tags.as_ref(), &self.settings) {
                tracing::warn!(
                    service = namespaced_name(service),
                    owner,
                    "not deleting the load balancer: its tags name another cluster"
                );
            }
        }
        plan.steps
            .extend(classic::plan::plan_deletion(&classic, &self.settings).steps);
        Ok(plan)
    }

    async fn doomed(&self, annotations: Annotations<'_>, name: &str) -> Result<classic::plan::Doomed, Error> {
        let load_balancer = self.aws.elb.describe(name).await?.is_some();
        let tags = match load_balancer {
            true => self.aws.tag_reads.allowed(self.aws.elb.describe_tags(name).await)?,
            false => None,
        };
        let group = names::security_group(name);
        let look = Look::fresh(&self.aws);
        let own_group = group_by_name(&look, &self.settings.vpc_id, &group).await?;
        let sources: BTreeSet<String> = own_group.iter().map(|group| group.id.clone()).collect();
        let referencing = referencing(&look, sources).await?;
        let lists = [
            annotations.list("security-groups"),
            annotations.list("extra-security-groups"),
        ];
        let listed = lists.into_iter().flatten().flatten().collect();
        Ok(classic::plan::Doomed {
            load_balancer,
            tags,
            own_group,
            referencing,
            listed,
        })
    }
}

pub(super) fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

fn likely_targets(candidates: &[Candidate], targets: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
    let likely = candidates
        .iter()
        .filter(|candidate| candidate.ready || targets.contains(&candidate.id));
    likely.map(|candidate| candidate.id.clone()).collect()
}

/// `namespace/name`.
pub(super) fn namespaced_name(service: &Service) -> String {
    let (namespace, name) = request::namespaced(service);
    format!("{namespace}/{name}")
}
