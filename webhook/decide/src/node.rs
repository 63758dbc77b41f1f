//! Nodes: the taint that keeps Pods away until a cloud-controller-manager has initialized the Node.
//!
//! A kubelet with `--cloud-provider=external` sets it. The webhook adds it for other kubelets, so that the node
//! controller, which initializes only Nodes with this taint, initializes their Nodes too.

use outrigger_shared::{
    migration::{NodeTaint, Phase, Profile},
    taints,
};
use serde_json::{Value, json};

use super::{
    Draft, Input, Kind, Migration, Operation, annotation,
    fields::{list_at, text_at},
};
use crate::patch::{Builder, NotAnObject, Path};

const TAINTS: &str = "/spec/taints";

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "",
    versions: &["v1"],
    kind: "Node",
    plural: "nodes",
    namespaced: false,
    on_update: false,
    profiles: &[Profile::Nodes],
    // Only creations: later the taint would evict nothing, but block new Pods on a working Node.
    is_concerned: |input| input.operation == Operation::Create,
    draft,
}];

/// Adds the taint, unless it is not needed or no manager would remove it.
fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    if let Some(reason) = obstacle(input, migration) {
        return Draft::unchanged(reason);
    }
    match add_taint(input.object) {
        Ok(builder) => Draft {
            patch: builder.finish(),
            reasons: vec![format!(
                "taint {} added: a cloud-controller-manager initializes the Node",
                taints::UNINITIALIZED
            )],
            ..Draft::default()
        },
        Err(error) => Draft::refused(format!("the Node gets no taint: {error}")),
    }
}

fn obstacle(input: &Input<'_>, migration: &Migration<'_>) -> Option<&'static str> {
    let spec = migration.spec;
    if spec.phase < Phase::Migrate {
        return Some("Nodes are tainted from phase Migrate on");
    }

    if text_at(input.object, "/spec/providerID").is_some_and(|id| !id.is_empty()) {
        return Some("the Node has a provider ID, so it is initialized");
    }
    if is_no_instance(input.object) {
        return Some("the Node is not an EC2 instance, so no cloud-controller-manager would remove the taint");
    }
    let is_uninitialized = |taint: &Value| text_at(taint, "/key") == Some(taints::UNINITIALIZED);
    if list_at(input.object, TAINTS).iter().any(is_uninitialized) {
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

fn add_taint(node: &Value) -> Result<Builder, NotAnObject> {
    let taint = json!({
        "key": taints::UNINITIALIZED,
        "value": taints::UNINITIALIZED_VALUE,
        "effect": taints::UNINITIALIZED_EFFECT,
    });
    let mut builder = Builder::default();
    if node.pointer(TAINTS).is_some_and(Value::is_array) {
        builder.add(
            &Path::new(&["spec", "taints"]).index(list_at(node, TAINTS).len()),
            taint,
        );
    } else {
        builder.set(&Path::default(), node, &["spec", "taints"], json!([taint]))?;
    }

    Ok(builder)
}
