//! Prometheus' text format 0.0.4, as the incumbent serves it, made from the OpenMetrics text that the library writes.
//!
//! The two differ in few things: names of counters in comments, the kind `unknown`, how bounds of buckets are written,
//! and the end mark. Bounds are written as Go writes them (`le="1"`, not `le="1.0"`): the text of a label is part of a
//! series' identity, and recording rules name it.

use std::fmt::Write as _;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter whose name does not end in `_total`. OpenMetrics has no such thing, so there it is of an unknown type,
/// under the same name: a scraper that prefers OpenMetrics must not see another series.
#[derive(Debug, Clone, Default)]
pub struct BareCounter(Counter);

impl BareCounter {
    pub fn inc(&self) {
        self.0.inc();
    }
}

impl TypedMetric for BareCounter {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for BareCounter {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.encode_gauge(&i64::try_from(self.0.get()).unwrap_or(i64::MAX))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

pub(super) fn prometheus(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The name in this line depends on the type, which is in the next line.
            help = rest;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            describe(&mut out, rest, help);
        } else if !line.starts_with('#') {
            sample(&mut out, line);
        }
    }

    out
}

fn describe(out: &mut String, kind_line: &str, help_line: &str) {
    let (name, kind) = kind_line.rsplit_once(' ').unwrap_or((kind_line, "untyped"));
    let (name, kind) = match kind {
        "counter" => (format!("{name}_total"), "counter"),
        "unknown" => (name.to_owned(), "counter"),
        "info" => (format!("{name}_info"), "gauge"),
        other => (name.to_owned(), other),
    };
    let help = help_line.split_once(' ').map_or("", |(_, help)| help);
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A histogram's bound is the label `le`, which the library writes first or after a comma. No other label has that
/// name.
fn sample(out: &mut String, line: &str) {
    let bound = ["{le=\"", ",le=\""]
        .iter()
        .find_map(|start| line.find(start).map(|at| at + start.len()));
    let rewritten = bound.and_then(|start| {
        let end = start + line[start..].find('"')?;
        let value: f64 = line[start..end].parse().ok()?;
        Some((start, go_float(value), end))
    });

    match rewritten {
        Some((start, value, end)) => {
            let _ = writeln!(out, "{}{value}{}", &line[..start], &line[end..]);
        }
        None => {
            let _ = writeln!(out, "{line}");
        }
    }
}

/// A number as Go's shortest general format has it: with an exponent of at least two digits below 1e-4 and from 1e6 on.
fn go_float(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }

    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{value}");
    }

    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, text) in [
            (1.0, "1"),
            (0.0, "0"),
            (0.005, "0.005"),
            (16384.0, "16384"),
            (f64::INFINITY, "+Inf"),
            (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
            (1e-8, "1e-08"),
            (0.0001, "0.0001"),
            (16_777_216.0, "1.6777216e+07"),
        ] {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn only_bounds_are_rewritten() {
        let mut out = String::new();
        sample(&mut out, "x_bucket{name=\"a,le=\\\"1.0\",le=\"2.0\"} 1");
        sample(&mut out, "x{file=\"1.0\"} 1.0");
        assert_eq!(out, "x_bucket{name=\"a,le=\\\"1.0\",le=\"2\"} 1\nx{file=\"1.0\"} 1.0\n");
    }
}
