//! All reads of the controller: instances, in batches, and the IDs of zones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Error, InstanceState};
use tokio::sync::Mutex;

use super::deps::Deps;
use super::desired::{Host, ZONE_ID};
use super::error::Waiting;
use crate::instances::{Answer, FoundBy, Priority, Target, found_by};
use crate::node_cache::NodeView;

/// A Node and its host, or why the host is unknown.
pub(super) type ObservedHost = (Arc<NodeView>, Result<Host, Waiting>);

/// Describes the hosts of Nodes. Cached descriptions younger than `max_age` are used.
pub(super) async fn hosts(
    deps: &Deps,
    nodes: Vec<Arc<NodeView>>,
    priority: Priority,
    max_age: Duration,
) -> Vec<ObservedHost> {
    let answers = deps.instances.describe(nodes, priority, max_age).await;
    answers
        .into_iter()
        .map(|(node, answer)| {
            let seen = living(&node, answer, priority);
            (node, seen)
        })
        .collect()
}

fn living(node: &NodeView, answer: Answer, priority: Priority) -> Result<Host, Waiting> {
    let wanted = || Target::of(node).to_string();
    match answer {
        Answer::Found(instance) if instance.state == Some(InstanceState::Terminated) => {
            Err(Waiting::InstanceNotFound(wanted()))
        }
        Answer::Found(instance) => {
            let by = found_by(node, &instance);
            if priority == Priority::Initialize && matches!(by, FoundBy::IdInName | FoundBy::Ip) {
                tracing::info!(node = node.name(), instance = %instance.id, %by, "the Node's name is not a private DNS name; found its instance");
            }
            Ok(Host::Instance(instance))
        }
        Answer::Fargate(interface) => Ok(Host::Fargate(interface)),
        Answer::Absent => Err(Waiting::InstanceNotFound(wanted())),
        Answer::Ambiguous(count) => Err(Waiting::Ambiguous(count, node.name().to_owned())),
        Answer::Foreign(reason) => Err(Waiting::Foreign(reason)),
        Answer::Refused(reason) => Err(Waiting::Refused(reason)),
        Answer::Failed(error) => Err(Waiting::Cloud(error)),
    }
}

/// The IDs of the region's zones, listed once, and again for an unknown zone.
#[derive(Debug, Default)]
pub(super) struct ZoneIds {
    known: Mutex<Arc<HashMap<String, String>>>,
}

impl ZoneIds {
    /// The IDs, listed first if one of these Nodes needs an unknown one; and the error if the list failed, which concerns
    /// only the Nodes that need an unknown ID. Concurrent callers wait for the same list.
    pub(super) async fn covering(
        &self,
        ec2: &dyn Ec2,
        priority: Priority,
        seen: &[ObservedHost],
    ) -> (Arc<HashMap<String, String>>, Option<Error>) {
        let mut known = self.known.lock().await;
        let needed = seen.iter().any(|(node, host)| {
            let zone = host.as_ref().ok().and_then(Host::zone);
            zone.is_some_and(|zone| node.label(ZONE_ID).is_none() && !known.contains_key(zone))
        });
        if !needed {
            return (Arc::clone(&known), None);
        }

        match priority.run(ec2.availability_zones()).await {
            Ok(zones) => {
                let ids = zones.into_iter().filter_map(|zone| Some((zone.name, zone.id?)));
                let old = known.iter().map(|(zone, id)| (zone.clone(), id.clone()));
                *known = Arc::new(old.chain(ids).collect());
                (Arc::clone(&known), None)
            }
            Err(error) => (Arc::clone(&known), Some(error)),
        }
    }
}
