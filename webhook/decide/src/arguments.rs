//! Argument lists in the formats of provisioners: lists of flags with or without dashes, maps, and lists of `{name,
//! value}`. [`CommandLine`] edits all of them; this file reads and writes the formats.

use outrigger_shared::command_line::{CommandLine, Edit, Unreadable};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::patch::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ListFormat {
    /// `[cloud-provider=external]`; a string stands for a list of one item.
    Bare,
    /// `[--cloud-provider=external]`.
    Dashed,
    /// `{cloud-provider: external}`.
    Map,
    /// `[{name: cloud-provider, value: external}]`.
    Named,
}

/// The field holds no argument list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("{at:?} is not {wanted}; correct it")]
    Type { at: String, wanted: &'static str },
    #[error("{at:?}: {reason}")]
    List { at: String, reason: Unreadable },
}

impl ListFormat {
    /// The format of an existing field; `self` where it is missing. Maps and lists of `{name, value}` are
    /// distinguished, because versions of one API differ in this.
    pub fn of(self, found: Option<&Value>) -> Self {
        match (self, found) {
            (Self::Map | Self::Named, Some(Value::Object(_))) => Self::Map,
            (Self::Map | Self::Named, Some(Value::Array(_))) => Self::Named,
            (shape, _) => shape,
        }
    }

    /// The format of a missing field by the API version of the object: Cluster API uses maps up to v1beta1, and lists
    /// of `{name, value}` from v1beta2 on.
    pub fn in_version_of(self, object: &Value) -> Self {
        let version = text(object, "apiVersion").and_then(|version| version.rsplit_once('/'));
        match (self, version) {
            (Self::Map, Some((group, "v1beta2"))) if group.ends_with("cluster.x-k8s.io") => Self::Named,
            (Self::Named, Some((group, version))) if group.ends_with("cluster.x-k8s.io") && version != "v1beta2" => {
                Self::Map
            }
            (shape, _) => shape,
        }
    }

    pub fn empty(self) -> Value {
        if self == Self::Map { json!({}) } else { json!([]) }
    }

    /// Server-side apply merges these lists: an owner that applies its original again restores its own item beside the
    /// one that replaced it. Then the replacement is removed, and the list is the owner's. In a map, the owner's values
    /// are restored under their names and added ones are left over; these are removed. None if the list is not merged
    /// like this.
    pub fn without_merged(self, found: &Value, edits: &[Edit]) -> Option<Value> {
        if self == Self::Map {
            return map_without_merged(found.as_object()?, edits);
        }

        let list = found.as_array().filter(|_| self == Self::Named)?;
        let is = |element: &Value, pair: &str| {
            pair.split_once('=') == text(element, "name").zip(text(element, "value").or(Some("")))
        };
        let ours = |element: &&Value| edits.iter().flat_map(|edit| &edit.now).any(|pair| is(element, pair));
        let is_merged = list.iter().filter(ours).any(|element| {
            let same_name = |other: &&Value| text(other, "name") == text(element, "name") && *other != element;
            list.iter().any(|other| same_name(&other))
        });

        is_merged.then(|| list.iter().filter(|element| !ours(element)).cloned().collect())
    }

    /// Reads a list; an empty one if it is missing.
    pub fn read(self, found: Option<&Value>, path: &Path) -> Result<CommandLine, Unfit> {
        let at = || path.pointer().to_string();
        let wanted = match self {
            Self::Bare | Self::Dashed => "a list of strings",
            Self::Map => "a map of strings",
            Self::Named => "a list of names with values",
        };
        let unfit = || Unfit::Type { at: at(), wanted };
        let line = match self {
            Self::Bare => CommandLine::bare(read(found, texts).ok_or_else(unfit)?),
            Self::Dashed => CommandLine::dashed(read(found, texts).ok_or_else(unfit)?),
            Self::Map => CommandLine::of_pairs(read(found, entries).ok_or_else(unfit)?),
            Self::Named => CommandLine::of_pairs(read(found, named).ok_or_else(unfit)?),
        };

        line.map_err(|reason| Unfit::List { at: at(), reason })
    }

    /// The new field; `found` is the field that the list was read from.
    pub fn write(self, found: Option<&Value>, line: &CommandLine) -> Value {
        match self {
            Self::Bare | Self::Dashed => json!(line.items().unwrap_or_default()),
            Self::Map => line
                .pairs()
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect(),
            Self::Named => {
                let mut left: Vec<&Value> = found.and_then(Value::as_array).into_iter().flatten().collect();
                let pairs = line.pairs().into_iter().flatten();
                pairs.map(|(name, value)| element(&mut left, name, value)).collect()
            }
        }
    }
}

/// The item with the name and the value; its other fields stay.
fn element(left: &mut Vec<&Value>, name: &str, value: &str) -> Value {
    let place = left.iter().position(|element| text(element, "name") == Some(name));
    let mut element = place.map_or_else(|| json!({}), |place| left.remove(place).clone());
    if let Some(fields) = element.as_object_mut() {
        fields.insert("name".to_owned(), json!(name));
        // A missing value is empty, and stays missing.
        if !(value.is_empty() && fields.get("value").is_none_or(Value::is_null)) || place.is_none() {
            fields.insert("value".to_owned(), json!(value));
        }
    }

    element
}

/// A missing field is no list; none if the field holds something else.
fn read<T>(found: Option<&Value>, of: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
    found.map_or(Some(None), |value| of(value).map(Some))
}

fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(one) => Some(vec![one.clone()]),
        _ => value
            .as_array()?
            .iter()
            .map(|item| Some(item.as_str()?.to_owned()))
            .collect(),
    }
}

type Pairs = Vec<(String, String)>;

fn entries(value: &Value) -> Option<Pairs> {
    let pair = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    value.as_object()?.iter().map(pair).collect()
}

fn named(value: &Value) -> Option<Pairs> {
    let pair = |element: &Value| {
        let value = match element.get("value") {
            None | Some(Value::Null) => "",
            Some(value) => value.as_str()?,
        };
        Some((text(element, "name")?.to_owned(), value.to_owned()))
    };
    value.as_array()?.iter().map(pair).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn map_without_merged(found: &serde_json::Map<String, Value>, edits: &[Edit]) -> Option<Value> {
    let holds = |pair: &String| {
        pair.split_once('=')
            .is_some_and(|(name, value)| found.get(name).and_then(Value::as_str) == Some(value))
    };
    let is_back = |edit: &Edit| !edit.now.is_empty() && edit.was.iter().any(holds);
    let is_left_over = |edit: &&Edit| edit.was.is_empty() && edit.now.iter().all(holds);
    let left_over: Vec<&Edit> = edits.iter().filter(is_left_over).collect();
    if left_over.is_empty() || !edits.iter().any(is_back) {
        return None;
    }

    let mut own = found.clone();
    own.retain(|name, _| !left_over.iter().any(|edit| edit.flag == *name));

    Some(Value::Object(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_element_does_not_say_stays_unsaid() {
        let found = json!([{"name": "v"}, {"name": "x", "value": null}, {"name": "y", "value": ""}]);
        let line = ListFormat::Named.read(Some(&found), &Path::default()).unwrap();
        assert_eq!(ListFormat::Named.write(Some(&found), &line), found);
    }

    #[test]
    fn a_value_that_is_no_text_is_not_read_as_an_empty_one() {
        let found = json!([{"name": "v", "value": 2}]);
        assert!(ListFormat::Named.read(Some(&found), &Path::default()).is_err());
    }
}
