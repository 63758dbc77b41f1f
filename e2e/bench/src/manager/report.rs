//! The tables of the manager.

use std::time::Duration;

use super::candidate::{Candidate, TUNING};
use super::result::{AwsCalls, Results, Steady, Subject, Work};
use crate::table::{count, failures, mebibytes, number, or_empty, table, verdict};

const OURS: Subject = Subject::Manager(Candidate::Outrigger);
/// Seconds between two refreshes of all Nodes, by default.
const REFRESH: f64 = 300.0;

/// The report of one run.
pub fn manager(results: &Results, machine: &str) -> String {
    let mut text = format!("{machine} Tuned: `{}`.\n", TUNING.join(" "));
    if let Some(took) = results.moto_describe {
        text += &format!("moto describes 1,000 instances in {} s.\n", seconds(took));
    }

    let tables = [
        aims(results),
        cold(results),
        steady(results),
        leaving(results),
        growth(results),
    ];
    format!("{text}\n{}{}", tables.concat(), failures(&results.failures))
}

fn aims(results: &Results) -> String {
    let mut aims = Vec::new();
    for (nodes, seconds, calls, memory) in [(1000, 5.0, 12.0, 30.0), (5000, 20.0, 30.0, 60.0)] {
        let Some(ours) = results.cold(OURS, nodes, false) else {
            continue;
        };

        let mut aim = |name: &str, limit, value, unit| {
            aims.push(aim(format!("{nodes} Nodes, cold start: {name}"), limit, value, unit));
        };
        aim("time", seconds, Some(ours.last.as_secs_f64()), " s");
        aim("time ÷ baseline", 1.2, over_baseline(results, ours), "");
        aim("AWS calls", calls, Some(count(ours.aws.total())), "");
        if nodes == 1000 {
            aim("processor time", 1.5, processor(ours), " s");
        }
        aim("peak memory", memory, peak(ours), " MiB");
        let limited = results.cold(OURS, nodes, true).map(|work| count(work.aws.throttled));
        aim("calls throttled at AWS's limits", 0.0, limited, "");
    }

    let mut steady = results.steady.iter();
    if let Some(steady) = steady.find(|steady| steady.candidate == Candidate::Outrigger) {
        let name = |what: &str| format!("{} Nodes, steady state: {what}", steady.nodes);
        aims.push(aim(name("describes"), 0.1, Some(describes(steady)), "/s"));
        aims.push(aim(name("processor"), 1.0, Some(share(steady)), " % of one"));
    }

    table(["aim", "at most:", "Outrigger:", "verdict"], aims)
}

fn aim(name: String, limit: f64, value: Option<f64>, unit: &str) -> [String; 4] {
    let shown = match value {
        Some(whole) if whole.fract() == 0.0 => format!("{whole}"),
        other => number(other),
    };
    [
        name,
        format!("{limit}{unit}"),
        format!("{shown}{unit}"),
        verdict(value.map(|value| value <= limit)),
    ]
}

fn cold(results: &Results) -> String {
    let columns = [
        "cold start of:",
        "by",
        "seconds:",
        "first Node:",
        "÷ baseline:",
        "Outrigger ÷ this:",
        "AWS calls",
        "throttled:",
        "processor s:",
        "peak MiB:",
        "of it files:",
        "API requests:",
    ];
    let row = |work: &Work| {
        let is_baseline = work.by == Subject::Baseline;
        let ours = results
            .cold(OURS, work.nodes, work.limited)
            .filter(|_| work.by != OURS && !is_baseline);
        let ratio = ours.map(|ours| ours.last.as_secs_f64() / work.last.as_secs_f64());
        let limits = if work.limited { ", AWS's limits" } else { "" };
        [
            format!("{}{limits}", work.nodes),
            work.by.name().to_owned(),
            duration(work),
            seconds(work.first),
            or_empty(over_baseline(results, work).filter(|_| !is_baseline)),
            or_empty(ratio),
            calls(&work.aws),
            work.aws.throttled.to_string(),
            or_empty(processor(work)),
            or_empty(peak(work)),
            or_empty(work.usage.map(|usage| mebibytes(usage.file))),
            work.requests.total().to_string(),
        ]
    };
    table(columns, results.cold.iter().map(row))
}

fn steady(results: &Results) -> String {
    let columns = [
        "steady state of:",
        "by",
        "settled after s:",
        "AWS calls until then",
        "measured s:",
        "heartbeats:",
        "AWS calls",
        "describes/s:",
        "processor %:",
        "MiB:",
        "API requests:",
    ];
    let row = |steady: &Steady| {
        let not = if steady.settled { "" } else { "not within " };
        [
            steady.nodes.to_string(),
            steady.candidate.name().to_owned(),
            format!("{not}{}", seconds(steady.settled_after)),
            calls(&steady.start),
            seconds(steady.window),
            steady.heartbeats.to_string(),
            calls(&steady.aws),
            number(describes(steady)),
            number(share(steady)),
            number(mebibytes(steady.usage.resident)),
            steady.requests.total().to_string(),
        ]
    };
    table(columns, results.steady.iter().map(row))
}

fn leaving(results: &Results) -> String {
    let columns = [
        "Nodes that leave:",
        "by",
        "deleted:",
        "first after s:",
        "last after s:",
        "AWS calls",
        "processor s:",
        "API requests:",
    ];
    let row = |work: &Work| {
        [
            work.nodes.to_string(),
            work.by.name().to_owned(),
            work.done.to_string(),
            seconds(work.first),
            seconds(work.last),
            calls(&work.aws),
            or_empty(processor(work)),
            work.requests.total().to_string(),
        ]
    };
    table(columns, results.leaving.iter().map(row))
}

/// Growth of memory and time from the smallest cold start to each larger one.
fn growth(results: &Results) -> String {
    let mut rows = results.cold.iter().filter(|work| work.by == OURS && !work.limited);
    let Some(base) = rows.next() else {
        return String::new();
    };

    let columns = [
        "Outrigger, Nodes:",
        "peak MiB:",
        "KiB for each Node more:",
        "processor ms a Node:",
        "seconds for 1,000 Nodes:",
    ];
    let row = |work: &Work| {
        let nodes = count(work.nodes);
        let more = peak(work).zip(peak(base)).map(|(peak, base)| (peak - base) * 1024.0);
        [
            work.nodes.to_string(),
            or_empty(peak(work)),
            or_empty(more.map(|more| more / count(work.nodes - base.nodes))),
            or_empty(processor(work).map(|time| time * 1000.0 / nodes)),
            number(work.last.as_secs_f64() * 1000.0 / nodes),
        ]
    };
    table(columns, rows.map(row))
}

/// Describes of instances a second over a whole period of refreshes: those of the window, and those of one refresh. A
/// manager that has not settled refreshes all the time.
fn describes(steady: &Steady) -> f64 {
    let of = |calls: &AwsCalls| count(calls.of("DescribeInstances"));
    let refresh = if steady.settled { of(&steady.start) } else { 0.0 };
    refresh / REFRESH + of(&steady.aws) / steady.window.as_secs_f64()
}

fn share(steady: &Steady) -> f64 {
    steady.processor.as_secs_f64() / steady.window.as_secs_f64() * 100.0
}

fn over_baseline(results: &Results, work: &Work) -> Option<f64> {
    let baseline = results.cold(Subject::Baseline, work.nodes, false)?;
    Some(work.last.as_secs_f64() / baseline.last.as_secs_f64())
}

fn processor(work: &Work) -> Option<f64> {
    Some(work.usage?.processor.as_secs_f64())
}

fn peak(work: &Work) -> Option<f64> {
    Some(mebibytes(work.usage?.peak))
}

fn duration(work: &Work) -> String {
    let last = seconds(work.last);
    match work.done {
        done if done == work.nodes => last,
        done => format!("{done} Nodes only, {last}"),
    }
}

fn calls(calls: &AwsCalls) -> String {
    match calls.by_action.len() {
        0 => "0".to_owned(),
        1 => calls.list(),
        _ => format!("{}: {}", calls.total(), calls.list()),
    }
}

fn seconds(time: Duration) -> String {
    number(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OURS, manager};
    use crate::manager::candidate::Candidate;
    use crate::manager::cluster::Requests;
    use crate::manager::result::{AwsCalls, Results, Steady, Subject, Work};
    use crate::usage::Usage;

    fn calls(count: usize) -> AwsCalls {
        AwsCalls {
            by_action: [("DescribeInstances".to_owned(), count)].into(),
            throttled: 0,
        }
    }

    fn usage() -> Usage {
        Usage {
            resident: 20 * 1024,
            peak: 25 * 1024,
            file: 10 * 1024,
            processor: Duration::from_millis(1500),
        }
    }

    fn work(by: Subject, seconds: u64, aws: usize) -> Work {
        Work {
            by,
            nodes: 1000,
            done: 1000,
            limited: false,
            first: Duration::from_secs(1),
            last: Duration::from_secs(seconds),
            aws: calls(aws),
            requests: Requests::default(),
            usage: (by != Subject::Baseline).then(usage),
        }
    }

    fn results() -> Results {
        Results {
            cold: vec![
                work(Subject::Baseline, 4, 1),
                work(OURS, 5, 12),
                work(Subject::Manager(Candidate::Tuned), 50, 1000),
            ],
            steady: vec![Steady {
                candidate: Candidate::Outrigger,
                nodes: 5000,
                settled_after: Duration::from_secs(6),
                settled: true,
                start: calls(15),
                window: Duration::from_secs(100),
                aws: calls(5),
                requests: Requests::default(),
                processor: Duration::from_secs(2),
                usage: usage(),
                heartbeats: 2000,
            }],
            ..Results::default()
        }
    }

    #[test]
    fn an_aim_is_met_up_to_its_limit() {
        let text = manager(&results(), "a machine.");
        for line in [
            "| 1000 Nodes, cold start: time | 5 s | 5 s | met |",
            "| 1000 Nodes, cold start: time ÷ baseline | 1.2 | 1.25 | missed |",
            "| 1000 Nodes, cold start: AWS calls | 12 | 12 | met |",
            "| 1000 Nodes, cold start: calls throttled at AWS's limits | 0 | – | not measured |",
            "| 5000 Nodes, steady state: describes | 0.1/s | 0.100/s | met |",
            "| 5000 Nodes, steady state: processor | 1 % of one | 2 % of one | missed |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_row_compares_ours_with_it_and_failures_are_shown() {
        let mut results = results();
        results.failures.push("all is lost".into());
        results.cold[1].done = 990;
        let text = manager(&results, "a machine.");
        let row = "| 1000 | incumbent, tuned | 50.0 | 1.00 | 12.5 | 0.100 | 1000 DescribeInstances | 0 | 1.50 | 25.0 | 10.0 | 0 |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("FAILED: all is lost"), "{text}");
        assert!(text.contains("990 Nodes only"), "{text}");
    }
}
