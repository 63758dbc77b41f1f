//! The work queue: one action per instance. No IO: Nodes, results and times are input, batches are output.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use outrigger_aws::InstanceId;
use tokio::time::Instant;

use crate::backoff::Backoff;

/// First backoff after a failure that concerns one instance only.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Set the tags, then the Node's label.
    Tag,
    Untag,
}

#[derive(Debug, Clone, Copy)]
pub struct ObservedNode<'a> {
    pub name: &'a str,
    /// Its instance; `None` for one that is not on EC2 or has no provider ID yet.
    pub instance: Option<&'a InstanceId>,
    /// Whether its label has the hash of these tags.
    pub labelled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub action: Action,
    pub instances: Vec<InstanceId>,
}

#[derive(Debug, Clone)]
struct Item {
    action: Action,
    /// The Node of the instance. It no longer exists if tags are to be removed.
    node: String,
    /// The tags are missing although the label has their hash.
    repair: bool,
}

/// Which instances belong to Nodes, and what is to be done.
#[derive(Debug)]
pub struct WorkQueue {
    /// By Node's name.
    instances: HashMap<String, InstanceId>,
    nodes: HashMap<InstanceId, BTreeSet<String>>,
    items: HashMap<InstanceId, Item>,
    ready: VecDeque<InstanceId>,
    in_flight: HashSet<InstanceId>,
    backoff: Backoff<InstanceId>,
    /// EC2 does not know them; until then they may still appear, since EC2 is eventually consistent.
    missing: HashMap<InstanceId, Instant>,
    /// No try will ever help, as long as EC2 does not list them.
    abandoned: HashSet<InstanceId>,
}

impl Default for WorkQueue {
    fn default() -> Self {
        Self {
            instances: HashMap::new(),
            nodes: HashMap::new(),
            items: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: HashSet::new(),
            backoff: Backoff::new(FIRST_BACKOFF, MAX_BACKOFF),
            missing: HashMap::new(),
            abandoned: HashSet::new(),
        }
    }
}

impl WorkQueue {
    pub fn observe(&mut self, node: ObservedNode<'_>) {
        if self.instances.get(node.name) != node.instance {
            self.gone(node.name);
        }

        let Some(instance) = node.instance else {
            return;
        };

        self.instances.insert(node.name.to_owned(), instance.clone());

        let nodes = self.nodes.entry(instance.clone()).or_default();
        nodes.insert(node.name.to_owned());
        match self.items.get(instance) {
            // The instance has a Node again before its tags were removed.
            Some(item) if item.action == Action::Untag => self.want(instance, node.name, Action::Tag, true),
            Some(item) if node.labelled && !item.repair && !self.in_flight.contains(instance) => {
                self.drop_item(instance);
            }
            None if !node.labelled && !self.is_given_up(instance) => self.want(instance, node.name, Action::Tag, false),
            _ => {}
        }
    }

    /// Records the deletion of a Node. Its instance loses the tags, unless another Node has it or EC2 never listed it.
    pub fn gone(&mut self, name: &str) {
        let Some(instance) = self.instances.remove(name) else {
            return;
        };

        if let Some(nodes) = self.nodes.get_mut(&instance) {
            nodes.remove(name);
            if !nodes.is_empty() {
                return;
            }
        }

        self.nodes.remove(&instance);

        let was_missing = self.missing.remove(&instance).is_some();
        if self.abandoned.remove(&instance) || was_missing {
            self.drop_item(&instance);
        } else {
            self.want(&instance, name, Action::Untag, false);
        }
    }

    /// Queues an instance that lost tags, or that EC2 lists by now.
    pub fn repair(&mut self, instance: &InstanceId) {
        self.missing.remove(instance);
        self.abandoned.remove(instance);
        let node = self.nodes.get(instance).and_then(BTreeSet::first).cloned();
        if let Some(node) = node.filter(|_| !self.items.contains_key(instance)) {
            self.want(instance, &node, Action::Tag, true);
        }
    }

    fn want(&mut self, instance: &InstanceId, node: &str, action: Action, repair: bool) {
        let node = node.to_owned();
        let item = Item { action, node, repair };
        let is_new = self.items.insert(instance.clone(), item).is_none();
        if is_new && !self.in_flight.contains(instance) {
            self.ready.push_back(instance.clone());
        }
    }

    fn drop_item(&mut self, instance: &InstanceId) {
        self.items.remove(instance);
        self.backoff.forget(instance);
        self.ready.retain(|other| other != instance);
    }

    fn is_given_up(&self, instance: &InstanceId) -> bool {
        self.abandoned.contains(instance) || self.missing.contains_key(instance)
    }

    /// Takes the next batch of one action, with at most `most` instances. They are in flight then.
    pub fn take(&mut self, most: usize, now: Instant) -> Option<Batch> {
        for instance in self.backoff.due(now) {
            let is_new = !self.in_flight.contains(&instance) && !self.ready.contains(&instance);
            if is_new && self.items.contains_key(&instance) {
                self.ready.push_back(instance);
            }
        }

        let mut batch: Option<Batch> = None;
        let mut rest = VecDeque::new();
        while let Some(instance) = self.ready.pop_front() {
            // An instance in backoff is queued again when it is due.
            let Some(item) = self
                .items
                .get(&instance)
                .filter(|_| self.backoff.may_try(&instance, now))
            else {
                continue;
            };

            let batch = batch.get_or_insert_with(|| Batch {
                action: item.action,
                instances: Vec::new(),
            });
            if batch.action == item.action {
                batch.instances.push(instance);
            } else {
                rest.push_back(instance);
            }

            if batch.instances.len() >= most {
                break;
            }
        }

        rest.append(&mut self.ready);
        self.ready = rest;

        let batch = batch?;
        self.in_flight.extend(batch.instances.iter().cloned());

        Some(batch)
    }

    pub fn has_work(&self, now: Instant) -> bool {
        !self.ready.is_empty() || self.backoff.due(now).iter().any(|id| !self.in_flight.contains(id))
    }

    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        self.backoff.next_due(now)
    }

    /// Records a success. An action requested meanwhile is queued.
    pub fn done(&mut self, instance: &InstanceId, action: Action) {
        self.in_flight.remove(instance);
        self.backoff.forget(instance);
        match self.items.get(instance) {
            Some(item) if item.action != action => self.ready.push_back(instance.clone()),
            _ => drop(self.items.remove(instance)),
        }
    }

    /// Records a failure that concerns this instance only. Returns the number of failures in a row.
    pub fn failed(&mut self, instance: &InstanceId, now: Instant) -> u32 {
        self.in_flight.remove(instance);
        self.backoff.failed(instance, now)
    }

    /// Requeues an instance after a failure that concerns all calls, behind the others, which may need an action that is
    /// allowed.
    pub fn requeue(&mut self, instance: &InstanceId) {
        self.in_flight.remove(instance);
        if self.items.contains_key(instance) && !self.ready.contains(instance) {
            self.ready.push_back(instance.clone());
        }
    }

    /// EC2 does not list the instance. It is abandoned if that lasts until `until`.
    pub fn missing(&mut self, instance: &InstanceId, until: Instant) {
        self.done(instance, Action::Tag);
        if self.nodes.contains_key(instance) {
            self.missing.entry(instance.clone()).or_insert(until);
        }
    }

    pub fn abandoned(&mut self, instance: &InstanceId) {
        self.done(instance, Action::Tag);
        self.missing.remove(instance);
        if self.nodes.contains_key(instance) {
            self.abandoned.insert(instance.clone());
        }
    }

    pub fn awaited(&self) -> Vec<InstanceId> {
        self.missing.keys().cloned().collect()
    }

    /// Abandons instances that EC2 did not list in time, and returns them.
    pub fn give_up(&mut self, now: Instant) -> Vec<InstanceId> {
        let late: Vec<InstanceId> = self
            .missing
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(id, _)| id.clone())
            .collect();

        for instance in &late {
            self.missing.remove(instance);
            self.abandoned.insert(instance.clone());
        }

        late
    }

    /// All instances of Nodes without a queued action: they may have lost tags, or EC2 may list them by now.
    pub fn settled(&self) -> Vec<InstanceId> {
        let open = |id: &&InstanceId| self.items.contains_key(*id) || self.missing.contains_key(*id);
        self.nodes.keys().filter(|id| !open(id)).cloned().collect()
    }

    pub fn is_abandoned(&self, instance: &InstanceId) -> bool {
        self.abandoned.contains(instance)
    }

    pub fn node_of(&self, instance: &InstanceId) -> Option<&str> {
        self.items.get(instance).map(|item| item.node.as_str())
    }

    /// The Nodes of an instance: one, or briefly two when it was created again under another name.
    pub fn nodes_of(&self, instance: &InstanceId) -> Vec<String> {
        let nodes = self.nodes.get(instance);
        nodes.map(|nodes| nodes.iter().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
