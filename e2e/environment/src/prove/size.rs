//! The size of scenario 19.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One in this many load balancers is a network load balancer.
const NETWORK: usize = 10;
/// AWS's reads of one load balancing API each second:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html>.
const READS: f64 = 10.0;
/// Our manager's part of it, by default.
const SHARE: f64 = 0.25;
/// Load balancers, or their tags, of one call.
const EACH_CALL: usize = 20;
/// One read of its attributes. The lists are read first; for a write they must not be older than a minute. Later it is
/// read again alone: description, tags, attributes.
const CLASSIC: usize = 4;
/// As [`CLASSIC`], with the listeners and the health of the targets, and again these two and the target groups.
const EACH_NETWORK: usize = 9;
/// For the load, for calls that are repeated, and for the simulated AWS, which carries out one call at a time.
const MORE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Size {
    pub(super) services: usize,
    pub(super) nodes: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            services: 150,
            nodes: 500,
        }
    }
}

impl Size {
    pub(super) fn is_network(index: usize) -> bool {
        index % NETWORK == NETWORK - 1
    }

    pub(super) fn network(self) -> usize {
        self.services / NETWORK
    }

    pub(super) fn classic(self) -> usize {
        self.services - self.network()
    }

    /// Until our manager has added a Node to each load balancer. Both APIs have their own limit.
    pub(super) fn bound(self) -> Duration {
        let calls = |count: usize, each: usize| each * count + 2 * count.div_ceil(EACH_CALL);
        let calls = calls(self.classic(), CLASSIC).max(calls(self.network(), EACH_NETWORK));
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        Duration::from_secs_f64(f64::from(calls) / (READS * SHARE)) + MORE
    }
}

/// A number of Services or of Nodes, two of which join in the scenario. A load balancer has at most 1,000 targets:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-limits.html>.
pub(super) fn count(name: &str, text: &str) -> Result<usize> {
    let count = text.parse().ok().filter(|count| (10..=1000).contains(count));
    count.with_context(|| format!("{name}={text:?} is no whole number from 10 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_from_the_reads_of_the_slower_api() {
        let size = Size {
            services: 300,
            nodes: 1000,
        };
        assert_eq!((size.classic(), size.network()), (270, 30));
        assert_eq!((0..300).filter(|index| Size::is_network(*index)).count(), 30);
        // 4 reads for each of 270, and 14 lists of each kind, at 2.5 calls each second.
        assert_eq!(size.bound(), Duration::from_millis(443_200) + MORE);
    }
}
