//! The tables, in Markdown: for the terminal and for `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::time::Duration;

use super::candidate::{Candidate, TUNING};
use super::result::{AwsCalls, Results, Steady, Who, Work};
use crate::report::number;

const OURS: Who = Who::Manager(Candidate::Outrigger);
/// From one refresh of all Nodes to the next, by default.
const REFRESH: f64 = 300.0;
const KIB_IN_MIB: f64 = 1024.0;

/// Everything about one run.
#[must_use]
pub fn manager(results: &Results, machine: &str) -> String {
    let mut text = format!("{machine} Tuned: `{}`.\n", TUNING.join(" "));
    if let Some(took) = results.moto_describe {
        let _ = writeln!(
            text,
            "moto describes 1,000 instances in {} s.",
            number(Some(took.as_secs_f64()))
        );
    }

    text.push('\n');
    aims(&mut text, results);
    cold(&mut text, results);
    steady(&mut text, results);
    leaving(&mut text, results);
    growth(&mut text, results);
    for failure in &results.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }

    text
}

/// One aim: what it is about, the limit, the value, the unit.
struct Aim {
    name: String,
    limit: f64,
    value: Option<f64>,
    unit: &'static str,
}

fn aim(name: impl Into<String>, limit: f64, value: Option<f64>, unit: &'static str) -> Aim {
    Aim {
        name: name.into(),
        limit,
        value,
        unit,
    }
}

fn aims(text: &mut String, results: &Results) {
    let mut list = Vec::new();
    for (nodes, seconds, calls, memory) in [(1000, 5.0, 12.0, 30.0), (5000, 20.0, 30.0, 60.0)] {
        let Some(ours) = results.cold(OURS, nodes, false) else {
            continue;
        };

        let of = |name: &str| format!("{nodes} Nodes, cold start: {name}");
        list.push(aim(of("time"), seconds, Some(ours.last.as_secs_f64()), " s"));
        list.push(aim(of("time ÷ floor"), 1.2, over_baseline(results, ours), ""));
        list.push(aim(of("AWS calls"), calls, Some(count(ours.aws.total())), ""));
        if nodes == 1000 {
            list.push(aim(of("processor time"), 1.5, processor(ours), " s"));
        }

        list.push(aim(of("peak memory"), memory, peak(ours), " MiB"));

        let limited = results.cold(OURS, nodes, true).map(|work| count(work.aws.throttled));
        list.push(aim(of("calls throttled at AWS's limits"), 0.0, limited, ""));
    }

    if let Some(steady) = results
        .steady
        .iter()
        .find(|steady| steady.candidate == Candidate::Outrigger)
    {
        let name = |what: &str| format!("{} Nodes, steady state: {what}", steady.nodes);
        list.push(aim(name("describes"), 0.1, Some(describes(steady)), "/s"));
        list.push(aim(name("processor"), 1.0, Some(share(steady)), " % of one"));
    }

    let _ = writeln!(text, "| aim | at most | Outrigger | verdict |\n|---|---:|---:|---|");
    for Aim {
        name,
        limit,
        value,
        unit,
    } in list
    {
        let verdict = match value {
            Some(value) if value <= limit => "met",
            Some(_) => "missed",
            None => "not measured",
        };
        let shown = match value {
            Some(whole) if whole.fract() == 0.0 => format!("{whole}"),
            other => number(other),
        };
        let _ = writeln!(text, "| {name} | {limit}{unit} | {shown}{unit} | {verdict} |");
    }

    text.push('\n');
}

fn cold(text: &mut String, results: &Results) {
    text.push_str(
        "| cold start of | by | seconds | first Node | ÷ floor | Outrigger ÷ this | AWS calls | throttled | processor s | peak MiB | of it files | API requests |\n\
         |---:|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|\n",
    );

    for work in &results.cold {
        let ours = results
            .cold(OURS, work.nodes, work.limited)
            .filter(|_| work.who != OURS && work.who != Who::Baseline);
        let ratio = ours.map(|ours| ours.last.as_secs_f64() / work.last.as_secs_f64());
        let limits = if work.limited { ", AWS's limits" } else { "" };
        let _ = writeln!(
            text,
            "| {}{limits} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            work.nodes,
            work.who.name(),
            ending(work),
            seconds(work.first),
            dash(over_baseline(results, work).filter(|_| work.who != Who::Baseline)),
            dash(ratio),
            calls(&work.aws),
            work.aws.throttled,
            dash(processor(work)),
            dash(peak(work)),
            dash(work.usage.map(|usage| mebibytes(usage.file))),
            work.requests.total(),
        );
    }

    text.push('\n');
}

fn steady(text: &mut String, results: &Results) {
    if results.steady.is_empty() {
        return;
    }

    text.push_str(
        "| steady state of | by | settled after s | AWS calls until then | measured s | heartbeats | AWS calls | describes/s | processor % | MiB | API requests |\n\
         |---:|---|---:|---|---:|---:|---|---:|---:|---:|---:|\n",
    );

    for steady in &results.steady {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            steady.nodes,
            steady.candidate.name(),
            settled(steady),
            calls(&steady.start),
            seconds(steady.window),
            steady.heartbeats,
            calls(&steady.aws),
            number(Some(describes(steady))),
            number(Some(share(steady))),
            number(Some(mebibytes(steady.usage.resident))),
            steady.requests.total(),
        );
    }

    text.push('\n');
}

fn leaving(text: &mut String, results: &Results) {
    if results.leaving.is_empty() {
        return;
    }

    text.push_str(
        "| Nodes that leave | by | deleted | first after s | last after s | AWS calls | processor s | API requests |\n\
         |---:|---|---:|---:|---:|---|---:|---:|\n",
    );

    for work in &results.leaving {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            work.nodes,
            work.who.name(),
            work.done,
            seconds(work.first),
            seconds(work.last),
            calls(&work.aws),
            dash(processor(work)),
            work.requests.total(),
        );
    }

    text.push('\n');
}

/// How memory and time grow with the Nodes, from the smallest to each larger cold start.
fn growth(text: &mut String, results: &Results) {
    let rows: Vec<&Work> = results
        .cold
        .iter()
        .filter(|work| work.who == OURS && !work.limited)
        .collect();
    let Some((base, larger)) = rows.split_first() else {
        return;
    };
    if larger.is_empty() {
        return;
    }

    text.push_str("| Outrigger, Nodes | peak MiB | KiB for each Node more | processor ms a Node | seconds for 1,000 Nodes |\n|---:|---:|---:|---:|---:|\n");
    for work in larger {
        let nodes = count(work.nodes);
        let more = peak(work)
            .zip(peak(base))
            .map(|(peak, base)| (peak - base) * KIB_IN_MIB);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            work.nodes,
            dash(peak(work)),
            dash(more.map(|more| more / count(work.nodes - base.nodes))),
            dash(processor(work).map(|time| time * 1000.0 / nodes)),
            number(Some(work.last.as_secs_f64() * 1000.0 / nodes)),
        );
    }

    text.push('\n');
}

/// Describes of instances a second, over a whole period of refreshes: what came within the window, and one refresh. Who
/// has not settled is in the middle of a refresh all the time.
fn describes(steady: &Steady) -> f64 {
    let of = |calls: &AwsCalls| count(calls.of("DescribeInstances"));
    let refresh = if steady.settled {
        of(&steady.start) / REFRESH
    } else {
        0.0
    };
    refresh + of(&steady.aws) / steady.window.as_secs_f64()
}

fn settled(steady: &Steady) -> String {
    let not = if steady.settled { "" } else { "not within " };
    format!("{not}{}", seconds(steady.settled_after))
}

fn share(steady: &Steady) -> f64 {
    steady.processor.as_secs_f64() / steady.window.as_secs_f64() * 100.0
}

fn over_baseline(results: &Results, work: &Work) -> Option<f64> {
    let baseline = results.cold(Who::Baseline, work.nodes, false)?;
    Some(work.last.as_secs_f64() / baseline.last.as_secs_f64())
}

fn processor(work: &Work) -> Option<f64> {
    Some(work.usage?.processor.as_secs_f64())
}

fn peak(work: &Work) -> Option<f64> {
    Some(mebibytes(work.usage?.peak))
}

fn ending(work: &Work) -> String {
    match work.done {
        done if done == work.nodes => seconds(work.last),
        done => format!("{done} Nodes only, {}", seconds(work.last)),
    }
}

fn calls(calls: &AwsCalls) -> String {
    let list: Vec<String> = calls
        .by_action
        .iter()
        .map(|(action, count)| format!("{count} {action}"))
        .collect();
    match list.len() {
        0 => "0".to_owned(),
        1 => list.concat(),
        _ => format!("{}: {}", calls.total(), list.join(", ")),
    }
}

fn seconds(time: Duration) -> String {
    number(Some(time.as_secs_f64()))
}

/// Nothing instead of a dash where a number has no meaning.
fn dash(value: Option<f64>) -> String {
    value.map(|value| number(Some(value))).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a process has less than 2^52 KiB")]
fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / KIB_IN_MIB
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OURS, manager};
    use crate::manager::candidate::Candidate;
    use crate::manager::requests::Requests;
    use crate::manager::result::{AwsCalls, Results, Steady, Who, Work};
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

    fn work(who: Who, seconds: u64, aws: usize) -> Work {
        Work {
            who,
            nodes: 1000,
            done: 1000,
            limited: false,
            first: Duration::from_secs(1),
            last: Duration::from_secs(seconds),
            aws: calls(aws),
            requests: Requests::default(),
            usage: (who != Who::Baseline).then(usage),
        }
    }

    fn results() -> Results {
        Results {
            cold: vec![
                work(Who::Baseline, 4, 1),
                work(OURS, 5, 12),
                work(Who::Manager(Candidate::Tuned), 50, 1000),
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
            "| 1000 Nodes, cold start: time ÷ floor | 1.2 | 1.25 | missed |",
            "| 1000 Nodes, cold start: AWS calls | 12 | 12 | met |",
            "| 1000 Nodes, cold start: calls throttled at AWS's limits | 0 | – | not measured |",
            "| 5000 Nodes, steady state: describes | 0.1/s | 0.100/s | met |",
            "| 5000 Nodes, steady state: processor | 1 % of one | 2 % of one | missed |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_row_compares_ours_with_it_and_all_rows_have_the_cells_of_their_table() {
        let mut results = results();
        results.failures.push("all is lost".into());
        let text = manager(&results, "a machine.");
        let row = "| 1000 | incumbent, tuned | 50.0 | 1.00 | 12.5 | 0.100 | 1000 DescribeInstances | 0 | 1.50 | 25.0 | 10.0 | 0 |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("FAILED: all is lost"), "{text}");
        let mut cells = None;
        for line in text.lines() {
            let count = line.matches('|').count();
            assert!(count == 0 || cells.is_none_or(|cells| cells == count), "{line}");
            cells = (count > 0).then_some(count);
        }
    }

    #[test]
    fn nodes_that_were_not_done_are_told() {
        let mut results = results();
        results.cold[1].done = 990;
        assert!(manager(&results, "").contains("990 Nodes only"));
    }
}
