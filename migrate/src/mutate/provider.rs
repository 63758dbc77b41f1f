//! Finds the name of AWS's cloud provider in an object without a rule: a control plane of another provider, a machine
//! configuration, a text in a ConfigMap.

use serde_json::Value;

/// Spellings of the flag or field.
const NAMES: [&str; 3] = ["cloud-provider", "cloudProvider", "cloud_provider"];
/// Endings of a field that names the provider.
const ENDINGS: [&str; 3] = ["-name", "Name", "_name"];
/// Encodings of separators in a data URL.
const ENCODED: [&str; 4] = ["%3D", "%20", "%22", "%3A"];
const PROVIDER: &str = "aws";

/// The JSON Pointer of the first place that names the provider.
pub(super) fn place(value: &Value) -> Option<String> {
    let below = |key: &str, inner: &Value| Some(format!("/{}{}", escaped(key), place(inner)?));
    match value {
        Value::String(text) => is_named(text).then(String::new),
        Value::Array(items) => {
            let pairs = items.windows(2).position(|pair| match pair {
                [Value::String(flag), Value::String(name)] => is_name(flag.trim_start_matches('-')) && name == PROVIDER,
                _ => false,
            });
            let inside = || {
                (0..)
                    .zip(items)
                    .find_map(|(index, item): (usize, _)| below(&index.to_string(), item))
            };
            pairs.map(|index| format!("/{index}")).or_else(inside)
        }
        Value::Object(fields) => {
            let is_pair = fields.get("name").and_then(Value::as_str).is_some_and(is_name)
                && fields.get("value").is_some_and(|value| value == PROVIDER);
            let own = fields
                .iter()
                .find(|(key, value)| is_name(key) && is_provider(value))
                .map(|(key, _)| format!("/{}", escaped(key)));
            let inside = || fields.iter().find_map(|(key, value)| below(key, value));
            is_pair.then(|| "/value".to_owned()).or(own).or_else(inside)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn is_name(text: &str) -> bool {
    NAMES.iter().any(|name| {
        let ending = text.strip_prefix(name);
        ending.is_some_and(|ending| ending.is_empty() || ENDINGS.contains(&ending))
    })
}

fn is_provider(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| item == PROVIDER),
        value => value == PROVIDER,
    }
}

/// Whether a text names the provider: a command line, YAML, JSON, or any of them in a data URL.
fn is_named(text: &str) -> bool {
    NAMES.iter().any(|name| {
        let ends = text.match_indices(name).map(|(start, name)| start + name.len());
        ends.into_iter().any(|end| text.get(end..).is_some_and(names_provider))
    })
}

/// Whether the provider follows after separators. A hyphen is one only in a list of YAML: `cloud-provider-aws` is the
/// name of a project.
fn names_provider(behind: &str) -> bool {
    let ending = ENDINGS.iter().find_map(|ending| behind.strip_prefix(ending));
    let (mut rest, mut has_space) = (ending.unwrap_or(behind), false);
    loop {
        if let Some(behind) = ENCODED.iter().find_map(|encoded| rest.strip_prefix(encoded)) {
            rest = behind;
            continue;
        }
        let Some(letter) = rest.chars().next() else {
            return false;
        };
        let is_separator = letter.is_whitespace()
            || ['"', '\'', '=', ':', '[', '\\', ','].contains(&letter)
            || letter == '-' && has_space;
        if !is_separator {
            break;
        }
        has_space |= letter.is_whitespace();
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }

    let end = rest.strip_prefix(PROVIDER).map(|behind| behind.chars().next());
    // The first letter behind a line feed in JSON text is that of an escape.
    end.is_some_and(|next| next.is_none_or(|letter| !letter.is_alphanumeric() && letter != '-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_provider_is_found_in_every_form() {
        for (object, expected) in [
            (json!({"args": ["kubelet", "--cloud-provider=aws"]}), Some("/args/1")),
            (json!({"args": ["--cloud-provider", "aws"]}), Some("/args/0")),
            (
                json!({"extraArgs": {"cloud-provider": "aws"}}),
                Some("/extraArgs/cloud-provider"),
            ),
            (
                json!({"extraArgs": [{"name": "cloud-provider", "value": "aws"}]}),
                Some("/extraArgs/0/value"),
            ),
            (
                json!({"a/b": {"cloudProviderName": "aws"}}),
                Some("/a~1b/cloudProviderName"),
            ),
            (
                json!({"extendedArguments": {"cloud-provider": ["aws"]}}),
                Some("/extendedArguments/cloud-provider"),
            ),
            (
                json!({"data": {"config.yaml": "a:\n  cloud-provider:\n  - aws\n"}}),
                Some("/data/config.yaml"),
            ),
            (
                json!({"data": {"config.json": "{\"cloud-provider\":[\"aws\"]}"}}),
                Some("/data/config.json"),
            ),
            (
                json!({"source": "data:,ExecStart%3Dkubelet%20--cloud-provider%3Daws%20--v%3D2"}),
                Some("/source"),
            ),
            (json!({"text": "cloud-provider-name: aws"}), Some("/text")),
            (json!({"image": "example.test/cloud-provider-aws:v1"}), None),
            (json!({"args": ["--cloud-provider=external", "aws"]}), None),
            (
                json!({"cloudProvider": "awsome", "text": "cloud-provider: aws-like"}),
                None,
            ),
            (json!({"text": "cloud-provider: external\nregion: aws"}), None),
        ] {
            assert_eq!(place(&object).as_deref(), expected, "{object}");
        }
    }
}
