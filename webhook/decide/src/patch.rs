//! Builds a minimal JSON Patch (RFC 6902) of `add`, `replace` and `remove`.
//!
//! It never has `test`. API servers apply a patch to exactly the object that they sent, so a `test` protects nothing. But
//! they compare its value byte by byte with the object that Go encoded, in which `<` is `\u003c`, and a patch that does
//! not apply rejects the write, whatever the failure policy:
//! <https://github.com/evanphx/json-patch/blob/v4.12.0/patch.go#L179-L190>.

use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf};
use outrigger_shared::work;
use serde_json::{Map, Value, json};

/// Maximum product of the lengths of two lists that are compared item by item; longer lists are replaced.
const MAX_COMPARED: usize = 1_000_000;

/// The value at the path is not an object, so no key can be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not an object; correct it")]
pub struct NotAnObject {
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Builder {
    operations: Vec<PatchOperation>,
}

impl Builder {
    #[must_use]
    pub fn finish(self) -> Vec<PatchOperation> {
        self.operations
    }

    /// Adds a value: a new key, or an element before the one at that index.
    pub fn add(&mut self, path: &Path, value: Value) {
        self.operations.push(PatchOperation::Add(AddOperation {
            path: path.pointer(),
            value,
        }));
    }

    pub fn replace(&mut self, path: &Path, new: Value) {
        self.operations.push(PatchOperation::Replace(ReplaceOperation {
            path: path.pointer(),
            value: new,
        }));
    }

    pub fn remove(&mut self, path: &Path) {
        self.operations
            .push(PatchOperation::Remove(RemoveOperation { path: path.pointer() }));
    }

    /// Sets the value at `keys` below `parent`, which is at `path`, and creates missing objects on the way.
    ///
    /// # Errors
    /// When a value on the way is not an object; the patch must not be used then.
    pub fn set(&mut self, path: &Path, parent: &Value, keys: &[&str], new: Value) -> Result<(), NotAnObject> {
        if !parent.is_object() {
            return Err(NotAnObject {
                path: path.pointer().to_string(),
            });
        }
        let Some((key, rest)) = keys.split_first() else {
            return Ok(());
        };

        let path = path.child(key);
        match (parent.get(key), rest.is_empty()) {
            (None, _) => self.add(&path, nested(rest, new)),
            (Some(Value::Null), _) => self.replace(&path, nested(rest, new)),
            (Some(old), true) if *old == new => {}
            (Some(_), true) => self.replace(&path, new),
            (Some(old), false) => return self.set(&path, old, rest, new),
        }

        Ok(())
    }

    /// Changes one list of strings into another with minimal operations. None is a missing list.
    pub fn list(&mut self, path: &Path, before: Option<&[String]>, after: Option<&[String]>) {
        match (before, after) {
            (None, None) => {}
            (None, Some(after)) => self.add(path, json!(after)),
            (Some(_), None) => self.remove(path),
            (Some(before), Some(after)) if before.len().saturating_mul(after.len()) > MAX_COMPARED => {
                if before != after {
                    self.replace(path, json!(after));
                }
            }
            (Some(before), Some(after)) => self.elements(path, before, after),
        }
    }

    /// Changes one value into another with minimal operations.
    pub fn value(&mut self, path: &Path, before: &Value, after: &Value) {
        match (before, after) {
            _ if before == after => {}
            (Value::Object(before), Value::Object(after)) => self.object(path, before, after),
            (Value::Array(before), Value::Array(after)) if before.len().saturating_mul(after.len()) <= MAX_COMPARED => {
                self.elements(path, before, after);
            }
            _ => self.replace(path, after.clone()),
        }
    }

    fn object(&mut self, path: &Path, before: &Map<String, Value>, after: &Map<String, Value>) {
        for (key, old) in before {
            match after.get(key) {
                Some(new) => self.value(&path.child(key), old, new),
                None => self.remove(&path.child(key)),
            }
        }
        for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
            self.add(&path.child(key), new.clone());
        }
    }

    fn elements<T: Clone + PartialEq + Into<Value>>(&mut self, path: &Path, before: &[T], after: &[T]) {
        // The decision is refused then, so an empty patch does not matter.
        if work::take(before.len().saturating_mul(after.len())).is_err() {
            return;
        }

        let kept = longest_common(before, after);
        let (mut old, mut new) = (0, 0);
        let ends = std::iter::once((before.len(), after.len()));

        for (old_end, new_end) in kept.into_iter().chain(ends) {
            let removed = before.get(old..old_end).unwrap_or_default();
            let added = after.get(new..new_end).unwrap_or_default();
            self.section(path, new, removed, added);
            (old, new) = (old_end + 1, new_end + 1);
        }
    }

    /// Changes between two kept items: replaces pairs, then removes or adds the rest. `at` is the current index in the
    /// list.
    fn section<T: Clone + Into<Value>>(&mut self, path: &Path, at: usize, removed: &[T], added: &[T]) {
        let pairs = removed.len().min(added.len());
        for (offset, (old, new)) in removed.iter().zip(added).enumerate() {
            self.value(&path.index(at + offset), &old.clone().into(), &new.clone().into());
        }

        for _ in removed.iter().skip(pairs) {
            self.remove(&path.index(at + pairs));
        }

        for (offset, new) in added.iter().enumerate().skip(pairs) {
            self.add(&path.index(at + offset), new.clone().into());
        }
    }
}

/// A path of unescaped keys and indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<String>);

impl Path {
    /// The path of these keys; empty for the whole object.
    #[must_use]
    pub fn new(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    /// The path of a JSON Pointer; none if the text is no pointer.
    #[must_use]
    pub fn parse(pointer: &str) -> Option<Self> {
        let pointer = PointerBuf::parse(pointer).ok()?;
        Some(Self(
            pointer.tokens().map(|token| token.decoded().into_owned()).collect(),
        ))
    }

    #[must_use]
    pub fn child(&self, key: &str) -> Self {
        let mut keys = self.0.clone();
        keys.push(key.to_owned());
        Self(keys)
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.child(&index.to_string())
    }

    /// The keys and indices, unescaped.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The same as a JSON Pointer, with `~` and `/` in keys escaped.
    #[must_use]
    pub fn pointer(&self) -> PointerBuf {
        PointerBuf::from_tokens(&self.0)
    }
}

fn nested(keys: &[&str], value: Value) -> Value {
    keys.iter().rev().fold(value, |inner, key| json!({ *key: inner }))
}

/// Pairs of indices of a longest common subsequence, in order.
fn longest_common<T: PartialEq>(before: &[T], after: &[T]) -> Vec<(usize, usize)> {
    let width = after.len() + 1;
    // lengths[old * width + new] is the length for before[old..] and after[new..].
    let mut lengths = vec![0_u32; (before.len() + 1) * width];
    let at = |lengths: &[u32], old: usize, new: usize| lengths.get(old * width + new).copied().unwrap_or(0);

    for (old, left) in before.iter().enumerate().rev() {
        for (new, right) in after.iter().enumerate().rev() {
            let length = if left == right {
                at(&lengths, old + 1, new + 1) + 1
            } else {
                at(&lengths, old + 1, new).max(at(&lengths, old, new + 1))
            };
            if let Some(cell) = lengths.get_mut(old * width + new) {
                *cell = length;
            }
        }
    }

    let (mut old, mut new, mut pairs) = (0, 0, Vec::new());
    while let (Some(left), Some(right)) = (before.get(old), after.get(new)) {
        if left == right {
            pairs.push((old, new));
            (old, new) = (old + 1, new + 1);
        } else if at(&lengths, old + 1, new) >= at(&lengths, old, new + 1) {
            old += 1;
        } else {
            new += 1;
        }
    }

    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apply(document: &Value, builder: Builder) -> Value {
        let mut patched = document.clone();
        json_patch::patch(&mut patched, &builder.finish()).unwrap();
        patched
    }

    #[test]
    fn keys_are_escaped() {
        let mut builder = Builder::default();
        builder.add(&Path::new(&["metadata", "annotations", "a.dev/b~c"]), json!("x"));
        let text = serde_json::to_value(builder.finish()).unwrap();
        assert_eq!(
            text,
            json!([{"op": "add", "path": "/metadata/annotations/a.dev~1b~0c", "value": "x"}])
        );
    }

    #[test]
    fn removals_and_replacements_are_single_operations() {
        let mut builder = Builder::default();
        builder.list(
            &Path::new(&["args"]),
            Some(&["a".into(), "b".into(), "c".into()]),
            Some(&["x".into(), "c".into()]),
        );
        assert_eq!(
            serde_json::to_value(builder.finish()).unwrap(),
            json!([
                {"op": "replace", "path": "/args/0", "value": "x"},
                {"op": "remove", "path": "/args/1"},
            ])
        );
    }

    #[test]
    fn setting_makes_the_objects_on_the_way() {
        for (before, after) in [
            (json!({}), json!({"a": {"b": 1}})),
            (json!({"a": null}), json!({"a": {"b": 1}})),
            (json!({"a": {}}), json!({"a": {"b": 1}})),
            (json!({"a": {"b": 0, "c": 2}}), json!({"a": {"b": 1, "c": 2}})),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            let mut builder = Builder::default();
            builder.set(&Path::default(), &before, &["a", "b"], json!(1)).unwrap();
            assert_eq!(apply(&before, builder), after, "{before}");
        }
    }

    #[test]
    fn nothing_is_set_in_what_has_no_keys() {
        for before in [json!([]), json!({"a": []}), json!({"a": "x"})] {
            assert!(
                Builder::default()
                    .set(&Path::default(), &before, &["a", "b"], json!(1))
                    .is_err(),
                "{before}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_list_becomes_the_other(
            before in proptest::option::of(proptest::collection::vec("[abc]", 0..8)),
            after in proptest::option::of(proptest::collection::vec("[abc]", 0..8)),
        ) {
            let document = before.as_ref().map_or_else(|| json!({}), |list| json!({"l": list}));
            let expected = after.as_ref().map_or_else(|| json!({}), |list| json!({"l": list}));
            let mut builder = Builder::default();
            builder.list(&Path::new(&["l"]), before.as_deref(), after.as_deref());
            if before == after {
                prop_assert_eq!(&builder, &Builder::default());
            }
            prop_assert_eq!(apply(&document, builder), expected);
        }

        #[test]
        fn a_value_becomes_the_other(before in value(), after in value()) {
            let (before, after) = (json!({ "v": before }), json!({ "v": after }));
            let mut builder = Builder::default();
            builder.value(&Path::default(), &before, &after);
            prop_assert_eq!(apply(&before, builder), after);
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[ab]".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c/~]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    #[test]
    fn only_what_differs_is_touched_at_any_depth() {
        let before = json!({"spec": {"list": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}], "kept": {}}});
        let after = json!({"spec": {"list": [{"name": "a", "value": "9"}, {"name": "b", "value": "2"}], "kept": {}}});
        let mut builder = Builder::default();
        builder.value(&Path::default(), &before, &after);
        let found = serde_json::to_value(builder.finish()).unwrap();
        let expected = json!([{"op": "replace", "path": "/spec/list/0/value", "value": "9"}]);
        assert_eq!(found, expected);
    }
}
