//! Machines of Kubermatic's machine-controller (`cluster.k8s.io/v1alpha1`): the annotation that marks a Machine as
//! migrated.
//!
//! The webhook of the machine-controller writes the annotation on each new Machine, by its own flag. Nothing protects
//! it later. Kubermatic considers the migration complete when all Machines have the value true, and also when there are
//! no Machines, regardless of the kubelets. So the annotation is never changed here, and a write by hand gets a
//! warning.

use outrigger_shared::migration::{Phase, Profile};
use serde_json::Value;

use super::{Draft, Input, Kind, Migration, Operation, annotation};

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "cluster.k8s.io",
    versions: &["v1alpha1"],
    kind: "Machine",
    plural: "machines",
    namespaced: true,
    on_update: true,
    profiles: &[Profile::Kubermatic],
    is_concerned: is_marked_anew,
    draft,
}];

/// Kubermatic's mark that the kubelet of a Machine was started for an external provider.
pub(super) const MARK: &str = "v1.kubelet-flags.machine-controller.kubermatic.io/ExternalCloudProvider";

pub(super) fn marked(machine: &Value) -> Option<&str> {
    annotation(machine, MARK)?.as_str()
}

/// Whether the review sets, changes or removes the mark.
pub(super) fn is_marked_anew(input: &Input<'_>) -> bool {
    marked(input.object) != input.old_object.and_then(marked)
}

fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    Draft {
        reasons: vec!["the kubelet of a Machine is not changed by its object".to_owned()],
        warnings: completion(input, migration).into_iter().collect(),
        ..Draft::default()
    }
}

/// The warning for a write of the mark. Called only when it changes.
pub(super) fn completion(input: &Input<'_>, migration: &Migration<'_>) -> Option<String> {
    let phase = migration.spec.phase;
    let expected = if phase >= Phase::Migrate { "true" } else { "false" };
    match (input.operation, marked(input.object)) {
        (Operation::Update, _) => Some(format!(
            "annotation {MARK} tells Kubermatic that this kubelet is external, and does not change the kubelet; revert the change and replace the Machine"
        )),
        (Operation::Create, Some(value)) if value != expected => Some(format!(
            "annotation {MARK} is written by the machine-controller itself; in phase {phase} it would be {expected}, not \
             {value:?}: leave it out"
        )),
        _ => None,
    }
}
