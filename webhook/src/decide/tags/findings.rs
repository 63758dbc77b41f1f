//! Findings about the tags of an object.

use serde_json::Value;

use super::{
    super::{Input, Migration, Operation},
    format::Tags,
    limits,
    reserved::{Finding, forged},
    row::{TagPath, TagRow},
};
use crate::patch::Path;

/// A field with tags.
pub(super) struct TagField<'a> {
    /// The path in the row.
    pub path: &'static TagPath,
    pub value: &'a Value,
}

impl TagField<'_> {
    pub fn tags(&self) -> Tags {
        self.path.shape.read(Some(self.value))
    }
}

/// Every existing field with tags.
pub(super) fn places<'a>(row: &'static TagRow, object: &'a Value) -> Vec<TagField<'a>> {
    let mut places = Vec::new();
    for path in row.paths {
        let Some(keys) = Path::parse(path.pointer) else {
            continue;
        };
        let keys: Vec<&str> = keys.keys().collect();
        walk(object, &keys, &mut |value| places.push(TagField { path, value }));
    }

    places
}

fn walk<'a>(value: &'a Value, keys: &[&str], found: &mut impl FnMut(&'a Value)) {
    match (keys.split_first(), value) {
        (_, Value::Null) => {}
        (None, value) => found(value),
        (Some((&"*", rest)), Value::Array(list)) => {
            for element in list {
                walk(element, rest, found);
            }
        }
        (Some((key, rest)), Value::Object(fields)) => {
            if let Some(field) = fields.get(*key) {
                walk(field, rest, found);
            }
        }
        _ => {}
    }
}

/// Every finding in an object.
fn all(row: &'static TagRow, object: &Value, migration: &Migration<'_>) -> Vec<Finding> {
    let of_place = |place: TagField<'_>| {
        let tags = place.tags();
        let mut findings = forged(&tags.pairs, migration, row, place.path);
        findings.extend(limits::findings(place.path, &tags));
        findings
    };
    places(row, object).into_iter().flat_map(of_place).collect()
}

/// The findings that a review adds: all of a new object; of an update, those that it adds or changes, so that existing
/// findings do not block other writes.
pub(crate) fn new_findings(input: &Input<'_>, migration: &Migration<'_>, row: &'static TagRow) -> Vec<Finding> {
    let mut findings = all(row, input.object, migration);
    if let (Operation::Update, Some(old)) = (input.operation, input.old_object) {
        for known in all(row, old, migration) {
            if let Some(index) = findings.iter().position(|finding| *finding == known) {
                findings.remove(index);
            }
        }
    }

    findings
}
