//! Pods: the backstop. A Pod that a controller makes from a template which did not pass the webhook still starts with the
//! flags of its phase.

use outrigger_shared::component;

use super::{Draft, Input, Migration, Operation, pod_spec};
use crate::patch::Path;

/// Pods at their creation, but for the API objects of static Pods: their processes run from files on the node.
pub(super) fn is_concerned(input: &Input<'_>) -> bool {
    input.operation == Operation::Create
        && !component::is_mirror_pod(input.object)
        && pod_spec::is_concerned(input.object)
}

/// The phase's row in full.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    pod_spec::draft(migration, &Path::default(), input.object, None)
}
