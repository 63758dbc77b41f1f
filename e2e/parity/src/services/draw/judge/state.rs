//! The Service and the Nodes of a case after a step.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::super::case::{Case, Nodes};
use super::super::super::cluster::NODES;

pub(super) type NodesByName = BTreeMap<String, Value>;

pub(super) fn service(case: &Case, index: usize) -> Value {
    let mut service = case.service.clone();
    for step in case.steps.iter().take(index + 1) {
        if step.patch.is_object() {
            json_patch::merge(&mut service, &step.patch);
        }
    }
    service
}

/// Provider IDs contain names instead of IDs.
pub(super) fn nodes(case: &Case, index: usize) -> NodesByName {
    let mut nodes: NodesByName = NODES.iter().map(|name| ((*name).to_owned(), node(name))).collect();
    let steps = case.steps.iter().take(index + 1).map(|step| &step.nodes);
    for change in [&case.nodes].into_iter().chain(steps) {
        change_nodes(&mut nodes, change);
    }
    nodes
}

fn change_nodes(nodes: &mut NodesByName, change: &Nodes) {
    for name in &change.add {
        nodes.insert(name.clone(), node(name));
    }

    for name in &change.remove {
        nodes.remove(name);
    }

    for (name, patch) in &change.patch {
        if let Some(node) = nodes.get_mut(name) {
            json_patch::merge(node, patch);
        }
    }
}

fn node(name: &str) -> Value {
    let provider_id = name.starts_with("node-").then(|| format!("<{name}>"));
    json!({
        "metadata": {"labels": {"kubernetes.io/hostname": name}},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(super) fn stopped(case: &Case, index: usize) -> BTreeSet<String> {
    let steps = case.steps.iter().take(index + 1).flat_map(|step| &step.calls);
    let mut stopped = BTreeSet::new();
    for call in case.aws.calls.iter().chain(steps) {
        match call.action.as_str() {
            "StopInstances" => stopped.extend(call.parameters.values().cloned()),
            "StartInstances" => stopped.retain(|id| !call.parameters.values().any(|started| started == id)),
            _ => {}
        }
    }

    stopped
}
