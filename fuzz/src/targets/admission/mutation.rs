//! Changes of a readable request that leave it readable.

use fastrand::Rng;
use serde_json::{Value, json};

use super::seeds::WORDS;
use super::situation::split;
use crate::mutate::{change_json, odd, paths};

/// One change, of the webhook's state or of the request.
pub fn mutate(input: &mut Vec<u8>, rng: &mut Rng) {
    let (situation, body) = split(input);
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let (Some(mut situation), Some(mut body)) = (parse(situation), parse(body)) else {
        return;
    };
    if body.pointer("/request/object").is_none_or(|object| !object.is_object()) {
        return;
    }

    match rng.u8(..8) {
        0 | 1 => change_migration(rng, &mut situation),
        2 => become_update(rng, &mut body),
        3..=5 => hostile_undo(rng, &mut body["request"]["object"]),
        _ => change_both(rng, &mut body),
    }

    *input = format!("{situation}\n{body}").into_bytes();
}

/// Another valid value in a migration.
fn change_migration(rng: &mut Rng, situation: &mut Value) {
    const PHASES: [&str; 4] = ["InTree", "Prepare", "Migrate", "Complete"];
    const VERSIONS: [&str; 8] = ["1.19", "1.21", "1.22", "1.24", "1.26", "1.29", "1.36", "x"];

    let migrations = situation.get_mut("migrations").and_then(Value::as_object_mut);
    let migrations = migrations.into_iter().flat_map(|migrations| migrations.values_mut());
    for migration in migrations.filter(|migration| migration["spec"].is_object()) {
        match rng.u8(..6) {
            0 | 1 => migration["spec"]["phase"] = json!(rng.choice(PHASES)),
            2 => migration["spec"]["kubernetesVersion"] = json!(rng.choice(VERSIONS)),
            3 => migration["spec"]["downtime"] = json!(rng.bool()),
            4 => migration["prepared"] = json!(rng.bool()),
            _ => migration["spec"]["mode"] = json!(rng.choice(["Audit", "Enforce"])),
        }
    }
}

/// An update that leaves the object as it is, or asks for the webhook's change.
fn become_update(rng: &mut Rng, body: &mut Value) {
    let request = &mut body["request"];
    request["operation"] = json!("UPDATE");
    request["oldObject"] = request["object"].clone();

    if rng.bool() {
        annotate(
            &mut request["object"],
            "/metadata",
            "outrigger.dev/apply",
            json!("prod/Migrate"),
        );
    }
}

/// Sets an annotation, if the metadata can have one.
fn annotate(object: &mut Value, metadata: &str, key: &str, value: Value) {
    let metadata = object.pointer_mut(metadata).and_then(Value::as_object_mut);
    let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(key.to_owned(), value);
    }
}

/// The same change of object and old object, so that the update itself changes nothing there.
fn change_both(rng: &mut Rng, body: &mut Value) {
    if !body["request"]["oldObject"].is_object() {
        become_update(rng, body);
    }

    let start = rng.clone();
    for name in ["object", "oldObject"] {
        *rng = start.clone();
        let object = &mut body["request"][name];
        let mut donor = object.clone();
        change_json(rng, object, &mut donor, WORDS);
    }
}

/// An undo annotation that names places and values of the object, so that it is mostly carried out.
fn hostile_undo(rng: &mut Rng, object: &mut Value) {
    let places = paths(object);
    let entries: Vec<Value> = (0..rng.u8(1..4)).map(|_| undo_entry(rng, object, &places)).collect();
    let text = match rng.u8(..8) {
        0 => odd(rng, WORDS),
        1 => json!(odd(rng, WORDS).to_string()),
        _ => json!(json!(entries).to_string()),
    };

    let metadata = rng
        .choice(["/metadata", "/metadata", "/spec/template/metadata"])
        .unwrap();
    annotate(object, metadata, "outrigger.dev/undo", text);
}

fn undo_entry(rng: &mut Rng, object: &Value, places: &[Vec<String>]) -> Value {
    let at: String = rng
        .choice(places)
        .unwrap()
        .iter()
        .map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1")))
        .collect();
    let there = object.pointer(&at).cloned().unwrap_or_default();
    let parents = rng.choice([0, 0, 1, 2, u64::MAX]);
    let words = |rng: &mut Rng| json!((0..rng.u8(..3)).map(|_| rng.choice(WORDS)).collect::<Vec<_>>());
    let arguments = json!({
        "list": rng.choice(["command", "args"]), "index": rng.u8(..6), "flag": rng.choice(WORDS),
        "was": words(rng), "now": words(rng), "created": rng.bool(), "json": rng.u8(..4) == 0,
    });

    let mut entry = match rng.u8(..5) {
        0 => json!({"what": "field", "at": at, "was": odd(rng, WORDS), "now": there, "parents": parents}),
        1 => json!({"what": "field", "at": at, "now": there, "parents": parents}),
        2 => return json!({"what": "element", "at": at, "now": there.get(0), "parents": parents}),
        3 => json!({
            "what": "arguments", "at": at, "shape": rng.choice(["bare", "dashed", "map", "named"]), "parents": parents,
        }),
        _ => json!({"container": "kube-controller-manager"}),
    };
    if entry.get("now").is_none()
        && let (Some(entry), Value::Object(arguments)) = (entry.as_object_mut(), arguments)
    {
        entry.extend(arguments);
    }

    entry
}
