//! Everything the controller reads: instances by one batched question, and the IDs of zones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Error, Instance, InstanceState};

use super::Deps;
use super::desired::ZONE_ID;
use super::error::Waiting;
use crate::instances::{Answer, FoundBy, Lane, Target, found_by};
use crate::node_cache::NodeView;

/// A Node and its living instance, or why there is none.
pub(super) type Seen = (Arc<NodeView>, Result<Arc<Instance>, Waiting>);

/// Finds the living instances of many Nodes.
pub(super) async fn instances(deps: &Deps, nodes: Vec<Arc<NodeView>>, lane: Lane, max_age: Duration) -> Vec<Seen> {
    let answers = deps.instances.describe(nodes, lane, max_age).await;
    answers
        .into_iter()
        .map(|(node, answer)| {
            let seen = living(&node, answer);
            (node, seen)
        })
        .collect()
}

fn living(node: &NodeView, answer: Answer) -> Result<Arc<Instance>, Waiting> {
    let wanted = || Target::of(node).to_string();
    match answer {
        Answer::Found(instance) if instance.state == Some(InstanceState::Terminated) => {
            Err(Waiting::InstanceNotFound(wanted()))
        }
        Answer::Found(instance) => {
            let by = found_by(node, &instance);
            if matches!(by, FoundBy::IdInName | FoundBy::Ip) {
                tracing::info!(node = node.name(), instance = %instance.id, %by, "its name is no private DNS name; the instance was found");
            }
            Ok(instance)
        }
        Answer::Absent => Err(Waiting::InstanceNotFound(wanted())),
        Answer::Ambiguous(count) => Err(Waiting::Ambiguous(count, node.name().to_owned())),
        Answer::Fargate(_) => Err(Waiting::Foreign(format!(
            "{} is a Fargate node; those are not served yet",
            wanted()
        ))),
        Answer::Foreign(reason) => Err(Waiting::Foreign(reason)),
        Answer::Failed(error) => Err(Waiting::Cloud(error)),
    }
}

/// The IDs of the region's zones, asked once and again only when a zone is met that is not among them.
#[derive(Debug, Default)]
pub(super) struct ZoneIds {
    known: HashMap<String, String>,
}

impl ZoneIds {
    /// The IDs, fetched first if one of these Nodes needs one that is not known; and the error of AWS where it did not
    /// list them, which concerns only the Nodes that need one.
    pub(super) async fn covering(&mut self, ec2: &dyn Ec2, seen: &[Seen]) -> (&HashMap<String, String>, Option<Error>) {
        let needed = seen.iter().any(|(node, instance)| {
            let zone = instance
                .as_ref()
                .ok()
                .and_then(|instance| instance.availability_zone.as_ref());
            zone.is_some_and(|zone| node.label(ZONE_ID).is_none() && !self.known.contains_key(zone))
        });
        let asked = if needed {
            ec2.availability_zones().await
        } else {
            Ok(Vec::new())
        };
        let failed = match asked {
            Ok(zones) => {
                let zones = zones.into_iter().filter_map(|zone| Some((zone.name, zone.id?)));
                self.known.extend(zones);
                None
            }
            Err(error) => Some(error),
        };
        (&self.known, failed)
    }
}
