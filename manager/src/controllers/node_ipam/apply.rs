//! All writes of the controller. Each checks the permit first.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::deps::Deps;
use crate::events::{EventType, about_node};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

/// A finished write: the Node before and after.
pub(super) struct Assigned {
    pub(super) node: Arc<NodeView>,
    pub(super) written: Result<NodeView, WriteError>,
}

pub(super) async fn assign(deps: Deps, node: Arc<NodeView>, ranges: Vec<IpNet>) -> Assigned {
    tracing::debug!(node = node.name(), ?ranges, "assigning CIDRs");
    let patch = patch(&node, &ranges);
    let written = node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &patch).await;
    Assigned { node, written }
}

/// Emits an Event about a failed allocation, with kube-controller-manager's message and type.
pub(super) fn record_status(deps: &Deps, node: &NodeView, reason: &str) {
    let message = format!("Node {} status is now: {reason}", node.name());
    record(deps, node, EventType::Normal, reason, &message);
}

pub(super) fn record(deps: &Deps, node: &NodeView, kind: EventType, reason: &str, message: &str) {
    deps.events
        .record(&deps.permit, &about_node(node), kind, reason, message);
}

/// Applies to the Node of this UID only, and only while it has no CIDRs: API servers take a `test` for null as "absent".
/// They also reject every change of CIDRs.
fn patch(node: &NodeView, ranges: &[IpNet]) -> Vec<Value> {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    vec![
        node_patch::test_uid(node),
        json!({"op": "test", "path": "/spec/podCIDRs", "value": null}),
        json!({"op": "add", "path": "/spec/podCIDRs", "value": texts}),
        json!({"op": "add", "path": "/spec/podCIDR", "value": texts.first()}),
    ]
}
