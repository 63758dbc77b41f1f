//! HyperShift's hosted control planes: their workloads are never changed.
//!
//! Its control-plane-operator renders each workload from the release and writes it again where a field differs
//! (`support/upsert/apply.go` of <https://github.com/openshift/hypershift>). It would revert a flag of ours, or keep it
//! unnoticed. HyperShift runs its own cloud-controller-manager, and its kube-controller-manager without the in-tree
//! provider, so there is nothing to migrate.

use outrigger_shared::migration::Phase;
use serde_json::Value;

use super::{Draft, Input, Migration};

const GROUP: &str = "hypershift.openshift.io/";

/// Why a workload or Pod of a HostedControlPlane is refused; none for others. `pod` is the Pod or its template.
pub(super) fn workload(input: &Input<'_>, migration: &Migration<'_>, pod: &Value) -> Option<Draft> {
    const REASON: &str = "HyperShift's control-plane-operator writes this object and reverts the changes of others; it migrates to its own cloud-controller-manager, so remove this namespace from spec.targets";

    if migration.spec.phase == Phase::InTree || !is_written_by_hypershift(input.object, pod) {
        return None;
    }

    let mut draft = Draft::default();
    draft.refuse(format!("nothing is changed: {REASON}"));

    Some(draft)
}

/// The owner is a HostedControlPlane, or the labels are those of the operator: the owner of a Pod is a ReplicaSet.
fn is_written_by_hypershift(object: &Value, pod: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_hosted = |owner: &Value| {
        let group = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        owner.get("kind").is_some_and(|kind| kind == "HostedControlPlane") && group.starts_with(GROUP)
    };
    let has_label = |object: &Value, name: &str| {
        let labels = object.pointer("/metadata/labels");
        labels.is_some_and(|labels| labels.get(format!("{GROUP}{name}")).is_some())
    };

    owners.into_iter().flatten().any(is_hosted)
        || has_label(object, "managed-by")
        || has_label(pod, "control-plane-component")
}
