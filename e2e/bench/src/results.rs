//! The measured values: for each candidate and measure one a round.

use std::collections::BTreeMap;
use std::time::Duration;

use super::load::Tally;
use super::percentile::median;
use super::review::Stream;
use super::server::Candidate;
use super::table::count;

/// The quantiles that are reported, in thousandths.
pub const QUANTILES: [usize; 4] = [500, 900, 990, 999];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// A steady number of requests a second, of the mixed stream.
    Paced,
    /// So many requests in flight, of this stream.
    InFlight(Stream, usize),
}

/// A measured quantity with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// From start to ready, in ms.
    Start,
    /// The program's size in MiB.
    Program,
    /// Resident memory when ready, in MiB.
    Idle,
    /// The most resident memory after the paced load alone, in MiB.
    PeakPaced,
    /// The most resident memory after all other loads, in MiB.
    PeakSaturated,
    /// Right answers a second.
    Rate(Load),
    /// A quantile (in thousandths) of the latencies at the client, in ms.
    Client(Load, usize),
    /// The mean of the server's own measurement, in ms.
    ServerMean(Load),
    /// A quantile (in thousandths) of it, in ms.
    Server(Load, usize),
    /// Processor time of the server for one right answer, in µs. It includes the time for refusals.
    Processor(Load),
    /// Refused requests, in per cent.
    Shed(Load),
}

/// Every value.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    values: BTreeMap<(Candidate, Measure), Vec<f64>>,
    /// Requests that failed: a sentence for each load that had some.
    pub failures: Vec<String>,
}

impl Samples {
    /// Adds the value of one round.
    pub fn add(&mut self, candidate: Candidate, measure: Measure, value: f64) {
        self.values.entry((candidate, measure)).or_default().push(value);
    }

    /// The median of all rounds.
    pub fn median(&self, candidate: Candidate, measure: Measure) -> Option<f64> {
        median(self.values.get(&(candidate, measure))?.iter().copied())
    }

    /// Ours divided by Go's.
    pub fn ratio(&self, measure: Measure) -> Option<f64> {
        let theirs = self.median(Candidate::Go, measure).filter(|value| *value > 0.0)?;
        Some(self.median(Candidate::Outrigger, measure)? / theirs)
    }

    /// Adds the outcomes of one load.
    pub fn client(&mut self, candidate: Candidate, load: Load, tally: &Tally) {
        let all = tally.sent();
        let rate = count(tally.answered) / tally.time.as_secs_f64();
        self.add(candidate, Measure::Rate(load), rate);
        let shed = 100.0 * count(tally.shed) / count(all.max(1));
        self.add(candidate, Measure::Shed(load), shed);

        for quantile in QUANTILES {
            if let Some(latency) = tally.latencies.quantile(quantile) {
                self.add(candidate, Measure::Client(load, quantile), latency.as_secs_f64() * 1e3);
            }
        }

        if let Some(reason) = &tally.failure {
            let failed = tally.failed;
            self.failures.push(format!(
                "{candidate:?}, {load:?}: {failed} of {all} requests failed: {reason}"
            ));
        }
    }

    /// Adds the processor time that a server spent on so many right answers; without any there is no such value.
    pub fn processor(&mut self, candidate: Candidate, load: Load, time: Duration, answers: usize) {
        if answers > 0 {
            let each = time.as_secs_f64() * 1e6 / count(answers);
            self.add(candidate, Measure::Processor(load), each);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Candidate, Load, Measure, Samples};
    use crate::load::Tally;

    #[test]
    fn a_ratio_is_of_medians_and_needs_both_sides() {
        let mut samples = Samples::default();
        for value in [1.0, 2.0, 90.0] {
            samples.add(Candidate::Outrigger, Measure::Start, value);
        }
        assert_eq!(samples.ratio(Measure::Start), None);
        samples.add(Candidate::Go, Measure::Start, 0.0);
        assert_eq!(samples.ratio(Measure::Start), None);
        samples.add(Candidate::Go, Measure::Start, 8.0);
        assert_eq!(samples.ratio(Measure::Start), Some(0.5));
    }

    #[test]
    fn shed_requests_are_no_answers_and_failed_ones_are_named() {
        let tally = Tally {
            time: Duration::from_secs(2),
            answered: 60,
            shed: 30,
            failed: 10,
            failure: Some("broken".to_owned()),
            latencies: vec![Duration::from_millis(4)].into(),
        };
        let mut samples = Samples::default();
        samples.client(Candidate::Go, Load::Paced, &tally);
        assert_eq!(samples.median(Candidate::Go, Measure::Rate(Load::Paced)), Some(30.0));
        assert_eq!(samples.median(Candidate::Go, Measure::Shed(Load::Paced)), Some(30.0));
        assert_eq!(
            samples.median(Candidate::Go, Measure::Client(Load::Paced, 990)),
            Some(4.0)
        );
        assert!(
            samples.failures[0].contains("10 of 100 requests failed: broken"),
            "{:?}",
            samples.failures
        );
    }
}
