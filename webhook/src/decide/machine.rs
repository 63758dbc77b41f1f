//! Machines of Kubermatic's machine-controller (`cluster.k8s.io/v1alpha1`): the annotation by which Kubermatic counts them as
//! migrated.
//!
//! The machine-controller's own webhook writes it on each new Machine, from the flag with which it runs. Nothing guards it
//! afterwards. When every Machine has it as true, and also when there is no Machine at all, Kubermatic calls the migration
//! completed, whatever their kubelets do. So it is never changed here, and a hand that writes it is told.

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

/// Kubermatic's own proof that a Machine's kubelet was started for an external provider.
pub(super) const MARK: &str = "v1.kubelet-flags.machine-controller.kubermatic.io/ExternalCloudProvider";

/// The mark's text.
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

/// What to tell whoever writes the mark of completion. Only reviews in which it changes come here.
pub(super) fn completion(input: &Input<'_>, migration: &Migration<'_>) -> Option<String> {
    let phase = migration.spec.phase;
    let expected = if phase >= Phase::Migrate { "true" } else { "false" };
    match (input.operation, marked(input.object)) {
        (Operation::Update, _) => Some(format!(
            "annotation {MARK} is Kubermatic's proof that this kubelet has moved, and no kubelet moves by it; take the \
             change back and replace the Machine"
        )),
        (Operation::Create, Some(value)) if value != expected => Some(format!(
            "annotation {MARK} is written by the machine-controller itself; in phase {phase} it would be {expected}, not \
             {value:?}: leave it out"
        )),
        _ => None,
    }
}
