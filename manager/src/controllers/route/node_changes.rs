//! Changes of Nodes that matter to routes. Heartbeats do not, nor does what this controller itself writes.

use std::time::Duration;

use crate::node_cache::{Changes, NodeCache, NodeView};

/// How long changes are gathered, so that a burst of Nodes costs one pass.
const WINDOW: Duration = Duration::from_millis(500);

/// A reader that knows the Nodes that are there now; only later changes count.
pub(super) fn reader(nodes: &NodeCache) -> Changes {
    let changes = nodes.subscribe_where(|was, is| was.and_then(print) != is.and_then(print));
    drop(changes.take());
    changes
}

/// What matters of a Node; `None` for one without a range, which has no route.
fn print(node: &NodeView) -> Option<(&str, Option<&str>, &[String])> {
    let ranges = &node.spec.pod_cidrs;
    (!ranges.is_empty()).then(|| (node.uid(), node.provider_id(), ranges.as_slice()))
}

/// Waits until something has changed, and a little longer. Nothing is lost when the future is dropped.
pub(super) async fn gather(changes: &Changes) {
    changes.changed().await;
    tokio::time::sleep(WINDOW).await;
    drop(changes.take());
}
