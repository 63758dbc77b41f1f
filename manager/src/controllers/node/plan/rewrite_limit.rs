//! Limits writes that compete with another writer. Pure.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::{addresses, set};
use crate::node_cache::{Address, NodeView};

/// Counts rewrites of addresses, by UID of the Node.
///
/// An in-tree kubelet writes its Node's addresses, too. If it disagrees with EC2, both would overwrite each other for
/// ever, and each write costs the kubelet a new serving certificate. So the controller stops after two writes in a row.
#[derive(Debug, Default)]
pub struct AddressRewrites {
    nodes: HashMap<String, Rewrite>,
}

#[derive(Debug, Default)]
struct Rewrite {
    count: u8,
    last: Vec<Address>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AddressAction {
    Keep,
    Write(Vec<Value>),
    /// Another writer keeps changing the addresses: stop.
    Stop {
        first: bool,
    },
}

/// Writes in a row before the controller stops.
const MAX_REWRITES: u8 = 2;

impl AddressRewrites {
    /// Decides about one Node. `kubelets_external`: no kubelet writes addresses any more, so the limit is off.
    pub fn decide(&mut self, node: &NodeView, wanted: &[Address], kubelets_external: bool) -> AddressAction {
        let patch = addresses(node, wanted);
        if patch.is_empty() {
            self.nodes.remove(node.uid());
            return AddressAction::Keep;
        }

        let memory = self.nodes.entry(node.uid().to_owned()).or_default();
        if set(&memory.last) != set(wanted) {
            // EC2 lists other addresses, so the count starts again.
            *memory = Rewrite {
                count: 0,
                last: wanted.to_vec(),
            };
        }

        if memory.count < MAX_REWRITES || kubelets_external {
            return AddressAction::Write(patch);
        }

        let first = memory.count == MAX_REWRITES;
        memory.count = MAX_REWRITES + 1;

        AddressAction::Stop { first }
    }

    pub fn written(&mut self, node: &NodeView) {
        if let Some(memory) = self.nodes.get_mut(node.uid()) {
            memory.count = (memory.count + 1).min(MAX_REWRITES);
        }
    }

    pub fn retain(&mut self, uids: &BTreeSet<&str>) {
        self.nodes.retain(|uid, _| uids.contains(uid.as_str()));
    }

    pub fn stopped(&self) -> usize {
        self.nodes.values().filter(|memory| memory.count > MAX_REWRITES).count()
    }
}

/// Counts completions that another writer reverts, by UID of the Node.
#[derive(Debug, Default)]
pub struct Completions {
    counts: HashMap<String, u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionAction {
    Write,
    /// Another writer keeps reverting it: stop.
    Stop {
        first: bool,
    },
}

impl Completions {
    pub fn decide(&mut self, node: &NodeView, kubelets_external: bool) -> CompletionAction {
        let count = self.counts.entry(node.uid().to_owned()).or_default();
        if *count < MAX_REWRITES || kubelets_external {
            return CompletionAction::Write;
        }
        let first = *count == MAX_REWRITES;
        *count = MAX_REWRITES + 1;
        CompletionAction::Stop { first }
    }

    pub fn written(&mut self, node: &NodeView) {
        let count = self.counts.entry(node.uid().to_owned()).or_default();
        *count = (*count + 1).min(MAX_REWRITES);
    }

    /// Forgets a Node that lacks nothing.
    pub fn is_complete(&mut self, node: &NodeView) {
        self.counts.remove(node.uid());
    }

    pub fn retain(&mut self, uids: &BTreeSet<&str>) {
        self.counts.retain(|uid, _| uids.contains(uid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node_cache::AddressType;

    fn address(text: &str) -> Address {
        Address {
            kind: AddressType::InternalIp,
            address: text.into(),
        }
    }

    fn node() -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u"}})).unwrap()
    }

    #[test]
    fn something_new_from_ec2_is_no_quarrel() {
        let (node, mut rewrites) = (node(), AddressRewrites::default());
        for _ in 0..2 {
            assert!(matches!(
                rewrites.decide(&node, &[address("10.0.0.1")], false),
                AddressAction::Write(_)
            ));
            rewrites.written(&node);
        }
        assert_eq!(
            rewrites.decide(&node, &[address("10.0.0.1")], false),
            AddressAction::Stop { first: true }
        );
        assert_eq!(
            rewrites.decide(&node, &[address("10.0.0.1")], false),
            AddressAction::Stop { first: false }
        );
        assert_eq!(rewrites.stopped(), 1);
        assert!(matches!(
            rewrites.decide(&node, &[address("10.0.0.2")], false),
            AddressAction::Write(_)
        ));
        assert_eq!(rewrites.stopped(), 0);
    }

    #[test]
    fn the_limit_forgets_nodes_that_do_not_exist_any_more() {
        let (node, wanted, mut rewrites) = (node(), [address("10.0.0.1")], AddressRewrites::default());
        let mut completions = Completions::default();
        for _ in 0..2 {
            rewrites.decide(&node, &wanted, false);
            rewrites.written(&node);
            completions.written(&node);
        }
        assert_eq!(rewrites.stopped(), 0, "two writes are allowed");
        rewrites.decide(&node, &wanted, false);

        for (uids, stopped) in [(BTreeSet::from(["u"]), 1), (BTreeSet::new(), 0)] {
            rewrites.retain(&uids);
            completions.retain(&uids);
            assert_eq!(rewrites.stopped(), stopped, "{uids:?}");
            let stops = completions.decide(&node, false) != CompletionAction::Write;
            assert_eq!(stops, stopped == 1, "{uids:?}");
        }
    }

    #[test]
    fn what_is_taken_away_twice_is_left_alone_until_the_kubelets_are_external() {
        let (node, mut completions) = (node(), Completions::default());
        for _ in 0..2 {
            assert_eq!(completions.decide(&node, false), CompletionAction::Write);
            completions.written(&node);
        }
        assert_eq!(completions.decide(&node, false), CompletionAction::Stop { first: true });
        assert_eq!(
            completions.decide(&node, false),
            CompletionAction::Stop { first: false }
        );
        assert_eq!(completions.decide(&node, true), CompletionAction::Write);
        completions.is_complete(&node);
        assert_eq!(completions.decide(&node, false), CompletionAction::Write);
    }
}
