//! A dry run: finds the Nodes that the controller would delete if all of them were not Ready.

use std::time::Duration;

use outrigger_aws::{Error, InstanceState};
use outrigger_shared::migration::AdoptionChange;

use crate::instances::{Answer, Instances, Priority};
use crate::node_cache::{NodeCache, NodeView};

/// The largest age of an answer of EC2 about an instance.
const MAX_AGE: Duration = Duration::from_secs(20);

/// Looks up the instances of all Nodes. The Nodes must be known.
///
/// # Errors
/// When EC2 does not answer for a Node.
pub async fn dry_run(nodes: &NodeCache, instances: &Instances) -> Result<Vec<AdoptionChange>, Error> {
    let answers = instances.describe(nodes.snapshot(), Priority::DryRun, MAX_AGE).await;
    let changes = answers
        .into_iter()
        .filter_map(|(node, answer)| change(&node, answer).transpose());
    changes.collect()
}

fn change(node: &NodeView, answer: Answer) -> Result<Option<AdoptionChange>, Error> {
    let reason = match answer {
        Answer::Failed(error) => return Err(error),
        Answer::Found(instance) if instance.state == Some(InstanceState::Terminated) => {
            format!("its instance {} is terminated", instance.id)
        }
        Answer::Absent => "EC2 lists no instance for it".to_owned(),
        // Nodes of another machine or of none stay as they are.
        Answer::Found(_) | Answer::Fargate(_) | Answer::Foreign(_) | Answer::Ambiguous(_) | Answer::Refused(_) => {
            return Ok(None);
        }
    };

    Ok(Some(AdoptionChange {
        object: format!("Node {}", node.name()),
        action: "delete the Node once it is not Ready".to_owned(),
        reason,
    }))
}
