//! Confirms that a route is unwanted before it is deleted: not at the first observation, and later during a mass loss.
//!
//! A Node that is missing from the cache for a moment, or an API server restored from an empty backup, must not cut
//! off running Pods. Pure.

use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::ec2::RouteTarget;
use tokio::time::Instant;

use crate::confirmation::{FirstSeen, LossLimit};

/// Time between the two observations that a deletion needs.
pub const MIN_AGE: Duration = Duration::from_secs(5);
/// The same during a mass loss.
pub const MIN_AGE_IF_MANY: Duration = Duration::from_secs(60);
/// How many of the cluster's routes may be unwanted at once. More are a mass loss.
const LIMIT: LossLimit = LossLimit { few: 3, percent: 20 };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    pub table: String,
    pub cidr: Ipv4Net,
    pub why: &'static str,
}

#[derive(Debug, Clone)]
pub struct UnwantedRoute {
    pub deletion: Deletion,
    /// Where the route leads; a route to another target is another route.
    pub target: RouteTarget,
    /// A blackhole carries no traffic, so it does not count towards a mass loss.
    pub blackhole: bool,
}

/// Since when each route has looked unwanted, in every pass.
#[derive(Debug, Default)]
pub struct Confirmations {
    seen: FirstSeen<(String, Ipv4Net, RouteTarget)>,
}

#[derive(Debug, Default)]
pub struct Confirmed {
    pub deletions: Vec<Deletion>,
    /// How many deletions are deferred because of a mass loss.
    pub deferred: usize,
    /// When the next of them may be deleted.
    pub retry_after: Option<Duration>,
}

impl Confirmations {
    /// Records the unwanted routes of a pass, out of `present` routes of the cluster, and returns the confirmed ones.
    pub fn confirm(&mut self, unwanted: Vec<UnwantedRoute>, present: usize, now: Instant) -> Confirmed {
        self.seen.note_all(unwanted.iter().map(key), now);

        let alive = unwanted.iter().filter(|route| !route.blackhole).count();
        let many = LIMIT.is_exceeded(alive, present);
        let mut confirmed = Confirmed::default();

        for route in unwanted {
            let seen = self.seen.get(&key(&route));
            let age = seen.map_or(Duration::ZERO, |seen| seen.age(now));
            let needed = if many && !route.blackhole {
                MIN_AGE_IF_MANY
            } else {
                MIN_AGE
            };
            if age >= needed {
                confirmed.deletions.push(route.deletion);
                continue;
            }

            confirmed.deferred += usize::from(age >= MIN_AGE);

            let left = needed - age;
            confirmed.retry_after = Some(confirmed.retry_after.map_or(left, |retry_after| retry_after.min(left)));
        }

        confirmed
    }
}

fn key(route: &UnwantedRoute) -> (String, Ipv4Net, RouteTarget) {
    (route.deletion.table.clone(), route.deletion.cidr, route.target.clone())
}

#[cfg(test)]
mod tests {
    use outrigger_aws::InstanceId;

    use super::*;

    fn unwanted(range: std::ops::Range<u8>, blackhole: bool) -> Vec<UnwantedRoute> {
        range
            .map(|n| UnwantedRoute {
                deletion: Deletion {
                    table: "rtb-1".into(),
                    cidr: format!("10.0.{n}.0/24").parse().unwrap(),
                    why: "test",
                },
                target: RouteTarget::Instance(InstanceId::new(format!("i-{n}"))),
                blackhole,
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_sight_deletes_nothing_and_a_second_five_seconds_later_does() {
        let (mut confirmations, start) = (Confirmations::default(), Instant::now());
        let first = confirmations.confirm(unwanted(0..1, false), 10, start);
        assert!(first.deletions.is_empty());
        assert_eq!(first.retry_after, Some(MIN_AGE));
        assert!(
            confirmations
                .confirm(unwanted(0..1, false), 10, start + MIN_AGE / 2)
                .deletions
                .is_empty()
        );
        assert_eq!(
            confirmations
                .confirm(unwanted(0..1, false), 10, start + MIN_AGE)
                .deletions
                .len(),
            1
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_that_was_wanted_between_starts_anew() {
        let (mut confirmations, start) = (Confirmations::default(), Instant::now());
        confirmations.confirm(unwanted(0..1, false), 10, start);
        confirmations.confirm(vec![], 10, start + MIN_AGE / 2);
        assert!(
            confirmations
                .confirm(unwanted(0..1, false), 10, start + MIN_AGE)
                .deletions
                .is_empty()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_to_another_target_starts_anew() {
        let (mut confirmations, start) = (Confirmations::default(), Instant::now());
        confirmations.confirm(unwanted(0..1, false), 10, start);
        let mut other = unwanted(0..1, false);
        other[0].target = RouteTarget::Unknown;
        assert!(confirmations.confirm(other, 10, start + MIN_AGE).deletions.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_three_and_more_than_a_fifth_wait_a_minute() {
        let start = Instant::now();
        for (count, present, go) in [(3, 3, 3), (4, 20, 4), (4, 19, 0), (10, 10, 0)] {
            let mut confirmations = Confirmations::default();
            confirmations.confirm(unwanted(0..count, false), present, start);
            let second = confirmations.confirm(unwanted(0..count, false), present, start + MIN_AGE);
            assert_eq!(second.deletions.len(), go, "{count} of {present}");
            assert_eq!(second.deferred, usize::from(count) - go);
            let third = confirmations.confirm(unwanted(0..count, false), present, start + MIN_AGE_IF_MANY);
            assert_eq!(third.deletions.len(), usize::from(count), "{count} of {present}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn blackholes_are_never_many() {
        let (mut confirmations, start) = (Confirmations::default(), Instant::now());
        confirmations.confirm(unwanted(0..10, true), 10, start);
        assert_eq!(
            confirmations
                .confirm(unwanted(0..10, true), 10, start + MIN_AGE)
                .deletions
                .len(),
            10
        );
    }
}
