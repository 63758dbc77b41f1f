//! The table, in Markdown: for the terminal and for `docs/benchmarks.md`.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::results::{Load, Measure, QUANTILES, Samples};
use super::review::Stream;
use super::server::Candidate;
use super::webhook::{Extent, IN_FLIGHT, RATE};

/// What the aims are about, as the design gives them: on one processor, with 1,000 requests a second.
const AIMS: [(&str, Measure, f64, &str); 3] = [
    ("p50, server side", Measure::Server(Load::Paced, 500), 0.3, "ms"),
    ("p99, server side", Measure::Server(Load::Paced, 990), 2.0, "ms"),
    ("peak memory", Measure::PeakPaced, 20.0, "MiB"),
];

/// Everything about one run.
#[must_use]
pub fn webhook(samples: &Samples, extent: Extent, machine: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{machine}\nRounds: {}; {} s for each saturated load, {} s for the paced one. Medians of all rounds. Ratio: Outrigger divided by Go.\n",
        extent.rounds,
        extent.saturated.as_secs_f64(),
        extent.paced.as_secs_f64()
    );

    aims(&mut text, samples);
    single(&mut text, samples);
    saturated(&mut text, samples);
    for failure in &samples.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }

    text
}

fn aims(text: &mut String, samples: &Samples) {
    let _ = writeln!(
        text,
        "| aim, one processor, {RATE} req/s | wanted | Outrigger | verdict |\n|---|---:|---:|---|"
    );
    for (name, measure, limit, unit) in AIMS {
        let value = samples.median(Candidate::Outrigger, measure);
        let _ = writeln!(
            text,
            "| {name} | < {limit} {unit} | {} {unit} | {} |",
            number(value),
            verdict(value, limit)
        );
    }

    text.push('\n');
}

fn verdict(value: Option<f64>, limit: f64) -> &'static str {
    match value {
        Some(value) if value < limit => "met",
        Some(_) => "missed",
        None => "not measured",
    }
}

fn single(text: &mut String, samples: &Samples) {
    let _ = writeln!(text, "| | Outrigger | Go | ratio |\n|---|---:|---:|---:|");
    let paced = Load::Paced;
    let rows = [
        ("start to ready, ms", Measure::Start),
        ("program, MiB", Measure::Program),
        ("memory when ready, MiB", Measure::Idle),
        ("peak memory at 1,000 req/s, MiB", Measure::PeakPaced),
        ("peak memory of all saturated loads, MiB", Measure::PeakSaturated),
        ("1,000 req/s: answered/s", Measure::Rate(paced)),
        ("1,000 req/s: shed, %", Measure::Shed(paced)),
        (
            "1,000 req/s: processor time for an answer, µs",
            Measure::Processor(paced),
        ),
        ("1,000 req/s: server side mean, ms", Measure::ServerMean(paced)),
        ("1,000 req/s: server side p50, ms", Measure::Server(paced, 500)),
        ("1,000 req/s: server side p99, ms", Measure::Server(paced, 990)),
        ("1,000 req/s: client side p50, ms", Measure::Client(paced, 500)),
        ("1,000 req/s: client side p90, ms", Measure::Client(paced, 900)),
        ("1,000 req/s: client side p99, ms", Measure::Client(paced, 990)),
        ("1,000 req/s: client side p99.9, ms", Measure::Client(paced, 999)),
    ];

    for (name, measure) in rows {
        let of = |candidate| number(samples.median(candidate, measure));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} |",
            of(Candidate::Outrigger),
            of(Candidate::Go),
            number(samples.ratio(measure))
        );
    }

    text.push('\n');
}

fn saturated(text: &mut String, samples: &Samples) {
    text.push_str(
        "| objects | in flight | server | answered/s | ratio | p50 ms | p90 | p99 | p99.9 | processor µs/answer | ratio | shed % |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for stream in Stream::ALL {
        for in_flight in IN_FLIGHT {
            for candidate in Candidate::ALL {
                let load = Load::InFlight(stream, in_flight);
                let of = |measure| number(samples.median(candidate, measure));
                let ratio = |measure| match candidate {
                    Candidate::Outrigger => number(samples.ratio(measure)),
                    Candidate::Go => String::new(),
                };
                let quantiles = QUANTILES
                    .map(|quantile| of(Measure::Client(load, quantile)))
                    .join(" | ");
                let _ = writeln!(
                    text,
                    "| {} | {in_flight} | {candidate:?} | {} | {} | {quantiles} | {} | {} | {} |",
                    stream.name(),
                    of(Measure::Rate(load)),
                    ratio(Measure::Rate(load)),
                    of(Measure::Processor(load)),
                    ratio(Measure::Processor(load)),
                    of(Measure::Shed(load))
                );
            }
        }
    }
}

/// About three digits that count.
#[must_use]
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() < 0.0005 => "0".to_owned(),
        Some(value) if value.abs() < 1.0 => format!("{value:.3}"),
        Some(value) if value.abs() < 10.0 => format!("{value:.2}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Puts `table` between the two marks of `section` in a document, and changes nothing else of it.
///
/// # Errors
/// When a mark is missing.
pub fn replace_section(document: &str, section: &str, table: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {section} -->\n"), format!("<!-- end {section} -->"));
    let (before, rest) = document
        .split_once(&begin)
        .with_context(|| format!("no line {}", begin.trim()))?;
    let (_, after) = rest
        .split_once(&end)
        .with_context(|| format!("no line {end} after {}", begin.trim()))?;

    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", table.trim()))
}

/// The machine, as far as it matters, and the day.
#[must_use]
pub fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':')
            .map_or("unknown", |(_, value)| value.trim())
            .to_owned()
    };
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let cpus = read("/proc/cpuinfo");
    // Not what this thread may use: it may have left some to others.
    let processors = cpus.lines().filter(|line| line.starts_with("model name")).count();

    format!(
        "{}: {processors} × {}, Linux {}, load average before the run {load}.",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        field(&cpus, "model name"),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// The machine for the webhook's table: who runs where, and beside what.
#[must_use]
pub fn machine(others: usize) -> String {
    let go_module = include_str!("../webhook-go/go.mod");
    let version = go_module
        .lines()
        .find_map(|line| line.trim().strip_prefix("sigs.k8s.io/controller-runtime "))
        .unwrap_or("of an unknown version");
    let place = match others {
        0 => "All on the one processor there is".to_owned(),
        others => format!("The server alone on one processor, everything else on {others} other"),
    };

    format!("{} {place}. controller-runtime {version}.", host())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Extent, Measure, number, replace_section, webhook};
    use crate::results::{Load, Samples};
    use crate::server::Candidate;

    fn text(samples: &Samples) -> String {
        let extent = Extent {
            rounds: 3,
            saturated: Duration::from_secs(2),
            paced: Duration::from_secs(10),
        };
        webhook(samples, extent, "a machine")
    }

    #[test]
    fn an_aim_is_met_below_its_limit_only() {
        let line = |value: Option<f64>| {
            let mut samples = Samples::default();
            if let Some(value) = value {
                samples.add(Candidate::Outrigger, Measure::Server(Load::Paced, 990), value);
            }
            let text = text(&samples);
            text.lines().find(|line| line.starts_with("| p99,")).map(str::to_owned)
        };
        let expected = |cells: &str| Some(format!("| p99, server side | < 2 ms | {cells} |"));
        assert_eq!(line(Some(1.999)), expected("2.00 ms | met"));
        assert_eq!(line(Some(2.0)), expected("2.00 ms | missed"));
        assert_eq!(line(None), expected("– ms | not measured"));
    }

    #[test]
    fn every_row_has_the_cells_of_its_table_and_failures_are_shown() {
        let mut samples = Samples::default();
        samples.add(Candidate::Outrigger, Measure::Start, 12.0);
        samples.add(Candidate::Go, Measure::Start, 48.0);
        samples.failures.push("all is lost".to_owned());
        let text = text(&samples);
        assert!(text.contains("| start to ready, ms | 12.0 | 48.0 | 0.250 |"), "{text}");
        assert!(text.contains("FAILED: all is lost"), "{text}");
        let mut cells = None;
        for line in text.lines() {
            let count = line.matches('|').count();
            assert!(count == 0 || cells.is_none_or(|cells| cells == count), "{line}");
            cells = (count > 0).then_some(count);
        }
    }

    #[test]
    fn numbers_have_about_three_digits() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 1234.5].map(|value| number(Some(value)));
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let document = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let written = replace_section(document, "x", "new\n").expect("both marks");
        assert_eq!(written, "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n");
        assert_eq!(replace_section(&written, "x", "new").ok(), Some(written));
        assert!(replace_section("a\n<!-- begin x -->\nold", "x", "new").is_err());
        assert!(replace_section("a\n", "x", "new").is_err());
    }
}
