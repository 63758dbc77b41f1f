//! Changes of Nodes that are relevant to load balancers.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::node_cache::{NodeCache, NodeView};

/// Changes within this time are combined, so that a burst of Nodes costs one reconciliation of each Service.
const WINDOW: Duration = Duration::from_secs(1);

/// One item per batch of changes after which a Service may have other targets. Heartbeats of kubelets do not count:
/// there are thousands of them for each relevant change.
pub fn relevant(nodes: NodeCache) -> impl Stream<Item = ()> + Send {
    let state = (nodes.subscribe(), nodes, HashMap::new());
    stream::unfold(state, |(changes, nodes, mut fingerprints)| async move {
        loop {
            changes.changed().await;
            tokio::time::sleep(WINDOW).await;
            if update(&mut fingerprints, &nodes, changes.take()) {
                return Some(((), (changes, nodes, fingerprints)));
            }
        }
    })
}

/// Updates the fingerprints of these Nodes and returns whether a relevant field has changed.
fn update(fingerprints: &mut HashMap<String, u64>, nodes: &NodeCache, names: BTreeSet<String>) -> bool {
    let mut different = false;
    for name in names {
        let now = nodes.node(&name).map(|node| fingerprint(&node));
        let before = match now {
            Some(now) => fingerprints.insert(name, now),
            None => fingerprints.remove(&name),
        };
        different |= before != now;
    }

    different
}

fn fingerprint(node: &NodeView) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.provider_id().hash(&mut hasher);
    node.metadata.labels.hash(&mut hasher);
    node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    node.is_ready().hash(&mut hasher);

    let taints: BTreeSet<&str> = node.spec.taints.iter().map(|taint| taint.key.as_str()).collect();
    taints.hash(&mut hasher);

    hasher.finish()
}

/// The metrics `service_controller_*`. As in v1.37.0, an update counts when it changes nothing but targets.
#[derive(Debug)]
pub struct NodeSync {
    metrics: Metrics,
    changed: Mutex<Option<Instant>>,
}

impl NodeSync {
    pub fn new(metrics: Metrics) -> Self {
        let changed = Mutex::default();
        Self { metrics, changed }
    }

    pub fn nodes_changed(&self) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Records the end of an update of one load balancer's targets that began at `began`.
    pub fn ended(&self, began: Instant, succeeded: bool) {
        self.metrics.service_syncs.inc();
        if !succeeded {
            self.metrics.service_node_sync_errors.inc();
            return;
        }

        let host = &self.metrics.service_host_update_latency;
        host.observe(began.elapsed().as_secs_f64());

        let changed = *self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = changed.map_or(began, |changed| changed.min(began));
        let sync = &self.metrics.service_node_sync_latency;
        sync.observe(since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn node(ready: &str, heartbeat: &str) -> NodeView {
        serde_json::from_value(json!({
            "metadata": {"name": "n1", "annotations": {"beat": heartbeat}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_ignored_and_readiness_is_not() {
        let nodes = NodeCache::new();
        nodes.observe(Event::Apply(node("True", "1")));
        let mut changes = Box::pin(relevant(nodes.clone()));
        assert_eq!(changes.next().await, Some(()), "the first look at all");
        nodes.observe(Event::Apply(node("True", "2")));
        let quiet = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
        assert!(quiet.is_err());
        nodes.observe(Event::Apply(node("False", "3")));
        assert_eq!(changes.next().await, Some(()));
        assert!(changes.next().now_or_never().is_none());
    }
}
