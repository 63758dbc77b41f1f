//! Changes of Nodes that are relevant to load balancers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::super::plan::targets::fingerprint;
use super::super::spec::annotations::node_labels;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

/// Changes within this time are combined, so that a burst of Nodes costs one reconciliation of each Service.
const WINDOW: Duration = Duration::from_secs(1);

/// One item per batch of changes after which a Service may have other targets. Heartbeats of kubelets, and labels and
/// taints that decide about no target, do not count: there are thousands of them for each relevant change. `labels` are
/// those by which Services choose Nodes.
pub fn relevant(nodes: NodeCache, labels: impl Fn() -> BTreeSet<String> + Send) -> impl Stream<Item = ()> + Send {
    let state = (nodes.subscribe(), nodes, HashMap::new(), labels);
    stream::unfold(state, |(changes, nodes, mut fingerprints, labels)| async move {
        loop {
            changes.changed().await;
            tokio::time::sleep(WINDOW).await;
            if update(&mut fingerprints, &nodes, changes.take(), &labels()) {
                return Some(((), (changes, nodes, fingerprints, labels)));
            }
        }
    })
}

/// The labels by which Services choose Nodes.
pub fn named_labels<'a>(services: impl Iterator<Item = &'a Service>) -> BTreeSet<String> {
    services.flat_map(|service| node_labels(service).into_keys()).collect()
}

/// Updates the fingerprints of these Nodes and returns whether a relevant field has changed.
fn update(
    fingerprints: &mut HashMap<String, u64>,
    nodes: &NodeCache,
    names: BTreeSet<String>,
    labels: &BTreeSet<String>,
) -> bool {
    let mut different = false;
    for name in names {
        let now = nodes.node(&name).map(|node| fingerprint(&node, labels));
        let before = match now {
            Some(now) => fingerprints.insert(name, now),
            None => fingerprints.remove(&name),
        };
        different |= before != now;
    }

    different
}

/// The metrics `service_controller_*`. As in v1.37, an update counts when it changes nothing but targets.
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
    use crate::node_cache::NodeView;

    fn node(ready: &str, heartbeat: &str, labels: serde_json::Value, taint: &str) -> NodeView {
        serde_json::from_value(json!({
            "metadata": {"name": "n1", "annotations": {"beat": heartbeat}, "labels": labels},
            "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn labels() -> BTreeSet<String> {
        ["pool".to_owned()].into()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_decides_about_targets_counts() {
        let nodes = NodeCache::new();
        let none = json!({});
        let apply = |node| nodes.observe(Event::Apply(node));
        apply(node("True", "1", none.clone(), "a"));
        let mut changes = Box::pin(relevant(nodes.clone(), labels));
        assert_eq!(changes.next().await, Some(()), "the first observation of all");

        for ignored in [
            node("True", "2", none.clone(), "a"),
            node("True", "2", json!({"feature.node.kubernetes.io/x": "1"}), "a"),
            node("True", "2", none.clone(), "b"),
        ] {
            apply(ignored);
            let quiet = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
            assert!(quiet.is_err());
        }

        let excluded = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
        for counted in [
            node("False", "3", none.clone(), "b"),
            node("False", "3", json!({"pool": "web"}), "b"),
            node("False", "3", json!({"pool": "batch"}), "b"),
            node("False", "3", excluded, "b"),
            node("False", "3", none.clone(), "b"),
            node("False", "3", none, "ToBeDeletedByClusterAutoscaler"),
        ] {
            apply(counted);
            assert_eq!(changes.next().await, Some(()));
        }
        assert!(changes.next().now_or_never().is_none());
    }

    #[test]
    fn the_labels_are_those_of_all_services() {
        let service = |labels: &str| -> Service {
            let annotations = json!({"service.beta.kubernetes.io/aws-load-balancer-target-node-labels": labels});
            serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap()
        };
        let services = [service("pool=web,zone="), service("pool=batch"), Service::default()];
        let named = named_labels(services.iter());
        assert_eq!(named, ["pool".to_owned(), "zone".to_owned()].into());
    }
}
