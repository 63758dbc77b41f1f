//! The service controller: Services of type `LoadBalancer` and their load balancers, classic and network ones.
//!
//! ```text
//! Services, Nodes ─watch─▶ work ─▶ desired (pure) ─▶ observe (AWS, reads) ─▶ plan (pure) ─▶ apply (AWS, writes)
//!                                                                                            └▶ status, Events
//! ```
//!
//! Names, tags, rules and numbers are those of the in-tree provider, so that taking over a load balancer changes
//! nothing. Where this controller means to be better than both of its predecessors:
//!
//! - an unchanged Service costs no write;
//! - targets join when Ready, and leave only when their Node is gone or excluded; a sudden loss is looked at twice, and
//!   none counts before everything has settled after a start;
//! - a Service that cannot have what it asks for keeps what it has, and its targets follow the Nodes;
//! - what is changed at AWS by others is found by a slow cycle, put back and told;
//! - deletion goes on after a crash at any step, never waits in a worker, and lets the Service go last;
//! - security groups that someone else made are never deleted, and rules that name them stay when a load balancer
//!   goes, since others may live on them;
//! - a subnet in a local or wavelength zone that a load balancer stands in stays.

pub mod action;
mod cluster_uid;
pub mod context;
pub mod error;
mod events;
pub mod execute;
pub mod inventory;
pub mod model;
mod observation;
pub mod orphans;
mod ownership;
pub mod patches;
pub mod plan;
pub mod queue;
pub mod reconcile;
pub mod settings;
pub mod spec;
mod update_targets;
pub mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
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
use inventory::Aws;
use inventory::node_instances::NodeInstances;
use inventory::shared::Shared;
use inventory::tag_reads::TagReads;
use inventory::target_group_list::TargetGroupList;
use inventory::zone_cache::ZoneCache;
use orphans::orphaned_services;
use orphans::sweep::{self, SweepSettings};
use queue::creation_queue::CreationQueues;
use queue::node_changes;
use queue::node_sync::NodeSync;
use queue::service_state::{self, ServiceStates};
use queue::spec_fingerprint::SpecFingerprint;
use queue::worker_pool::{MAX_WAITING, WorkerPool, is_requested};
use settings::Settings;
use spec::names;
use writer::ApiWriter;

pub use error::Error;
pub use settings::HealthProbe;

/// How long after its start this controller takes no target away because its Node is not there. The Nodes have been listed
/// by then, at once and from the API server's store; a loss right after that counts only when it is still one later.
const SETTLING: Duration = service_state::CONFIRMATION;

/// What the controller is given.
pub struct Deps {
    /// The API server.
    pub client: Client,
    /// The same, as the manager itself: where controllers have service accounts, none of them may read a Namespace.
    pub cluster: Client,
    /// The Nodes; someone else keeps the cache filled.
    pub nodes: NodeCache,
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// What is known about instances, shared by all controllers.
    pub instances: Instances,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
    /// What holds for all Services.
    pub settings: Settings,
    /// How many Services are worked on at the same time, at least 1 (`--concurrent-service-syncs`).
    pub concurrent_syncs: usize,
    /// How leftovers of Services are looked for.
    pub sweep: SweepSettings,
    /// Metrics.
    pub metrics: Metrics,
}

/// Runs until `stop`, and returns after the last write has ended. Nothing is done before all Nodes are known.
///
/// # Errors
/// None so far: failures are those of single Services, told by Events on them.
pub async fn run(mut deps: Deps, permit: Permit, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        uid = cluster_uid::read(&deps.cluster) => deps.settings.cluster_uid = uid,
    }
    let services = Api::<Service>::all(deps.client.clone());
    let controller = Controller::new(services, watcher::Config::default());
    let listed = controller.store();
    let nodes = node_changes::relevant(deps.nodes.clone());
    let sweep = deps.sweep.clone();
    let workers = Arc::new(Workers {
        queue: deps.metrics.queue("service"),
        pool: WorkerPool::new(u16::try_from(deps.concurrent_syncs).unwrap_or(u16::MAX)),
        services: listed.clone(),
        context: context(deps, permit),
        stop: stop.clone(),
    });
    let told = Arc::clone(&workers);
    let nodes = nodes.inspect(move |()| {
        told.context.node_sync.nodes_changed();
        told.context.aws.shared.nodes_changed();
    });
    let services = listed.clone();
    workers.context.aws.shared.prefetch_for(move || services.state());
    let running = controller
        .with_config(Config::default().concurrency(MAX_WAITING))
        .reconcile_all_on(nodes)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(reconcile, retry, Arc::clone(&workers))
        .for_each(|result| async move {
            if let Err(kube::runtime::controller::Error::QueueError(error)) = result {
                tracing::warn!(%error, "the watch of Services broke; it will be started again");
            }
        });
    let vanished = orphaned_services::watch(&workers.context, &listed, &stop);
    let sweep = sweep::watch(&workers.context, &sweep, &listed, &stop);
    tokio::select! {
        _ = futures::future::join3(running, vanished, sweep) => {}
        () = stopped_before(listed.clone(), stop.clone()) => {}
    }
    Ok(())
}

/// Waits for a stop that comes before the Services have been listed. The runtime's graceful end waits for that list, and
/// so for an API server that may be away; until then nothing has been begun, so that nothing has to be waited for.
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

fn context(deps: Deps, permit: Permit) -> Context {
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
        },
        settings: deps.settings,
        nodes: deps.nodes,
        writer: Arc::new(ApiWriter::new(deps.client, permit.clone())),
        permit,
        states: ServiceStates::default(),
        node_sync: NodeSync::new(deps.metrics),
        settled_at: Instant::now() + SETTLING,
        deleting: tokio::sync::Mutex::default(),
        creation_queues: CreationQueues::default(),
    }
}

/// Waits for a worker and looks at a Service. What was queued before the end is not begun after it.
async fn reconcile(service: Arc<Service>, workers: Arc<Workers>) -> Result<Action, Error> {
    let metadata = &service.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let key = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    workers.queue.add(&key);
    let of_service = ObjectRef::from_obj(&*service);
    let seen = SpecFingerprint::of(&service);
    let requested = || {
        let state = workers.context.states.of(names::uid(&service));
        let service = workers.services.get(&of_service);
        service.is_none_or(|service| is_requested(&service, &state, &seen))
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
            // Who waited for one thing and is to have the other waits with those.
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
    // It may have changed while it waited; another look is due then anyway, unless it is gone.
    let (Some(_permit), Some(service)) = (permit, now()) else {
        workers.queue.forget(&key);
        return Ok(Action::await_change());
    };
    let _working = workers.queue.start(&key);
    let span = tracing::info_span!("reconcile", controller = "service", namespace, name);
    // In a box of its own, so that those who wait take little room.
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
