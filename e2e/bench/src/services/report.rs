//! The tables of the service controllers.

use super::measure::{Burst, Join, Restart, Results, TUNING, Unchanged};
use crate::manager::candidate::Candidate;
use crate::table::{count, failures, mebibytes, number, table};

/// The report of one run.
pub fn services(results: &Results, machine: &str) -> String {
    let tables = [
        unchanged(&results.unchanged),
        restarts(&results.restarts),
        joins(&results.joins),
        bursts(&results.bursts),
    ];
    let (tuning, failures) = (TUNING.join(" "), failures(&results.failures));
    format!("{machine} Tuned: `{tuning}`.\n\n{}{failures}", tables.concat())
}

fn unchanged(rows: &[Unchanged]) -> String {
    let columns = [
        "one reconciliation of an unchanged load balancer",
        "by",
        "reads:",
        "writes:",
        "calls of all reconciliations",
    ];
    let row = |row: &Unchanged| {
        let each = |calls: usize| number(count(calls) / count(row.reconciliations));
        [
            row.kind.name().to_owned(),
            row.candidate.name().to_owned(),
            each(row.calls.reads()),
            each(row.calls.writes()),
            row.calls.list(),
        ]
    };
    table(columns, rows.iter().map(row))
}

fn restarts(rows: &[Restart]) -> String {
    let columns = [
        "start beside load balancers",
        "by",
        "seconds without attributes:",
        "AWS calls:",
        "Outrigger ÷ this:",
        "seconds in all:",
        "AWS calls in all:",
        "Outrigger ÷ this:",
        "writes:",
        "processor s:",
        "peak MiB:",
        "calls",
    ];
    let ours = rows.iter().find(|row| row.candidate == Candidate::Outrigger);
    let row = |row: &Restart| {
        let other = ours.filter(|_| row.candidate != Candidate::Outrigger);
        let ratio = |calls: fn(&Restart) -> usize| {
            let ratio = other.map(|ours| number(count(calls(ours)) / count(calls(row))));
            ratio.unwrap_or_default()
        };
        [
            format!("{} classic, {} network", row.classic, row.network),
            row.candidate.name().to_owned(),
            number(row.last.as_secs_f64()),
            row.calls.total().to_string(),
            ratio(|row| row.calls.total()),
            number(row.last_of_all.as_secs_f64()),
            row.in_all().to_string(),
            ratio(Restart::in_all),
            (row.calls.writes() + row.later.writes()).to_string(),
            number(row.usage.processor.as_secs_f64()),
            number(mebibytes(row.usage.peak)),
            row.calls.list(),
        ]
    };
    table(columns, rows.iter().map(row))
}

fn joins(rows: &[Join]) -> String {
    let columns = [
        "a Node joins",
        "by",
        "seconds to the last call:",
        "Outrigger ÷ this:",
        "AWS calls:",
        "reads:",
        "writes:",
        "throttled:",
    ];
    let ours = rows.iter().find(|row| row.candidate == Candidate::Outrigger);
    let row = |row: &Join| {
        let other = ours.filter(|_| row.candidate != Candidate::Outrigger);
        let ratio = other.map(|ours| number(ours.last.as_secs_f64() / row.last.as_secs_f64()));
        [
            format!("{} classic, {} network", row.classic, row.network),
            row.candidate.name().to_owned(),
            number(row.last.as_secs_f64()),
            ratio.unwrap_or_default(),
            row.calls.total().to_string(),
            row.calls.reads().to_string(),
            row.calls.writes().to_string(),
            row.calls.throttled.to_string(),
        ]
    };
    table(columns, rows.iter().map(row))
}

fn bursts(rows: &[Burst]) -> String {
    let columns = [
        "new Services, classic:",
        "by",
        "seconds to the last address:",
        "AWS calls:",
        "reads:",
        "writes:",
        "throttled:",
    ];
    let row = |row: &Burst| {
        [
            row.services.to_string(),
            row.candidate.name().to_owned(),
            number(row.last.as_secs_f64()),
            row.calls.total().to_string(),
            row.calls.reads().to_string(),
            row.calls.writes().to_string(),
            row.calls.throttled.to_string(),
        ]
    };
    table(columns, rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::services;
    use crate::manager::candidate::Candidate;
    use crate::manager::result::AwsCalls;
    use crate::services::environment::Kind;
    use crate::services::measure::{Burst, Join, Restart, Results, Unchanged};
    use crate::usage::Usage;

    fn calls(reads: usize, writes: usize) -> AwsCalls {
        let by_action = [("DescribeTags", reads), ("AddTags", writes)].into_iter();
        AwsCalls {
            by_action: by_action
                .filter(|(_, count)| *count > 0)
                .map(|(action, count)| (action.to_owned(), count))
                .collect(),
            throttled: 3,
        }
    }

    #[test]
    fn calls_are_divided_by_reconciliations_and_compared_with_ours() {
        let restart = |candidate, reads| Restart {
            candidate,
            classic: 400,
            network: 100,
            last: Duration::from_secs(20),
            last_of_all: Duration::from_secs(90),
            calls: calls(reads, 0),
            later: calls(50, 1),
            usage: Usage {
                resident: 1024,
                peak: 2048,
                file: 0,
                processor: Duration::from_secs(1),
            },
        };
        let join = |candidate, seconds| Join {
            candidate,
            classic: 400,
            network: 100,
            last: Duration::from_secs(seconds),
            calls: calls(10, 500),
        };
        let results = Results {
            unchanged: vec![Unchanged {
                candidate: Candidate::Outrigger,
                kind: Kind::Classic,
                reconciliations: 5,
                calls: calls(15, 0),
            }],
            restarts: vec![restart(Candidate::Outrigger, 500), restart(Candidate::Incumbent, 5000)],
            joins: vec![join(Candidate::Outrigger, 60), join(Candidate::Incumbent, 80)],
            bursts: vec![Burst {
                candidate: Candidate::Tuned,
                services: 30,
                last: Duration::from_secs(100),
                calls: calls(100, 50),
            }],
            failures: vec!["all is lost".to_owned()],
        };
        let text = services(&results, "a machine.");
        for line in [
            "| classic | Outrigger | 3.00 | 0 | 15 DescribeTags |",
            "| 400 classic, 100 network | incumbent | 20.0 | 5000 | 0.100 | 90.0 | 5051 | 0.109 | 1 | 1.00 | 2.00 | 5000 DescribeTags |",
            "| 400 classic, 100 network | incumbent | 80.0 | 0.750 | 510 | 10 | 500 | 3 |",
            "| 30 | incumbent, tuned | 100 | 150 | 100 | 50 | 3 |",
            "FAILED: all is lost",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
