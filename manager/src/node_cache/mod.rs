//! The Nodes of the cluster as this program reads them: one watch, a small struct for each Node, and for each
//! controller the names that changed since it last looked.

mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use view::{Address, AddressType, Condition, NodeView, Taint};

/// The Nodes, kept by a watch. Clones share one cache.
#[derive(Debug, Clone)]
pub struct NodeCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    index: Mutex<Index>,
    ready: watch::Sender<bool>,
}

/// The plain state: apply, delete, reset.
#[derive(Debug, Default)]
struct Index {
    nodes: HashMap<String, Arc<NodeView>>,
    listing: Option<HashMap<String, Arc<NodeView>>>,
    subscribers: Vec<Weak<Mailbox>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    names: Mutex<BTreeSet<String>>,
    wake: Notify,
}

/// The names of Nodes that changed, for one reader.
#[derive(Debug)]
pub struct Changes {
    mailbox: Arc<Mailbox>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for NodeCache {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeCache {
    /// A cache that nothing fills yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                index: Mutex::default(),
                ready: watch::Sender::new(false),
            }),
        }
    }

    /// Fills the cache until `stop`. A watch that breaks starts again, with growing pauses; the cache keeps what it
    /// has meanwhile. One call for one cache.
    pub async fn run(&self, client: Client, stop: CancellationToken) {
        let stream = watcher(Api::<NodeView>::all(client), watcher::Config::default())
            .modify(view::prune)
            .default_backoff();
        pin_mut!(stream);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(event)) => self.observe(event),
                Some(Err(error)) => tracing::warn!(%error, "the watch of Nodes broke; it will be started again"),
                None => return,
            }
        }
    }

    /// Takes in one event of the watch.
    pub fn observe(&self, event: watcher::Event<NodeView>) {
        let mut index = lock(&self.inner.index);
        match event {
            watcher::Event::Apply(node) => index.apply(node),
            watcher::Event::Delete(node) => index.delete(node.name()),
            watcher::Event::Init => index.listing = Some(HashMap::new()),
            watcher::Event::InitApply(node) => {
                index
                    .listing
                    .get_or_insert_default()
                    .insert(node.name().to_owned(), Arc::new(node));
            }
            watcher::Event::InitDone => {
                index.reset();
                drop(index);
                self.inner.ready.send_replace(true);
            }
        }
    }

    /// Waits for the first full list.
    pub async fn ready(&self) {
        let mut ready = self.inner.ready.subscribe();
        // The sender lives as long as this cache, so waiting ends with the list only.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Whether the first full list has arrived.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// All Nodes, in no particular order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Arc<NodeView>> {
        lock(&self.inner.index).nodes.values().cloned().collect()
    }

    /// One Node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<Arc<NodeView>> {
        lock(&self.inner.index).nodes.get(name).cloned()
    }

    /// A reader of changes, which starts with every Node there is.
    #[must_use]
    pub fn subscribe(&self) -> Changes {
        let mut index = lock(&self.inner.index);
        let mailbox = Arc::new(Mailbox::default());
        lock(&mailbox.names).extend(index.nodes.keys().cloned());
        mailbox.wake.notify_one();
        index.subscribers.push(Arc::downgrade(&mailbox));
        Changes { mailbox }
    }
}

impl Index {
    fn apply(&mut self, node: NodeView) {
        self.announce([node.name().to_owned()]);
        self.nodes.insert(node.name().to_owned(), Arc::new(node));
    }

    fn delete(&mut self, name: &str) {
        self.nodes.remove(name);
        self.announce([name.to_owned()]);
    }

    fn reset(&mut self) {
        let fresh = self.listing.take().unwrap_or_default();
        let old = std::mem::replace(&mut self.nodes, fresh);
        let names: BTreeSet<String> = old.into_keys().chain(self.nodes.keys().cloned()).collect();
        self.announce(names);
    }

    fn announce(&mut self, names: impl IntoIterator<Item = String> + Clone) {
        self.subscribers.retain(|subscriber| {
            let Some(mailbox) = subscriber.upgrade() else {
                return false;
            };
            lock(&mailbox.names).extend(names.clone());
            mailbox.wake.notify_one();
            true
        });
    }
}

impl Changes {
    /// Waits until something changed, without taking it.
    pub async fn changed(&self) {
        loop {
            if !lock(&self.mailbox.names).is_empty() {
                return;
            }
            self.mailbox.wake.notified().await;
        }
    }

    /// Takes the names that changed since the last call; a deleted Node's name is among them.
    #[must_use]
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.mailbox.names))
    }
}

#[cfg(test)]
mod tests {
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
}
