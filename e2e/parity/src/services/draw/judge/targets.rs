//! The targets of ours that a case requires. Those of v1.37 differ: it registers Nodes that are not Ready, and
//! observes labels and taints only if it lists all Nodes for another reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::annotations::{NODE_LABELS, PREFIX};
use super::super::environment::{AUTOSCALER, EXCLUDE};
use super::Both;
use crate::services::case::{Case, Nodes};
use crate::services::cluster::NODES;
use crate::services::outcome::Account;

type Instances = BTreeSet<String>;

/// Values with which the label does not exclude a Node.
const FALSE: [&str; 6] = ["0", "f", "F", "FALSE", "false", "False"];

impl Both<'_> {
    /// Whether the targets in this field of ours are those that the case requires.
    pub(super) fn has_required_targets(&self, index: usize, ours: Option<&Value>) -> bool {
        let targets = ours.map(instances).unwrap_or_default();
        let before = all_targets(&self.accounts_before(index).1);
        let (must, may) = self.required_targets(index, &before);
        must.is_subset(&targets) && targets.is_subset(&(&must | &may))
    }

    /// Instances that must be targets, and instances that may be. A Node that is not Ready is a target only if it was
    /// one before.
    fn required_targets(&self, index: usize, before: &Instances) -> (Instances, Instances) {
        let service = service(self.case, index);
        let labels = &service["metadata"]["annotations"][format!("{PREFIX}{NODE_LABELS}")];
        let labels = pairs(labels.as_str().unwrap_or_default());
        let stopped = stopped(self.case, index);
        let (mut must, mut may) = (Instances::new(), Instances::new());

        for node in nodes(self.case, index).values() {
            let Some(instance) = instance(node).filter(|_| is_eligible(node) && has_labels(node, &labels)) else {
                continue;
            };

            let was = before.contains(&instance);
            match (is_ready(node), was) {
                _ if stopped.contains(&instance) => may.insert(instance),
                (true, _) => must.insert(instance),
                // After a manual deletion of the load balancer it may be observed without this target.
                (false, true) if self.by_hand(index) => may.insert(instance),
                (false, true) => must.insert(instance),
                (false, false) => false,
            };
        }

        (must, may)
    }

    /// Instances that are targets on one side only, before a step or after it.
    pub(super) fn unlike_targets(&self, index: usize) -> Instances {
        let unlike = |(theirs, ours): (Account, Account)| &all_targets(&theirs) ^ &all_targets(&ours);
        &unlike(self.accounts_before(index)) | &unlike(self.accounts(index))
    }

    /// Whether ours has other targets after a step than before.
    pub(super) fn changes_targets(&self, index: usize) -> bool {
        all_targets(&self.accounts_before(index).1) != all_targets(&self.accounts(index).1)
    }

    /// Whether one side only has no target at all, and so no rule of the nodes' group.
    pub(super) fn one_is_without_targets(&self, index: usize) -> bool {
        let (theirs, ours) = self.accounts(index);
        all_targets(&theirs).is_empty() != all_targets(&ours).is_empty()
    }
}

/// Whether a field lists targets.
pub(super) fn is_of_targets(field: &str) -> bool {
    field.ends_with("/instances") || field.ends_with("/targets")
}

fn all_targets(account: &Account) -> Instances {
    let fields = account.values().flatten();
    let targets = fields.filter(|(name, _)| ["instances", "targets"].contains(&name.as_str()));
    targets.flat_map(|(_, value)| instances(value)).collect()
}

/// `<node-1>` or `<node-1>:30080`.
fn instances(value: &Value) -> Instances {
    let items = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    items
        .filter_map(|item| Some(format!("{}>", item.split_once('>')?.0)))
        .collect()
}

fn instance(node: &Value) -> Option<String> {
    let id = node["spec"]["providerID"].as_str()?;
    let name = id.get(id.find("<node-")?..)?;
    Some(name.to_owned())
}

fn is_eligible(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let label = node["metadata"]["labels"][EXCLUDE].as_str();
    !taints.any(|taint| taint["key"] == AUTOSCALER) && label.is_none_or(|value| FALSE.contains(&value))
}

fn has_labels(node: &Value, labels: &BTreeMap<&str, &str>) -> bool {
    labels.iter().all(|(key, wanted)| {
        let value = node["metadata"]["labels"][*key].as_str();
        value.is_some_and(|value| wanted.is_empty() || value == *wanted)
    })
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["type"] == "Ready")
        .any(|condition| condition["status"] == "True")
}

/// The annotation's list of labels: of `a=b=c` only `b` is the value.
fn pairs(text: &str) -> BTreeMap<&str, &str> {
    let items = text.split(',').map(|item| item.trim().split('='));
    items
        .filter_map(|mut parts| {
            let key = parts.next().filter(|key| !key.is_empty())?;
            Some((key, parts.next().unwrap_or_default()))
        })
        .collect()
}

type NodesByName = BTreeMap<String, Value>;

/// The Service of a case after a step.
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
fn nodes(case: &Case, index: usize) -> NodesByName {
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

fn stopped(case: &Case, index: usize) -> BTreeSet<String> {
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
