//! MachineDeployments of Kubermatic's machine-controller (`cluster.k8s.io/v1alpha1`): the cluster tag of their instances.
//!
//! A cloud-controller-manager finds its cluster's instances by that tag. It is added only where no key of the prefix is
//! present, and no value is ever changed: a second cluster's key on an instance stops that cluster's manager.

use outrigger_shared::{
    migration::{Phase, Profile},
    tags,
};
use serde_json::{Map, Value, json};

use super::{Draft, Input, Kind, Migration, Operation, apply_requested, changed, is_being_deleted};
use crate::patch::{Builder, Path};

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "cluster.k8s.io",
    versions: &["v1alpha1"],
    kind: "MachineDeployment",
    plural: "machinedeployments",
    namespaced: true,
    on_update: true,
    profiles: &[Profile::Kubermatic],
    is_concerned,
    draft,
}];

const VALUE: [&str; 6] = ["spec", "template", "spec", "providerSpec", "value", "cloudProviderSpec"];

/// Only machines on AWS.
pub(super) fn is_concerned(input: &Input<'_>) -> bool {
    let provider = input
        .object
        .pointer("/spec/template/spec/providerSpec/value/cloudProvider");
    provider.and_then(Value::as_str) == Some("aws")
}

/// A change of the template replaces every machine. So an update acts only when it changes the template itself (and not,
/// say, the number of replicas), or when the operator asks for it by annotation.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let unchanged = |reason: &str| Draft {
        reasons: vec![reason.to_owned()],
        ..Draft::default()
    };
    if migration.spec.phase == Phase::InTree {
        return unchanged("machines are tagged from phase Prepare on");
    }
    let may_act = input.operation == Operation::Create || changed(input, "/spec/template") || apply_requested(input);
    if !may_act || is_being_deleted(input.object) {
        return unchanged("the update does not change spec.template");
    }
    let Some(spec) = input
        .object
        .pointer(&format!("/{}", VALUE.join("/")))
        .filter(|spec| spec.is_object())
    else {
        return unchanged("there is no cloudProviderSpec to hold tags");
    };
    match tag(spec, migration) {
        Tag::Present => unchanged("the cluster tag is there"),
        Tag::Foreign(key) => {
            let mut draft = Draft::default();
            draft.refuse(format!(
                "the tags hold {key:?}, which names another cluster, so no cluster tag is added; correct it or spec.targets"
            ));
            draft
        }
        Tag::Missing => add_tag(spec, migration),
    }
}

enum Tag {
    Present,
    Missing,
    Foreign(String),
}

fn tag(spec: &Value, migration: &Migration<'_>) -> Tag {
    let empty = Map::new();
    let all = spec.get("tags").and_then(Value::as_object).unwrap_or(&empty);
    let own = tags::cluster_key(&migration.spec.cluster_id);
    let foreign = all.iter().find(|(key, value)| {
        let other_key = key.starts_with(tags::CLUSTER_PREFIX) && **key != own;
        let other_legacy = *key == tags::LEGACY_CLUSTER && value.as_str() != Some(&migration.spec.cluster_id);
        other_key || other_legacy
    });
    match foreign {
        Some((key, _)) => Tag::Foreign(key.clone()),
        None if all.contains_key(&own) => Tag::Present,
        None => Tag::Missing,
    }
}

fn add_tag(spec: &Value, migration: &Migration<'_>) -> Draft {
    let key = tags::cluster_key(&migration.spec.cluster_id);
    let value = migration.spec.ownership.as_str();
    let mut builder = Builder::default();
    if let Err(error) = builder.set(&Path::new(&VALUE), spec, &["tags", &key], json!(value)) {
        let mut draft = Draft::default();
        draft.refuse(format!("no cluster tag is added: {error}"));
        return draft;
    }
    let reason = format!("tag {key}={value} added, by which a cloud-controller-manager knows the cluster's instances");
    Draft {
        patch: builder.finish(),
        reasons: vec![reason],
        ..Draft::default()
    }
}
