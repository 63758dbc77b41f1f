//! Pods, and the Pod templates of Deployments, StatefulSets and DaemonSets: the command lines of a control plane.
//!
//! **HyperShift's hosted control planes are never changed.** Its control-plane-operator renders each workload from the
//! release and writes it again where a field differs (`support/upsert/apply.go` of
//! <https://github.com/openshift/hypershift>). It would revert a flag of ours, or keep it unnoticed. HyperShift runs its
//! own cloud-controller-manager, and its kube-controller-manager without the in-tree provider, so there is nothing to
//! migrate.

use outrigger_shared::{
    component,
    migration::{Phase, Profile},
};
use serde_json::Value;

use super::{Decision, Draft, Input, Kind, Migration, Operation, fields::has_owner, kubermatic, pod_spec};
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
        is_concerned: |input| template(input.object).is_some_and(pod_spec::is_concerned),
        draft,
    }
}

pub(super) const KINDS: &[Kind] = &[
    row("Deployment", "deployments"),
    row("StatefulSet", "statefulsets"),
    row("DaemonSet", "daemonsets"),
];

/// A fallback: a Pod of a template that the webhook has not reviewed still starts with the flags of its phase.
pub(super) const POD: &[Kind] = &[Kind {
    group: "",
    on_update: false,
    is_concerned: is_new_pod,
    draft: |input, migration| {
        let of_operator = of_operator(input, migration, input.object);
        of_operator.unwrap_or_else(|| pod_spec::draft(migration, &Path::default(), input.object, None))
    },
    ..row("Pod", "pods")
}];

/// Creations, except of mirror Pods: static Pods run from files on the node.
fn is_new_pod(input: &Input<'_>) -> bool {
    input.operation == Operation::Create
        && !component::is_mirror_pod(input.object)
        && pod_spec::is_concerned(input.object)
}

/// The part with the rules. A change of `replicas`, `paused` or `strategy` starts no rollout.
const TRIGGERS: [&str; 1] = ["/spec/template"];

/// An update is changed only when it changes the template, or when the operator requests it by annotation. So a write
/// of labels, annotations, status or replicas never rolls out a control plane.
fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let Some(pod) = template(input.object) else {
        return Draft::default();
    };
    if !input.may_act(&TRIGGERS, &[]) {
        return Draft::unchanged(input.why_not(&TRIGGERS));
    }

    of_operator(input, migration, pod).unwrap_or_else(|| {
        let old = input.old_object.and_then(template);
        pod_spec::draft(migration, &Path::new(&["spec", "template"]), pod, old)
    })
}

fn template(object: &Value) -> Option<&Value> {
    object.pointer("/spec/template")
}

/// The draft of a workload or Pod that another operator writes; none for others. `pod` is the Pod or its template.
fn of_operator(input: &Input<'_>, migration: &Migration<'_>, pod: &Value) -> Option<Draft> {
    const HYPERSHIFT: &str = "HyperShift's control-plane-operator writes this object and reverts the changes of others; it migrates to its own cloud-controller-manager, so remove this namespace from spec.targets";

    kubermatic::workload(input, migration, pod).or_else(|| {
        let is_refused = migration.spec.phase > Phase::InTree && is_written_by_hypershift(input.object, pod);
        is_refused.then(|| Draft::refused(format!("nothing is changed: {HYPERSHIFT}")))
    })
}

/// The owner is a HostedControlPlane, or the labels are those of the operator: the owner of a Pod is a ReplicaSet.
fn is_written_by_hypershift(object: &Value, pod: &Value) -> bool {
    const GROUP: &str = "hypershift.openshift.io/";

    let has_label = |object: &Value, name: &str| {
        let labels = object.pointer("/metadata/labels");
        labels.is_some_and(|labels| labels.get(format!("{GROUP}{name}")).is_some())
    };
    has_owner(object, "HostedControlPlane", GROUP)
        || has_label(object, "managed-by")
        || has_label(pod, "control-plane-component")
}

/// Decides the static Pods of one machine, which are files: no admission reaches them, so a command on that machine
/// applies the rules of Pods. Targets of the migration do not count, as the caller has chosen the machine.
///
/// The Pods change together, as one object with several components does. So the API server's part waits for Complete
/// up to 1.28, as in kubeadm's ClusterConfiguration.
#[must_use]
pub fn static_pods(migration: &Migration<'_>, pods: &[&Value]) -> Vec<Decision> {
    let both = pod_spec::hold_both(pods);
    let decide = |pod: &&Value| {
        let draft = pod_spec::draft_beside(migration, &Path::default(), pod, None, both);
        Decision::of(draft, migration, "static-pod".to_owned())
    };
    pods.iter().map(decide).collect()
}
