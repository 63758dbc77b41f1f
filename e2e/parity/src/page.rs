//! `docs/parity.md`, the page of all differences.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use outrigger_cluster_harness::repository;

/// # Errors
/// When the page cannot be read.
pub fn read() -> Result<String> {
    let path = repository::root().join("docs/parity.md");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The topics of all rows: the first cells of the tables.
///
/// # Errors
/// When the page cannot be read.
pub fn topics() -> Result<BTreeSet<String>> {
    Ok(topics_of(&read()?))
}

pub(super) fn topics_of(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next())
        .map(|topic| topic.trim().to_owned())
        .collect()
}

/// The number directly before `words` in the page.
pub fn number_before(page: &str, words: &str) -> Option<usize> {
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, _) = page.split_once(words)?;
    before.split(' ').next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number_before;

    #[test]
    fn a_number_is_found_across_the_end_of_a_line() {
        let page = "It has 7 cases.\nAll 12\nServices are there.";
        assert_eq!(number_before(page, " Services"), Some(12));
        assert_eq!(number_before(page, " Nodes"), None);
        assert_eq!(number_before(page, " are there"), None);
    }
}
