//! The formats of tags: one reader for all, and a writer for those in which a tag may be added.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagFormat {
    Map,
    /// `[{KEY: key, VALUE: value}]`, by the names of the two fields: `key` and `value`, or `name` and `value`.
    List {
        key: &'static str,
        value: &'static str,
    },
    /// `[{key, value, propagateAtLaunch}]` of an Auto Scaling group. Its instances get only what is propagated at launch.
    GroupList,
    /// One text `key,value,key2,value2`.
    CommaText,
    /// One text `key=value,key2=value2`, parsed like cloud-controller-managers do: spaces are trimmed, and a value ends
    /// before a second `=`.
    EqualsText,
    /// Parameters `tagSpecification_N: key=value` in a map. `tagDeletion_N: key` counts as a tag without a value.
    Parameters,
}

pub(super) const KEY_VALUE: TagFormat = TagFormat::List {
    key: "key",
    value: "value",
};
pub(super) const NAME_VALUE: TagFormat = TagFormat::List {
    key: "name",
    value: "value",
};

/// The field of a tag of an Auto Scaling group without which instances do not get it.
const PROPAGATED: &str = "propagateAtLaunch";

const SPECIFICATION: &str = "tagSpecification_";
const DELETION: &str = "tagDeletion_";

/// Keys and values in order. Unreadable tags are reported separately, so that they hide no other tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    pub pairs: Vec<(String, String)>,
    /// Keys that the instances of a group do not get.
    pub not_propagated: Vec<String>,
    pub problem: Option<&'static str>,
}

impl TagFormat {
    /// Reads a field; empty if missing or null.
    pub(super) fn read(self, found: Option<&Value>) -> Tags {
        let mut tags = Tags::default();
        match (self, found) {
            (_, None | Some(Value::Null)) => {}
            (Self::Map, Some(Value::Object(map))) => {
                let pairs = map.iter().map(|(key, value)| (key.clone(), text(value)));
                tags.pairs = pairs.collect();
            }
            (Self::Parameters, Some(Value::Object(map))) => {
                tags.pairs = map
                    .iter()
                    .filter_map(|(name, value)| parameter(name, &text(value)))
                    .collect();
            }
            (Self::List { key, value }, Some(Value::Array(list))) => tags.read_list(list, key, value),
            (Self::GroupList, Some(Value::Array(list))) => {
                tags.read_list(list, "key", "value");
                let stays = |element: &&Value| element.get(PROPAGATED) != Some(&Value::Bool(true));
                let keys = list.iter().filter(stays).filter_map(|element| element.get("key"));
                tags.not_propagated = keys.map(text).collect();
            }
            (Self::CommaText, Some(Value::String(words))) => tags = comma_text(words),
            (Self::EqualsText, Some(Value::String(words))) => tags = equals_text(words),
            (Self::Map | Self::Parameters, _) => tags.problem = Some("is not a map"),
            (Self::List { .. } | Self::GroupList, _) => tags.problem = Some("is not a list"),
            (Self::CommaText | Self::EqualsText, _) => tags.problem = Some("is not a text"),
        }

        tags
    }

    /// The whole field with one tag; none for formats that are never extended.
    pub(super) fn only(self, key: &str, value: &str) -> Option<Value> {
        match self {
            Self::Map => Some(json!({ key: value })),
            Self::List { .. } | Self::GroupList => self.element(key, value).map(|element| json!([element])),
            Self::CommaText | Self::EqualsText | Self::Parameters => None,
        }
    }

    /// One tag as an element of a list.
    pub(super) fn element(self, key: &str, value: &str) -> Option<Value> {
        match self {
            Self::List {
                key: key_field,
                value: value_field,
            } => Some(json!({ key_field: key, value_field: value })),
            Self::GroupList => Some(json!({ "key": key, "value": value, PROPAGATED: true })),
            _ => None,
        }
    }
}

impl Tags {
    fn read_list(&mut self, list: &[Value], key: &str, value: &str) {
        for element in list {
            match element.get(key).and_then(Value::as_str) {
                Some(key) => self
                    .pairs
                    .push((key.to_owned(), element.get(value).map(text).unwrap_or_default())),
                None => self.problem = Some("has an element without a key"),
            }
        }
    }
}

/// A number or boolean instead of a string is read as its text, so that it cannot hide a key.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn parameter(name: &str, text: &str) -> Option<(String, String)> {
    if name.starts_with(DELETION) {
        return Some((text.to_owned(), String::new()));
    }
    name.starts_with(SPECIFICATION).then(|| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.to_owned(), value.to_owned())
    })
}

fn comma_text(words: &str) -> Tags {
    let mut tags = Tags::default();
    if words.is_empty() {
        return tags;
    }

    let mut words = words.split(',');
    while let Some(key) = words.next() {
        let value = words.next();
        if value.is_none() {
            tags.problem = Some("ends with a key that has no value");
        }
        tags.pairs.push((key.to_owned(), value.unwrap_or_default().to_owned()));
    }

    tags
}

fn equals_text(words: &str) -> Tags {
    let mut tags = Tags::default();
    for item in words.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let mut parts = item.split('=').map(str::trim);
        let key = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();

        if parts.next().is_some() {
            tags.problem = Some("has a value with a second \"=\", where it is cut off");
        }

        if !key.is_empty() {
            tags.pairs.push((key.to_owned(), value.to_owned()));
        }
    }

    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(shape: TagFormat, value: &Value) -> Vec<(String, String)> {
        let tags = shape.read(Some(value));
        assert_eq!(tags.problem, None, "{value}");
        tags.pairs
    }

    fn expected(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_shape_tells_the_same_tags() {
        let wanted = expected(&[("a", "1"), ("b", "")]);
        let lists = [
            (TagFormat::Map, json!({"a": "1", "b": ""})),
            (
                KEY_VALUE,
                json!([{"key": "a", "value": "1", "overridePolicy": "x"}, {"key": "b"}]),
            ),
            (
                NAME_VALUE,
                json!([{"name": "a", "value": "1"}, {"name": "b", "value": ""}]),
            ),
            (
                TagFormat::GroupList,
                json!([{"key": "a", "value": "1", "propagateAtLaunch": true}, {"key": "b", "propagateAtLaunch": true}]),
            ),
            (TagFormat::CommaText, json!("a,1,b,")),
            (TagFormat::EqualsText, json!("a=1,b=")),
            (
                TagFormat::Parameters,
                json!({"tagSpecification_1": "a=1", "tagSpecification_2": "b", "type": "gp3"}),
            ),
        ];
        for (shape, value) in lists {
            assert_eq!(pairs(shape, &value), wanted, "{shape:?}");
            assert_eq!(shape.read(None), Tags::default());
            assert_eq!(shape.read(Some(&Value::Null)), Tags::default());
        }
    }

    #[test]
    fn only_a_groups_tags_with_the_field_true_reach_its_instances() {
        let tag = |key: &str, propagated: Value| json!({"key": key, "value": "", "propagateAtLaunch": propagated});
        let list = json!([tag("a", json!(true)), tag("b", json!(false)), tag("c", json!("true")), {"key": "d"}]);
        assert_eq!(TagFormat::GroupList.read(Some(&list)).not_propagated, ["b", "c", "d"]);
        assert_eq!(TagFormat::GroupList.only("a", ""), Some(json!([tag("a", json!(true))])));
        assert_eq!(KEY_VALUE.read(Some(&list)).not_propagated, Vec::<String>::new());
    }

    #[test]
    fn the_annotations_text_is_trimmed_and_cut_at_a_second_equals_sign() {
        let tags = TagFormat::EqualsText.read(Some(&json!(" a = 1 , b==2 ,, c=3=4,=x")));
        assert_eq!(tags.pairs, expected(&[("a", "1"), ("b", ""), ("c", "3")]));
        assert!(tags.problem.is_some());
    }

    #[test]
    fn what_cannot_be_read_is_told_and_hides_nothing() {
        let odd = TagFormat::CommaText.read(Some(&json!("a,1,b")));
        assert_eq!((odd.pairs.len(), odd.problem.is_some()), (2, true));
        let broken = KEY_VALUE.read(Some(&json!([{"value": "1"}, 5, {"key": "b", "value": 7}])));
        assert_eq!(
            (broken.pairs, broken.problem.is_some()),
            (expected(&[("b", "7")]), true)
        );
        for shape in [
            TagFormat::Map,
            KEY_VALUE,
            TagFormat::GroupList,
            TagFormat::CommaText,
            TagFormat::EqualsText,
            TagFormat::Parameters,
        ] {
            assert!(shape.read(Some(&json!(7))).problem.is_some(), "{shape:?}");
        }
        assert_eq!(
            TagFormat::Parameters.read(Some(&json!({"tagDeletion_1": "k"}))).pairs,
            expected(&[("k", "")])
        );
    }
}
