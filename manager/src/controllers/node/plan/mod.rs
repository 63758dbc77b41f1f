//! Plans the patches of a Node. Pure.

pub mod completion;
pub mod rewrite_limit;

use std::collections::BTreeSet;

use outrigger_shared::taints;
use serde_json::{Value, json};

use crate::controllers::node::desired::Desired;
use crate::node_cache::{Address, NodeView};
use crate::node_patch;

pub(super) const TYPE: [&str; 2] = ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
pub(super) const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
pub(super) const REGION: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Patch of the status, first: a Node without its taint is schedulable and must have its addresses by then.
    /// Empty: nothing to change.
    pub status: Vec<Value>,
    pub node: Vec<Value>,
    pub notes: Vec<String>,
}

/// Plans the initialization: addresses, then provider ID, labels and removal of the taint in one write.
pub fn initialize(node: &NodeView, desired: &Desired, wanted: &[Address]) -> Plan {
    let mut notes = Vec::new();
    let status = addresses(node, wanted);
    if !status.is_empty() {
        notes.push("addresses".to_owned());
    }

    let mut operations = vec![node_patch::test_uid(node)];
    operations.extend(provider_id(node, desired, &mut notes));

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

pub(super) fn provider_id(node: &NodeView, desired: &Desired, notes: &mut Vec<String>) -> Option<Value> {
    let id = desired.provider_id.as_ref().filter(|_| node.provider_id().is_none())?;
    notes.push(format!("provider ID {id}"));
    Some(json!({"op": "add", "path": "/spec/providerID", "value": id}))
}

/// Overwrites the old and new labels of type, zone and region. Sets additional labels only for missing keys, and never
/// with a prefix reserved for Kubernetes.
fn labels(node: &NodeView, desired: &Desired, notes: &mut Vec<String>) -> Vec<(String, String)> {
    let mut changed: Vec<(String, String)> = Vec::new();
    for (keys, value) in pairs(desired) {
        changed.extend(
            keys.into_iter()
                .filter(|key| node.label(key) != Some(value))
                .map(|key| (key.to_owned(), value.to_owned())),
        );
    }

    for (key, value) in &desired.additional {
        match node.label(key) {
            _ if is_kubernetes_own(key) => notes.push(format!("label {key} not set: Kubernetes reserves its name")),
            None => changed.push((key.clone(), value.clone())),
            Some(old) if old != value => notes.push(format!("label {key} keeps {old:?} instead of {value:?}")),
            Some(_) => {}
        }
    }

    notes.extend(changed.iter().map(|(key, value)| format!("label {key}={value}")));

    changed
}

/// The old and new label keys of type, zone and region; unknown values are left out.
pub(super) fn pairs(desired: &Desired) -> impl Iterator<Item = ([&'static str; 2], &str)> {
    let kind = desired.instance_type.as_deref().unwrap_or_default();
    let pairs = [
        (TYPE, kind),
        (ZONE, desired.zone.as_str()),
        (REGION, desired.region.as_str()),
    ];
    pairs.into_iter().filter(|(_, value)| !value.is_empty())
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

/// The patch of the addresses; empty if the set is the same in any order, or EC2 lists no address.
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

pub(super) fn set(addresses: &[Address]) -> BTreeSet<&Address> {
    addresses.iter().collect()
}

/// The patch that sets the new labels to the values of the old ones, which users may overwrite. A missing old label
/// changes nothing. Empty: nothing to change.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::node_cache::AddressType;

    fn desired() -> Desired {
        Desired {
            provider_id: Some("aws:///z/i-1".into()),
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
        }
    }

    fn address(text: &str) -> Address {
        Address {
            kind: AddressType::InternalIp,
            address: text.into(),
        }
    }

    fn node(labels: Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "labels": labels}})).unwrap()
    }

    #[test]
    fn further_labels_never_change_what_is_there_nor_kubernetes_own() {
        let plan = initialize(&node(json!({"mine": "old"})), &desired(), &[]);
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
    fn an_additional_label_that_is_right_is_no_note() {
        let plan = initialize(&node(json!({"mine": "new"})), &desired(), &[]);
        assert!(!plan.notes.iter().any(|note| note.contains("mine")), "{:?}", plan.notes);
    }

    #[test]
    fn a_patch_of_addresses_tests_the_addresses_that_it_replaces() {
        let (old, new) = (address("10.0.0.1"), address("10.0.0.2"));
        let without = node(json!({}));
        let mut with = without.clone();
        with.status.addresses = vec![old.clone()];

        let test_uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let test_old = json!({"op": "test", "path": "/status/addresses", "value": [old]});
        let add = json!({"op": "add", "path": "/status/addresses", "value": [new]});
        let wanted = [new];
        assert_eq!(addresses(&without, &wanted), [test_uid.clone(), add.clone()]);
        assert_eq!(addresses(&with, &wanted), [test_uid, test_old, add]);
    }

    #[test]
    fn the_notes_name_the_addresses_only_if_they_change() {
        for (wanted, is_named) in [(vec![], false), (vec![address("10.0.0.1")], true)] {
            let plan = initialize(&node(json!({})), &desired(), &wanted);
            assert_eq!(plan.notes.contains(&"addresses".to_owned()), is_named, "{plan:?}");
        }
    }

    #[test]
    fn an_unknown_instance_type_sets_no_label() {
        let plan = initialize(&node(json!({"x": "y"})), &desired(), &[]);
        assert!(
            !plan
                .node
                .iter()
                .any(|operation| operation["path"].to_string().contains("instance-type"))
        );
    }
}
