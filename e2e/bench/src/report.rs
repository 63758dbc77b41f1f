//! The tables of the webhook, and the sections of `docs/benchmarks.md`.

use anyhow::{Context, Result};

use super::results::{Load, Measure, QUANTILES, Samples};
use super::review::Stream;
use super::server::Candidate;
use super::table::{failures, number, table, verdict};
use super::webhook::{Extent, IN_FLIGHT, RATE};

/// The aims of the design: on one processor, with 1,000 requests a second.
const AIMS: [(&str, Measure, f64, &str); 3] = [
    ("p50, server side", Measure::Server(Load::Paced, 500), 0.3, "ms"),
    ("p99, server side", Measure::Server(Load::Paced, 990), 2.0, "ms"),
    ("peak memory", Measure::PeakPaced, 20.0, "MiB"),
];

/// The report of one run.
pub fn webhook(samples: &Samples, extent: Extent, machine: &str) -> String {
    let head = format!(
        "{machine}\nRounds: {}; {} s for each saturated load, {} s for the paced one. Medians of all rounds. Ratio: Outrigger divided by Go.\n",
        extent.rounds,
        extent.saturated.as_secs_f64(),
        extent.paced.as_secs_f64()
    );
    let tables = [aims(samples), single(samples), saturated(samples)];
    format!("{head}\n{}{}", tables.concat(), failures(&samples.failures))
}

fn aims(samples: &Samples) -> String {
    let row = |(name, measure, limit, unit): (&str, Measure, f64, &str)| {
        let value = samples.median(Candidate::Outrigger, measure);
        [
            name.to_owned(),
            format!("< {limit} {unit}"),
            format!("{} {unit}", number(value)),
            verdict(value.map(|value| value < limit)),
        ]
    };
    let aim = format!("aim, one processor, {RATE} req/s");
    table([&aim, "wanted:", "Outrigger:", "verdict"], AIMS.map(row))
}

fn single(samples: &Samples) -> String {
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
    let row = |(name, measure): (&str, Measure)| {
        [
            name.to_owned(),
            number(samples.median(Candidate::Outrigger, measure)),
            number(samples.median(Candidate::Go, measure)),
            number(samples.ratio(measure)),
        ]
    };
    table(["measure", "Outrigger:", "Go:", "ratio:"], rows.map(row))
}

fn saturated(samples: &Samples) -> String {
    let columns = [
        "objects",
        "in flight:",
        "server",
        "answered/s:",
        "ratio:",
        "p50 ms:",
        "p90:",
        "p99:",
        "p99.9:",
        "processor µs/answer:",
        "ratio:",
        "shed %:",
    ];
    let mut rows = Vec::new();
    for stream in Stream::ALL {
        for in_flight in IN_FLIGHT {
            let load = Load::InFlight(stream, in_flight);
            rows.extend(Candidate::ALL.map(|candidate| {
                let of = |measure| number(samples.median(candidate, measure));
                let ratio = |measure| match candidate {
                    Candidate::Outrigger => number(samples.ratio(measure)),
                    Candidate::Go => String::new(),
                };
                let [p50, p90, p99, p999] = QUANTILES.map(|quantile| of(Measure::Client(load, quantile)));
                [
                    stream.name().to_owned(),
                    in_flight.to_string(),
                    format!("{candidate:?}"),
                    of(Measure::Rate(load)),
                    ratio(Measure::Rate(load)),
                    p50,
                    p90,
                    p99,
                    p999,
                    of(Measure::Processor(load)),
                    ratio(Measure::Processor(load)),
                    of(Measure::Shed(load)),
                ]
            }));
        }
    }
    table(columns, rows)
}

/// Puts `table` between the two marks of `section` in a document, and changes nothing else of it.
///
/// # Errors
/// When a mark is missing.
pub fn replace_section(document: &str, section: &str, table: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {section} -->\n"), format!("<!-- end {section} -->"));
    let line = begin.trim();
    let parts = document.split_once(&begin);
    let (before, rest) = parts.with_context(|| format!("no line {line}"))?;
    let parts = rest.split_once(&end);
    let (_, after) = parts.with_context(|| format!("no line {end} after {line}"))?;

    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", table.trim()))
}

/// Day, processors, kernel and load.
pub fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        let value = line.split_once(':').map_or("unknown", |(_, value)| value.trim());
        value.to_owned()
    };
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let cpus = read("/proc/cpuinfo");
    // The affinity of this thread may exclude some.
    let processors = cpus.lines().filter(|line| line.starts_with("model name")).count();

    format!(
        "{}: {processors} × {}, Linux {}, load average before the run {load}.",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        field(&cpus, "model name"),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// The machine for the webhook's tables: with the placement and the version of controller-runtime.
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

    use super::{Extent, Measure, replace_section, webhook};
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
    fn a_row_has_both_medians_and_failures_are_shown() {
        let mut samples = Samples::default();
        samples.add(Candidate::Outrigger, Measure::Start, 12.0);
        samples.add(Candidate::Go, Measure::Start, 48.0);
        samples.failures.push("all is lost".to_owned());
        let text = text(&samples);
        assert!(text.contains("| start to ready, ms | 12.0 | 48.0 | 0.250 |"), "{text}");
        assert!(text.contains("FAILED: all is lost"), "{text}");
    }

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let document = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let written = replace_section(document, "x", "new\n").expect("both marks");
        assert_eq!(written, "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n");
        assert_eq!(replace_section(&written, "x", "new").ok(), Some(written));
        assert!(replace_section("a\n<!-- begin x -->\nold", "x", "new").is_err());
        assert!(replace_section("a\n", "x", "new").is_err());
    }
}
