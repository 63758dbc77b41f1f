//! Changes of Nodes that affect routes. Heartbeats and this controller's own writes do not.

use std::time::Duration;

use crate::node_cache::{Changes, NodeCache, NodeView};

/// How long changes are collected, so that a burst of Nodes costs one pass.
const WINDOW: Duration = Duration::from_millis(500);

/// Subscribes to changes after this call.
pub(super) fn reader(nodes: &NodeCache) -> Changes {
    let changes = nodes.subscribe_where(|was, is| was.and_then(fingerprint) != is.and_then(fingerprint));
    drop(changes.take());
    changes
}

/// The fields that affect routes; `None` for a Node without a range, which has no route.
fn fingerprint(node: &NodeView) -> Option<(&str, Option<&str>, &[String])> {
    let ranges = &node.spec.pod_cidrs;
    (!ranges.is_empty()).then(|| (node.uid(), node.provider_id(), ranges.as_slice()))
}

/// Waits for a change, then for [`WINDOW`]. Cancel safe.
pub(super) async fn gather(changes: &Changes) {
    changes.changed().await;
    tokio::time::sleep(WINDOW).await;
    drop(changes.take());
}
