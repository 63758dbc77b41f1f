//! Quantiles and medians.

use std::time::Duration;

/// Every latency of a load.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    ascending: Vec<Duration>,
}

impl From<Vec<Duration>> for Latencies {
    fn from(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { ascending: latencies }
    }
}

impl Latencies {
    /// By nearest rank, so it is a latency that occurred; none without latencies.
    pub fn quantile(&self, per_thousand: usize) -> Option<Duration> {
        let rank = (self.ascending.len() * per_thousand).div_ceil(1000).max(1);
        self.ascending.get(rank - 1).copied()
    }
}

/// The value in the middle; of an even number the mean of the two. None without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);

    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }

    Some(f64::midpoint(*values.get(middle - 1)?, upper))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Latencies, median};

    fn milliseconds(values: impl IntoIterator<Item = u64>) -> Latencies {
        Latencies::from(values.into_iter().map(Duration::from_millis).collect::<Vec<_>>())
    }

    #[test]
    fn a_quantile_is_the_value_of_its_nearest_rank() {
        let thousand = milliseconds((1..=1000).rev());
        for (per_thousand, expected) in [(500, 500), (900, 900), (990, 990), (999, 999), (1000, 1000), (0, 1)] {
            assert_eq!(
                thousand.quantile(per_thousand),
                Some(Duration::from_millis(expected)),
                "{per_thousand}"
            );
        }
    }

    #[test]
    fn few_values_give_the_largest_for_high_quantiles() {
        let three = milliseconds([3, 1, 2]);
        assert_eq!(three.quantile(500), Some(Duration::from_millis(2)));
        assert_eq!(three.quantile(999), Some(Duration::from_millis(3)));
        assert_eq!(milliseconds([7]).quantile(500), Some(Duration::from_millis(7)));
        assert_eq!(milliseconds([]).quantile(500), None);
    }

    #[test]
    fn the_median_is_not_moved_by_one_bad_round() {
        assert_eq!(median([3.0, 1000.0, 1.0]), Some(3.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
