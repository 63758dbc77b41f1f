//! New parts of a text.

use granit_parser::ScalarStyle;
use serde_json::{Map, Value};

/// A text as a YAML scalar. `like` is how its neighbours are quoted; a text that could be read as anything else than a
/// text is always quoted.
pub(super) fn text(value: &str, like: ScalarStyle) -> String {
    let is_printable = !value.chars().any(char::is_control);
    match like {
        ScalarStyle::SingleQuoted if is_printable => format!("'{}'", value.replace('\'', "''")),
        ScalarStyle::DoubleQuoted => Value::from(value).to_string(),
        _ if is_plain(value) => value.to_owned(),
        _ => Value::from(value).to_string(),
    }
}

/// Any other scalar, and whole values on one line.
pub(super) fn flow(value: &Value, like: ScalarStyle) -> String {
    match value {
        Value::String(value) => text(value, like),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| flow(item, like)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let entries: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", text(key, ScalarStyle::Plain), flow(value, like)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

pub(super) fn entry(indent: usize, key: &str, value: &Value, like: ScalarStyle) -> Vec<String> {
    let key = format!("{:indent$}{}:", "", text(key, ScalarStyle::Plain));
    let mut lines = match value {
        Value::Object(fields) if !fields.is_empty() => entries(indent + 2, fields, like),
        Value::Array(items) if !items.is_empty() => items.iter().flat_map(|value| item(indent, value, like)).collect(),
        other => return vec![format!("{key} {}", flow(other, like))],
    };

    lines.insert(0, key);
    lines
}

pub(super) fn item(indent: usize, value: &Value, like: ScalarStyle) -> Vec<String> {
    let mut lines = match value {
        Value::Object(fields) if !fields.is_empty() => entries(indent + 2, fields, like),
        other => vec![format!("{:indent$}  {}", "", flow(other, like))],
    };
    if let Some(first) = lines.first_mut() {
        *first = format!("{:indent$}- {}", "", first.trim_start());
    }

    lines
}

fn entries(indent: usize, fields: &Map<String, Value>, like: ScalarStyle) -> Vec<String> {
    let lines = fields.iter().flat_map(|(key, value)| entry(indent, key, value, like));
    lines.collect()
}

/// Whether no reader takes the bare word for anything but this text: YAML 1.1 reads `yes`, `on` and `1:20` as no texts.
fn is_plain(value: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan"];

    let name = value.strip_prefix("--").unwrap_or(value);
    let begins = name
        .chars()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '/');
    let inside = name
        .chars()
        .all(|each| each.is_ascii_alphanumeric() || "-_./=+".contains(each));

    begins && inside && !WORDS.contains(&value.to_ascii_lowercase().as_str())
}
