//! A dry run: finds the changes that the controller would make if it took over all load balancers now. It observes and
//! plans as a reconciliation does, and writes nothing: its permit is void.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client};
use outrigger_api_client::pages;
use outrigger_aws::{InstanceId, Kind as AwsKind};
use outrigger_leader::Permit;
use outrigger_shared::migration::AdoptionChange;
use tokio::time::{Instant, sleep};

use super::action::{ServiceAction, action, has_finalizer};
use super::context::Context;
use super::error::Error;
use super::execute::node_groups::{claim_as_is, claim_nothing};
use super::inventory::account::Search;
use super::observation::{Observation, Pass, check_owner, observe};
use super::plan::targets::{candidates, eligible, excluded};
use super::plan::{ClassicStep, NetworkStep, Planned, Step};
use super::queue::reported::without_request_details;
use super::queue::service_state::Reason;
use super::spec::annotations::{Annotations, Kind};
use super::spec::desired::desired;
use super::spec::names::namespaced_name;
use super::spec::request;
use super::spec::watched::reduce;
use super::{Deps, PAGE, context, writer};

/// The reason of the Event that the controller would emit.
const FAILS: &str = "SyncLoadBalancerFailed";

/// A change counts if it is found again after this time: the old manager or AWS may be at work.
pub const CONFIRMATION: Duration = Duration::from_secs(30);

/// How often a call that AWS does not answer is repeated for one Service.
const TRIES: u32 = 3;
/// Before a repetition.
const PAUSE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub struct DryRun {
    /// The Services that were compared.
    pub services: usize,
    pub changes: Vec<AdoptionChange>,
}

/// Compares all Services with AWS, one after the other, and those with changes once more. The Nodes must be known.
///
/// # Errors
/// When the Services cannot be listed, or AWS does not answer or throttles again and again. A failure that would last
/// concerns one Service and is one of its changes.
pub async fn dry_run(deps: Deps) -> Result<DryRun, Error> {
    let client = deps.client.clone();
    let services = Arc::new(list(&client).await?);
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

    let first = compare_all(&context, &services, &place, Reason::Resync).await?;
    if first.changes.is_empty() {
        return Ok(first);
    }

    sleep(CONFIRMATION).await;
    let objects: BTreeSet<&str> = first.changes.iter().map(|change| change.object.as_str()).collect();
    let mut again = list(&client).await?;
    again.retain(|service| objects.contains(object(service).as_str()));
    let again = compare_all(&context, &again, &AtomicUsize::default(), Reason::Retry).await?;
    let again: BTreeSet<AdoptionChange> = again.changes.into_iter().collect();

    Ok(DryRun {
        changes: first
            .changes
            .into_iter()
            .filter(|change| again.contains(change))
            .collect(),
        ..first
    })
}

/// Each page is reduced before the next one is read: Services can be large, and there can be many.
async fn list(client: &Client) -> Result<Vec<Arc<Service>>, Error> {
    let api = Api::<Service>::all(client.clone());
    let reduced = |mut service: Service| {
        reduce(&mut service);
        Arc::new(service)
    };
    let pages = pages(api, ListParams::default().limit(PAGE));
    let pages = pages.map_ok(|page| page.into_iter().map(reduced).collect());
    let pages: Vec<Vec<Arc<Service>>> = pages
        .try_collect()
        .await
        .map_err(Error::kubernetes("list the Services"))?;

    Ok(pages.concat())
}

/// The rules of Nodes' security groups are compared in a second turn: before all Services have claimed theirs, none is
/// revoked.
pub(super) async fn compare_all(
    context: &Context,
    services: &[Arc<Service>],
    place: &AtomicUsize,
    reason: Reason,
) -> Result<DryRun, Error> {
    let mut found: Vec<(&Service, Compared)> = Vec::new();
    for (number, service) in services.iter().enumerate() {
        place.store(number, Ordering::Relaxed);
        if let Some(compared) = compare(context, service, reason).await? {
            found.push((service, compared));
        }
    }

    for (service, compared) in &mut found {
        if compared.is_deferred
            && let Some(again) = compare(context, service, reason).await?
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
async fn compare(context: &Context, service: &Service, reason: Reason) -> Result<Option<Compared>, Error> {
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

    let observed = match observed(context, service, reason, &BTreeSet::new()).await {
        // As if they were observed once more: steps follow that wait for the confirmation.
        Ok(first) if !first.plan.unconfirmed.is_empty() => {
            observed(context, service, reason, &first.plan.unconfirmed).await
        }
        observed => observed,
    };
    let (changes, is_deferred) = match observed {
        Ok(observation) => (changes(service, &observation), observation.plan.is_deferred()),
        Err(error) if passes(&error) => return Err(error),
        Err(error) => {
            claim_as_is(context, service);
            (vec![change(service, FAILS, error.chain())], false)
        }
    };

    Ok(Some(Compared { changes, is_deferred }))
}

/// Whether the same call may succeed at another time.
fn passes(error: &Error) -> bool {
    matches!(error, Error::Aws(error) if matches!(error.kind(), AwsKind::Throttled | AwsKind::Transport))
}

/// Repeats an observation that AWS does not answer. `gone`: targets that are lost.
async fn observed(
    context: &Context,
    service: &Service,
    reason: Reason,
    gone: &BTreeSet<InstanceId>,
) -> Result<Observation, Error> {
    let mut tries = 1;
    loop {
        match observed_once(context, service, reason, gone).await {
            Err(error) if passes(&error) && tries < TRIES => {
                tries += 1;
                sleep(PAUSE).await;
            }
            observed => return observed,
        }
    }
}

async fn observed_once(
    context: &Context,
    service: &Service,
    reason: Reason,
    gone: &BTreeSet<InstanceId>,
) -> Result<Observation, Error> {
    let desired = desired(service, &context.settings)?;
    let nodes = context.nodes.snapshot();
    let observation = observe(
        context,
        &Pass {
            service,
            desired: &desired,
            candidates: &candidates(&nodes, desired.node_labels()),
            going: &(gone | &excluded(&nodes)),
            reason,
            due: true,
            was_full: true,
            is_in_memory: false,
            no_nodes: eligible(&nodes).is_empty(),
        },
        // A list of target groups is used again for a while.
        if reason.needs_fresh_reads() {
            Search::Now
        } else {
            Search::Earlier
        },
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
        .map(|planned| change(service, planned.step.action(), reason_of(planned)))
        .collect();

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

/// The reason of a step, with its targets: other targets are another change.
fn reason_of(planned: &Planned) -> String {
    let targets: Vec<&str> = match &planned.step {
        Step::Classic(ClassicStep::Register { instances, .. } | ClassicStep::Deregister(instances)) => {
            instances.iter().map(InstanceId::as_str).collect()
        }
        Step::Network(NetworkStep::ChangeTargets { add, remove, .. }) => {
            add.iter().chain(remove).map(|target| target.id.as_str()).collect()
        }
        _ => return planned.reason.clone(),
    };
    format!("{}: {}", planned.reason, targets.join(", "))
}

/// Texts of AWS have the ID of the request, which is another one each time.
fn change(service: &Service, action: &str, reason: String) -> AdoptionChange {
    AdoptionChange {
        object: object(service),
        action: action.to_owned(),
        reason: without_request_details(&reason),
    }
}

fn object(service: &Service) -> String {
    format!("Service {}", namespaced_name(service))
}
