//! Deployments, StatefulSets and DaemonSets: the Pod template of a control plane.

use outrigger_shared::migration::Profile;
use serde_json::Value;

use super::{Draft, Input, Kind, Migration, hypershift, kubermatic, pod_spec};
use crate::patch::Path;

const fn row(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "apps",
        versions: &["v1"],
        kind,
        plural,
        namespaced: true,
        on_update: true,
        profiles: &[Profile::HostedControlPlane, Profile::Kubermatic],
        is_concerned,
        draft,
    }
}

pub(super) const KINDS: &[Kind] = &[
    row("Deployment", "deployments"),
    row("StatefulSet", "statefulsets"),
    row("DaemonSet", "daemonsets"),
];

/// Only workloads that run, or seem to run, a component of the control plane.
pub(super) fn is_concerned(input: &Input<'_>) -> bool {
    template(input.object).is_some_and(pod_spec::is_concerned)
}

/// The part with the rules. A change of `replicas`, `paused` or `strategy` starts no rollout.
const TRIGGERS: [&str; 1] = ["/spec/template"];

/// An update is changed only when it changes the template, or when the operator requests it by annotation. So a write
/// of labels, annotations, status or replicas never rolls out a control plane.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let Some(object) = template(input.object) else {
        return Draft::default();
    };
    if !input.may_act(&TRIGGERS, &[]) {
        return Draft {
            reasons: vec![input.why_not(&TRIGGERS)],
            ..Draft::default()
        };
    }

    let of_operator = kubermatic::workload(input, migration, object);
    if let Some(draft) = of_operator.or_else(|| hypershift::workload(input, migration, object)) {
        return draft;
    }

    let old = input.old_object.and_then(template);
    pod_spec::draft(migration, &Path::new(&["spec", "template"]), object, old)
}

fn template(object: &Value) -> Option<&Value> {
    object.pointer("/spec/template")
}
