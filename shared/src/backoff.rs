//! How long to wait after failures. The time and the count are the caller's.
//!
//! Other rules stay where they are: a bucket of AWS's request limits halves its pause again after an answer; a Pod of the
//! tests restarts the first time at once. Loops without a count of failures double the duration that they hold.

use std::time::Duration;

/// The backoff after the first failure, doubled for each of the `further` ones, up to the longest.
#[must_use]
pub fn doubled(first: Duration, longest: Duration, further: u32) -> Duration {
    // 31 doublings of a nanosecond are two seconds, so the exponent is limited, and the product saturates.
    first.saturating_mul(1 << further.min(31)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_the_longest() {
        let backoffs = [0, 1, 2, 3, 4, 31, 32, u32::MAX];
        let seconds =
            backoffs.map(|further| doubled(Duration::from_secs(1), Duration::from_secs(5), further).as_secs());
        assert_eq!(seconds, [1, 2, 4, 5, 5, 5, 5, 5]);
        assert_eq!(doubled(Duration::MAX, Duration::MAX, 31), Duration::MAX);
    }
}
