//! Completes a Node that registered without the uninitialized taint, and so was never initialized. Pure.

use outrigger_shared::provider_id::ProviderId;
use outrigger_shared::taints;
use serde_json::{Value, json};

use super::{REGION, TYPE, ZONE, pairs, provider_id};
use crate::controllers::node::desired::{Desired, ZONE_ID};
use crate::node_cache::NodeView;
use crate::node_patch;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Patch of the Node; empty: nothing to change.
    pub operations: Vec<Value>,
    pub notes: Vec<String>,
}

/// Whether an initialized Node lacks a field. An in-tree kubelet's Node has no zone ID; that counts only after the
/// migration.
pub fn lacks_something(node: &NodeView, kubelets_external: bool) -> bool {
    if node.has_taint(taints::UNINITIALIZED) {
        return false;
    }

    let lacks = |keys: [&str; 2]| keys.into_iter().any(|key| node.label(key).is_none());
    let fargate = matches!(
        node.provider_id().map(ProviderId::parse),
        Some(Ok(ProviderId::Fargate(_)))
    );
    node.provider_id().is_none()
        || lacks(ZONE)
        || lacks(REGION)
        || (lacks(TYPE) && !fargate)
        || (kubelets_external && node.label(ZONE_ID).is_none())
}

/// Plans the completion of a Node. It changes no present field, and adds no label whose old or new counterpart differs
/// from EC2: the old one decides, so adding it would change the new one.
pub fn complete(node: &NodeView, desired: &Desired) -> Completion {
    let mut notes = Vec::new();
    let id = provider_id(node, desired, &mut notes);
    let mut labels: Vec<(String, String)> = Vec::new();
    let mut kept = Vec::new();

    for (keys, value) in pairs(desired) {
        let differs = keys
            .into_iter()
            .find_map(|key| Some((key, node.label(key).filter(|old| *old != value)?)));
        match differs {
            Some((key, old)) => kept.push(format!("label {key} keeps {old:?}, while EC2 reports {value:?}")),
            None => labels.extend(
                keys.into_iter()
                    .filter(|key| node.label(key).is_none())
                    .map(|key| (key.to_owned(), value.to_owned())),
            ),
        }
    }

    let free = desired.additional.iter().filter(|(key, _)| node.label(key).is_none());
    labels.extend(free.map(|(key, value)| (key.clone(), value.clone())));
    if id.is_none() && labels.is_empty() {
        return Completion::default();
    }

    notes.extend(labels.iter().map(|(key, value)| format!("label {key}={value}")));
    notes.extend(kept);

    let mut operations = vec![
        node_patch::test_uid(node),
        // JSON patch cannot test for absence, so the Node must be unchanged.
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}),
    ];

    operations.extend(id);
    operations.extend(node_patch::set_labels(node, &labels));

    Completion { operations, notes }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn desired() -> Desired {
        Desired {
            provider_id: Some("aws:///z/i-1".into()),
            instance_type: Some("m5.large".into()),
            zone: "z".into(),
            region: "r".into(),
            additional: BTreeMap::from([(ZONE_ID.to_owned(), "id".to_owned())]),
        }
    }

    fn node(provider_id: &str, labels: Value) -> NodeView {
        let json = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels},
            "spec": {"providerID": provider_id},
        });
        serde_json::from_value(json).unwrap()
    }

    fn written(completion: &Completion) -> Vec<&str> {
        let writes = completion
            .operations
            .iter()
            .filter(|operation| operation["op"] == "add");
        writes.filter_map(|operation| operation["path"].as_str()).collect()
    }

    fn full() -> Value {
        json!({
            "beta.kubernetes.io/instance-type": "m5.large", "node.kubernetes.io/instance-type": "m5.large",
            "failure-domain.beta.kubernetes.io/zone": "z", "topology.kubernetes.io/zone": "z",
            "failure-domain.beta.kubernetes.io/region": "r", "topology.kubernetes.io/region": "r",
        })
    }

    #[test]
    fn a_node_with_everything_needs_nothing_and_the_zones_id_only_without_in_tree_kubelets() {
        let node = node("aws:///z/i-1", full());
        assert!(!lacks_something(&node, false) && lacks_something(&node, true));
        assert_eq!(
            written(&complete(&node, &desired())),
            ["/metadata/labels/topology.k8s.aws~1zone-id"]
        );
        let without = Desired {
            additional: BTreeMap::new(),
            ..desired()
        };
        assert_eq!(complete(&node, &without), Completion::default());
    }

    #[test]
    fn each_thing_that_is_missing_is_seen_and_added() {
        for key in full().as_object().unwrap().keys() {
            let mut labels = full();
            labels.as_object_mut().unwrap().remove(key);
            labels[ZONE_ID] = "id".into();
            let node = node("aws:///z/i-1", labels);
            assert!(lacks_something(&node, false), "{key}");
            assert_eq!(
                written(&complete(&node, &desired())),
                [node_patch::pointer(key)],
                "{key}"
            );
        }
        let mut labels = full();
        labels[ZONE_ID] = "id".into();
        let no_id = node("", labels);
        assert!(lacks_something(&no_id, false));
        assert_eq!(written(&complete(&no_id, &desired())), ["/spec/providerID"]);
    }

    #[test]
    fn what_says_something_else_is_kept_and_noted_and_its_other_name_is_not_added() {
        let labels = json!({"topology.kubernetes.io/zone": "mine", ZONE_ID: "mine-too"});
        let completion = complete(&node("aws:///z/i-1", labels), &desired());
        let paths = written(&completion).join(" ");
        assert!(!paths.contains("zone"), "{paths}");
        assert!(paths.contains("region") && paths.contains("instance-type"));
        assert!(completion.notes.iter().any(|note| note.contains("keeps \"mine\"")));
    }

    #[test]
    fn a_new_node_and_one_on_fargate_without_type_are_left_alone() {
        let mut labels = full();
        labels
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !key.contains("instance-type"));
        let fargate = node("aws:///z/x/fargate-10.0.0.1", labels);
        assert!(!lacks_something(&fargate, false));
        let mut new = node("", json!({}));
        new.spec.taints = serde_json::from_value(json!([{"key": taints::UNINITIALIZED}])).unwrap();
        assert!(!lacks_something(&new, true));
    }
}
