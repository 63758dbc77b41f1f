//! Bringing one Service to its desired state: observe, desired, plan, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::InstanceId;
use outrigger_leader::Permit;
use tokio::time::Instant;

use super::annotations::{Annotations, Kind};
use super::apply::{Executor, Made, apply};
use super::desired::{Desired, desired};
use super::error::Error;
use super::memory::{CONFIRMATION, Memories, Memory, Print, RESYNC, Settled};
use super::network::listing::Search;
use super::node_sync::NodeSync;
use super::plan::Plan;
use super::reads::{Aws, group_by_name, referencing};
use super::settings::Settings;
use super::targets::{Candidate, candidates};
use super::work::{Work, has_class, has_finalizer, work};
use super::writer::Writer;
use super::{classic, names, network, patches};
use crate::events::EventType;
use crate::node_cache::NodeCache;

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
}

/// When to look at a Service again, if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Not by itself.
    OnChange,
    /// After this time.
    After(Duration),
}

/// What came of a look at AWS.
struct Looked {
    plan: Plan,
    /// The address of the load balancer that is there.
    hostname: Option<String>,
}

impl Reconciler {
    /// Looks at a Service and does what it needs. A failure is told by an Event and remembered for
    /// [`Reconciler::retry_after`].
    ///
    /// # Errors
    /// What kept the Service from its desired state.
    pub async fn reconcile(&self, service: &Service) -> Result<Next, Error> {
        let result = match work(service) {
            Work::Nothing => {
                self.memories.forget(uid(service));
                return Ok(Next::OnChange);
            }
            Work::Ensure => self.ensure(service).await,
            Work::CleanUp => self.clean_up(service).await,
        };
        if let Err(error) = &result {
            self.failed(service, error).await;
        }
        result
    }

    /// How long to wait after a failure.
    #[must_use]
    pub fn retry_after(&self, service: &Service) -> Duration {
        self.memories.of(uid(service)).retry_after()
    }

    async fn ensure(&self, service: &Service) -> Result<Next, Error> {
        if Annotations::of(service).kind() == Kind::Elsewhere {
            return self.leave_elsewhere(service).await;
        }
        let now = Instant::now();
        let desired = desired(service, &self.settings)?;
        let candidates = candidates(&self.nodes.snapshot(), desired.node_labels());
        let memory = self.memories.of(uid(service));
        let print = Print {
            annotations: service.metadata.annotations.clone().unwrap_or_default(),
            targets: likely_targets(&candidates, &memory.targets),
            desired,
        };
        if let Some(left) = still_settled(service, &memory, &print, now) {
            return Ok(Next::After(left));
        }
        self.hold(service).await?;
        let search = memory.search(has_finalizer(service));
        let Looked { plan, hostname } = self
            .look(&print.desired, &candidates, &memory.confirmed_gone(now), search)
            .await?;
        // Also when a step fails, or a full target group, which needs the loss confirmed, would keep it from ever being so.
        self.memories
            .update(uid(service), |memory| memory.note_gone(plan.unconfirmed.clone(), now));
        let made = self
            .carry_out(service, print.desired.name(), &plan, candidates.is_empty())
            .await?;
        let hostname = made.dns_name.or(hostname).unwrap_or_default();
        self.publish(service, &hostname).await?;
        let print = Print {
            targets: likely_targets(&candidates, &plan.targets),
            ..print
        };
        Ok(self.settle(
            service,
            Settled {
                print,
                at: now,
                hostname,
            },
            plan,
        ))
    }

    /// Looks at AWS and makes a plan.
    async fn look(
        &self,
        desired: &Desired,
        candidates: &[Candidate],
        seen_gone: &BTreeSet<InstanceId>,
        search: Search,
    ) -> Result<Looked, Error> {
        match desired {
            Desired::Classic(desired) => {
                let observed = classic::observe::observe(&self.aws, desired, &self.settings, candidates).await?;
                let plan = classic::plan::plan(classic::plan::Question {
                    desired,
                    settings: &self.settings,
                    observed: &observed,
                    candidates,
                    seen_gone,
                })?;
                let existing = observed.load_balancer.map(|existing| existing.described.dns_name);
                Ok(Looked {
                    plan,
                    hostname: existing,
                })
            }
            Desired::Network(desired) => {
                let observed =
                    network::observe::observe(&self.aws, desired, &self.settings, candidates, search).await?;
                let plan = network::plan::plan(network::plan::Question {
                    desired,
                    settings: &self.settings,
                    observed: &observed,
                    candidates,
                    seen_gone,
                })?;
                Ok(Looked {
                    plan,
                    hostname: observed.address(),
                })
            }
        }
    }

    /// The finalizer comes before anything that would have to be cleaned up.
    async fn hold(&self, service: &Service) -> Result<(), Error> {
        if has_finalizer(service) {
            return Ok(());
        }
        self.writer
            .patch(service, "add the finalizer", patches::add_finalizer(service))
            .await
    }

    /// A Service for the AWS load balancer controller: it gets the finalizer, as it always did, and nothing else.
    async fn leave_elsewhere(&self, service: &Service) -> Result<Next, Error> {
        self.hold(service).await?;
        Ok(Next::OnChange)
    }

    async fn carry_out(&self, service: &Service, name: &str, plan: &Plan, no_nodes: bool) -> Result<Made, Error> {
        if plan.steps.is_empty() {
            return Ok(Made::default());
        }
        let targets_only = plan.changes_targets_only();
        if !targets_only {
            self.event(
                service,
                EventType::Normal,
                "EnsuringLoadBalancer",
                "Ensuring load balancer",
            )
            .await;
        }
        if no_nodes {
            let message = "There are no available nodes for LoadBalancer";
            self.event(service, EventType::Warning, "UnAvailableLoadBalancer", message)
                .await;
        }
        let began = Instant::now();
        let made = apply(plan, &self.executor(name)).await;
        if targets_only {
            self.node_sync.ended(began, made.is_ok());
        }
        let made = made?;
        if !targets_only {
            self.event(
                service,
                EventType::Normal,
                "EnsuredLoadBalancer",
                "Ensured load balancer",
            )
            .await;
        } else if !no_nodes {
            let message = "Updated load balancer with new hosts";
            self.event(service, EventType::Normal, "UpdatedLoadBalancer", message)
                .await;
        }
        Ok(made)
    }

    fn executor<'a>(&'a self, load_balancer: &'a str) -> Executor<'a> {
        Executor {
            ec2: self.aws.ec2.as_ref(),
            elb: self.aws.elb.as_ref(),
            elbv2: self.aws.elbv2.as_ref(),
            permit: &self.permit,
            load_balancer,
        }
    }

    async fn publish(&self, service: &Service, hostname: &str) -> Result<(), Error> {
        if hostname.is_empty() || patches::has_address(service, hostname) {
            return Ok(());
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
    /// Ready node's instance is not listed by EC2 yet, or the address is not known.
    fn settle(&self, service: &Service, settled: Settled, plan: Plan) -> Next {
        let Plan {
            unconfirmed, targets, ..
        } = plan;
        if !unconfirmed.is_empty() {
            let service = uid(service);
            tracing::warn!(service, targets = ?unconfirmed, "many targets look gone at once; looking again before they go");
        }
        let losing = !unconfirmed.is_empty();
        let open = losing || settled.hostname.is_empty() || !settled.print.targets.is_subset(&targets);
        self.memories.update(uid(service), |memory| {
            memory.note_gone(unconfirmed, settled.at);
            if open {
                memory.leave_open(targets);
                return Next::After(if losing {
                    CONFIRMATION
                } else {
                    memory.look_again_after()
                });
            }
            memory.settle(settled, targets);
            Next::After(RESYNC)
        })
    }

    async fn clean_up(&self, service: &Service) -> Result<Next, Error> {
        let annotations = Annotations::of(service);
        let name = names::load_balancer(uid(service));
        if annotations.kind() != Kind::Elsewhere {
            let plan = self.deletion(service, &name).await?;
            if plan.steps.is_empty() && has_class(service) {
                // The finalizer is that of the class's own controller, which may still need it.
                return Ok(Next::OnChange);
            }
            self.tell_deletion(service, &plan).await;
            apply(&plan, &self.executor(&name)).await?;
        }
        self.writer
            .patch(service, "remove the finalizer", patches::release(service))
            .await?;
        self.event(
            service,
            EventType::Normal,
            "DeletedLoadBalancer",
            "Deleted load balancer",
        )
        .await;
        self.memories.forget(uid(service));
        Ok(Next::OnChange)
    }

    /// What deletes load balancers of both kinds: the annotation may have changed since one was made.
    async fn deletion(&self, service: &Service, name: &str) -> Result<Plan, Error> {
        let nodes = candidates(&self.nodes.snapshot(), &BTreeMap::new());
        let nodes = nodes.into_iter().map(|candidate| candidate.id).collect();
        let network = network::doomed::doomed(&self.aws, service, &self.settings, &nodes).await?;
        let mut plan = network::plan::plan_deletion(&network, &self.settings);
        let classic = self.doomed(Annotations::of(service), name).await?;
        plan.steps
            .extend(classic::plan::plan_deletion(&classic, &self.settings).steps);
        Ok(plan)
    }

    async fn doomed(&self, annotations: Annotations<'_>, name: &str) -> Result<classic::plan::Doomed, Error> {
        let load_balancer = self.aws.elb.describe(name).await?.is_some();
        let group = names::security_group(name);
        let own_group = group_by_name(&self.aws, &self.settings.vpc_id, &group).await?;
        let sources: BTreeSet<String> = own_group.iter().map(|group| group.id.clone()).collect();
        let referencing = referencing(&self.aws, sources).await?;
        let lists = [
            annotations.list("security-groups"),
            annotations.list("extra-security-groups"),
        ];
        let listed = lists.into_iter().flatten().flatten().collect();
        Ok(classic::plan::Doomed {
            load_balancer,
            own_group,
            referencing,
            listed,
        })
    }

    async fn tell_deletion(&self, service: &Service, plan: &Plan) {
        let told = self.memories.update(uid(service), |memory| {
            std::mem::replace(&mut memory.deletion_told, true)
        });
        if !told && !plan.steps.is_empty() {
            self.event(
                service,
                EventType::Normal,
                "DeletingLoadBalancer",
                "Deleting load balancer",
            )
            .await;
        }
    }

    async fn failed(&self, service: &Service, error: &Error) {
        let message = error.chain();
        let (pause, tell) = self.memories.update(uid(service), |memory| {
            let pause = memory.fail();
            // AWS takes a while to let go of a deleted load balancer's group: no news for the first minute.
            let expected = matches!(error, Error::GroupInUse { .. }) && memory.failures < 4;
            let tell = !expected && !matches!(error, Error::NotLeader(_)) && memory.tell(&message, Instant::now());
            (pause, tell)
        });
        tracing::warn!(error = %message, ?pause, "the Service is not in its desired state yet");
        if tell {
            let message = format!("Error syncing load balancer: {message}");
            self.event(service, EventType::Warning, "SyncLoadBalancerFailed", &message)
                .await;
        }
    }

    async fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str) {
        self.writer.event(service, kind, reason, message).await;
    }
}

fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

fn likely_targets(candidates: &[Candidate], targets: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
    let likely = candidates
        .iter()
        .filter(|candidate| candidate.ready || targets.contains(&candidate.id));
    likely.map(|candidate| candidate.id.clone()).collect()
}

/// How much longer nothing has to be done, if nothing has: the last look was made from the same, not too long ago,
/// and its address stands in the status.
fn still_settled(service: &Service, memory: &Memory, print: &Print, now: Instant) -> Option<Duration> {
    let settled = memory.settled.as_ref()?;
    let left = RESYNC
        .checked_sub(now.saturating_duration_since(settled.at))
        .filter(|left| !left.is_zero())?;
    (settled.print == *print && patches::has_address(service, &settled.hostname)).then_some(left)
}
