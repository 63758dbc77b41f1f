//! Nodes: the taint that keeps Pods away until a cloud-controller-manager has initialized the Node.
//!
//! A kubelet with `--cloud-provider=external` sets it. The webhook adds it for other kubelets, so that the node
//! controller, which initializes only Nodes with this taint, initializes their Nodes too.

use outrigger_shared::{
    migration::{NodeTaint, Phase, Profile},
    taints,
};
use serde_json::{Value, json};

use super::{Draft, Input, Kind, Migration, Operation, annotation};
use crate::patch::{Builder, NotAnObject, Path};

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "",
    versions: &["v1"],
    kind: "Node",
    plural: "nodes",
    namespaced: false,
    on_update: false,
    profiles: &[Profile::Nodes],
    is_concerned,
    draft,
}];

/// Only creations: later the taint would evict nothing, but block new Pods on a working Node.
pub(super) fn is_concerned(input: &Input<'_>) -> bool {
    input.operation == Operation::Create
}

/// Adds the taint, unless it is not needed or no manager would remove it.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    match obstacle(input, migration) {
        Some(reason) => Draft {
            reasons: vec![reason.to_owned()],
            ..Draft::default()
        },
        None => tainted(input.object),
    }
}

fn tainted(node: &Value) -> Draft {
    let mut draft = Draft::default();
    match add_taint(node) {
        Ok(builder) => {
            let key = taints::UNINITIALIZED;
            draft.reasons.push(format!(
                "taint {key} added: a cloud-controller-manager initializes the Node"
            ));
            draft.patch = builder.finish();
        }
        Err(error) => draft.refuse(format!("the Node gets no taint: {error}")),
    }

    draft
}

fn obstacle(input: &Input<'_>, migration: &Migration<'_>) -> Option<&'static str> {
    let spec = migration.spec;
    if spec.phase < Phase::Migrate {
        return Some("Nodes are tainted from phase Migrate on");
    }

    let provider_id = input
        .object
        .pointer("/spec/providerID")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !provider_id.is_empty() {
        return Some("the Node has a provider ID, so it is initialized");
    }
    if is_no_instance(input.object) {
        return Some("the Node is no EC2 instance, so no cloud-controller-manager would remove the taint");
    }
    if taints_of(input.object)
        .iter()
        .any(|taint| taint.get("key").is_some_and(|key| key == taints::UNINITIALIZED))
    {
        return Some("the Node has the taint");
    }

    match (spec.node_taint, input.manager_fresh) {
        (NodeTaint::Always, _) | (NodeTaint::WhenManagerReady, Some(true)) => None,
        (NodeTaint::Never, _) => Some("spec.nodeTaint is Never"),
        (NodeTaint::WhenManagerReady, Some(false)) => Some("no cloud-controller-manager is ready to remove the taint"),
        (NodeTaint::WhenManagerReady, None) => Some("whether a cloud-controller-manager is ready is not known"),
    }
}

/// Nodes of other programs: kwok, virtual-kubelet, and Nodes of EKS without an instance.
fn is_no_instance(node: &Value) -> bool {
    const LABELS: [(&str, &[&str]); 2] = [
        ("type", &["kwok", "virtual-kubelet"]),
        ("eks.amazonaws.com/compute-type", &["hybrid", "fargate"]),
    ];

    let labels = node.pointer("/metadata/labels");
    let is_labelled = |(key, values): &(&str, &[&str])| {
        let value = labels.and_then(|labels| labels.get(*key)?.as_str());
        value.is_some_and(|value| values.contains(&value))
    };
    annotation(node, "kwok.x-k8s.io/node").is_some() || LABELS.iter().any(is_labelled)
}

fn taints_of(node: &Value) -> &[Value] {
    node.pointer("/spec/taints")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn add_taint(node: &Value) -> Result<Builder, NotAnObject> {
    let taint = json!({
        "key": taints::UNINITIALIZED,
        "value": taints::UNINITIALIZED_VALUE,
        "effect": taints::UNINITIALIZED_EFFECT,
    });
    let mut builder = Builder::default();
    if node.pointer("/spec/taints").is_some_and(Value::is_array) {
        builder.add(&Path::new(&["spec", "taints"]).index(taints_of(node).len()), taint);
    } else {
        builder.set(&Path::default(), node, &["spec", "taints"], json!([taint]))?;
    }

    Ok(builder)
}
