//! The checks of a case.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cases::Expected;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The API server's own count of a DaemonSet's templates.
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Where an API server cuts a warning.
const LONGEST: usize = 256;

/// The stored object is the expected object with the API server's defaults.
pub fn of_stored(wanted: &Value, stored: &Value) -> Option<String> {
    let (stored, wanted) = (essence(stored), essence(wanted));
    (stored != wanted).then(|| format!("stored\n  {stored}\nwanted\n  {wanted}"))
}

/// The client has seen the expected warnings, each once, in whatever order; the API server has others of its own.
pub fn of_warnings<'a>(expected: impl Iterator<Item = &'a Expected>, seen: &[String]) -> Option<String> {
    let ours = seen.iter().filter(|text| text.starts_with("outrigger:")).cloned();
    let cut = |text: &String| text.chars().take(LONGEST).collect::<String>();
    let (ours, wanted): (BTreeSet<String>, BTreeSet<String>) = (
        ours.collect(),
        expected.flat_map(|one| &one.warnings).map(cut).collect(),
    );
    (ours != wanted).then(|| format!("warned {ours:?}\nwanted {wanted:?}"))
}

/// The same written again changes nothing, its generation neither. The time of the write, which the API server keeps in
/// `managedFields`, may be another, and with it the resource version: of custom resources that a webhook changes it writes the
/// time anew.
pub fn of_second(stored: &Value, after: &Value) -> Option<String> {
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            for manager in metadata
                .get_mut("managedFields")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                manager["time"].take();
            }
        }
        object
    };
    (plain(stored) != plain(after)).then(|| format!("written again it changes from\n  {stored}\nto\n  {after}"))
}

/// The object without its name and what the API server and kubectl keep for themselves.
pub fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations" | "ownerReferences"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| key != LAST_APPLIED && key != GENERATION);
        }
        // None and empty are the same to the API server.
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    if object["kind"] == "Service" {
        // Addresses and ports that the API server gives out.
        let spec = object["spec"].as_object_mut();
        if let Some(spec) = spec {
            spec.retain(|key, _| !matches!(key.as_str(), "clusterIP" | "clusterIPs"));
        }
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    // The API server adds a taint of its own to new Nodes, before or after ours.
    if let Some(taints) = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        taints.sort_by_key(ToString::to_string);
    }
    object
}
