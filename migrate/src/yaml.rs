//! YAML as kubectl reads and writes it.

use serde_json::Value;
use serde_saphyr::SerializerOptions;

/// Why YAML cannot be written.
pub type Error = serde_saphyr::SerializeError;

/// Limit of events, nodes and documents, enough for the largest allowed text.
const MAX_ITEMS: usize = 20_000_000;

/// Reads every document of a text but empty ones, as kubectl does: YAML 1.1 booleans and octal numbers (`0644`) count.
///
/// # Errors
/// On wrong syntax, a key twice in one mapping, more than `max_depth` levels, and aliases that grow without bounds.
pub(crate) fn read(text: &str, max_depth: usize, max_documents: usize) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: max_depth,
            max_documents: max_documents,
            max_events: MAX_ITEMS,
            max_nodes: MAX_ITEMS,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.render_with_formatter(&serde_saphyr::UserMessageFormatter))
}

/// The documents of some values, each after `---`.
pub(crate) fn write_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Result<String, Error> {
    let mut text = String::new();
    for value in values {
        text.push_str("---\n");
        text.push_str(&write(value)?);
    }
    Ok(text)
}

/// One document. Long lines are not wrapped, so that a diff shows only differences.
///
/// # Errors
/// When the value is one that YAML cannot hold.
pub(crate) fn write(value: &Value) -> Result<String, Error> {
    let options: SerializerOptions = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Value {
        let mut all = read(text, 64, 10).unwrap();
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    #[test]
    fn scalars_are_what_kubectl_makes_of_them() {
        for (text, value) in [
            ("0644", json!(420)),
            ("'0644'", json!("0644")),
            ("yes", json!(true)),
            ("\"on\"", json!("on")),
            ("1.26", json!(1.26)),
            ("v1.26", json!("v1.26")),
            ("~", json!(null)),
            ("2026-01-02T03:04:05Z", json!("2026-01-02T03:04:05Z")),
            ("12345678901", json!(12_345_678_901_u64)),
        ] {
            assert_eq!(one(&format!("a: {text}")), json!({ "a": value }), "{text}");
        }
    }

    #[test]
    fn what_grows_without_bounds_is_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let all = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{all}]\n"));
        }
        assert!(read(&bomb, 64, 10).is_err());
        assert!(read(&format!("{}{}", "[".repeat(100), "]".repeat(100)), 64, 10).is_err());
        assert!(read("a: 1\na: 2\n", 64, 10).is_err());
    }

    #[test]
    fn long_lines_stay_whole() {
        let long = "word ".repeat(60);
        let text = write(&json!({ "a": long })).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    fn any_text() -> impl Strategy<Value = String> {
        let tricky = proptest::sample::select(vec![
            "",
            " ",
            "yes",
            "no",
            "on",
            "off",
            "y",
            "null",
            "~",
            "0644",
            "0o17",
            "1e3",
            "1_000",
            ".nan",
            "-",
            "- a",
            "a: b",
            "a #b",
            "#",
            "12:30",
            "2026-01-02",
            "=",
            "<<",
            "*a",
            "&a",
            "!t",
            "|",
            ">",
            "%",
            "@",
            "`",
            "a\n",
            "a\n\n",
            "\n a",
            " a\nb",
            "a\tb",
            "\u{85}",
            "\u{2028}",
            "{}",
            "[]",
            "true",
            "é",
            "\u{feff}",
            "a\r\nb",
            "? a",
            "---",
            "...",
        ])
        .prop_map(str::to_owned);
        prop_oneof![tricky, "\\PC{0,12}"]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any_text().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any_text(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in any_value()) {
            let object = json!({ "kind": value });
            let text = write(&object).unwrap();
            prop_assert_eq!(one(&text), object, "{}", text);
        }
    }
}
