//! Operations of JSON patches to Nodes. Pure.
//!
//! A patch names the fields that change and, with `test`, what they must be.

use serde_json::{Value, json};

use crate::node_cache::NodeView;

/// The operation that makes a patch hold for this very Node, not for a later one of the same name.
pub fn test_uid(node: &NodeView) -> Value {
    json!({"op": "test", "path": "/metadata/uid", "value": node.uid()})
}

/// The operations that remove every taint of a key. Each is found by its place, so its key is tested first;
/// from the last to the first, so that places stay true.
pub fn remove_taints(node: &NodeView, key: &str) -> Vec<Value> {
    let places = node
        .spec
        .taints
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, taint)| taint.key == key);
    places
        .flat_map(|(place, _)| {
            [
                json!({"op": "test", "path": format!("/spec/taints/{place}/key"), "value": key}),
                json!({"op": "remove", "path": format!("/spec/taints/{place}")}),
            ]
        })
        .collect()
}

pub fn add_taint(node: &NodeView, key: &str, effect: &str) -> Vec<Value> {
    let taint = json!({"key": key, "effect": effect});
    if node.spec.taints.is_empty() {
        // An empty list reads as an absent list: the patch must not overwrite a list that was added since the read.
        let version = node.metadata.resource_version.as_str();
        vec![
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
            json!({"op": "add", "path": "/spec/taints", "value": [taint]}),
        ]
    } else {
        vec![json!({"op": "add", "path": "/spec/taints/-", "value": taint})]
    }
}

/// The operations that set labels. A Node without labels gets its first map.
pub fn set_labels(node: &NodeView, labels: &[(String, String)]) -> Vec<Value> {
    if labels.is_empty() {
        return Vec::new();
    }
    if node.metadata.labels.is_empty() {
        let version = node.metadata.resource_version.as_str();
        let map: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
            .collect();
        return vec![
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
            json!({"op": "add", "path": "/metadata/labels", "value": map}),
        ];
    }

    labels
        .iter()
        .map(|(key, value)| json!({"op": "add", "path": pointer(key), "value": value}))
        .collect()
}

pub fn pointer(label: &str) -> String {
    format!("/metadata/labels/{}", label.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints}}))
            .unwrap()
    }

    #[test]
    fn taints_go_from_the_last_to_the_first_and_are_tested() {
        let node = node(json!([{"key": "a", "effect": "X"}, {"key": "b", "effect": "X"}, {"key": "a", "effect": "Y"}]));
        let operations = remove_taints(&node, "a");
        let paths: Vec<&str> = operations
            .iter()
            .filter_map(|operation| operation["path"].as_str())
            .collect();
        assert_eq!(
            paths,
            [
                "/spec/taints/2/key",
                "/spec/taints/2",
                "/spec/taints/0/key",
                "/spec/taints/0"
            ]
        );
    }

    #[test]
    fn a_first_taint_and_a_first_label_do_not_overwrite_what_came_meanwhile() {
        let empty = node(json!([]));
        assert_eq!(add_taint(&empty, "k", "NoSchedule")[0]["value"], "7");
        assert_eq!(
            set_labels(&empty, &[("a".into(), "b".into())])[0]["path"],
            "/metadata/resourceVersion"
        );
        let one = node(json!([{"key": "a", "effect": "X"}]));
        assert_eq!(add_taint(&one, "k", "NoSchedule")[0]["path"], "/spec/taints/-");
    }

    #[test]
    fn label_keys_are_escaped() {
        assert_eq!(
            pointer("topology.kubernetes.io/zone~x"),
            "/metadata/labels/topology.kubernetes.io~1zone~0x"
        );
    }
}
