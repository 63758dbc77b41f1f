//! When a Service that nobody changed is looked at again, in search of drift at AWS.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// How far the time of one Service may differ from the period, in percent either way: a thousand Services that were all
/// looked at after a start are not to be looked at again all at once.
const SPREAD_PERCENT: u64 = 10;

/// How long after a look the next one for drift is due; `None`: never. The same Service always has the same time.
#[must_use]
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
