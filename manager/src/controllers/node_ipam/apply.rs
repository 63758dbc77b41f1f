//! Every write of the controller. Each asks the permit first.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::deps::Deps;
use crate::events::{EventType, about_node};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

/// A write that ended: the Node as it was, and as it is then.
pub(super) struct Assigned {
    pub(super) node: Arc<NodeView>,
    pub(super) written: Result<NodeView, WriteError>,
}

/// Writes these ranges into this Node.
pub(super) async fn assign(deps: Deps, node: Arc<NodeView>, ranges: Vec<IpNet>) -> Assigned {
    tracing::debug!(node = node.name(), ?ranges, "assigning ranges");
    let patch = patch(&node, &ranges);
    let written = node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &patch).await;
    Assigned { node, written }
}

/// An Event about a failed allocation, in upstream's words. Its type is Normal there.
pub(super) fn record_status(deps: &Deps, node: &NodeView, reason: &str) {
    let message = format!("Node {} status is now: {reason}", node.name());
    record(deps, node, EventType::Normal, reason, &message);
}

/// An Event about a Node.
pub(super) fn record(deps: &Deps, node: &NodeView, kind: EventType, reason: &str, message: &str) {
    deps.events
        .record(&deps.permit, &about_node(node), kind, reason, message);
}

/// For this very Node, and only while it has no ranges: API servers take a `test` for null as "is not there". They also
/// refuse every change of ranges once set, so this is the first of two locks.
fn patch(node: &NodeView, ranges: &[IpNet]) -> Vec<Value> {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    vec![
        node_patch::test_uid(node),
        json!({"op": "test", "path": "/spec/podCIDRs", "value": null}),
        json!({"op": "add", "path": "/spec/podCIDRs", "value": texts}),
        json!({"op": "add", "path": "/spec/podCIDR", "value": texts.first()}),
    ]
}
