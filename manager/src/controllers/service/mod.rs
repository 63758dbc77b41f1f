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
mod dry_run;
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

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use outrigger_aws::{Ec2, Elb, Elbv2};
use outrigger_leader::Permit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::instances::Instances;
use crate::metrics::{self, Metrics};
use crate::node_cache::NodeCache;

use action::Next;
use context::Context;
use execute::node_groups::NodeGroups;
use inventory::account::{NodeInstances, TagReads, TargetGroupList, ZoneCache};
use inventory::shared::Shared;
use inventory::{Aws, Services};
use orphans::sweep::{self, SweepSettings};
use queue::creation_queue::CreationQueues;
use queue::first_full::FirstFull;
use queue::keyed::{Class, Due};
use queue::node_changes::{self, NodeSync};
use queue::service_state::{self, ServiceStates};
use queue::{WorkQueue, watch};
use settings::Settings;
use spec::names::uid;
use spec::watched::reduce;
use writer::ApiWriter;

pub use dry_run::{CONFIRMATION as CONFIRMATION_OF_DRY_RUNS, DryRun, dry_run};
pub use error::Error;
pub use queue::reported::without_request_details;
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

/// Runs until `stop`, and returns after the last write has ended. Nothing is reconciled before all Nodes and all Services
/// are known.
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
    let events = Api::<Service>::all(deps.client.clone());
    let events = watcher(events, watcher::Config::default().page_size(PAGE))
        .default_backoff()
        .modify(reduce)
        .reflect(writer);
    let all = listed.clone();
    let labels = move || node_changes::named_labels(all.state().iter().map(AsRef::as_ref));
    let nodes = node_changes::relevant(deps.nodes.clone(), labels);
    let (sweep, concurrent_syncs) = (deps.sweep.clone(), deps.concurrent_syncs.max(1));
    let metrics = deps.metrics.queue("service");
    let queue = Arc::new(WorkQueue::new(concurrent_syncs, metrics.clone()));
    let all = listed.clone();
    let context = context(deps, permit, Arc::new(move || all.state()));
    let (order, services) = (Arc::clone(&queue), listed.clone());
    context.aws.shared.prefetch_for(move || {
        let keys = order.order();
        keys.iter().filter_map(|key| watch::of_key(&services, key)).collect()
    });

    let workers = Workers {
        context: &context,
        queue: &queue,
        metrics,
        services: listed.clone(),
        stop: stop.clone(),
    };
    let watches = futures::future::join(
        watch::services(&context, &queue, &listed, events),
        watch::nodes(&context, &queue, &listed, nodes),
    );
    let working = futures::future::join_all((0..concurrent_syncs).map(|_| work(&workers)));
    let orphaned = orphans::watch(&context, &listed, &stop);
    let sweep = sweep::watch(&context, &sweep, &listed, &stop);

    // Boxed, because each of them is large.
    let all = futures::future::join4(stop.run_until_cancelled(watches), working, orphaned, sweep);
    Box::pin(all).await;

    Ok(())
}

/// Another manager may own the Services for long: a watch that has ended is not silent, and nothing waits.
struct WatchEnds(Metrics);

impl Drop for WatchEnds {
    fn drop(&mut self) {
        self.0.rest_client().forget("services");
        self.0.queue("service").clear();
    }
}

/// Everything that the workers share.
struct Workers<'a> {
    context: &'a Context,
    queue: &'a WorkQueue,
    metrics: metrics::Queue,
    services: Store<Service>,
    stop: CancellationToken,
}

fn context(deps: Deps, permit: Permit, services: Services) -> Context {
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
            services,
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
        first_full: FirstFull::default(),
    }
}

/// Reconciles one Service after the other, until the stop. No Service is begun after it.
async fn work(workers: &Workers<'_>) {
    loop {
        let (key, class) = tokio::select! {
            biased;
            () = workers.stop.cancelled() => return,
            turn = workers.queue.next() => turn,
        };
        let next = reconcile(workers, &key, class).await;
        workers.queue.finish(&key, next);
    }
}

/// Returns when the Service has its next turn, if nothing changes.
async fn reconcile(workers: &Workers<'_>, key: &str, class: Class) -> Option<Due> {
    let Some(service) = watch::of_key(&workers.services, key) else {
        workers.metrics.forget(key);
        return None;
    };

    let _working = workers.metrics.start(key);
    let metadata = &service.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let span = tracing::info_span!("reconcile", controller = "service", namespace, name);
    let context = workers.context;
    let reconciled = Box::pin(reconcile::reconcile(context, &service));
    let after = match class.priority().run(reconciled).instrument(span).await {
        Ok(Next::OnChange) => return None,
        Ok(Next::After(time)) => time,
        Err(_) => {
            workers.metrics.retry();
            reconcile::retry_after(context, &service)
        }
    };

    let is_done = context.states.with(uid(&service), |state| state.done.is_some());
    let waits_for_creation = context.creation_queues.has(uid(&service));
    let class = next_class(class, is_done, waits_for_creation);
    let at = Instant::now() + after;

    Some(Due { class, at })
}

/// The class of the next turn. A Service that fails, or waits for something else than the creation of its load balancer, is
/// not what a user waits for any more: many of them would go before targets that leave.
fn next_class(class: Class, is_done: bool, waits_for_creation: bool) -> Class {
    match (is_done, waits_for_creation) {
        (true, _) => Class::Drift,
        (false, true) => class,
        (false, false) => class.max(Class::Register),
    }
}
