//! How far the Nodes of a cluster are with a migration.

use std::sync::Arc;

use outrigger_shared::annotations::{EXTERNAL_KUBELET, KUBELET};
use outrigger_shared::migration::NodeCounts;
use outrigger_shared::taints;

use super::{NodeCache, NodeView};

impl NodeCache {
    /// Counts the Nodes; `None` before the first full list.
    #[must_use]
    pub fn counts(&self) -> Option<NodeCounts> {
        self.is_ready().then(|| counts(&self.snapshot()))
    }
}

/// A Node whose provider ID this program wrote has an external kubelet: others bring theirs along. Of a kubelet that was
/// restarted with the external provider the operator's annotation states it.
fn counts(nodes: &[Arc<NodeView>]) -> NodeCounts {
    let count = |of: &dyn Fn(&NodeView) -> bool| {
        let all = nodes.iter().filter(|node| of(node)).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    };
    NodeCounts {
        total: count(&|_| true),
        uninitialized: count(&|node| node.has_taint(taints::UNINITIALIZED)),
        migrated: count(&|node| node.metadata.provider_id_is_ours || is_stated(node)),
    }
}

fn is_stated(node: &NodeView) -> bool {
    node.metadata.annotations.get(KUBELET) == Some(EXTERNAL_KUBELET)
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    fn seen(cache: &NodeCache, node: &Value) {
        cache.observe(Event::InitApply(serde_json::from_value(node.clone()).unwrap()));
    }

    #[test]
    fn nodes_are_counted_once_all_are_known() {
        let cache = NodeCache::new();
        cache.observe(Event::Init);
        let taints = json!([{"key": taints::UNINITIALIZED, "effect": "NoSchedule"}]);
        seen(
            &cache,
            &json!({"metadata": {"name": "new"}, "spec": {"taints": taints}}),
        );
        seen(
            &cache,
            &json!({"metadata": {"name": "in-tree"}, "spec": {"providerID": "aws:///a/i-1"}}),
        );
        let ours = json!([{"manager": "outrigger-manager", "fieldsV1": {"f:spec": {"f:providerID": {}}}}]);
        for name in ["b", "c", "d"] {
            seen(&cache, &json!({"metadata": {"name": name, "managedFields": ours}}));
        }
        assert_eq!(cache.counts(), None);
        for (name, value) in [("e", "external"), ("f", "in-tree")] {
            let annotations = json!({"outrigger.dev/kubelet": value});
            seen(
                &cache,
                &json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"providerID": "aws:///a/i-2"}}),
            );
        }
        cache.observe(Event::InitDone);
        let expected = NodeCounts {
            total: 7,
            uninitialized: 1,
            migrated: 4,
        };
        assert_eq!(cache.counts(), Some(expected));
    }
}
