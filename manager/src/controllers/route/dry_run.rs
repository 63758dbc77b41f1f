//! What the controller would change if it ran now.

use outrigger_shared::migration::AdoptionChange;
use tokio::time::Instant;

use super::confirmation::{Confirmations, MIN_AGE_IF_MANY};
use super::observe::{Membership, observe};
use super::plan::{Plan, plan};
use super::{Deps, ObserveError};

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

    let name = |member: usize| observed.members.get(member).map_or("", |member| member.node.name());
    Ok(changes(&plan, name))
}

fn changes<'a>(plan: &Plan, name: impl Fn(usize) -> &'a str) -> Vec<AdoptionChange> {
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

    written.chain(deleted).collect()
}
