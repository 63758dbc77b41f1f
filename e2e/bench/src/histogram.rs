//! A latency histogram of a server's /metrics, without the time of client and network.

use anyhow::{Context, Result, ensure};

/// Cumulative buckets with upper bounds in seconds, the sum in seconds, and the count.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    buckets: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

impl Histogram {
    /// Reads the histogram `name`, which has no labels, from the Prometheus or OpenMetrics text format.
    ///
    /// # Errors
    /// When it is not there, or a number is none.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let (mut buckets, mut sum, mut count) = (Vec::new(), None, None);
        for line in text.lines() {
            let Some((suffix, value)) = line.strip_prefix(name).and_then(|rest| rest.split_once(' ')) else {
                continue;
            };

            let number = || value.parse::<f64>().with_context(|| format!("in the line {line:?}"));
            match suffix {
                "_sum" => sum = Some(number()?),
                "_count" => count = Some(number()?),
                bucket => {
                    let bound = bucket.strip_prefix("_bucket{le=\"");
                    let Some(bound) = bound.and_then(|rest| rest.strip_suffix("\"}")) else {
                        continue;
                    };
                    let bound = bound.parse::<f64>().with_context(|| format!("in the line {line:?}"))?;
                    buckets.push((bound, number()?));
                }
            }
        }

        ensure!(!buckets.is_empty(), "the metrics have no histogram {name}");
        Ok(Self {
            buckets,
            sum: sum.with_context(|| format!("the metrics have no {name}_sum"))?,
            count: count.with_context(|| format!("the metrics have no {name}_count"))?,
        })
    }

    /// The observations after `earlier` of the same server.
    ///
    /// # Errors
    /// When the bounds differ.
    pub fn since(&self, earlier: &Self) -> Result<Self> {
        let pairs = || self.buckets.iter().zip(&earlier.buckets);
        ensure!(
            self.buckets.len() == earlier.buckets.len() && pairs().all(|(now, then)| now.0.total_cmp(&then.0).is_eq()),
            "the histogram's bounds have changed"
        );
        Ok(Self {
            buckets: pairs().map(|(now, then)| (now.0, now.1 - then.1)).collect(),
            sum: self.sum - earlier.sum,
            count: self.count - earlier.count,
        })
    }

    /// The number of observations; none when the server does not show a whole number.
    pub fn count(&self) -> Option<usize> {
        // No conversion of numbers refuses a fraction, but the parser does.
        self.count.to_string().parse().ok()
    }

    /// The mean in seconds; none without observations.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// A quantile in seconds, interpolated in its bucket. Beyond the last bound, that bound. None without observations.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.count;
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, cumulative) in self.buckets.iter().copied() {
            if self.count > 0.0 && cumulative >= rank {
                let inside = cumulative - below;
                let part = if inside > 0.0 { (rank - below) / inside } else { 0.0 };
                let within = (bound - lower).mul_add(part, lower);
                return Some(if bound.is_finite() { within } else { lower });
            }
            (lower, below) = (bound, cumulative);
        }

        None
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    const TEXT: &str = "# TYPE t_seconds histogram\nt_seconds_sum 0.5\nt_seconds_count 100\n\
        t_seconds_bucket{le=\"0.001\"} 50\nt_seconds_bucket{le=\"0.002\"} 90\nt_seconds_bucket{le=\"+Inf\"} 100\n\
        t_seconds_other_count 7\nother_count 9\n# EOF\n";

    fn near(seen: Option<f64>, expected: f64) {
        assert!(
            seen.is_some_and(|seen| (seen - expected).abs() < 1e-9),
            "{seen:?}, not {expected}"
        );
    }

    #[test]
    fn quantiles_lie_evenly_between_bounds_and_never_past_the_last() {
        let histogram = Histogram::parse(TEXT, "t_seconds").expect("a histogram");
        near(histogram.mean(), 0.005);
        near(histogram.quantile(0.5), 0.001);
        near(histogram.quantile(0.7), 0.0015);
        near(histogram.quantile(0.99), 0.002);
    }

    #[test]
    fn only_what_came_later_counts() {
        let before = Histogram::parse(TEXT, "t_seconds").expect("a histogram");
        let later = TEXT.replace(" 90\n", " 190\n").replace(" 100\n", " 200\n");
        let later = Histogram::parse(&later, "t_seconds").expect("a histogram");
        let new = later.since(&before).expect("the same bounds");
        near(new.quantile(0.5), 0.0015);
        assert_eq!(before.since(&before).expect("the same bounds").quantile(0.5), None);
        assert_eq!(before.since(&before).expect("the same bounds").mean(), None);
    }

    #[test]
    fn a_histogram_that_is_not_there_is_an_error() {
        assert!(Histogram::parse(TEXT, "t").is_err());
        assert!(Histogram::parse(&TEXT.replace("0.5", "x"), "t_seconds").is_err());
    }
}
