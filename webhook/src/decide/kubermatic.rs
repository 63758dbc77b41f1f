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

use super::{Draft, Input, Kind, Migration, Operation, annotation, matching};
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
        return Some(Draft {
            reasons: vec![
                "Kubermatic writes its workloads itself: they follow spec.features.externalCloudProvider of its Cluster".to_owned(),
            ],
            ..Draft::default()
        });
    }
    if migration.spec.phase == Phase::InTree || !is_written_by_kubermatic(input, pod) {
        return None;
    }

    let mut draft = Draft::default();
    draft.refuse(format!("nothing is changed: {REASON}"));

    Some(draft)
}

/// The owner is a Kubermatic Cluster, or its prober starts the component, or labels and namespace are those of
/// Kubermatic: a short name as `app`, and the ID of the cluster as `cluster`, which is also in the name of the
/// namespace. Other projects use one of the labels alone.
fn is_written_by_kubermatic(input: &Input<'_>, pod: &Value) -> bool {
    let owners = input
        .object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let is_cluster = |owner: &Value| {
        let group = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        owner.get("kind").is_some_and(|kind| kind == "Cluster") && group.starts_with("kubermatic.k8")
    };
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let is_probed = |container: &Value| {
        let program = container.pointer("/command/0").and_then(Value::as_str);
        program.is_some_and(|program| program.rsplit('/').next() == Some("http-prober"))
    };
    let has_label = |object: &Value| {
        let app = object.pointer("/metadata/labels/app").and_then(Value::as_str);
        matches!(app, Some("controller-manager" | "apiserver"))
    };
    let id = input.namespace.and_then(|name| name.strip_prefix("cluster-"));
    let label = pod.pointer("/metadata/labels/cluster").and_then(Value::as_str);
    let is_user_cluster = id.is_some() && id == label;

    owners.into_iter().flatten().any(is_cluster)
        || containers.into_iter().flatten().any(is_probed)
        || is_user_cluster && (has_label(input.object) || has_label(pod))
}

const FEATURE: &str = "/spec/features/externalCloudProvider";

/// The first Kubernetes version for which Kubermatic accepts the feature on AWS.
const FIRST: KubernetesVersion = KubernetesVersion::v1(24);

/// The first release of Kubermatic that migrates clusters on AWS.
const FIRST_KUBERMATIC: (u32, u32) = (2, 22);

fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let unchanged = |reason: &str| Draft {
        reasons: vec![reason.to_owned()],
        ..Draft::default()
    };
    if input.operation == Operation::Create {
        return unchanged("Kubermatic itself decides on the provider of a new cluster");
    }
    if !input.may_act(&["/spec"], &[]) {
        return unchanged("the update does not change /spec");
    }

    let spec = migration.spec;
    if let Err(reason) = refuse_other_clouds(input.object) {
        let mut draft = unchanged("phase InTree does not change the cluster");
        if spec.phase > Phase::InTree {
            draft = Draft::default();
            draft.refuse(reason);
        }
        return draft;
    }
    if spec.phase < Phase::Migrate {
        return before_migrate(input, migration);
    }
    if is_on(input.object) {
        return unchanged("spec.features.externalCloudProvider is on");
    }

    let was_on = input.old_object.is_some_and(is_on);
    if !was_on && let Err(reason) = may_turn_on(input.object, migration) {
        let mut draft = Draft::default();
        draft.refuse(reason);
        return draft;
    }

    turn_on(input, migration).unwrap_or_else(|error| {
        let mut draft = Draft::default();
        draft.refuse(format!("spec.features.externalCloudProvider is not turned on: {error}"));
        draft
    })
}

fn is_on(object: &Value) -> bool {
    object.pointer(FEATURE).is_some_and(|feature| feature == true)
}

/// InTree and Prepare change nothing, and warn of what is not possible.
fn before_migrate(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let phase = migration.spec.phase;
    let mut draft = Draft {
        reasons: vec![format!("phase {phase} does not change the cluster")],
        ..Draft::default()
    };
    let recorded = |object: &Value| annotation(object, annotations::EXTERNAL).is_some();
    let was_on = input.old_object.is_some_and(|old| is_on(old) || recorded(old));

    if is_on(input.object) || was_on {
        draft.warnings.push(format!(
            "the cluster stays external in phase {phase}: Kubermatic refuses to take spec.features.externalCloudProvider back; \
             go on to Complete"
        ));
    } else if phase == Phase::Prepare && !migration.spec.downtime {
        draft.warnings.push(WITHOUT_LEADER_MIGRATION.to_owned());
    }

    draft
}

const WITHOUT_LEADER_MIGRATION: &str = "Kubermatic has no leader migration, so this cluster goes over only with a gap in control; \
     accept it by spec.downtime: true, else Migrate changes nothing";

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

    let own = object.pointer("/spec/version").and_then(Value::as_str);
    let version = own
        .and_then(|text| text.parse().ok())
        .or_else(|| migration.spec.version());
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
        draft.reasons =
            vec!["spec.features.externalCloudProvider stays on: Kubermatic refuses to take it back".to_owned()];
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
