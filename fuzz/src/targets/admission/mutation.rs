//! Changes of a review: mostly inside its objects, so that it can still be read.

use serde_json::{Value, json};

use super::split;
use crate::mutate::{bytes, json as tree};
use crate::random::Random;

/// Names, values and texts that rules look for.
const WORDS: &[&str] = &[
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

/// One change of an input.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    let (situation, body) = split(data);
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let (Some(mut situation), Some(mut body), false) = (parse(situation), parse(body), random.one_in(60)) else {
        return bytes::mutate(random, data, other);
    };
    let other = parse(split(other).1).unwrap_or_default();
    let objects = |review: &Value| review.pointer("/request/object").cloned().unwrap_or_default();
    match random.below(20) {
        0 => tree::mutate(random, &mut situation, &Value::Null, WORDS),
        1 | 2 => turned(random, &mut situation),
        3 => tree::mutate(random, &mut body, &other, WORDS),
        4 => become_update(random, &mut body),
        5..=7 => hostile_undo(random, &mut body),
        8 | 9 => within_both(random, &mut body, &objects(&other)),
        10 => {
            if let Some(old) = body.pointer_mut("/request/oldObject") {
                tree::mutate(random, old, &objects(&other), WORDS);
            }
        }
        _ => {
            if let Some(object) = body.pointer_mut("/request/object") {
                tree::mutate(random, object, &objects(&other), WORDS);
            }
        }
    }
    format!("{situation}\n{body}").into_bytes()
}

/// Another phase, version or wish of a migration, with the right type.
fn turned(random: &mut Random, situation: &mut Value) {
    let Some(migrations) = situation.get_mut("migrations").and_then(Value::as_object_mut) else {
        return;
    };
    for migration in migrations
        .values_mut()
        .filter(|migration| migration["spec"].is_object())
    {
        let flag = json!(random.one_in(2));
        match random.below(6) {
            0 | 1 => migration["spec"]["phase"] = json!(random.pick(&["InTree", "Prepare", "Migrate", "Complete"])),
            2 => {
                migration["spec"]["kubernetesVersion"] =
                    json!(random.pick(&["1.19", "1.21", "1.22", "1.24", "1.26", "1.29", "1.36", "x"]))
            }
            3 => migration["spec"]["downtime"] = flag,
            4 => migration["prepared"] = flag,
            _ => migration["spec"]["mode"] = json!(random.pick(&["Audit", "Enforce"])),
        }
    }
}

/// The same object as its own predecessor, with a change.
fn become_update(random: &mut Random, body: &mut Value) {
    let old = body["request"]["object"].clone();
    if !body["request"].is_object() || !old.is_object() {
        return;
    }
    body["request"]["operation"] = json!("UPDATE");
    body["request"]["oldObject"] = old;
    if random.one_in(2) && body["request"]["object"]["metadata"].is_object() {
        let annotations = &mut body["request"]["object"]["metadata"]["annotations"];
        if annotations.is_object() || annotations.is_null() {
            annotations["outrigger.dev/apply"] = json!("prod/Migrate");
        }
    }
}

/// One change in object and old object alike, so that rules see a part that did not change.
fn within_both(random: &mut Random, body: &mut Value, other: &Value) {
    let mut same = random.clone();
    for place in ["/request/object", "/request/oldObject"] {
        if let Some(object) = body.pointer_mut(place) {
            *random = same.clone();
            tree::mutate(random, object, other, WORDS);
        }
    }
    same.next();
}

/// An undo annotation that names real places of the object, and what stands there, so that it is carried out.
fn hostile_undo(random: &mut Random, body: &mut Value) {
    let Some(object) = body.pointer_mut("/request/object") else {
        return;
    };
    let pointers = tree::pointers(object);
    let entries: Vec<Value> = (0..=random.below(3))
        .map(|_| entry(random, object, &pointers))
        .collect();
    let text = match random.below(8) {
        0 => tree::odd(random, WORDS),
        1 => json!(tree::odd(random, WORDS).to_string()),
        _ => json!(Value::Array(entries).to_string()),
    };
    let holder = random.pick(&["/metadata", "/metadata", "/spec/template/metadata"]);
    if let Some(metadata) = object.pointer_mut(holder).and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert("outrigger.dev/undo".to_owned(), text);
        }
    }
}

fn entry(random: &mut Random, object: &Value, pointers: &[String]) -> Value {
    let at = random.pick(pointers);
    let there = object.pointer(at).cloned().unwrap_or_default();
    let parents = *random.pick(&[0, 0, 1, 2, u64::MAX]);
    let shape = random.pick(&["bare", "dashed", "map", "named"]);
    let words = |random: &mut Random| json!((0..random.below(3)).map(|_| *random.pick(WORDS)).collect::<Vec<_>>());
    match random.below(5) {
        0 => json!({"what": "field", "at": at, "was": tree::odd(random, WORDS), "now": there, "parents": parents}),
        1 => json!({"what": "field", "at": at, "now": there, "parents": parents}),
        2 => json!({"what": "element", "at": at, "now": there.get(0), "parents": parents}),
        3 => {
            json!({"what": "arguments", "at": at, "shape": shape, "list": "args", "index": random.next(), "flag": "cloud-provider",
            "was": words(random), "now": words(random), "created": random.one_in(2), "json": random.one_in(4), "parents": parents})
        }
        _ => {
            json!({"container": "kube-controller-manager", "list": random.pick(&["command", "args"]), "index": random.below(6),
            "flag": random.pick(WORDS), "was": words(random), "now": words(random), "created": random.one_in(2), "json": random.one_in(4)})
        }
    }
}
