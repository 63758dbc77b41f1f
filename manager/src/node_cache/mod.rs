//! The Nodes of the cluster as this program reads them: one watch, a small struct for each Node, and for each
//! controller the names of those that changed, in what matters to it, since it last looked.

pub mod ec2_name;
mod index;
mod labels;
mod text;
mod view;
mod watched;

use std::sync::{Arc, Mutex};

use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use outrigger_shared::annotations::{EXTERNAL_KUBELET, KUBELET};
use outrigger_shared::migration::NodeCounts;
use outrigger_shared::taints;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use index::Changes;
use index::{Index, lock};
pub use labels::{Annotations, Labels, PROVIDED_NODE_IP};
pub use text::Text;
pub use view::{Address, AddressType, Condition, Metadata, NodeView, Spec, Status, Taint};
use watched::Watched;

/// Nodes in one page of a list, or fewer large ones ([`outrigger_api_client`]). A usual Node is some 15 KB on the wire, and
/// a page is held in memory as it came.
const PAGE: u32 = 250;

/// The Nodes, kept by a watch. Clones share one cache.
#[derive(Clone)]
pub struct NodeCache {
    inner: Arc<Inner>,
}

struct Inner {
    index: Mutex<Index>,
    ready: watch::Sender<bool>,
}

impl Default for NodeCache {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeCache {
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                index: Mutex::default(),
                ready: watch::Sender::new(false),
            }),
        }
    }

    /// Fills the cache until `stop`. Call it once per cache. A broken watch is restarted with backoff; the cache keeps
    /// its Nodes.
    pub async fn run(&self, client: Client, stop: CancellationToken) {
        let stream = watcher(Api::<Watched>::all(client), watcher::Config::default().page_size(PAGE)).default_backoff();
        pin_mut!(stream);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(event)) => self.observe(watched::unwrapped(event)),
                Some(Err(error)) => tracing::warn!(%error, "the watch of Nodes failed; restarting it"),
                None => return,
            }
        }
    }

    pub fn observe(&self, event: watcher::Event<NodeView>) {
        let mut index = lock(&self.inner.index);
        match event {
            watcher::Event::Apply(node) => index.apply(node),
            watcher::Event::Delete(node) => index.delete(node.name()),
            watcher::Event::Init => index.begin_list(),
            watcher::Event::InitApply(node) => index.list(node),
            watcher::Event::InitDone => {
                index.end_list();
                drop(index);
                self.inner.ready.send_replace(true);
            }
        }
    }

    /// Counts the Nodes; `None` before the first full list.
    pub fn counts(&self) -> Option<NodeCounts> {
        self.is_ready().then(|| counts(&self.snapshot()))
    }

    pub async fn ready(&self) {
        let mut ready = self.inner.ready.subscribe();
        // The sender lives as long as this cache, so waiting ends with the list only.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// All Nodes, in no particular order.
    pub fn snapshot(&self) -> Vec<Arc<NodeView>> {
        lock(&self.inner.index).snapshot()
    }

    pub fn node(&self, name: &str) -> Option<Arc<NodeView>> {
        lock(&self.inner.index).node(name)
    }

    /// A reader of changes, which starts with all Nodes. Updates that change no cached field, such as most updates of
    /// kubelets, are not reported.
    pub fn subscribe(&self) -> Arc<Changes> {
        self.subscribe_where(|was, is| match (was, is) {
            (Some(was), Some(is)) => !was.says_the_same(is),
            _ => true,
        })
    }

    /// A reader of those changes that `matters` picks, from each Node as it was and as it is; `None` means that it is
    /// not there. It starts with those of the present Nodes that `matters` picks as new ones. It is called for each
    /// update of each Node while the cache is locked, so it must be quick and must not look into the cache.
    pub fn subscribe_where(
        &self,
        matters: impl Fn(Option<&NodeView>, Option<&NodeView>) -> bool + Send + Sync + 'static,
    ) -> Arc<Changes> {
        lock(&self.inner.index).subscribe(Box::new(matters))
    }
}

/// A Node whose provider ID this program wrote has an external kubelet, because an in-tree kubelet sets its own. If a
/// kubelet was restarted with the external provider, RKE2 and K3s write that down; elsewhere the operator's annotation
/// states it.
fn counts(nodes: &[Arc<NodeView>]) -> NodeCounts {
    let count = |of: &dyn Fn(&NodeView) -> bool| {
        let all = nodes.iter().filter(|node| of(node)).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    };
    NodeCounts {
        total: count(&|_| true),
        uninitialized: count(&|node| node.has_taint(taints::UNINITIALIZED)),
        migrated: count(&|node| node.metadata.provider_id_is_ours || is_external(node)),
    }
}

fn is_external(node: &NodeView) -> bool {
    let annotations = &node.metadata.annotations;
    let stated = annotations.get(KUBELET);
    annotations.kubelet_provider().or(stated) == Some(EXTERNAL_KUBELET)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn node(name: &str) -> NodeView {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
    }

    #[tokio::test]
    async fn a_cache_is_ready_after_its_first_full_list_and_a_relist_removes_what_is_gone() {
        let cache = NodeCache::new();
        let changes = cache.subscribe();
        cache.observe(watcher::Event::Init);
        cache.observe(watcher::Event::InitApply(node("a")));
        assert!(!cache.is_ready() && cache.snapshot().is_empty());
        cache.observe(watcher::Event::InitDone);
        cache.ready().await;
        assert_eq!(changes.take(), BTreeSet::from(["a".to_owned()]));
        cache.observe(watcher::Event::Init);
        cache.observe(watcher::Event::InitApply(node("b")));
        cache.observe(watcher::Event::InitDone);
        assert!(cache.node("a").is_none() && cache.node("b").is_some());
        assert_eq!(changes.take(), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[tokio::test]
    async fn changes_are_kept_until_they_are_taken_and_a_late_reader_starts_with_all() {
        let cache = NodeCache::new();
        cache.observe(watcher::Event::Apply(node("a")));
        let changes = cache.subscribe();
        changes.changed().await;
        assert_eq!(changes.take().len(), 1);
        cache.observe(watcher::Event::Delete(node("a")));
        changes.changed().await;
        assert_eq!(changes.take(), BTreeSet::from(["a".to_owned()]));
        assert!(changes.take().is_empty());
    }

    fn claiming(name: &str, instance: &str, second: u32) -> NodeView {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"providerID": format!("aws:///us-east-1a/{instance}")},
        }))
        .unwrap()
    }

    /// The older Node with the same instance, for each Node.
    fn marks(cache: &NodeCache) -> BTreeSet<(String, Option<String>)> {
        let nodes = cache.snapshot();
        let marks = nodes.iter().map(|node| {
            let older = node.same_instance_as.as_ref().map(ToString::to_string);
            (node.name().to_owned(), older)
        });
        marks.collect()
    }

    fn marked(all: &[(&str, Option<&str>)]) -> BTreeSet<(String, Option<String>)> {
        let owned = all
            .iter()
            .map(|(name, older)| ((*name).to_owned(), older.map(str::to_owned)));
        owned.collect()
    }

    #[test]
    fn a_name_of_ec2_is_stronger_than_age() {
        const ID: &str = "i-0123456789abcdef0";
        let other = "i-0aaaaaaaaaaaaaaaa";
        for (names, expected) in [
            (["worker-1", ID], [Some(ID), None]),
            (["worker-1", "ip-10-0-1-5"], [None, None]),
            (["ip-10-0-1-5", "worker-1"], [None, Some("ip-10-0-1-5")]),
            (["ip-10-0-1-5.ec2.internal", "ip-10-0-1-5"], [None, None]),
            ([other, "worker-1"], [None, None]),
            (["worker-1", "worker-2"], [None, Some("worker-1")]),
        ] {
            let cache = NodeCache::new();
            for (second, name) in [1, 2].into_iter().zip(names) {
                cache.observe(watcher::Event::Apply(claiming(name, ID, second)));
            }
            let expected: Vec<_> = names.into_iter().zip(expected).collect();
            assert_eq!(marks(&cache), marked(&expected), "{names:?}");
        }
    }

    #[test]
    fn the_old_node_of_a_renamed_machine_is_not_ready_and_weaker() {
        let cache = NodeCache::new();
        let ready = |name, second, ready: &str| {
            let mut node = claiming(name, "i-1", second);
            node.status = self::ready(name, 1, ready).status;
            node
        };
        for (old, new, expected) in [
            ("True", "False", [("new", Some("old")), ("old", None)]),
            ("False", "True", [("new", None), ("old", Some("new"))]),
            ("True", "True", [("new", Some("old")), ("old", None)]),
            ("False", "False", [("new", Some("old")), ("old", None)]),
        ] {
            cache.observe(watcher::Event::Apply(ready("old", 1, old)));
            cache.observe(watcher::Event::Apply(ready("new", 2, new)));
            assert_eq!(marks(&cache), marked(&expected), "{old} {new}");
        }
    }

    #[test]
    fn a_node_that_was_created_again_is_as_old_as_its_new_object() {
        let cache = NodeCache::new();
        for node in [claiming("a", "i-1", 1), claiming("b", "i-1", 2)] {
            cache.observe(watcher::Event::Apply(node));
        }
        let mut again = claiming("a", "i-1", 3);
        again.metadata.uid = "another".into();
        cache.observe(watcher::Event::Apply(again));
        assert_eq!(marks(&cache), marked(&[("a", Some("b")), ("b", None)]));
    }

    #[test]
    fn of_two_nodes_with_one_instance_the_older_stands_in_any_order_of_events() {
        let (old, young, other) = (
            claiming("old", "i-1", 1),
            claiming("young", "i-1", 2),
            claiming("other", "i-2", 0),
        );
        let expected = marked(&[("old", None), ("young", Some("old")), ("other", None)]);
        for order in [[&old, &young, &other], [&young, &other, &old]] {
            let cache = NodeCache::new();
            let changes = cache.subscribe();
            for node in order {
                cache.observe(watcher::Event::Apply(node.clone()));
            }
            assert_eq!(marks(&cache), expected);
            changes.take();

            cache.observe(watcher::Event::Apply(young.clone()));
            assert!(changes.take().is_empty(), "nothing new");
            cache.observe(watcher::Event::Delete(old.clone()));
            assert_eq!(marks(&cache), marked(&[("young", None), ("other", None)]));
            assert_eq!(changes.take(), BTreeSet::from(["old".to_owned(), "young".to_owned()]));

            for node in [
                watcher::Event::Init,
                watcher::Event::InitApply(young.clone()),
                watcher::Event::InitApply(old.clone()),
            ] {
                cache.observe(node);
            }
            cache.observe(watcher::Event::InitDone);
            assert_eq!(marks(&cache), marked(&[("old", None), ("young", Some("old"))]));
            cache.observe(watcher::Event::Apply(claiming("young", "i-3", 3)));
            assert_eq!(marks(&cache), marked(&[("old", None), ("young", None)]));
        }
    }

    fn ready(name: &str, version: u32, ready: &str) -> NodeView {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "resourceVersion": version.to_string()},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": version.to_string()}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_heartbeat_is_stored_and_not_told() {
        let cache = NodeCache::new();
        let changes = cache.subscribe();
        cache.observe(watcher::Event::Apply(ready("a", 1, "True")));
        assert_eq!(changes.take().len(), 1);
        cache.observe(watcher::Event::Apply(ready("a", 2, "True")));
        assert!(changes.take().is_empty());
        assert_eq!(cache.node("a").unwrap().metadata.resource_version, "2");
        cache.observe(watcher::Event::Apply(ready("a", 3, "False")));
        assert_eq!(changes.take().len(), 1);
    }

    #[test]
    fn a_reader_is_told_only_what_matters_to_it() {
        let cache = NodeCache::new();
        cache.observe(watcher::Event::Apply(ready("a", 1, "True")));
        let not_ready = |node: Option<&NodeView>| node.is_some_and(|node| !node.is_ready());
        let changes = cache.subscribe_where(move |was, is| not_ready(was) || not_ready(is));
        assert!(changes.take().is_empty(), "also at the start");
        cache.observe(watcher::Event::Apply(ready("a", 2, "False")));
        assert_eq!(changes.take().len(), 1);
        cache.observe(watcher::Event::Apply(ready("a", 3, "True")));
        assert_eq!(changes.take().len(), 1, "it is told that it is over, too");
        cache.observe(watcher::Event::Apply(ready("a", 4, "True")));
        cache.observe(watcher::Event::Delete(ready("a", 5, "True")));
        assert!(changes.take().is_empty());
    }

    #[test]
    fn a_list_that_is_made_again_keeps_what_is_the_same_and_tells_only_what_is_not() {
        let cache = NodeCache::new();
        cache.observe(watcher::Event::Apply(ready("same", 1, "True")));
        cache.observe(watcher::Event::Apply(ready("other", 1, "True")));
        let changes = cache.subscribe();
        assert_eq!(changes.take().len(), 2);
        let before = cache.node("same").unwrap();
        cache.observe(watcher::Event::Init);
        cache.observe(watcher::Event::InitApply(ready("same", 1, "True")));
        cache.observe(watcher::Event::InitApply(ready("other", 2, "False")));
        cache.observe(watcher::Event::InitDone);
        assert!(Arc::ptr_eq(&before, &cache.node("same").unwrap()));
        assert_eq!(changes.take(), BTreeSet::from(["other".to_owned()]));
    }
}

#[cfg(test)]
mod tests_of_counts {
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
        // The arguments of RKE2 count more than the word of a person.
        for (name, provider) in [("g", "external"), ("h", "aws")] {
            let arguments = json!(["server", "--kubelet-arg", format!("cloud-provider={provider}")]).to_string();
            let annotations = json!({"outrigger.dev/kubelet": "external", "rke2.io/node-args": arguments});
            seen(&cache, &json!({"metadata": {"name": name, "annotations": annotations}}));
        }
        let arguments = json!(["agent", "--kubelet-arg", "cloud-provider=external"]).to_string();
        seen(
            &cache,
            &json!({"metadata": {"name": "i", "annotations": {"k3s.io/node-args": arguments}}}),
        );
        cache.observe(Event::InitDone);
        let expected = NodeCounts {
            total: 10,
            uninitialized: 1,
            migrated: 6,
        };
        assert_eq!(cache.counts(), Some(expected));
    }
}
