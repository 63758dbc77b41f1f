//! Passes of a controller that has nothing to do.

use std::time::Duration;

use anyhow::{Result, ensure};

use outrigger_aws_sim::Call;

use super::{Manager, SingleCluster};

/// So many passes are observed.
const PASSES: usize = 6;
/// How many calls may be on their way longer than others.
const LATE: f64 = 3.0;
const LIMIT: Duration = Duration::from_secs(120);

impl SingleCluster {
    /// The next calls to AWS, which are one in each pass of a controller. The record of the calls decides, so that neither
    /// a slow test nor a slow manager counts.
    ///
    /// # Errors
    /// When there are more calls, or none.
    pub async fn idle_passes(&self, manager: &Manager, period: Duration) -> Result<Vec<Call>> {
        let mark = self.proxy.mark();
        let enough = async || self.proxy.calls_since(mark).len() >= PASSES;
        manager.until("calls of idle passes", LIMIT, enough).await?;

        let calls = self.proxy.calls_since(mark);
        ensure!(
            is_one_per_pass(&offsets(&calls), period),
            "more than one in {period:?}: {calls:#?}"
        );
        Ok(calls)
    }
}

fn offsets(calls: &[Call]) -> Vec<Duration> {
    calls.iter().map(|call| call.offset).collect()
}

fn is_one_per_pass(offsets: &[Duration], period: Duration) -> bool {
    let (first, last) = (offsets.iter().min(), offsets.iter().max());
    let took = first.zip(last).map_or(Duration::ZERO, |(first, last)| *last - *first);
    let most = took.as_secs_f64() / period.as_secs_f64() + LATE;
    u32::try_from(offsets.len()).is_ok_and(|count| f64::from(count) <= most)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::is_one_per_pass;

    #[test]
    fn two_calls_in_each_pass_are_too_many_and_late_ones_are_not() {
        let is_one = |offsets: [u64; 6]| is_one_per_pass(&offsets.map(Duration::from_secs), Duration::from_secs(2));
        assert!(is_one([0, 2, 4, 6, 8, 10]));
        assert!(is_one([4, 4, 4, 6, 8, 10]), "two come late");
        assert!(!is_one([0, 0, 2, 2, 4, 4]));
    }
}
