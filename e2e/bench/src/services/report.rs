//! The tables, in Markdown: for the terminal and for `docs/benchmarks.md`.

use std::fmt::Write as _;

use super::candidate::TUNING;
use super::environment::Asked;
use super::result::{Burst, Restart, Results, Unchanged};
use crate::manager::candidate::Candidate;
use crate::report::number;

const KIB_IN_MIB: f64 = 1024.0;

/// Everything about one run.
#[must_use]
pub fn services(results: &Results, machine: &str) -> String {
    let mut text = format!("{machine} Tuned: `{}`.\n\n", TUNING.join(" "));
    unchanged(&mut text, &results.unchanged);
    restarts(&mut text, &results.restarts);
    bursts(&mut text, &results.bursts);
    for failure in &results.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }

    text
}

fn unchanged(text: &mut String, rows: &[Unchanged]) {
    if rows.is_empty() {
        return;
    }

    text.push_str(
        "| one look at an unchanged load balancer | by | reads | writes | calls of all looks |\n\
         |---|---|---:|---:|---|\n",
    );

    for row in rows {
        let each = |count: usize| number(Some(ratio(count, row.looks)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            row.kind.name(),
            row.candidate.name(),
            each(row.asked.reads),
            each(row.asked.writes),
            calls(&row.asked),
        );
    }

    text.push('\n');
}

fn restarts(text: &mut String, rows: &[Restart]) {
    if rows.is_empty() {
        return;
    }

    text.push_str(
        "| start beside load balancers | by | seconds to the last call | AWS calls | Outrigger ÷ this | reads | writes | processor s | peak MiB | calls |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );

    let total = |row: &Restart| row.asked.reads + row.asked.writes;
    let ours = rows.iter().find(|row| row.candidate == Candidate::Outrigger).map(total);
    for row in rows {
        let others = ours.filter(|_| row.candidate != Candidate::Outrigger);
        let share = others.map(|ours| number(Some(ratio(ours, total(row)))));
        let _ = writeln!(
            text,
            "| {} classic, {} network | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.classic,
            row.network,
            row.candidate.name(),
            number(Some(row.last.as_secs_f64())),
            total(row),
            share.unwrap_or_default(),
            row.asked.reads,
            row.asked.writes,
            number(Some(row.usage.processor.as_secs_f64())),
            number(Some(mebibytes(row.usage.peak))),
            calls(&row.asked),
        );
    }

    text.push('\n');
}

fn bursts(text: &mut String, rows: &[Burst]) {
    if rows.is_empty() {
        return;
    }

    text.push_str(
        "| new Services, classic | by | seconds to the last address | AWS calls | reads | writes | throttled |\n\
         |---:|---|---:|---:|---:|---:|---:|\n",
    );

    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.services,
            row.candidate.name(),
            number(Some(row.last.as_secs_f64())),
            row.asked.reads + row.asked.writes,
            row.asked.reads,
            row.asked.writes,
            row.asked.throttled,
        );
    }

    text.push('\n');
}

fn calls(asked: &Asked) -> String {
    let each = asked
        .by_action
        .iter()
        .map(|(action, count)| format!("{count} {action}"));
    each.collect::<Vec<_>>().join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(part: usize, of: usize) -> f64 {
    part as f64 / of as f64
}

#[expect(clippy::cast_precision_loss, reason = "a process has less than 2^52 KiB")]
fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / KIB_IN_MIB
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::services;
    use crate::manager::candidate::Candidate;
    use crate::services::environment::{Asked, Kind};
    use crate::services::result::{Burst, Restart, Results, Unchanged};
    use crate::usage::Usage;

    fn asked(reads: usize, writes: usize) -> Asked {
        Asked {
            by_action: [("DescribeTags".to_owned(), reads)].into(),
            reads,
            writes,
            throttled: 3,
        }
    }

    fn results() -> Results {
        let restart = |candidate, reads| Restart {
            candidate,
            classic: 400,
            network: 100,
            last: Duration::from_secs(20),
            asked: asked(reads, 0),
            usage: Usage {
                resident: 1024,
                peak: 2048,
                file: 0,
                processor: Duration::from_secs(1),
            },
        };
        Results {
            unchanged: vec![Unchanged {
                candidate: Candidate::Outrigger,
                kind: Kind::Classic,
                looks: 5,
                asked: asked(15, 0),
            }],
            restarts: vec![restart(Candidate::Outrigger, 500), restart(Candidate::Incumbent, 5000)],
            bursts: vec![Burst {
                candidate: Candidate::Tuned,
                services: 30,
                last: Duration::from_secs(100),
                asked: asked(100, 50),
            }],
            failures: vec!["all is lost".to_owned()],
        }
    }

    #[test]
    fn looks_are_told_each_and_calls_beside_ours() {
        let text = services(&results(), "a machine.");
        for line in [
            "| classic | Outrigger | 3.00 | 0 | 15 DescribeTags |",
            "| 400 classic, 100 network | incumbent | 20.0 | 5000 | 0.100 | 5000 | 0 | 1.00 | 2.00 | 5000 DescribeTags |",
            "| 30 | incumbent, tuned | 100 | 150 | 100 | 50 | 3 |",
            "FAILED: all is lost",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn all_rows_have_the_cells_of_their_table() {
        let text = services(&results(), "");
        let mut cells = None;
        for line in text.lines() {
            let count = line.matches('|').count();
            assert!(count == 0 || cells.is_none_or(|cells| cells == count), "{line}");
            cells = (count > 0).then_some(count);
        }
    }
}
