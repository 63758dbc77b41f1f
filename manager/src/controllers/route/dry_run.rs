//! A dry run: finds the changes that the controller would make now.

use k8s_openapi::jiff::Timestamp;
use outrigger_shared::migration::AdoptionChange;
use tokio::time::Instant;

use super::confirmation::{Confirmations, MIN_AGE_IF_MANY};
use super::observe::{Membership, observe};
use super::plan::{Member, NodePlan, Plan, plan};
use super::{Deps, ObserveError, condition};

/// Compares the routes of all Nodes with AWS. A deletion counts as confirmed. The Nodes must be known.
///
/// # Errors
/// When the routes cannot be read.
pub async fn dry_run(deps: &Deps) -> Result<Vec<AdoptionChange>, ObserveError> {
    let observed = observe(deps, &mut Membership::default()).await?;
    let (mut confirmations, now) = (Confirmations::default(), Instant::now());
    // The first observation confirms no deletion.
    plan(&observed, deps.cluster, &mut confirmations, now);
    let plan = plan(&observed, deps.cluster, &mut confirmations, now + MIN_AGE_IF_MANY);

    Ok(changes(&plan, &observed.members))
}

fn changes(plan: &Plan, members: &[Member]) -> Vec<AdoptionChange> {
    let name = |member: usize| members.get(member).map_or("", |member| member.node.name());
    let steps = plan
        .node_plans
        .iter()
        .flat_map(|node| node.steps.iter().map(move |step| (node, step)));
    let written = steps.map(|(node, step)| AdoptionChange {
        object: format!("Node {}", name(node.member)),
        action: if step.replaces { "ReplaceRoute" } else { "CreateRoute" }.to_owned(),
        reason: match step.replaces {
            true => format!("route table {} leads {} to another target", step.table, step.cidr),
            false => format!("route table {} has no route to {}", step.table, step.cidr),
        },
    });
    let deleted = plan.deletions.iter().map(|deletion| AdoptionChange {
        object: format!("RouteTable {}", deletion.table),
        action: "DeleteRoute".to_owned(),
        reason: format!("{}: {}", deletion.cidr, deletion.why),
    });

    let unrouted = plan
        .node_plans
        .iter()
        .filter_map(|node| unrouted(node, members.get(node.member)?));

    let unknown = plan.node_plans.iter().filter_map(|node| {
        Some(AdoptionChange {
            object: format!("Node {}", name(node.member)),
            action: "its routes cannot be compared".to_owned(),
            reason: node.waits.clone()?,
        })
    });

    written.chain(deleted).chain(unrouted).chain(unknown).collect()
}

/// A Node that the controller would call unreachable; the scheduler keeps Pods away from it then.
fn unrouted(work: &NodePlan, member: &Member) -> Option<AdoptionChange> {
    let is_unrouted = !work.obstacles.is_empty() || work.has_no_range;
    condition::patch(&member.node, false, Timestamp::now()).filter(|_| is_unrouted)?;
    let reason = match work.obstacles.as_slice() {
        [] => "it has no Pod range, and a route leads to its instance".to_owned(),
        obstacles => obstacles.join("; "),
    };

    Some(AdoptionChange {
        object: format!("Node {}", member.node.name()),
        action: "set the condition NetworkUnavailable".to_owned(),
        reason,
    })
}
