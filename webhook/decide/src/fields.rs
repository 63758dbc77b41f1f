//! Reads and writes a value at a path of an object.

use serde_json::{Map, Value, json};

use crate::patch::{NotAnObject, Path};

/// The value at the path; none if missing or null.
pub(super) fn find<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    value.pointer(path.pointer().as_str()).filter(|found| !found.is_null())
}

/// Sets a field and creates the missing objects on the way; returns their number.
pub(super) fn write(value: &mut Value, path: &Path, new: Value) -> Result<usize, NotAnObject> {
    let keys: Vec<&str> = path.keys().collect();
    let Some((last, parents)) = keys.split_last() else {
        *value = new;
        return Ok(0);
    };

    reach(value, path, parents.len())?;

    let mut made = 0;
    let mut here = value;
    for key in parents {
        here = match here {
            Value::Array(list) => key.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            Value::Object(fields) => {
                let missing = fields.get(*key).is_none_or(Value::is_null);
                made += usize::from(missing);
                if missing {
                    fields.insert((*key).to_owned(), json!({}));
                }
                fields.get_mut(*key)
            }
            _ => None,
        }
        .ok_or_else(|| not_an_object(path, parents.len()))?;
    }

    match here {
        Value::Object(fields) => drop(fields.insert((*last).to_owned(), new)),
        Value::Array(list) => {
            let element = last.parse::<usize>().ok().and_then(|index| list.get_mut(index));
            *element.ok_or_else(|| not_an_object(path, parents.len()))? = new;
        }
        _ => return Err(not_an_object(path, parents.len())),
    }

    Ok(made)
}

/// Whether the first `depth` keys of a path lead through objects, list items, or missing values.
fn reach(value: &Value, path: &Path, depth: usize) -> Result<(), NotAnObject> {
    let mut here = value;
    for (number, key) in path.keys().take(depth).enumerate() {
        let next = match here {
            Value::Object(fields) => match fields.get(key) {
                None | Some(Value::Null) => return Ok(()),
                Some(next) => Some(next),
            },
            Value::Array(list) => key.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => None,
        };
        here = next.ok_or_else(|| not_an_object(path, number))?;
    }

    if here.is_object() || here.is_array() {
        Ok(())
    } else {
        Err(not_an_object(path, depth))
    }
}

fn not_an_object(path: &Path, depth: usize) -> NotAnObject {
    let keys: Vec<&str> = path.keys().take(depth).collect();
    NotAnObject {
        path: Path::new(&keys).pointer().to_string(),
    }
}

/// Appends to a list, which is created if missing; returns the number of objects and lists created.
pub(super) fn append(value: &mut Value, path: &Path, new: Value) -> Result<usize, NotAnObject> {
    match value.pointer_mut(path.pointer().as_str()) {
        Some(Value::Array(list)) => {
            list.push(new);
            Ok(0)
        }
        None | Some(Value::Null) => write(value, path, json!([new])).map(|made| made + 1),
        Some(_) => Err(not_an_object(path, path.keys().count())),
    }
}

/// Removes a field from its object.
pub(super) fn take(value: &mut Value, path: &Path) -> Option<Value> {
    let keys: Vec<&str> = path.keys().collect();
    let (last, parents) = keys.split_last()?;
    let holder = value.pointer_mut(Path::new(parents).pointer().as_str())?;
    holder.as_object_mut()?.remove(*last)
}

/// Removes the objects that were created on the way to a field, while they are empty.
pub(super) fn prune(value: &mut Value, path: &Path, parents: usize) {
    let keys: Vec<&str> = path.keys().collect();
    let Some((_, holders)) = keys.split_last() else { return };
    for depth in (holders.len().saturating_sub(parents)..holders.len()).rev() {
        let holder = Path::new(holders.get(..=depth).unwrap_or_default());
        if value
            .pointer(holder.pointer().as_str())
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
        {
            take(value, &holder);
        }
    }
}

/// A text; none if missing or something else.
pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// The elements of a list; none if missing or something else.
pub(super) fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether an owner of the object has the kind, and an `apiVersion` that begins with `group`.
pub(super) fn has_owner(object: &Value, kind: &str, group: &str) -> bool {
    list_at(object, "/metadata/ownerReferences").iter().any(|owner| {
        text_at(owner, "/kind") == Some(kind) && text_at(owner, "/apiVersion").unwrap_or_default().starts_with(group)
    })
}

/// An annotation's value, text or not.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.pointer("/metadata/annotations")?.get(key)
}

/// Sets or removes an annotation. Removing the only annotation removes the `annotations` field.
pub(super) fn set_annotation(object: &mut Value, key: &str, new: Option<Value>) -> Result<(), NotAnObject> {
    let path = Path::new(&["metadata", "annotations", key]);
    if let Some(new) = new {
        write(object, &path, new)?;
    } else if take(object, &path).is_some() {
        prune(object, &path, 1);
    }

    Ok(())
}
