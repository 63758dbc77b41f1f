//! Filters by tag of describe calls.

use crate::Tags;
use crate::ec2::Filter;

pub(super) fn tag_matches(tags: &Tags, filter: &Filter) -> Option<bool> {
    if filter.name == "tag-key" {
        return Some(tags.keys().any(|key| filter.values.contains(key)));
    }
    let key = filter.name.strip_prefix("tag:")?;
    let matches = |value: &String| filter.values.iter().any(|pattern| is_like(value, pattern));
    Some(tags.get(key).is_some_and(matches))
}

/// Whether a value fits a pattern; of EC2's wildcards the one that stands at the end.
fn is_like(value: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => value.starts_with(start),
        None => value == pattern,
    }
}
