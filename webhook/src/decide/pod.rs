//! Pods: a fallback. A Pod of a template that the webhook has not reviewed still starts with the flags of its phase.

use outrigger_shared::{component, migration::Profile};

use super::{Draft, Input, Kind, Migration, Operation, hypershift, kubermatic, pod_spec};
use crate::patch::Path;

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "",
    versions: &["v1"],
    kind: "Pod",
    plural: "pods",
    namespaced: true,
    on_update: false,
    profiles: &[Profile::HostedControlPlane, Profile::Kubermatic],
    is_concerned,
    draft,
}];

/// Creations, except of mirror Pods: static Pods run from files on the node.
pub(super) fn is_concerned(input: &Input<'_>) -> bool {
    input.operation == Operation::Create
        && !component::is_mirror_pod(input.object)
        && pod_spec::is_concerned(input.object)
}

/// The phase's row in full.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    kubermatic::workload(input, migration, input.object)
        .or_else(|| hypershift::workload(input, migration, input.object))
        .unwrap_or_else(|| pod_spec::draft(migration, &Path::default(), input.object, None))
}
