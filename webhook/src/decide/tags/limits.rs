//! Limits of AWS: 50 tags per resource, keys of 1 to 128 characters, values of up to 256, of letters, digits, spaces
//! and `_ . : / = + - @`. Leading and trailing spaces count, but the console does not show them.

use super::{
    format::{TagFormat, Tags},
    reserved::{Finding, Problem},
    row::TagPath,
};

/// Tags of one resource.
pub(super) const TAGS: usize = 50;
const KEY: usize = 128;
const VALUE: usize = 256;

/// Why AWS would reject a tag.
pub(super) fn unfit(key: &str, value: &str, shape: TagFormat) -> Option<String> {
    let count = |text: &str| text.chars().count();
    // Values of a StorageClass are templates, which the driver renders first.
    let legal = |text: &str| text.chars().all(is_legal);
    let value_is_legal = shape == TagFormat::Parameters || legal(value);
    if key.is_empty() {
        return Some("is empty; AWS refuses it".to_owned());
    }
    if count(key) > KEY {
        return Some(format!(
            "has {} characters, and AWS allows {KEY}; shorten it",
            count(key)
        ));
    }
    if count(value) > VALUE {
        return Some(format!(
            "has a value of {} characters, and AWS allows {VALUE}; shorten it",
            count(value)
        ));
    }
    if !legal(key) || !value_is_legal {
        return Some("has a character that AWS refuses; use letters, digits, spaces and _.:/=+-@".to_owned());
    }
    if key.trim() != key || value.trim() != value {
        return Some("begins or ends with a space, which counts in AWS but is not shown there; remove it".to_owned());
    }

    None
}

fn is_legal(character: char) -> bool {
    character.is_alphanumeric() || character == ' ' || "_.:/=+-@".contains(character)
}

/// Tags of one field that AWS, or the reader of the field, would not accept.
pub(super) fn findings(path: &TagPath, tags: &Tags) -> Vec<Finding> {
    let finding = |key: &str, value: &str, text: String| Finding {
        at: path.pointer.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        problem: Problem::Unfit(text),
    };
    let each = tags
        .pairs
        .iter()
        .filter_map(|(key, value)| unfit(key, value, path.shape).map(|text| finding(key, value, text)));
    let mut findings: Vec<Finding> = each.collect();

    findings.extend(
        tags.problem
            .map(|problem| finding("", "", format!("{problem}; correct it"))),
    );

    if tags.pairs.len() > TAGS {
        let count = tags.pairs.len();
        findings.push(finding(
            "",
            "",
            format!("has {count} tags, and AWS allows {TAGS}; remove some"),
        ));
    }

    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_awss_own() {
        let map = |key: &str, value: &str| unfit(key, value, TagFormat::Map);
        assert_eq!(map(&"k".repeat(128), &"v".repeat(256)), None);
        assert_eq!(map("Größe 1_.:/=+-@", ""), None);
        assert!(map("", "v").unwrap().contains("empty"));
        assert!(map(&"k".repeat(129), "").unwrap().contains("129"));
        assert!(map("k", &"v".repeat(257)).unwrap().contains("257"));
        for (key, value) in [("a$", ""), ("a", "{{ .PVCName }}"), ("a*", ""), ("a\n", "")] {
            assert!(map(key, value).is_some(), "{key:?} {value:?}");
        }
        assert!(map("a ", "").unwrap().contains("space") && map("a", " b").unwrap().contains("space"));
        assert_eq!(unfit("a", "{{ .PVCName }}", TagFormat::Parameters), None);
    }
}
