//! What the controller would do to the Nodes if all of them were not Ready.

use std::time::Duration;

use outrigger_aws::{Error, InstanceState};
use outrigger_shared::migration::AdoptionChange;

use crate::instances::{Answer, Instances, Priority};
use crate::node_cache::{NodeCache, NodeView};

/// The largest age of an answer of EC2 about an instance.
const MAX_AGE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct DryRun {
    pub nodes: usize,
    pub changes: Vec<AdoptionChange>,
}

/// Looks up the instances of all Nodes. The Nodes must be known.
///
/// # Errors
/// When EC2 does not answer for a Node.
pub async fn dry_run(nodes: &NodeCache, instances: &Instances) -> Result<DryRun, Error> {
    let nodes = nodes.snapshot();
    let answers = instances.describe(nodes, Priority::DryRun, MAX_AGE).await;
    let mut found = DryRun::default();
    for (node, answer) in answers {
        found.nodes += 1;
        found.changes.extend(change(&node, answer)?);
    }

    Ok(found)
}

fn change(node: &NodeView, answer: Answer) -> Result<Option<AdoptionChange>, Error> {
    const DELETED: &str = "delete the Node once it is not Ready";
    let (action, reason) = match answer {
        Answer::Failed(error) => return Err(error),
        Answer::Found(instance) if instance.state == Some(InstanceState::Terminated) => {
            (DELETED, format!("its instance {} is terminated", instance.id))
        }
        Answer::Found(_) | Answer::Fargate(_) | Answer::Foreign(_) => return Ok(None),
        Answer::Absent => (DELETED, "EC2 lists no instance for it".to_owned()),
        Answer::Ambiguous(count) => (
            "none: the Node is not followed",
            format!("{count} instances match its name"),
        ),
        Answer::Refused(reason) => ("none: the Node is not followed", reason),
    };

    Ok(Some(AdoptionChange {
        object: format!("Node {}", node.name()),
        action: action.to_owned(),
        reason,
    }))
}
