//! Differences as `diff -u` writes them.

use similar::TextDiff;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The difference of two texts; empty when there is none.
pub(super) fn unified(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff()
        .context_radius(CONTEXT)
        .header("before", "after")
        .to_string()
}
