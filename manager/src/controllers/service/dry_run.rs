//! What the controller would change if it took over all load balancers now. It observes and plans as a reconciliation does,
//! and writes nothing: its permit is void.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client};
use outrigger_api_client::pages;
use outrigger_aws::Kind as AwsKind;
use outrigger_leader::Permit;
use outrigger_shared::migration::AdoptionChange;
use tokio::time::Instant;

use super::action::{ServiceAction, action, has_finalizer};
use super::context::Context;
use super::error::Error;
use super::execute::node_groups::{claim_as_is, claim_nothing};
use super::inventory::account::Search;
use super::observation::{Observation, Pass, check_owner, observe};
use super::plan::targets::{candidates, eligible, excluded};
use super::queue::service_state::Reason;
use super::spec::annotations::{Annotations, Kind};
use super::spec::desired::desired;
use super::spec::names::namespaced_name;
use super::spec::request;
use super::spec::watched::reduce;
use super::{Deps, PAGE, context, writer};

/// The reason of the Event that the controller would emit.
const FAILS: &str = "SyncLoadBalancerFailed";

#[derive(Debug, Default)]
pub struct DryRun {
    /// The Services that were compared.
    pub services: usize,
    pub changes: Vec<AdoptionChange>,
}

/// Compares all Services with AWS, one after the other. The Nodes must be known.
///
/// # Errors
/// When the Services cannot be listed, or AWS does not answer or throttles. A failure that would last concerns one Service
/// and is one of its changes.
pub async fn dry_run(deps: Deps) -> Result<DryRun, Error> {
    let services = Arc::new(list(&deps.client).await?);
    let (_, void) = Permit::pair();
    let all = Arc::clone(&services);
    let context = Context {
        settled_at: Instant::now(),
        ..context(deps, void, Arc::new(move || all.to_vec()))
    };

    let place = Arc::new(AtomicUsize::new(0));
    let (next, all) = (Arc::clone(&place), Arc::clone(&services));
    let left = move || all.iter().skip(next.load(Ordering::Relaxed)).cloned().collect();
    context.aws.shared.prefetch_for(left);

    compare_all(&context, &services, &place).await
}

async fn list(client: &Client) -> Result<Vec<Arc<Service>>, Error> {
    let api = Api::<Service>::all(client.clone());
    let all = pages(api, ListParams::default().limit(PAGE));
    let pages: Vec<Vec<Service>> = all.try_collect().await.map_err(|source| Error::Kubernetes {
        operation: "list the Services",
        source: Box::new(source),
    })?;

    let reduced = |mut service: Service| {
        reduce(&mut service);
        Arc::new(service)
    };

    Ok(pages.into_iter().flatten().map(reduced).collect())
}

/// The rules of Nodes' security groups are compared in a second turn: before all Services have claimed theirs, none is
/// revoked.
pub(super) async fn compare_all(
    context: &Context,
    services: &[Arc<Service>],
    place: &AtomicUsize,
) -> Result<DryRun, Error> {
    let mut found: Vec<(&Service, Compared)> = Vec::new();
    for (number, service) in services.iter().enumerate() {
        place.store(number, Ordering::Relaxed);
        if let Some(compared) = compare(context, service).await? {
            found.push((service, compared));
        }
    }

    for (service, compared) in &mut found {
        if compared.is_deferred
            && let Some(again) = compare(context, service).await?
        {
            *compared = again;
        }
    }

    Ok(DryRun {
        services: found.len(),
        changes: found.into_iter().flat_map(|(_, compared)| compared.changes).collect(),
    })
}

struct Compared {
    changes: Vec<AdoptionChange>,
    /// Whether rules wait for the claims of other Services.
    is_deferred: bool,
}

/// `None` for a Service without a load balancer of this controller.
async fn compare(context: &Context, service: &Service) -> Result<Option<Compared>, Error> {
    if action(service) != ServiceAction::Ensure {
        return Ok(None);
    }
    if Annotations::of(service).kind() == Kind::External {
        claim_as_is(context, service);
        return Ok(None);
    }
    if !has_finalizer(service) && request::kind_in_status(service).is_none() {
        claim_nothing(context, service);
    }

    let (changes, is_deferred) = match observed(context, service).await {
        Ok(observation) => (changes(service, &observation), observation.plan.is_deferred()),
        Err(Error::Aws(error)) if matches!(error.kind(), AwsKind::Throttled | AwsKind::Transport) => {
            return Err(error.into());
        }
        Err(error) => {
            claim_as_is(context, service);
            (vec![change(service, FAILS, error.chain())], false)
        }
    };

    Ok(Some(Compared { changes, is_deferred }))
}

async fn observed(context: &Context, service: &Service) -> Result<Observation, Error> {
    let desired = desired(service, &context.settings)?;
    let nodes = context.nodes.snapshot();
    let observation = observe(
        context,
        &Pass {
            service,
            desired: &desired,
            candidates: &candidates(&nodes, desired.node_labels()),
            going: &excluded(&nodes),
            reason: Reason::Resync,
            due: true,
            was_full: true,
            is_in_memory: false,
            no_nodes: eligible(&nodes).is_empty(),
        },
        Search::Earlier,
    )
    .await?;
    check_owner(context, service, observation.identity.as_ref(), &observation.plan).await?;

    Ok(observation)
}

/// The steps of the plan, and what the controller would do once it has observed it again.
fn changes(service: &Service, observation: &Observation) -> Vec<AdoptionChange> {
    let plan = &observation.plan;
    let mut changes: Vec<AdoptionChange> = plan
        .steps
        .iter()
        .map(|planned| change(service, planned.step.action(), planned.reason.clone()))
        .collect();

    let deregister = match Annotations::of(service).kind() {
        Kind::Network => "DeregisterTargets",
        Kind::Classic | Kind::External => "DeregisterInstancesFromLoadBalancer",
    };
    let lost = plan.unconfirmed.iter();
    changes.extend(lost.map(|id| change(service, deregister, format!("no Node has the instance {id}"))));
    let unchosen = plan.unchosen_subnets.iter();
    let reason = |id: &String| format!("the subnet {id} is attached and would not be chosen");
    changes.extend(unchosen.map(|id| change(service, "DetachLoadBalancerFromSubnets", reason(id))));

    let refused = plan.refused.as_ref().map(ToString::to_string);
    let denied = observation.denied.as_ref().map(ToString::to_string);
    changes.extend(refused.into_iter().chain(denied).map(|why| change(service, FAILS, why)));

    let address = observation
        .hostname
        .as_deref()
        .filter(|name| !writer::has_address(service, name));
    changes.extend(address.map(|name| change(service, "write the address", format!("the status lacks {name}"))));

    changes
}

fn change(service: &Service, action: &str, reason: String) -> AdoptionChange {
    AdoptionChange {
        object: format!("Service {}", namespaced_name(service)),
        action: action.to_owned(),
        reason,
    }
}
