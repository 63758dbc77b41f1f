//! The service controller: Services of type `LoadBalancer` and their load balancers, classic and network ones.
//!
//! ```text
//! Services, Nodes ─watch─▶ queue ─▶ spec (pure) ─▶ inventory (AWS, reads) ─▶ plan (pure) ─▶ execute (AWS, writes)
//!                                                                                            └▶ status, Events
//! ```
//!
//! Names, tags, rules and numbers are those of the in-tree provider, so that taking over a load balancer changes
//! nothing. Differences from both predecessors:
//!
//! - an unchanged Service costs no write;
//! - a target is added when its Node is Ready, and removed only when the Node is deleted or excluded; a sudden loss
//!   must be observed twice, and no loss counts directly after a start;
//! - a Service with an invalid spec keeps its load balancer, and the targets follow the Nodes;
//! - drift at AWS is detected by a slow resync, repaired and reported by an Event;
//! - deletion resumes after a crash at any step, never blocks a worker, and removes the finalizer last;
//! - security groups of others are never deleted, and rules that name them stay, since other resources may depend on
//!   them;
//! - an attached subnet in a local or wavelength zone stays attached.

mod action;
mod context;
mod error;
mod events;
mod execute;
mod inventory;
mod model;
mod observation;
pub mod orphans;
mod plan;
mod queue;
mod reconcile;
pub mod settings;
mod spec;
mod update_targets;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use outrigger_aws::{Ec2, Elb, Elbv2};
use outrigger_leader::Permit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::instances::Instances;
use crate::metrics::{Metrics, Queue};
use crate::node_cache::NodeCache;

use action::{Next, ServiceAction, action};
use context::Context;
use execute::node_groups::NodeGroups;
use inventory::Aws;
use inventory::account::{NodeInstances, TagReads, TargetGroupList, ZoneCache};
use inventory::shared::Shared;
use orphans::sweep::{self, SweepSettings};
use queue::creation_queue::CreationQueues;
use queue::node_changes::{self, NodeSync};
use queue::service_state::{self, ServiceStates, SpecFingerprint};
use queue::{MAX_WAITING, WorkerPool, is_requested};
use settings::Settings;
use spec::names::{namespaced_name, uid};
use spec::watched::reduce;
use writer::ApiWriter;

pub use error::Error;
pub use settings::HealthProbe;

/// For this time after the start no target is removed because its Node is missing. The Nodes have been listed by then;
/// a loss counts if it still exists after this time.
const SETTLING: Duration = service_state::CONFIRMATION;

/// Services in one page of a list, or fewer large ones ([`outrigger_api_client`]).
const PAGE: u32 = 250;

pub struct Deps {
    pub client: Client,
    pub nodes: NodeCache,
    pub ec2: Arc<dyn Ec2>,
    pub instances: Instances,
    pub elb: Arc<dyn Elb>,
    pub elbv2: Arc<dyn Elbv2>,
    pub settings: Settings,
    /// Services that are reconciled at the same time, at least 1 (`--concurrent-service-syncs`).
    pub concurrent_syncs: usize,
    pub sweep: SweepSettings,
    pub metrics: Metrics,
}

/// Runs until `stop`, and returns after the last write has ended. Nothing is reconciled before all Nodes are known.
///
/// # Errors
/// None so far: failures concern single Services and are reported by Events.
pub async fn run(deps: Deps, permit: Permit, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }

    let _ended = WatchEnds(deps.metrics.clone());
    let (listed, writer) = reflector::store();
    let services = Api::<Service>::all(deps.client.clone());
    let services = watcher(services, watcher::Config::default().page_size(PAGE))
        .default_backoff()
        .modify(reduce)
        .reflect(writer)
        .applied_objects();
    let controller = Controller::for_stream(services, listed.clone());
    let all = listed.clone();
    let labels = move || node_changes::named_labels(all.state().iter().map(AsRef::as_ref));
    let nodes = node_changes::relevant(deps.nodes.clone(), labels);
    let sweep = deps.sweep.clone();
    let workers = Arc::new(Workers {
        queue: deps.metrics.queue("service"),
        pool: WorkerPool::new(u16::try_from(deps.concurrent_syncs).unwrap_or(u16::MAX)),
        services: listed.clone(),
        context: context(deps, permit, listed.clone()),
        stop: stop.clone(),
    });
    let notified = Arc::clone(&workers);
    let nodes = nodes.inspect(move |()| {
        notified.context.node_sync.nodes_changed();
        notified.context.aws.shared.nodes_changed();
    });
    let (services, queue) = (listed.clone(), workers.queue.clone());
    let shared = &workers.context.aws.shared;
    shared.prefetch_for(move || in_order(services.state(), &queue.waiting()));

    let running = controller
        .with_config(Config::default().concurrency(MAX_WAITING))
        .reconcile_all_on(nodes)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(reconcile, retry, Arc::clone(&workers))
        .for_each(|result| async move {
            if let Err(kube::runtime::controller::Error::QueueError(error)) = result {
                tracing::warn!(%error, "watch of Services failed; restarting it");
            }
        });

    let orphaned = orphans::watch(&workers.context, &listed, &stop);
    let sweep = sweep::watch(&workers.context, &sweep, &listed, &stop);

    tokio::select! {
        _ = futures::future::join3(running, orphaned, sweep) => {}
        () = stopped_before(listed.clone(), stop.clone()) => {}
    }

    Ok(())
}

/// Another manager may own the Services for long: a watch that has ended is not silent.
struct WatchEnds(Metrics);

impl Drop for WatchEnds {
    fn drop(&mut self) {
        self.0.rest_client().forget("services");
    }
}

/// Waits for a stop before the Services have been listed. The runtime's graceful shutdown waits for that list, and so
/// for an API server that may be unavailable; no work has begun by then.
async fn stopped_before(listed: Store<Service>, stop: CancellationToken) {
    tokio::select! {
        biased;
        _ = listed.wait_until_ready() => std::future::pending().await,
        () = stop.cancelled() => {}
    }
}

struct Workers {
    queue: Queue,
    pool: WorkerPool,
    services: Store<Service>,
    context: Context,
    stop: CancellationToken,
}

fn context(deps: Deps, permit: Permit, services: Store<Service>) -> Context {
    let instances = NodeInstances::new(deps.instances, deps.settings.cluster_id.clone());
    Context {
        aws: Aws {
            ec2: deps.ec2,
            elb: deps.elb,
            elbv2: deps.elbv2,
            target_groups: TargetGroupList::default(),
            instances,
            zones: ZoneCache::default(),
            reads_owners: deps.settings.cluster_uid.is_some(),
            tag_reads: TagReads::default(),
            shared: Shared::default(),
            services: Arc::new(move || services.state()),
        },
        settings: deps.settings,
        nodes: deps.nodes,
        writer: Arc::new(ApiWriter::new(deps.client, permit.clone())),
        permit,
        states: ServiceStates::default(),
        node_sync: NodeSync::new(deps.metrics),
        settled_at: Instant::now() + SETTLING,
        node_groups: NodeGroups::default(),
        creation_queues: CreationQueues::default(),
    }
}

/// Services in the order in which they get workers: those that wait for the longest time first, those that do not wait
/// yet last.
fn in_order(mut services: Vec<Arc<Service>>, waiting: &HashMap<String, Instant>) -> Vec<Arc<Service>> {
    services.sort_by_cached_key(|service| {
        let added = waiting.get(&namespaced_name(service));
        (added.is_none(), added.copied())
    });
    services
}

/// Waits for a worker and reconciles a Service. A queued Service is not begun after the stop.
async fn reconcile(service: Arc<Service>, workers: Arc<Workers>) -> Result<Action, Error> {
    let key = namespaced_name(&service);
    workers.queue.add(&key);

    let of_service = ObjectRef::from_obj(&*service);
    let seen = SpecFingerprint::of(&service);
    let requested = || {
        let now = workers.services.get(&of_service);
        let states = &workers.context.states;
        now.is_none_or(|now| states.with(uid(&service), |state| is_requested(&now, state, &seen)))
    };
    let now = || workers.services.get(&of_service);
    let is_deleted = || now().is_some_and(|service| action(&service) == ServiceAction::Delete);
    let permit = async {
        loop {
            let to_delete = is_deleted();
            let permit = match to_delete {
                true => workers.pool.acquire_for_deletion(is_deleted).await,
                false => workers.pool.acquire(requested).await,
            };
            // If the Service switched between sync and delete while queued, queue it again.
            if is_deleted() == to_delete {
                return permit;
            }
        }
    };

    let permit = tokio::select! {
        biased;
        () = workers.stop.cancelled() => None,
        permit = permit => Some(permit),
    };
    // The Service may have changed while queued; then it is reconciled again anyway, unless it is gone.
    let (Some(_permit), Some(service)) = (permit, now()) else {
        workers.queue.forget(&key);
        return Ok(Action::await_change());
    };

    let _working = workers.queue.start(&key);
    let metadata = &service.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let span = tracing::info_span!("reconcile", controller = "service", namespace, name);
    // Boxed, so that queued Services take little memory.
    let next = Box::pin(reconcile::reconcile(&workers.context, &service))
        .instrument(span)
        .await?;

    Ok(match next {
        Next::OnChange => Action::await_change(),
        Next::After(time) => Action::requeue(time),
    })
}

fn retry(service: Arc<Service>, _: &Error, workers: Arc<Workers>) -> Action {
    workers.queue.retry();
    Action::requeue(reconcile::retry_after(&workers.context, &service))
}
