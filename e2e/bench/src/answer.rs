//! Checks of answers: the speed of wrong answers has no meaning.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::review::{Object, Reviews};

/// The check of an answer under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The UID and the length, because a costlier check would be measured too.
    Quick,
    /// The UID, and the object after the patch.
    Whole,
}

/// The answer of one server to one review before the load, with the whole object checked.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The object with the patch applied.
    pub outcome: Value,
    length: usize,
    uid_at: usize,
}

impl Reference {
    /// Reads the answer to the request `uid` about `object`.
    ///
    /// # Errors When it is no answer to that request, or the patch does not fit, or changes an object that must not
    /// change, or leaves one unchanged that must change.
    pub fn new(reviews: &Reviews, object: Object, uid: &str, body: &[u8]) -> Result<Self> {
        let outcome = outcome(&reviews.of(object).object, uid, body)?;
        let changed = outcome != reviews.of(object).object;
        let what = if changed { "changes" } else { "does not change" };
        ensure!(
            changed == object.is_changed(),
            "{object:?}: the answer {what} the object"
        );

        let mut windows = body.windows(uid.len());
        let uid_at = windows.position(|window| window == uid.as_bytes());
        let uid_at = uid_at.context("the answer does not have the UID as text")?;
        Ok(Self {
            outcome,
            length: body.len(),
            uid_at,
        })
    }
}

/// The references of one server, one for each object.
#[derive(Debug, Clone)]
pub struct References {
    references: Vec<(Object, Reference)>,
}

impl References {
    pub const fn new(references: Vec<(Object, Reference)>) -> Self {
        Self { references }
    }

    fn of(&self, object: Object) -> Result<&Reference> {
        let found = self.references.iter().find(|(kind, _)| *kind == object);
        Ok(&found.with_context(|| format!("no reference for {object:?}"))?.1)
    }

    /// Checks an answer under load.
    ///
    /// # Errors
    /// Says how it is wrong.
    pub fn check(&self, depth: Depth, reviews: &Reviews, object: Object, uid: &str, body: &[u8]) -> Result<()> {
        let reference = self.of(object)?;
        let carried = body.get(reference.uid_at..).unwrap_or_default();
        ensure!(
            carried.starts_with(uid.as_bytes()),
            "{object:?}: the answer does not carry the UID {uid}"
        );
        // The order of operations in Go's patch may differ between answers, but not their length.
        let (length, wanted) = (body.len(), reference.length);
        ensure!(
            length == wanted,
            "{object:?}: the answer has {length} bytes, not {wanted}"
        );

        if depth == Depth::Whole {
            let same = outcome(&reviews.of(object).object, uid, body)? == reference.outcome;
            ensure!(same, "{object:?}: the patch leads to another object");
        }

        Ok(())
    }

    /// Checks that the patches of another server lead to the same objects.
    ///
    /// # Errors
    /// Names the first object that differs, with both results.
    pub fn same_as(&self, other: &Self) -> Result<()> {
        for (object, reference) in &self.references {
            let (ours, theirs) = (&reference.outcome, &other.of(*object)?.outcome);
            ensure!(
                ours == theirs,
                "{object:?}: the servers disagree:\n{ours:#}\n{theirs:#}"
            );
        }
        Ok(())
    }
}

/// The object after the patch of the answer to the request `uid`.
///
/// # Errors
/// When it is no such answer, does not allow the object, or the patch does not fit.
pub fn outcome(object: &Value, uid: &str, body: &[u8]) -> Result<Value> {
    let answer: Value = serde_json::from_slice(body).context("the answer is no JSON")?;
    let response = &answer["response"];
    ensure!(
        answer["kind"] == "AdmissionReview" && response["uid"] == uid && response["allowed"] == true,
        "not an answer that allows the request {uid}: {answer}"
    );

    let mut object = object.clone();
    if let Some(text) = response["patch"].as_str() {
        let is_patch = response["patchType"] == "JSONPatch";
        ensure!(is_patch, "the patch is no JSONPatch: {answer}");
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(text)?)?;
        json_patch::patch(&mut object, &patch).context("the patch does not fit the object")?;
    }

    Ok(object)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::{Value, json};

    use super::{Depth, Reference, References, STANDARD};
    use crate::review::{Object, Reviews};

    fn answer(uid: &str, patch: &Value) -> Vec<u8> {
        let response =
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())});
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
            .to_string()
            .into_bytes()
    }

    fn label(value: &str) -> Value {
        json!([{"op": "add", "path": "/metadata/labels/a", "value": value}])
    }

    fn references(value: &str) -> References {
        let reference = Reference::new(&Reviews::default(), Object::Node, "u1", &answer("u1", &label(value)));
        References::new(vec![(Object::Node, reference.expect("a reference"))])
    }

    #[test]
    fn an_answer_with_another_uid_or_patch_is_wrong() {
        let reviews = Reviews::default();
        let check = |depth, uid, body: &[u8]| references("x").check(depth, &reviews, Object::Node, uid, body);
        assert!(check(Depth::Whole, "u2", &answer("u2", &label("x"))).is_ok());
        assert!(check(Depth::Quick, "u2", &answer("u1", &label("x"))).is_err());
        assert!(check(Depth::Quick, "u2", &answer("u2", &label("xyzxyz"))).is_err());
        assert!(check(Depth::Quick, "u2", b"{}").is_err());
        assert!(check(Depth::Whole, "u2", &answer("u2", &label("y"))).is_err());
    }

    #[test]
    fn a_reference_changes_exactly_the_objects_that_must_change() {
        let reviews = Reviews::default();
        let new = |object, patch: &Value| Reference::new(&reviews, object, "u1", &answer("u1", patch));
        assert!(new(Object::Node, &json!([])).is_err());
        assert!(new(Object::Pod, &json!([])).is_ok());
        assert!(new(Object::Pod, &label("x")).is_err());
        assert!(new(Object::Node, &json!([{"op": "remove", "path": "/nowhere"}])).is_err());
    }

    #[test]
    fn servers_with_different_objects_are_found() {
        assert!(references("x").same_as(&references("x")).is_ok());
        let message = references("x")
            .same_as(&references("y"))
            .expect_err("they differ")
            .to_string();
        assert!(message.contains("Node: the servers disagree"), "{message}");
    }
}
