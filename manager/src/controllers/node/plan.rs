//! From what a Node says to what it should say: patches with their reasons. Pure.

use std::collections::{BTreeSet, HashMap};

use outrigger_shared::taints;
use serde_json::{Value, json};

use super::desired::Desired;
use crate::node_cache::{Address, NodeView};
use crate::node_patch;

const TYPE: [&str; 2] = ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const REGION: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];

/// What initializes a Node.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Patch of the status, first: a Node without its taint is schedulable and must have its addresses by then.
    /// Empty: nothing to do.
    pub status: Vec<Value>,
    /// Patch of the Node, which takes the taint off.
    pub node: Vec<Value>,
    /// What changes, for people.
    pub notes: Vec<String>,
}

/// The plan that initializes a Node: addresses, then provider ID, labels and the end of the taint in one write.
#[must_use]
pub fn initialize(node: &NodeView, desired: &Desired) -> Plan {
    let mut notes = Vec::new();
    let status = addresses(node, &desired.addresses);
    if !status.is_empty() {
        notes.push("addresses".to_owned());
    }
    let mut operations = vec![node_patch::test_uid(node)];
    if node.provider_id().is_none() {
        operations.push(json!({"op": "add", "path": "/spec/providerID", "value": desired.provider_id}));
        notes.push(format!("provider ID {}", desired.provider_id));
    }
    let labels = labels(node, desired, &mut notes);
    operations.extend(node_patch::set_labels(node, &labels));
    operations.extend(node_patch::remove_taints(node, taints::UNINITIALIZED));
    notes.push("taint off".to_owned());
    Plan {
        status,
        node: operations,
        notes,
    }
}

/// Type, zone and region are overwritten under both of their names. Further labels are set only where the key is
/// free, and never under Kubernetes' own names.
fn labels(node: &NodeView, desired: &Desired, notes: &mut Vec<String>) -> Vec<(String, String)> {
    let kind = desired.instance_type.as_deref().unwrap_or_default();
    let pairs = [
        (TYPE, kind),
        (ZONE, desired.zone.as_str()),
        (REGION, desired.region.as_str()),
    ];
    let mut changed: Vec<(String, String)> = Vec::new();
    for (keys, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        changed.extend(
            keys.into_iter()
                .filter(|key| node.label(key) != Some(value))
                .map(|key| (key.to_owned(), value.to_owned())),
        );
    }
    for (key, value) in &desired.additional {
        match node.label(key) {
            _ if is_kubernetes_own(key) => notes.push(format!("label {key} dropped: the name is Kubernetes' own")),
            None => changed.push((key.clone(), value.clone())),
            Some(old) if old != value => notes.push(format!("label {key} keeps {old:?} instead of {value:?}")),
            Some(_) => {}
        }
    }
    notes.extend(changed.iter().map(|(key, value)| format!("label {key}={value}")));
    changed
}

/// Whether a label's prefix is `kubernetes.io`, `k8s.io` or below one of them.
fn is_kubernetes_own(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    ["kubernetes.io", "k8s.io"].iter().any(|own| {
        prefix
            .strip_suffix(own)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// The patch of the addresses; empty when there is nothing to write: the set is the same, whatever its order, or
/// EC2 gave no address at all.
#[must_use]
pub fn addresses(node: &NodeView, wanted: &[Address]) -> Vec<Value> {
    if wanted.is_empty() || set(wanted) == set(&node.status.addresses) {
        return Vec::new();
    }
    let mut operations = vec![node_patch::test_uid(node)];
    if !node.status.addresses.is_empty() {
        operations.push(json!({"op": "test", "path": "/status/addresses", "value": node.status.addresses}));
    }
    operations.push(json!({"op": "add", "path": "/status/addresses", "value": wanted}));
    operations
}

fn set(addresses: &[Address]) -> BTreeSet<&Address> {
    addresses.iter().collect()
}

/// The patch that gives the newer labels the values of the older ones, which decide: users overwrite those. Nothing
/// happens where the older one is missing. Empty: nothing to do.
#[must_use]
pub fn repair_labels(node: &NodeView) -> Vec<Value> {
    let mut tests = Vec::new();
    let mut wanted = Vec::new();
    for [old, new] in [ZONE, REGION, TYPE] {
        if let Some(value) = node.label(old)
            && node.label(new) != Some(value)
        {
            tests.push(json!({"op": "test", "path": node_patch::pointer(old), "value": value}));
            wanted.push((new.to_owned(), value.to_owned()));
        }
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut operations = vec![node_patch::test_uid(node)];
    operations.extend(tests);
    operations.extend(node_patch::set_labels(node, &wanted));
    operations
}

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::node_cache::AddressType;

    fn desired() -> Desired {
        Desired {
            provider_id: "aws:///z/i-1".into(),
            instance_type: None,
            zone: "z".into(),
            region: "r".into(),
            additional: BTreeMap::from([
                ("foo.k8s.io/x".to_owned(), "1".to_owned()),
                ("k8s.io/y".to_owned(), "1".to_owned()),
                ("topology.k8s.aws/zone-id".to_owned(), "id".to_owned()),
                ("mine".to_owned(), "new".to_owned()),
                ("notk8s.io/z".to_owned(), "1".to_owned()),
            ]),
            addresses: vec![Address {
                kind: AddressType::InternalIp,
                address: "10.0.0.1".into(),
            }],
        }
    }

    fn node(labels: Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "labels": labels}})).unwrap()
    }

    #[test]
    fn further_labels_never_change_what_is_there_nor_kubernetes_own() {
        let plan = initialize(&node(json!({"mine": "old"})), &desired());
        let paths: Vec<&str> = plan
            .node
            .iter()
            .filter_map(|operation| operation["path"].as_str())
            .collect();
        assert!(paths.contains(&"/metadata/labels/topology.k8s.aws~1zone-id"));
        assert!(paths.contains(&"/metadata/labels/notk8s.io~1z"));
        for absent in [
            "/metadata/labels/foo.k8s.io~1x",
            "/metadata/labels/k8s.io~1y",
            "/metadata/labels/mine",
        ] {
            assert!(!paths.contains(&absent), "{absent}");
        }
        assert!(plan.notes.iter().any(|note| note.contains("keeps \"old\"")));
    }

    #[test]
    fn an_unknown_instance_type_sets_no_label() {
        let plan = initialize(&node(json!({"x": "y"})), &desired());
        assert!(
            !plan
                .node
                .iter()
                .any(|operation| operation["path"].to_string().contains("instance-type"))
        );
    }

    #[test]
    fn something_new_from_ec2_is_no_quarrel() {
        let address = |ip: &str| Address {
            kind: AddressType::InternalIp,
            address: ip.into(),
        };
        let (node, mut rewrites) = (node(json!({})), Rewrites::default());
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
}
