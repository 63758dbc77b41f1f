//! Reviews to begin with: the webhook's golden cases, a bare object of every kind, and real objects where there are some.

use std::fs;

use outrigger_shared::migration::Profile;
use outrigger_webhook::decide::{Kind, kinds};
use serde_json::{Value, json};

use crate::files;

const NAMESPACE: &str = "cluster-prod";

/// Inputs of this target.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let golden = golden().into_iter().map(|case| input(&case));
    let real = files::real_objects();
    let real = real
        .iter()
        .flat_map(|object| kinds_of(object).map(move |kind| real_input(object, kind)));
    golden.chain(bare()).chain(real).collect()
}

/// A bare object of every row of the webhook's table; new kinds come without this crate being told.
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
    let folder = files::repository().join("webhook/tests/golden");
    let inputs = files::files_below(&folder)
        .into_iter()
        .filter(|file| file.ends_with("input.yaml"));
    inputs
        .map(|file| serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap())
        .collect()
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

/// A case as an input: what the webhook knows in a line, then the body.
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
    let body = json!({
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
    let mut body = body;
    if let Some(request) = body["request"].as_object_mut() {
        // An API server leaves out what is empty.
        request.retain(|_, value| !value.is_null());
    }
    format!("{situation}\n{body}").into_bytes()
}
