//! `AdmissionReview` of `admission.k8s.io/v1`: parsing of requests, and responses.
//!
//! A response is created only from the [`Reply`] of its request, so it always has that request's UID. The object stays
//! JSON: a typed object would lose fields that this build does not know.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::PatchOperation;
use outrigger_decide::json;
use outrigger_shared::work;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::memory_budget::MemoryBudget;

/// The class of a decision that was not made within its work budget, in metrics and audit annotations.
pub const TOO_MUCH_WORK: &str = "too_much_work";

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The API server cuts a warning after 256 characters and drops all warnings past 4,096.
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 4096;
/// Characters of a caller's text in an error or a log. A name of an object has at most 253.
const MAX_SHOWN: usize = 256;

/// The body is no review. Without a UID it can only be answered with an HTTP error.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, incomplete, not UTF-8, or a field of the review has a wrong type or occurs twice.
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body is a {kind:?} of {api_version:?}; send an {KIND} of {API_VERSION}")]
    Kind { api_version: String, kind: String },
    #[error("the AdmissionReview has no request")]
    NoRequest,
    #[error("request.uid is missing or empty, so no answer could be matched to it")]
    NoUid,
}

/// The request has a UID, but its object cannot be read. It is allowed unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("request.{field} is missing on {operation}")]
    Missing { field: &'static str, operation: String },
    #[error("request.{field} cannot be read: {source}")]
    Object {
        field: &'static str,
        source: serde_json::Error,
    },
    #[error("request.{field} is larger than one decision may read; it needs more work than one decision may take")]
    Work { field: &'static str },
    #[error("request.operation is {operation:?}, not CREATE, UPDATE, DELETE or CONNECT")]
    Operation { operation: String },
}

impl Malformed {
    /// The label in metrics.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Json(_) => "not_json",
            Self::Kind { .. } => "wrong_kind",
            Self::NoRequest => "no_request",
            Self::NoUid => "no_uid",
        }
    }
}

impl Unreadable {
    /// The label in metrics.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "no_object",
            Self::Object { .. } => "unreadable_object",
            Self::Work { .. } => TOO_MUCH_WORK,
            Self::Operation { .. } => "unknown_operation",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// A call of a subresource such as exec.
    Connect,
}

/// Group, version and kind of an object, or group, version and plural of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Type {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub version: String,
    /// Kind, such as `Node`, or the plural of the resource, such as `nodes`.
    #[serde(default, alias = "resource")]
    pub kind: String,
}

/// The request without its UID, which is in the [`Reply`].
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The kind for which the webhook is registered, in whose version the object is.
    pub kind: Type,
    pub resource: Type,
    /// `status`, `scale` and the like; empty for the object itself.
    pub sub_resource: String,
    /// Empty when the API server generates the name.
    pub name: String,
    /// Empty for cluster-scoped objects. Set also where the object has no namespace field.
    pub namespace: String,
    pub operation: Operation,
    pub dry_run: bool,
    /// The object as it is to be stored; `None` on DELETE.
    pub object: Option<Value>,
    /// The object as it is stored; `None` on CREATE.
    pub old_object: Option<Value>,
}

#[derive(Debug)]
pub struct Review {
    pub request: Request,
    pub reply: Reply,
}

#[derive(Debug)]
pub enum Incoming {
    /// A request that can be decided.
    Review(Box<Review>),
    /// A request that can only be allowed, with the reason.
    Unreadable(Reply, Unreadable),
}

/// Permits one response to one request.
#[derive(Debug)]
#[must_use = "an admission request must be answered"]
pub struct Reply {
    uid: String,
    subject: Subject,
}

/// The object of a request, for logs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Subject {
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty when the API server generates the name.
    pub name: String,
}

/// Patch, warnings and audit annotations of an allowed request.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Verdict {
    /// JSON Patch operations; empty for an object that stays as it is.
    pub patch: Vec<PatchOperation>,
    /// Shown to the caller.
    pub warnings: Vec<String>,
    /// Notes for the API server's audit log. The API server puts the webhook's name and a slash before each key.
    pub audit: BTreeMap<String, String>,
}

/// Denial of a validating review.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Denial {
    pub message: String,
    pub warnings: Vec<String>,
    pub audit: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    api_version: &'static str,
    kind: &'static str,
    response: Body,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Encoded>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// A JSON Patch in base64, as a byte field is written in Kubernetes' JSON.
#[derive(Debug)]
struct Encoded(Vec<PatchOperation>);

impl Serialize for Encoded {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let patch = serde_json::to_vec(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(patch))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'b> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Map<RawRequest<'b>>>,
}

/// A JSON object. A derived `Deserialize` reads the fields of an array too, by their order.
#[derive(Default)]
struct Map<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Map<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
    type Value = Map<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Map<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Map)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'b> {
    uid: Option<String>,
    #[serde(default)]
    kind: Map<Type>,
    #[serde(default)]
    resource: Map<Type>,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    dry_run: Option<bool>,
    #[serde(borrow)]
    object: Option<&'b RawValue>,
    #[serde(borrow)]
    old_object: Option<&'b RawValue>,
}

/// Parses the body of a call. Memory for its objects is taken from `budget`.
///
/// # Errors
/// [`Malformed`] without a request that has a UID. Later errors are answered: [`Incoming::Unreadable`].
pub fn parse(body: &[u8], budget: &MemoryBudget) -> Result<Incoming, Malformed> {
    let Map(envelope) = serde_json::from_slice::<Map<Envelope<'_>>>(body)?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        return Err(Malformed::Kind {
            api_version: short(&envelope.api_version),
            kind: short(&envelope.kind),
        });
    }

    let Map(mut raw) = envelope.request.ok_or(Malformed::NoRequest)?;
    let uid = raw.uid.take().filter(|uid| !uid.is_empty()).ok_or(Malformed::NoUid)?;
    let subject = Subject {
        kind: short(&raw.kind.0.kind),
        namespace: short(&raw.namespace),
        name: short(&raw.name),
    };
    let reply = Reply { uid, subject };

    Ok(match request(raw, budget) {
        Ok(request) => Incoming::Review(Box::new(Review { request, reply })),
        Err(reason) => Incoming::Unreadable(reply, reason),
    })
}

fn request(raw: RawRequest<'_>, budget: &MemoryBudget) -> Result<Request, Unreadable> {
    let operation = match raw.operation.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        "CONNECT" => Operation::Connect,
        other => {
            return Err(Unreadable::Operation {
                operation: short(other),
            });
        }
    };

    let object = object("object", raw.object, budget)?;
    let old_object = self::object("oldObject", raw.old_object, budget)?;
    let missing = |field| Unreadable::Missing {
        field,
        operation: raw.operation.clone(),
    };
    if matches!(operation, Operation::Create | Operation::Update) && !object.as_ref().is_some_and(Value::is_object) {
        return Err(missing("object"));
    }
    if operation == Operation::Update && !old_object.as_ref().is_some_and(Value::is_object) {
        return Err(missing("oldObject"));
    }

    Ok(Request {
        kind: raw.kind.0,
        resource: raw.resource.0,
        sub_resource: raw.sub_resource,
        name: raw.name,
        namespace: raw.namespace,
        operation,
        dry_run: raw.dry_run.unwrap_or(false),
        object,
        old_object,
    })
}

fn object(field: &'static str, raw: Option<&RawValue>, budget: &MemoryBudget) -> Result<Option<Value>, Unreadable> {
    raw.map(|raw| json::parse_within(raw.get(), json::MAX_DEPTH, budget))
        .transpose()
        .map_err(|source| match work::is_exceeded() {
            true => Unreadable::Work { field },
            false => Unreadable::Object { field, source },
        })
}

fn short(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

impl Reply {
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    pub fn allow(self, verdict: Verdict) -> Response {
        // The API server would decode and apply an empty patch for nothing.
        let patch = (!verdict.patch.is_empty()).then_some(Encoded(verdict.patch));
        self.answer(None, patch, &verdict.warnings, verdict.audit)
    }

    pub fn deny(self, denial: Denial) -> Response {
        let status = Status {
            code: 403,
            reason: "Forbidden",
            message: denial.message,
        };
        self.answer(Some(status), None, &denial.warnings, denial.audit)
    }

    fn answer(
        self,
        status: Option<Status>,
        patch: Option<Encoded>,
        texts: &[String],
        audit: BTreeMap<String, String>,
    ) -> Response {
        Response {
            api_version: API_VERSION,
            kind: KIND,
            response: Body {
                uid: self.uid,
                allowed: status.is_none(),
                status,
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                warnings: warnings(texts),
                // The API server puts a slash between the webhook's name and each key.
                audit_annotations: audit
                    .into_iter()
                    .map(|(key, text)| (key.replace('/', "."), text))
                    .collect(),
            },
        }
    }

    /// Allows an object that could not be read, with a warning.
    #[must_use]
    pub fn pass_unread(self, reason: &Unreadable) -> Response {
        self.allow(Verdict {
            warnings: vec![format!("outrigger changed nothing: {reason}")],
            audit: BTreeMap::from([("error".to_owned(), reason.class().to_owned())]),
            ..Verdict::default()
        })
    }
}

/// Warnings travel as HTTP headers, so they have no line breaks and their sum is bounded.
fn warnings(texts: &[String]) -> Vec<String> {
    let mut left = MAX_WARNINGS;
    let mut kept = Vec::new();
    for text in texts {
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let line: String = plain.take(MAX_WARNING).collect();
        match left.checked_sub(line.len()) {
            Some(rest) => left = rest,
            None => break,
        }
        kept.push(line);
    }

    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(body: &[u8]) -> Result<Incoming, Malformed> {
        super::parse(body, &MemoryBudget::unshared(1_000_000))
    }

    fn body(request: &Value) -> Vec<u8> {
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request})
            .to_string()
            .into_bytes()
    }

    fn create() -> Value {
        json!({"uid": "u1", "operation": "CREATE", "name": "n", "kind": {"group": "", "version": "v1", "kind": "Node"},
            "resource": {"group": "", "version": "v1", "resource": "nodes"}, "dryRun": true, "oldObject": null,
            "object": {"kind": "Node", "unknown": {"kept": [1, 2.5]}}})
    }

    fn review(body: &[u8]) -> Review {
        match parse(body).unwrap() {
            Incoming::Review(review) => *review,
            Incoming::Unreadable(_, reason) => panic!("{reason}"),
        }
    }

    fn answer(response: &Response) -> Value {
        serde_json::to_value(response).unwrap()["response"].clone()
    }

    #[test]
    fn a_request_is_read_and_its_unknown_fields_live() {
        let request = review(&body(&create())).request;
        assert_eq!(
            (request.kind.kind.as_str(), request.resource.kind.as_str()),
            ("Node", "nodes")
        );
        assert_eq!((request.operation, request.dry_run), (Operation::Create, true));
        assert_eq!(request.object.unwrap()["unknown"]["kept"], json!([1, 2.5]));
        assert_eq!(request.old_object, None);
    }

    #[test]
    fn the_answer_carries_the_uid_and_an_encoded_patch() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}]);
        let verdict = Verdict {
            patch: serde_json::from_value(patch.clone()).unwrap(),
            ..Verdict::default()
        };
        let answer = answer(&review(&body(&create())).reply.allow(verdict));
        assert_eq!(
            (&answer["uid"], &answer["allowed"], &answer["patchType"]),
            (&json!("u1"), &json!(true), &json!("JSONPatch"))
        );
        let decoded = STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&decoded).unwrap(), patch);
    }

    #[test]
    fn a_refusal_carries_the_uid_a_status_and_no_patch() {
        let denial = Denial {
            message: "why".to_owned(),
            warnings: vec!["and".to_owned()],
            audit: BTreeMap::from([("decision".to_owned(), "denied".to_owned())]),
        };
        let answer = answer(&review(&body(&create())).reply.deny(denial));
        assert_eq!(
            answer,
            json!({"uid": "u1", "allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "why"},
                "warnings": ["and"], "auditAnnotations": {"decision": "denied"}})
        );
    }

    #[test]
    fn an_answer_without_changes_has_no_patch() {
        let answer = answer(&review(&body(&create())).reply.allow(Verdict::default()));
        assert_eq!(answer, json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn warnings_are_single_lines_and_bounded() {
        let verdict = Verdict {
            warnings: vec!["a\nb".to_owned(), "x".repeat(9000)],
            ..Verdict::default()
        };
        let answer = answer(&review(&body(&create())).reply.allow(verdict));
        assert_eq!(answer["warnings"][0], "a b");
        assert_eq!(answer["warnings"][1].as_str().unwrap().len(), 256);
        let many = Verdict {
            warnings: vec!["y".repeat(256); 40],
            ..Verdict::default()
        };
        let answer = self::answer(&review(&body(&create())).reply.allow(many));
        assert_eq!(answer["warnings"].as_array().unwrap().len(), 16);
    }

    #[test]
    fn audit_keys_have_no_slash_since_the_api_server_adds_one() {
        let verdict = Verdict {
            audit: BTreeMap::from([("outrigger.dev/rule".to_owned(), "x".to_owned())]),
            ..Verdict::default()
        };
        let answer = answer(&review(&body(&create())).reply.allow(verdict));
        assert_eq!(answer["auditAnnotations"], json!({"outrigger.dev.rule": "x"}));
    }

    #[test]
    fn a_body_without_an_answerable_request_is_malformed() {
        let whole = body(&create());
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert_eq!(parse(&whole[..cut]).unwrap_err().class(), "not_json", "cut at {cut}");
        }
        assert_eq!(parse(b"\xff\xfe{}").unwrap_err().class(), "not_json");
        assert_eq!(
            parse(br#"{"kind":"AdmissionReview","kind":"AdmissionReview"}"#)
                .unwrap_err()
                .class(),
            "not_json"
        );
        let old = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": KIND, "request": create()});
        assert_eq!(parse(old.to_string().as_bytes()).unwrap_err().class(), "wrong_kind");
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        assert_eq!(parse(pod.to_string().as_bytes()).unwrap_err().class(), "wrong_kind");
        assert_eq!(parse(&body(&Value::Null)).unwrap_err().class(), "no_request");
        assert_eq!(
            parse(&body(&json!({"operation": "CREATE"}))).unwrap_err().class(),
            "no_uid"
        );
        assert_eq!(parse(&body(&json!({"uid": ""}))).unwrap_err().class(), "no_uid");
    }

    #[test]
    fn a_request_with_a_uid_is_always_answered_with_it() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let texts = [
            (r#""operation":"CREATE""#.to_owned(), "no_object"),
            (r#""operation":"CREATE","object":[1]"#.to_owned(), "no_object"),
            (r#""operation":"UPDATE","object":{}"#.to_owned(), "no_object"),
            (r#""operation":"PATCH","object":{}"#.to_owned(), "unknown_operation"),
            (
                r#""operation":"CREATE","object":{"a":1,"a":2}"#.to_owned(),
                "unreadable_object",
            ),
            (
                format!(r#""operation":"CREATE","object":{{"a":{deep}}}"#),
                "unreadable_object",
            ),
        ];
        for (fields, class) in texts {
            let body = format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{"uid":"u2",{fields}}}}}"#);
            let Incoming::Unreadable(reply, reason) = parse(body.as_bytes()).unwrap() else {
                panic!("{fields}")
            };
            assert_eq!(reason.class(), class, "{fields}");
            let answer = answer(&reply.pass_unread(&reason));
            assert_eq!((&answer["uid"], &answer["allowed"]), (&json!("u2"), &json!(true)));
            assert!(
                answer["warnings"][0]
                    .as_str()
                    .unwrap()
                    .starts_with("outrigger changed nothing"),
                "{answer}"
            );
            assert!(answer.get("patch").is_none());
        }
    }

    #[test]
    fn a_deletion_needs_no_object() {
        let request = review(&body(
            &json!({"uid": "u", "operation": "DELETE", "oldObject": {"kind": "Node"}}),
        ))
        .request;
        assert_eq!((request.operation, request.object), (Operation::Delete, None));
    }
}
