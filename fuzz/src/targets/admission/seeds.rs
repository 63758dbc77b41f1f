//! Seeds: the webhook's golden cases, a bare object of every kind, changed objects with undo annotations, and real
//! objects if there are any.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use outrigger_decide::{Kind, kinds};
use outrigger_shared::migration::Profile;
use outrigger_webhook::memory_budget::MemoryBudget;
use outrigger_webhook::review::{self, Incoming};
use serde_json::{Value, json};

use super::situation::{MEMORY, Situation, split};
use crate::published::{self, repository};

const NAMESPACE: &str = "cluster-prod";

/// Names, values and texts that rules look for.
pub const WORDS: &[&str] = &[
    "--cloud-provider=aws",
    "--cloud-provider=external",
    "--cloud-provider",
    "cloud-provider",
    "cloud-provider=aws",
    "cloud_provider",
    "external",
    "aws",
    "--cloud-config=/etc/cloud.conf",
    "cloud-config",
    "--enable-leader-migration",
    "enable-leader-migration",
    "--leader-migration-config=/x",
    "--feature-gates=CSIMigrationAWS=false",
    "--feature-gates",
    "feature-gates",
    "--external-cloud-volume-plugin=aws",
    "--controllers=*,-service",
    "--",
    "-",
    "=",
    "$(X)",
    "$(CLOUD)",
    "kube-controller-manager",
    "kube-apiserver",
    "kubelet",
    "/hyperkube",
    "/go-runner",
    "tini",
    "env",
    "sh",
    "-c",
    "http-prober",
    "-command",
    "{\"command\":\"/usr/local/bin/kube-controller-manager\",\"args\":[\"--cloud-provider\",\"aws\"]}",
    "registry.k8s.io/kube-controller-manager:v1.26.13",
    "v1.19.4",
    "1.22",
    "v1.24.1",
    "v1.26.8+rke2r1",
    "v1.29.0",
    "1.36",
    "{\"what\":\"field\",\"at\":\"/spec\",\"parents\":1}",
    "InTree",
    "Prepare",
    "Migrate",
    "Complete",
    "Audit",
    "Enforce",
    "Always",
    "Never",
    "CREATE",
    "UPDATE",
    "DELETE",
    "CONNECT",
    "metadata",
    "annotations",
    "labels",
    "name",
    "namespace",
    "spec",
    "template",
    "containers",
    "command",
    "args",
    "image",
    "value",
    "deletionTimestamp",
    "extraArgs",
    "cloudProvider",
    "targets",
    "profile",
    "phase",
    "prepared",
    "downtime",
    "kubernetesVersion",
    "machineGlobalConfig",
    "machineSelectorConfig",
    "cloud-provider-name",
    "kube-controller-manager-arg",
    "kubelet-arg",
    "disable-cloud-controller",
    "kube_controller",
    "kubeController",
    "outrigger.dev/undo",
    "outrigger.dev/apply",
    "kubernetes.io/cluster/prod",
    "kubernetes.io/config.mirror",
    "node.cloudprovider.kubernetes.io/uninitialized",
];

pub fn seeds() -> Vec<Vec<u8>> {
    let golden = golden().into_iter().map(|case| input(&case));
    let real = real_objects();
    let of_kinds = |object| kinds_of(object).map(move |kind| real_input(object, kind));
    let real = real.iter().flat_map(of_kinds);
    let mut seeds: Vec<_> = golden.chain(bare()).chain(real).collect();

    let mut kinds = HashSet::new();
    let with_undo: Vec<_> = seeds.iter().filter_map(|seed| with_undo(seed, &mut kinds)).collect();
    seeds.extend(with_undo);
    seeds
}

/// The first object of each kind that the webhook gives an undo annotation, with that annotation.
fn with_undo(seed: &[u8], kinds: &mut HashSet<String>) -> Option<Vec<u8>> {
    let (situation, body) = split(seed);
    let Ok(Incoming::Review(review)) = review::parse(body, &MemoryBudget::unshared(MEMORY)) else {
        return None;
    };

    let request = &review.request;
    let decision = Situation::read(situation).decide(request, request.object.as_ref()?, request.old_object.as_ref());
    let mut body: Value = serde_json::from_slice(body).ok()?;
    json_patch::patch(&mut body["request"]["object"], &decision.patch).ok()?;

    let body = body.to_string();
    let is_first = body.contains("outrigger.dev/undo") && kinds.insert(request.kind.kind.clone());
    is_first.then(|| [situation, b"\n", body.as_bytes()].concat())
}

/// A bare object of every kind in the webhook's table.
fn bare() -> Vec<Vec<u8>> {
    let object = |kind: &Kind| {
        let version = kind.versions.first().copied().unwrap_or("v1");
        let api = if kind.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", kind.group)
        };
        json!({"apiVersion": api, "kind": kind.kind, "metadata": {"name": "one"}, "spec": {"template": {"spec": {}}}})
    };
    kinds().map(|kind| real_input(&object(kind), kind)).collect()
}

fn golden() -> Vec<Value> {
    let folder = repository().join("webhook/decide/tests/golden");
    let read = |file: PathBuf| serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let files = files_below(&folder).into_iter();
    files.filter(|file| file.ends_with("input.yaml")).map(read).collect()
}

/// Every file below a folder, in order; none if the folder does not exist.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }

    found.sort();
    found
}

/// Published objects of provisioners. None if their folder is absent.
fn real_objects() -> Vec<Value> {
    let Some(root) = published::find("corpus") else {
        return Vec::new();
    };
    let texts = files_below(&root)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "json"))
        .filter_map(|file| fs::read_to_string(file).ok());

    let objects: Vec<Value> = texts
        .filter(|text| text.len() <= 64 * 1024)
        .filter_map(|text| serde_saphyr::from_multiple::<Value>(&text).ok())
        .flatten()
        .collect();
    assert!(objects.len() >= 200, "only {} published objects", objects.len());
    objects
}

/// The rows of the table for an object.
fn kinds_of(object: &Value) -> impl Iterator<Item = &'static Kind> {
    let (group, version, kind) = type_of(object);
    kinds().filter(move |row| row.group == group && row.kind == kind && row.versions.contains(&version.as_str()))
}

fn type_of(object: &Value) -> (String, String, String) {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    (group.to_owned(), version.to_owned(), text("kind").to_owned())
}

fn real_input(object: &Value, kind: &Kind) -> Vec<u8> {
    let mut object = object.clone();
    if kind.namespaced && object["metadata"].is_object() {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }

    if object["metadata"].is_object() {
        object["metadata"]["labels"]["fuzz"] = json!("yes");
    }

    let target = |profile: &Profile| json!({"profile": profile, "objectSelector": {"matchLabels": {"fuzz": "yes"}}});
    let targets: Vec<Value> = kind.profiles.iter().map(target).collect();
    input(&json!({
        "operation": "CREATE",
        "namespaceLabels": {"kubernetes.io/metadata.name": NAMESPACE},
        "migrations": {"prod": {"prepared": true, "spec": {"clusterID": "prod", "phase": "Migrate", "kubernetesVersion": "1.26", "targets": targets}}},
        "object": object,
    }))
}

/// A golden case as an input.
fn input(case: &Value) -> Vec<u8> {
    let mut situation = case.clone();
    let (mut object, mut old_object, mut operation) = (Value::Null, Value::Null, Value::Null);
    if let Some(fields) = situation.as_object_mut() {
        object = fields.remove("object").unwrap_or_default();
        old_object = fields.remove("oldObject").unwrap_or_default();
        operation = fields.remove("operation").unwrap_or_default();
    }

    let (group, version, kind) = type_of(&object);
    let plural = kinds_of(&object).next().map_or("unknown", |row| row.plural);
    let mut body = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": plural},
            "name": object.pointer("/metadata/name"),
            "namespace": object.pointer("/metadata/namespace"),
            "operation": operation,
            "object": object,
            "oldObject": old_object,
        }
    });

    if let Some(request) = body["request"].as_object_mut() {
        // An API server omits empty fields.
        request.retain(|_, value| !value.is_null());
    }

    format!("{situation}\n{body}").into_bytes()
}
