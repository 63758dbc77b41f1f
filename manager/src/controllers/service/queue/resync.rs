//! When an unchanged Service is reconciled to detect drift at AWS.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The period of one Service differs from the configured one by up to this percentage, so that all Services of a start
/// are not resynced at once.
const SPREAD_PERCENT: u64 = 10;

/// Time between two full observations; `None`: never. It is always the same for one Service.
pub fn after(period: Option<Duration>, uid: &str) -> Option<Duration> {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    // In thousandths, from 900 to 1100.
    let share = 1000 - SPREAD_PERCENT * 10 + hasher.finish() % (SPREAD_PERCENT * 20 + 1);
    let share = u32::try_from(share).unwrap_or(1000);
    period.map(|period| period.saturating_mul(share) / 1000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn services_are_spread_around_the_period_and_each_keeps_its_place() {
        let period = Duration::from_secs(1800);
        let times: BTreeSet<Duration> = (0..500)
            .filter_map(|n| after(Some(period), &format!("uid-{n}")))
            .collect();
        assert!(times.len() > 100, "{} different times", times.len());
        assert!(times.first() >= Some(&(period * 9 / 10)) && times.last() <= Some(&(period * 11 / 10)));
        assert_eq!(after(Some(period), "a"), after(Some(period), "a"));
        assert_eq!(after(None, "a"), None);
    }
}
