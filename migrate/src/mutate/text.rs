//! The report as text.

use std::fmt::Write;

use outrigger_webhook::decide::Outcome;
use similar::TextDiff;

use super::report::{Entry, Report, printable};
use crate::decide::explanations;
use crate::end::Failure;
use crate::yaml;

pub(super) fn write(report: &Report<'_>) -> Result<String, Failure> {
    let texts: Result<Vec<String>, Failure> = report.entries.iter().map(one).collect();
    Ok(texts?.join("\n"))
}

fn one(entry: &Entry<'_>) -> Result<String, Failure> {
    let decision = &entry.decision;
    let mut text = format!("{} ({})\n", entry.what(), entry.document.origin);
    let by = match (entry.migration(), entry.phase()) {
        (Some(migration), Some(phase)) => format!(" (migration {migration}, phase {phase})"),
        _ => String::new(),
    };
    line(&mut text, &format!("{}{by}", meaning(decision.outcome)));
    for explanation in explanations(decision) {
        line(&mut text, &explanation);
    }

    if decision.patch.is_empty() {
        return Ok(text);
    }

    line(&mut text, "JSON patch:");
    for operation in &decision.patch {
        line(&mut text, &format!("  {}", serde_json::to_string(operation)?));
    }

    let (before, after) = (yaml::write(&entry.document.object)?, yaml::write(&entry.after)?);
    let diff = TextDiff::from_lines(&before, &after);
    let unified = diff.unified_diff().header("before", "after").to_string();
    text.push_str(&unified);

    Ok(text)
}

fn line(text: &mut String, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {}", printable(content));
}

const fn meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotOurs => "not managed: no migration selects it, or the webhook has no rule for it",
        Outcome::Unchanged => "unchanged",
        Outcome::Changed => "changed",
        Outcome::Audited => "audited: it would be changed, but the migration's mode is Audit",
        Outcome::Refused => "refused: it stays unchanged, for the reasons below",
    }
}
