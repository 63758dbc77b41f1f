//! Kubermatic's Cluster (`kubermatic.k8c.io/v1`, and `kubermatic.k8s.io/v1` in old releases): the feature
//! `externalCloudProvider`.
//!
//! Kubermatic migrates by itself: once the feature is on, its webhook adds the annotations that start the migration,
//! and its controllers stop the controllers in the kube-controller-manager and start their own
//! cloud-controller-manager. Its kube-controller-manager never has leader migration, so there is a gap without any
//! owner: only with `spec.downtime`. This file turns the feature on, so Kubermatic's webhook must be called after ours;
//! the registration has a separate configuration for that.
//!
//! **Its workloads are never changed.** Kubermatic's seed-controller-manager writes the Deployments of a control plane
//! one after the other and waits after each write for a changed object; a webhook that restores the same form makes
//! that an error (`pkg/reconciling/ensure.go` of <https://github.com/kubermatic/reconciler>). It writes the
//! kube-controller-manager's Deployment before that of its cloud-controller-manager, so none would be started.
//!
//! **There is no way back.** Kubermatic refuses any update that turns the feature off. So it is turned on only by an
//! update of a cluster for which Kubermatic would accept it, the first time is recorded in an annotation, and no phase
//! turns it off.

use outrigger_shared::{
    annotations,
    migration::{Phase, Profile},
    version::KubernetesVersion,
};
use serde_json::{Value, json};

use super::{
    Draft, Input, Kind, Migration, Operation, annotation,
    fields::{has_owner, list_at, text_at},
    matching,
};
use crate::patch::{Builder, NotAnObject, Path};

pub(super) const KINDS: &[Kind] = &[of_group("kubermatic.k8c.io"), of_group("kubermatic.k8s.io")];

const fn of_group(group: &'static str) -> Kind {
    Kind {
        group,
        versions: &["v1"],
        kind: "Cluster",
        plural: "clusters",
        namespaced: false,
        on_update: true,
        profiles: &[Profile::Kubermatic],
        is_concerned: |input| input.object.pointer("/spec/cloud").is_some_and(Value::is_object),
        draft,
    }
}

/// Refuses a workload or Pod that Kubermatic writes; none for others. `pod` is the Pod or its template.
pub(super) fn workload(input: &Input<'_>, migration: &Migration<'_>, pod: &Value) -> Option<Draft> {
    const REASON: &str = "Kubermatic writes this object, and its reconcile would stop at a change before it starts its \
        cloud-controller-manager; select its Cluster with profile Kubermatic";

    if matching::selects(input, migration, Profile::Kubermatic) {
        return Some(Draft::unchanged(
            "Kubermatic writes its workloads itself: they follow spec.features.externalCloudProvider of its Cluster",
        ));
    }

    let is_refused = migration.spec.phase > Phase::InTree && is_written_by_kubermatic(input, pod);
    is_refused.then(|| Draft::refused(format!("nothing is changed: {REASON}")))
}

/// The owner is a Kubermatic Cluster, or its prober starts the component, or labels and namespace are those of
/// Kubermatic: a short name as `app`, and the ID of the cluster as `cluster`, which is also in the name of the
/// namespace. Other projects use one of the labels alone.
fn is_written_by_kubermatic(input: &Input<'_>, pod: &Value) -> bool {
    let is_probed = |container: &Value| {
        let program = text_at(container, "/command/0");
        program.is_some_and(|program| program.rsplit('/').next() == Some("http-prober"))
    };
    let has_label = |object: &Value| {
        matches!(
            text_at(object, "/metadata/labels/app"),
            Some("controller-manager" | "apiserver")
        )
    };
    let id = input.namespace.and_then(|name| name.strip_prefix("cluster-"));
    let is_user_cluster = id.is_some() && id == text_at(pod, "/metadata/labels/cluster");

    has_owner(input.object, "Cluster", "kubermatic.k8")
        || list_at(pod, "/spec/containers").iter().any(is_probed)
        || is_user_cluster && (has_label(input.object) || has_label(pod))
}

const FEATURE: &str = "/spec/features/externalCloudProvider";

/// The first Kubernetes version for which Kubermatic accepts the feature on AWS.
const FIRST: KubernetesVersion = KubernetesVersion::v1(24);

/// The first release of Kubermatic that migrates clusters on AWS.
const FIRST_KUBERMATIC: (u32, u32) = (2, 22);

fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    if input.operation == Operation::Create {
        return Draft::unchanged("Kubermatic itself decides on the provider of a new cluster");
    }
    if !input.may_act(&["/spec"], &[]) {
        return Draft::unchanged("the update does not change /spec");
    }

    let spec = migration.spec;
    if let Err(reason) = refuse_other_clouds(input.object) {
        return match spec.phase {
            Phase::InTree => Draft::unchanged("phase InTree does not change the cluster"),
            _ => Draft::refused(reason),
        };
    }
    if spec.phase < Phase::Migrate {
        return before_migrate(input, migration);
    }
    if is_on(input.object) {
        return Draft::unchanged("spec.features.externalCloudProvider is on");
    }

    let was_on = input.old_object.is_some_and(is_on);
    if !was_on && let Err(reason) = may_turn_on(input.object, migration) {
        return Draft::refused(reason);
    }

    turn_on(input, migration).unwrap_or_else(|error| {
        Draft::refused(format!("spec.features.externalCloudProvider is not turned on: {error}"))
    })
}

fn is_on(object: &Value) -> bool {
    object.pointer(FEATURE).is_some_and(|feature| feature == true)
}

/// InTree and Prepare change nothing, and warn of what is not possible.
fn before_migrate(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let phase = migration.spec.phase;
    let mut draft = Draft::unchanged(format!("phase {phase} does not change the cluster"));
    let recorded = |object: &Value| annotation(object, annotations::EXTERNAL).is_some();
    let was_on = input.old_object.is_some_and(|old| is_on(old) || recorded(old));

    if is_on(input.object) || was_on {
        draft.warnings.push(format!(
            "the cluster stays external in phase {phase}: Kubermatic refuses to unset spec.features.externalCloudProvider; \
             continue with phase Complete"
        ));
    } else if phase == Phase::Prepare && !migration.spec.downtime {
        draft.warnings.push(WITHOUT_LEADER_MIGRATION.to_owned());
    }

    draft
}

const WITHOUT_LEADER_MIGRATION: &str = "Kubermatic has no leader migration, so no cloud controller runs for a while during the switch; \
     accept that with spec.downtime: true, else phase Migrate changes nothing";

fn refuse_other_clouds(object: &Value) -> Result<(), String> {
    let cloud = object.pointer("/spec/cloud/aws");
    if cloud.is_none_or(Value::is_null) {
        return Err("spec.cloud has no aws; this migration is for AWS, correct spec.targets".to_owned());
    }
    Ok(())
}

fn may_turn_on(object: &Value, migration: &Migration<'_>) -> Result<(), String> {
    if !migration.spec.downtime {
        return Err(WITHOUT_LEADER_MIGRATION.to_owned());
    }

    let own = text_at(object, "/spec/version").and_then(|text| text.parse().ok());
    let version = own.or_else(|| migration.spec.version());
    match version {
        None => {
            return Err(
                "spec.version of the cluster cannot be read; set spec.kubernetesVersion of the migration".to_owned(),
            );
        }
        Some(version) if version < FIRST => {
            return Err(format!(
                "Kubermatic accepts an external provider on AWS from {FIRST} on, and the cluster has {version}; upgrade it first"
            ));
        }
        Some(_) => {}
    }

    match kubermatic_version(object) {
        Some((major, minor)) if (major, minor) < FIRST_KUBERMATIC => Err(format!(
            "Kubermatic {major}.{minor} does not migrate clusters on AWS; upgrade it to {}.{} or later",
            FIRST_KUBERMATIC.0, FIRST_KUBERMATIC.1
        )),
        _ => Ok(()),
    }
}

/// The newest release of Kubermatic that has written a condition of the cluster.
fn kubermatic_version(object: &Value) -> Option<(u32, u32)> {
    let conditions = object.pointer("/status/conditions")?.as_object()?;
    let versions = conditions.values().filter_map(|condition| {
        let text = condition.get("kubermaticVersion")?.as_str()?.strip_prefix('v')?;
        let mut numbers = text.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

fn turn_on(input: &Input<'_>, migration: &Migration<'_>) -> Result<Draft, NotAnObject> {
    let object = input.object;
    let mut builder = Builder::default();
    let value = format!("{}/{}", migration.name, migration.spec.phase);
    let record = ["metadata", "annotations", annotations::EXTERNAL];

    if annotation(object, annotations::EXTERNAL).is_none() {
        builder.set(&Path::default(), object, &record, json!(value))?;
    }

    builder.set(
        &Path::default(),
        object,
        &["spec", "features", "externalCloudProvider"],
        json!(true),
    )?;

    let reason =
        "spec.features.externalCloudProvider is turned on: Kubermatic hands over to its cloud-controller-manager";
    let mut draft = Draft {
        patch: builder.finish(),
        reasons: vec![reason.to_owned()],
        ..Draft::default()
    };

    if input.old_object.is_some_and(is_on) {
        draft.reasons = vec!["spec.features.externalCloudProvider stays on: Kubermatic refuses to unset it".to_owned()];
    } else {
        draft.warnings.push(
            "spec.features.externalCloudProvider becomes true, and Kubermatic never allows false again; then replace every machine of the MachineDeployments, since their kubelets keep the old provider"
                .to_owned(),
        );
        draft.warnings.push(
            "Kubermatic reports the migration as completed when every Machine has its annotation, and at once where there is \
             no Machine; check the Nodes themselves"
                .to_owned(),
        );
    }

    Ok(draft)
}

/// Machines of the machine-controller: the annotation that marks a Machine as migrated.
///
/// The webhook of the machine-controller writes the annotation on each new Machine, by its own flag. Nothing protects
/// it later. Kubermatic considers the migration complete when all Machines have the value true, and also when there are
/// no Machines, regardless of the kubelets. So the annotation is never changed here, and a write by hand gets a
/// warning.
pub(super) const MACHINES: &[Kind] = &[Kind {
    group: "cluster.k8s.io",
    versions: &["v1alpha1"],
    kind: "Machine",
    plural: "machines",
    namespaced: true,
    on_update: true,
    profiles: &[Profile::Kubermatic],
    is_concerned: is_marked_anew,
    draft: machine,
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

fn machine(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    Draft {
        warnings: completion(input, migration).into_iter().collect(),
        ..Draft::unchanged("the kubelet of a Machine is not changed by its object")
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
