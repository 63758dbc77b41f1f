//! The checks of each input.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::{Patch, PatchOperation};
use outrigger_decide::{Decision, Outcome};
use outrigger_shared::migration::Phase;
use outrigger_webhook::review::{self, Request, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::situation::Situation;

/// The answer, with its UID, permission and warnings checked.
pub(super) fn answered(body: &[u8], response: &Response) -> Value {
    let text = serde_json::to_vec(response).expect("an answer is JSON");
    let answer: Value = serde_json::from_slice(&text).expect("an answer is JSON that can be read");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");

    let answer = answer["response"].clone();
    assert_eq!(answer["uid"], json!(uid(body)), "the answer has another UID");
    assert_eq!(answer["allowed"], json!(true));

    let warnings = answer["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    for warning in warnings {
        let length = warning.as_str().expect("a warning is a text").chars().count();
        assert!(length <= 256, "a warning has {length} characters");
    }

    answer
}

/// The patch in the answer is the patch that was decided.
pub(super) fn carries(answer: &Value, patch: &[PatchOperation]) {
    let Some(text) = answer.get("patch") else {
        assert!(patch.is_empty(), "the patch is not in the answer");
        return;
    };
    let text = STANDARD.decode(text.as_str().unwrap()).expect("a patch is base64");
    let read: Patch = serde_json::from_slice(&text).expect("a patch is JSON Patch");
    assert_eq!(read.0.len(), patch.len(), "the answer has another patch");
}

/// The decision about an object, checked.
pub(super) fn decided(situation: &Situation, request: &Request, object: &Value) -> Decision {
    let old = request.old_object.as_ref();
    let decision = situation.decide(request, object, old);
    assert_eq!(
        decision.outcome == Outcome::Changed,
        !decision.patch.is_empty(),
        "the outcome {:?} is not that of its patch {:?}",
        decision.outcome,
        decision.patch
    );

    let warns = matches!(decision.outcome, Outcome::Refused | Outcome::Audited);
    assert!(
        !warns || !decision.warnings.is_empty(),
        "{:?} without a warning",
        decision.outcome
    );

    let has_reason = decision.patch.is_empty() || !decision.reasons.is_empty();
    assert!(has_reason, "a change without a reason");

    let patched = patched(object, &decision);
    let again = situation.decide(request, &patched, old);
    assert!(
        again.patch.is_empty() || is_never_stored(object) || changes_version(object, &decision),
        "the patched object is changed again:\nfirst {}\nthen  {}",
        json!(decision.patch),
        json!(again.patch)
    );

    decision
}

/// Whether an undo annotation of the author changes the version that the rules read. The next decision may then differ:
/// docs/known-issues.md lists it.
fn changes_version(object: &Value, decision: &Decision) -> bool {
    let is_version = |operation: &PatchOperation| {
        let operation = json!(operation);
        let path = operation["path"].as_str().unwrap_or_default();
        // Also of what contains it.
        let values = [object.pointer(path), operation.get("value")];
        path.to_lowercase().ends_with("version") || values.into_iter().flatten().any(has_version)
    };
    has_undo(object) && decision.patch.iter().any(is_version)
}

fn has_version(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.iter();
            fields.any(|(key, value)| key.to_lowercase().ends_with("version") || has_version(value))
        }
        Value::Array(list) => list.iter().any(has_version),
        _ => false,
    }
}

pub(super) fn patched(object: &Value, decision: &Decision) -> Value {
    let mut patched = object.clone();
    if let Err(error) = json_patch::patch(&mut patched, &decision.patch) {
        panic!("the patch does not apply: {error}\n{}", json!(decision.patch));
    }
    patched
}

/// Fields that no schema knows, where rules write around them, stay what they are, and change no decision.
pub(super) fn unknown_fields_live_on(situation: &Situation, request: &Request, object: &Value) {
    const PLACES: [&str; 5] = ["", "/metadata", "/spec", "/spec/template", "/spec/template/spec"];
    const NAME: &str = "fuzzUnknown";

    let mark = json!({"keep": [1, null, {"x": ""}]});
    let mut marked = object.clone();
    let mut places = Vec::new();

    for place in PLACES {
        if let Some(fields) = marked.pointer_mut(place).and_then(Value::as_object_mut) {
            fields.insert(NAME.to_owned(), mark.clone());
            places.push(format!("{place}/{NAME}"));
        }
    }

    let decision = situation.decide(request, &marked, request.old_object.as_ref());
    let after = patched(&marked, &decision);
    for place in places {
        assert_eq!(after.pointer(&place), Some(&mark), "the unknown field {place} is lost");
    }
}

/// Kinds whose change is for ever, which their files say: nothing takes a tag, a taint or Kubermatic's feature back.
fn is_undone(request: &Request) -> bool {
    let kind = (request.kind.group.as_str(), request.kind.kind.as_str());
    !matches!(
        kind,
        ("", "Node") | ("cluster.k8s.io", _) | ("kubermatic.k8c.io" | "kubermatic.k8s.io", _)
    )
}

/// Whether no API server takes the object, so that it never comes back changed.
fn is_never_stored(object: &Value) -> bool {
    has_twins(object) || has_argument_without_value(object)
}

/// Whether a list of arguments has one without a value, which the definitions of Cluster API require.
fn has_argument_without_value(value: &Value) -> bool {
    let lacks_value = |list: &Value| {
        let mut items = list.as_array().into_iter().flatten();
        items.any(|item| item.get("name").is_some() && !item["value"].is_string())
    };
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            key.to_lowercase().ends_with("extraargs") && lacks_value(value) || has_argument_without_value(value)
        }),
        Value::Array(list) => list.iter().any(has_argument_without_value),
        _ => false,
    }
}

/// Whether a list holds two things of one name and value, such as containers or arguments: no API server takes it, as
/// these are the keys of such lists.
pub(super) fn has_twins(value: &Value) -> bool {
    let key = |item: &Value| {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        item.get("name").map(|_| (text("name"), text("value")))
    };
    match value {
        Value::Object(fields) => fields.values().any(has_twins),
        Value::Array(list) => {
            let mut keys = HashSet::new();
            let twins = list.iter().filter_map(key).any(|key| !keys.insert(key));
            twins || list.iter().any(has_twins)
        }
        _ => false,
    }
}

/// Through all phases and back, each as a new object, the object is as it was.
pub(super) fn there_and_back(situation: &Situation, request: &Request, object: &Value) {
    if has_undo(object) || !is_undone(request) || is_never_stored(object) {
        return;
    }

    let created = Request {
        operation: review::Operation::Create,
        old_object: None,
        ..request.clone()
    };
    let way = [
        Phase::InTree,
        Phase::Prepare,
        Phase::Migrate,
        Phase::Complete,
        Phase::Migrate,
        Phase::Prepare,
        Phase::InTree,
    ];

    let mut here = object.clone();

    for phase in way {
        let decision = decided(&situation.at(phase), &created, &here);
        if is_kept_from_an_original_that_does_not_start(&decision) {
            let before = decided(&situation.at(Phase::InTree), &created, object);
            assert!(
                !before.warnings.is_empty(),
                "an original that starts is not brought back:\nbefore {object}\nafter  {here}"
            );
            return;
        }

        here = patched(&here, &decision);
    }

    // A tag that an instance has is not taken back either.
    let same = settled(&here) == settled(object) || without_tags(settled(&here)) == without_tags(settled(object));
    assert!(
        same,
        "there and back changes the object:\nbefore {object}\nafter  {here}"
    );
}

/// Whether an object stays as it is since no component starts with its original, which docs/webhook.md describes.
fn is_kept_from_an_original_that_does_not_start(decision: &Decision) -> bool {
    let is_reported = |reason: &String| reason.contains("the original does not start any more");
    decision.outcome == Outcome::Refused && decision.reasons.iter().any(is_reported)
}

/// As an API server stores it: metadata is always there, no annotations are the same as none, Pods hold no nulls, and
/// an argument without a value has an empty one.
fn settled(object: &Value) -> Value {
    let mut object = object.clone();
    with_values(&mut object);
    if object.pointer("/spec/template/spec/containers").is_some() || object.pointer("/spec/containers").is_some() {
        without_nulls(&mut object);
    }

    for place in ["", "/spec/template"] {
        let Some(fields) = object.pointer_mut(place).and_then(Value::as_object_mut) else {
            continue;
        };

        let nothing = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == &json!({}));
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut)
            && nothing(metadata.get("annotations"))
        {
            metadata.remove("annotations");
        }

        if nothing(fields.get("metadata")) {
            fields.remove("metadata");
        }
    }

    object
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn with_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("name") && fields.get("value").is_none_or(Value::is_null) {
                fields.insert("value".to_owned(), json!(""));
            }
            fields.values_mut().for_each(with_values);
        }
        Value::Array(list) => list.iter_mut().for_each(with_values),
        _ => {}
    }
}

/// Without cluster tags, in any of the forms of the many kinds, and without what is empty.
fn without_tags(value: Value) -> Option<Value> {
    let is_tag = |text: &str| text.contains("kubernetes.io/cluster/") || text == "KubernetesCluster";
    match value {
        Value::Object(fields) => {
            if fields.values().any(|value| value.as_str().is_some_and(is_tag)) {
                return None;
            }

            let kept: Map<String, Value> = fields
                .into_iter()
                .filter(|(key, _)| !is_tag(key))
                .filter_map(|(key, value)| Some((key, without_tags(value)?)))
                .collect();
            // A resource type without tags says nothing.
            let says_nothing = kept.keys().all(|key| key == "resourceType");
            (!says_nothing).then_some(Value::Object(kept))
        }
        Value::Array(list) => {
            let kept: Vec<Value> = list.into_iter().filter_map(without_tags).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::String(text) if is_tag(&text) => None,
        Value::Null => None,
        other => Some(other),
    }
}

/// The UID, read in another way than the webhook reads it.
fn uid(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Outer {
        request: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        uid: String,
    }

    serde_json::from_slice::<Outer>(body)
        .expect("what is answered has a UID")
        .request
        .uid
}

/// Whether the object brings an undo annotation, anywhere.
fn has_undo(value: &Value) -> bool {
    value.to_string().contains("outrigger.dev/undo")
}
