//! How often something was written over someone else's. Pure.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::{addresses, set};
use crate::node_cache::{Address, NodeView};

/// How often addresses were written over someone else's, by UID of the Node.
///
/// An in-tree kubelet writes its Node's addresses too. Where it and EC2 disagree the two writers would take turns
/// for ever, and every turn costs the kubelet a new serving certificate: after two writes in a row this one stops.
#[derive(Debug, Default)]
pub struct Rewrites {
    nodes: HashMap<String, Rewritten>,
}

#[derive(Debug)]
struct Rewritten {
    count: u8,
    last: Vec<Address>,
}

/// What to do about a Node's addresses in a refresh.
#[derive(Debug, Clone, PartialEq)]
pub enum Refresh {
    /// Nothing.
    Keep,
    /// Send this patch of the status.
    Write(Vec<Value>),
    /// Someone else keeps writing other addresses: leave them. `first` is true the first time.
    Stop {
        /// Whether this is news.
        first: bool,
    },
}

/// Writes in a row before a Node's addresses are left alone.
const REWRITES: u8 = 2;

impl Rewrites {
    /// Decides about one Node. `kubelets_external`: no kubelet writes addresses any more, so the limit is off.
    pub fn decide(&mut self, node: &NodeView, wanted: &[Address], kubelets_external: bool) -> Refresh {
        let patch = addresses(node, wanted);
        if patch.is_empty() {
            self.nodes.remove(node.uid());
            return Refresh::Keep;
        }
        let memory = self.nodes.entry(node.uid().to_owned()).or_insert_with(|| Rewritten {
            count: 0,
            last: Vec::new(),
        });
        if set(&memory.last) != set(wanted) {
            // EC2 says something new: that is no quarrel.
            *memory = Rewritten {
                count: 0,
                last: wanted.to_vec(),
            };
        }
        if memory.count < REWRITES || kubelets_external {
            return Refresh::Write(patch);
        }
        let first = memory.count == REWRITES;
        memory.count = REWRITES + 1;
        Refresh::Stop { first }
    }

    /// Counts a write that was done.
    pub fn written(&mut self, node: &NodeView) {
        if let Some(memory) = self.nodes.get_mut(node.uid()) {
            memory.count = (memory.count + 1).min(REWRITES);
        }
    }

    /// Forgets Nodes that are gone.
    pub fn retain(&mut self, uids: &BTreeSet<&str>) {
        self.nodes.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// How many Nodes are left alone.
    #[must_use]
    pub fn stopped(&self) -> usize {
        self.nodes.values().filter(|memory| memory.count > REWRITES).count()
    }
}

/// How often labels were completed that someone else takes away again, by UID of the Node.
#[derive(Debug, Default)]
pub struct Completions {
    counts: HashMap<String, u8>,
}

/// What to do about what a Node lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complete {
    /// Write it.
    Write,
    /// Someone else keeps taking it away: leave it. `first` is true the first time.
    Stop {
        /// Whether this is news.
        first: bool,
    },
}

impl Completions {
    /// Decides about one Node that lacks something.
    pub fn decide(&mut self, node: &NodeView, kubelets_external: bool) -> Complete {
        let count = self.counts.entry(node.uid().to_owned()).or_default();
        if *count < REWRITES || kubelets_external {
            return Complete::Write;
        }
        let first = *count == REWRITES;
        *count = REWRITES + 1;
        Complete::Stop { first }
    }

    /// Counts a write that was done.
    pub fn written(&mut self, node: &NodeView) {
        let count = self.counts.entry(node.uid().to_owned()).or_default();
        *count = (*count + 1).min(REWRITES);
    }

    /// Forgets a Node that lacks nothing.
    pub fn is_complete(&mut self, node: &NodeView) {
        self.counts.remove(node.uid());
    }

    /// Forgets Nodes that are gone.
    pub fn retain(&mut self, uids: &BTreeSet<&str>) {
        self.counts.retain(|uid, _| uids.contains(uid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node_cache::AddressType;

    fn node() -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u"}})).unwrap()
    }

    #[test]
    fn something_new_from_ec2_is_no_quarrel() {
        let address = |ip: &str| Address {
            kind: AddressType::InternalIp,
            address: ip.into(),
        };
        let (node, mut rewrites) = (node(), Rewrites::default());
        for _ in 0..2 {
            assert!(matches!(
                rewrites.decide(&node, &[address("10.0.0.1")], false),
                Refresh::Write(_)
            ));
            rewrites.written(&node);
        }
        assert_eq!(
            rewrites.decide(&node, &[address("10.0.0.1")], false),
            Refresh::Stop { first: true }
        );
        assert_eq!(
            rewrites.decide(&node, &[address("10.0.0.1")], false),
            Refresh::Stop { first: false }
        );
        assert_eq!(rewrites.stopped(), 1);
        assert!(matches!(
            rewrites.decide(&node, &[address("10.0.0.2")], false),
            Refresh::Write(_)
        ));
        rewrites.retain(&BTreeSet::new());
        assert_eq!(rewrites.stopped(), 0);
    }

    #[test]
    fn what_is_taken_away_twice_is_left_alone_until_the_kubelets_are_external() {
        let (node, mut completions) = (node(), Completions::default());
        for _ in 0..2 {
            assert_eq!(completions.decide(&node, false), Complete::Write);
            completions.written(&node);
        }
        assert_eq!(completions.decide(&node, false), Complete::Stop { first: true });
        assert_eq!(completions.decide(&node, false), Complete::Stop { first: false });
        assert_eq!(completions.decide(&node, true), Complete::Write);
        completions.is_complete(&node);
        assert_eq!(completions.decide(&node, false), Complete::Write);
    }
}
