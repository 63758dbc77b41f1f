//! The state of the cache: apply, delete, reset, and the readers to notify. No IO.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use outrigger_shared::provider_id::InstanceId;
use tokio::sync::Notify;

use super::ec2_name;
use super::text::{Text, Texts};
use super::view::NodeView;

/// Decides from the old and the new Node whether a reader is notified. `None`: the Node does not exist.
pub type Matters = dyn Fn(Option<&NodeView>, Option<&NodeView>) -> bool + Send + Sync;

type Nodes = HashMap<Text, Arc<NodeView>>;

#[derive(Default)]
pub(super) struct Index {
    nodes: Nodes,
    listing: Option<Nodes>,
    texts: Texts,
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    changes: Weak<Changes>,
    matters: Box<Matters>,
}

/// The names of Nodes that changed, for one reader.
#[derive(Debug, Default)]
pub struct Changes {
    names: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Changes {
    fn put(&self, name: &str) {
        lock(&self.names).insert(name.to_owned());
        self.wake.notify_one();
    }

    /// Waits until something changed, without taking it.
    pub async fn changed(&self) {
        loop {
            if !lock(&self.names).is_empty() {
                return;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the names that changed since the last call; a deleted Node's name is among them.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.names))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is the same Node with the same provider ID, and as ready as before.
fn claims_the_same(was: &NodeView, is: &NodeView) -> bool {
    (was.uid(), was.provider_id(), was.is_ready()) == (is.uid(), is.provider_id(), is.is_ready())
}

/// The Node with a stronger claim on the instance that both name. A kubelet may write any provider ID while its Node has none,
/// but its credentials are for one name, and the API server sets the time.
///
/// A name that EC2 gives is compared with the instance itself, so no other Node makes its claim weaker: a machine may have two
/// such names for a while. Of Nodes with other names a Ready one stands before the old Node of a renamed machine, and then the
/// oldest.
fn stronger(node: &NodeView, claimants: &[Arc<NodeView>], id: &InstanceId) -> Option<Text> {
    if ec2_name::is_one(node.name()) {
        return None;
    }

    let named = |other: &&Arc<NodeView>| ec2_name::instance(other.name()) == Some(id.as_str());
    let possible = |other: &&Arc<NodeView>| ec2_name::instance(other.name()).is_none();
    let rivals = claimants.iter().filter(possible);
    let first = rivals.min_by_key(|other| (!other.is_ready(), age(other)));
    let stronger = claimants.iter().find(named).or(first);
    stronger
        .filter(|other| other.name() != node.name())
        .map(|other| other.metadata.name.clone())
}

/// Orders Nodes by age, and those of one second in any lasting order.
fn age(node: &NodeView) -> (Option<i64>, &str) {
    let created = node.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0.as_second()), node.uid())
}

impl Index {
    pub(super) fn node(&self, name: &str) -> Option<Arc<NodeView>> {
        self.nodes.get(name).cloned()
    }

    pub(super) fn snapshot(&self) -> Vec<Arc<NodeView>> {
        self.nodes.values().cloned().collect()
    }

    pub(super) fn apply(&mut self, node: NodeView) {
        let node = self.take_in(node);
        let old = self.nodes.insert(node.metadata.name.clone(), Arc::clone(&node));
        self.announce(old.as_deref(), Some(&node));
        if !old.as_deref().is_some_and(|old| claims_the_same(old, &node)) {
            self.settle(old.iter().chain([&node]).filter_map(|node| node.named_instance()));
        }
    }

    pub(super) fn delete(&mut self, name: &str) {
        let old = self.nodes.remove(name);
        self.announce(old.as_deref(), None);
        self.settle(old.iter().filter_map(|node| node.named_instance()));
    }

    pub(super) fn begin_list(&mut self) {
        self.listing = Some(Nodes::new());
    }

    /// Adds a Node of a new list. If the Node is unchanged, the stored one is kept, so that a new list does not need
    /// the memory twice.
    pub(super) fn list(&mut self, node: NodeView) {
        let node = self.take_in(node);
        let node = match self.nodes.get(&*node.metadata.name) {
            Some(old) if **old == *node => Arc::clone(old),
            _ => node,
        };
        let listing = self.listing.get_or_insert_default();
        listing.insert(node.metadata.name.clone(), node);
    }

    pub(super) fn end_list(&mut self) {
        let fresh = self.listing.take().unwrap_or_default();
        let old = std::mem::replace(&mut self.nodes, fresh);
        for (name, was) in &old {
            let is = self.nodes.get(name).cloned();
            self.announce(Some(was), is.as_deref());
        }

        let new: Vec<Arc<NodeView>> = self
            .nodes
            .iter()
            .filter(|(name, _)| !old.contains_key(*name))
            .map(|(_, node)| Arc::clone(node))
            .collect();

        for node in new {
            self.announce(None, Some(&node));
        }

        let mut claimed: HashMap<InstanceId, usize> = HashMap::new();
        for id in self.nodes.values().filter_map(|node| node.named_instance()) {
            *claimed.entry(id).or_default() += 1;
        }
        let marked = self.nodes.values().filter(|node| node.same_instance_as.is_some());
        let mut contested: BTreeSet<InstanceId> = marked.filter_map(|node| node.named_instance()).collect();
        contested.extend(claimed.into_iter().filter(|(_, count)| *count > 1).map(|(id, _)| id));
        self.settle(contested);
    }

    /// Marks the Nodes whose claim on one of these instances is the weaker one.
    fn settle(&mut self, instances: impl IntoIterator<Item = InstanceId>) {
        for id in instances {
            let names = |node: &&Arc<NodeView>| {
                // Most texts differ, and a comparison of their ends is quick.
                let text = node.provider_id().unwrap_or_default();
                text.contains(id.as_str()) && node.named_instance().as_ref() == Some(&id)
            };
            let claimants: Vec<Arc<NodeView>> = self.nodes.values().filter(names).cloned().collect();

            for was in &claimants {
                let stronger = stronger(was, &claimants, &id);
                if was.same_instance_as == stronger {
                    continue;
                }
                let is = Arc::new(NodeView {
                    same_instance_as: stronger,
                    ..NodeView::clone(was)
                });
                self.nodes.insert(is.metadata.name.clone(), Arc::clone(&is));
                self.announce(Some(was), Some(&is));
            }
        }
    }

    pub(super) fn subscribe(&mut self, matters: Box<Matters>) -> Arc<Changes> {
        let changes = Arc::new(Changes::default());
        for (name, node) in &self.nodes {
            if matters(None, Some(node)) {
                changes.put(name);
            }
        }

        self.subscribers.push(Subscriber {
            changes: Arc::downgrade(&changes),
            matters,
        });
        changes
    }

    fn take_in(&mut self, mut node: NodeView) -> Arc<NodeView> {
        let old = self.nodes.get(&*node.metadata.name);
        let old = old.filter(|old| claims_the_same(old, &node));
        node.same_instance_as = old.and_then(|old| old.same_instance_as.clone());
        node.compact(&mut self.texts);
        Arc::new(node)
    }

    fn announce(&mut self, was: Option<&NodeView>, is: Option<&NodeView>) {
        let Some(name) = is.or(was).map(NodeView::name) else {
            return;
        };
        self.subscribers.retain(|subscriber| {
            let Some(changes) = subscriber.changes.upgrade() else {
                return false;
            };
            if (subscriber.matters)(was, is) {
                changes.put(name);
            }
            true
        });
    }
}
