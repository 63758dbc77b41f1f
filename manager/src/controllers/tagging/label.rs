//! The label that records which tags the instance of a Node has.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use md5::{Digest, Md5};

pub const LABEL: &str = "k8s.io/cloud-provider-aws";

/// The label's value: MD5, in lower-case hexadecimal digits, of the tags as `key=value`, sorted as such and joined with commas.
pub fn value(tags: &BTreeMap<String, String>) -> String {
    let mut pairs: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.sort();
    let mut text = String::with_capacity(32);
    for byte in Md5::digest(pairs.join(",")) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> String {
        value(
            &pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn the_value_is_the_incumbents() {
        assert_eq!(of(&[("key1", "value1")]), "9767c4972ba72e87ab553bad2afde741");
        assert_eq!(
            of(&[("key1", "value1"), ("key2", "value2")]),
            "c812faa65d1d5e5aefa6b069b3da39df"
        );
    }

    #[test]
    fn pairs_are_sorted_as_text_not_by_key() {
        // As texts `a-b=1` comes before `a=1`, though the key `a` comes before `a-b`.
        let digest = Md5::digest("a-b=1,a=1");
        let wanted: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of(&[("a", "1"), ("a-b", "1")]), wanted);
    }
}
