//! When a route that nobody wants may go: not on the first sight, and not with many others at once.
//!
//! A Node that is missing from the cache for a moment, or an API server restored from an empty backup, must not cut
//! off running Pods.

use std::collections::HashMap;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::ec2::RouteTarget;
use tokio::time::Instant;

/// Time between the two sightings that a deletion needs.
pub const APART: Duration = Duration::from_secs(5);
/// The same where many routes would go at once.
pub const APART_IF_MANY: Duration = Duration::from_secs(60);
/// So many may always go after [`APART`].
const ALWAYS: usize = 3;
/// More than this share of the cluster's routes, in percent, is many.
const MANY_PERCENT: usize = 20;

/// A route to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The table.
    pub table: String,
    /// The route's destination.
    pub cidr: Ipv4Net,
    /// Why.
    pub why: &'static str,
}

/// A route that looks unwanted.
#[derive(Debug, Clone)]
pub struct Doubt {
    /// What would be done.
    pub deletion: Deletion,
    /// Where the route leads; a route to another target is another route.
    pub target: RouteTarget,
    /// It passes nothing on, so nothing is lost with it: it does not count as one of many.
    pub blackhole: bool,
}

/// Since when each route has looked unwanted, in every pass.
#[derive(Debug, Default)]
pub struct Sightings {
    since: HashMap<(String, Ipv4Net, RouteTarget), Instant>,
}

/// The judgement of a pass.
#[derive(Debug, Default)]
pub struct Judged {
    /// These go now.
    pub go: Vec<Deletion>,
    /// So many stay only because they are many.
    pub held: usize,
    /// When the next of them may go.
    pub again: Option<Duration>,
}

impl Sightings {
    /// Takes in the doubts of a pass, of `present` routes of the cluster, and says which routes go.
    pub fn judge(&mut self, doubts: Vec<Doubt>, present: usize, now: Instant) -> Judged {
        let seen: HashMap<_, _> = doubts
            .iter()
            .map(|doubt| {
                let key = key(doubt);
                let since = self.since.get(&key).copied().unwrap_or(now);
                (key, since)
            })
            .collect();
        self.since = seen;
        let alive = doubts.iter().filter(|doubt| !doubt.blackhole).count();
        let many = alive > ALWAYS && alive * 100 > present * MANY_PERCENT;
        let mut judged = Judged::default();
        for doubt in doubts {
            let age = self
                .since
                .get(&key(&doubt))
                .map_or(Duration::ZERO, |since| now.duration_since(*since));
            let needed = if many && !doubt.blackhole { APART_IF_MANY } else { APART };
            if age >= needed {
                judged.go.push(doubt.deletion);
                continue;
            }
            judged.held += usize::from(age >= APART);
            let left = needed - age;
            judged.again = Some(judged.again.map_or(left, |again| again.min(left)));
        }
        judged
    }
}

fn key(doubt: &Doubt) -> (String, Ipv4Net, RouteTarget) {
    (doubt.deletion.table.clone(), doubt.deletion.cidr, doubt.target.clone())
}

#[cfg(test)]
mod tests {
    use outrigger_aws::InstanceId;

    use super::*;

    fn doubts(range: std::ops::Range<u8>, blackhole: bool) -> Vec<Doubt> {
        range
            .map(|n| Doubt {
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
        let (mut sightings, start) = (Sightings::default(), Instant::now());
        let first = sightings.judge(doubts(0..1, false), 10, start);
        assert!(first.go.is_empty());
        assert_eq!(first.again, Some(APART));
        assert!(
            sightings
                .judge(doubts(0..1, false), 10, start + APART / 2)
                .go
                .is_empty()
        );
        assert_eq!(sightings.judge(doubts(0..1, false), 10, start + APART).go.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_that_was_wanted_between_starts_anew() {
        let (mut sightings, start) = (Sightings::default(), Instant::now());
        sightings.judge(doubts(0..1, false), 10, start);
        sightings.judge(vec![], 10, start + APART / 2);
        assert!(sightings.judge(doubts(0..1, false), 10, start + APART).go.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_to_another_target_starts_anew() {
        let (mut sightings, start) = (Sightings::default(), Instant::now());
        sightings.judge(doubts(0..1, false), 10, start);
        let mut other = doubts(0..1, false);
        other[0].target = RouteTarget::Unknown;
        assert!(sightings.judge(other, 10, start + APART).go.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_three_and_more_than_a_fifth_wait_a_minute() {
        let start = Instant::now();
        for (count, present, go) in [(3, 3, 3), (4, 20, 4), (4, 19, 0), (10, 10, 0)] {
            let mut sightings = Sightings::default();
            sightings.judge(doubts(0..count, false), present, start);
            let second = sightings.judge(doubts(0..count, false), present, start + APART);
            assert_eq!(second.go.len(), go, "{count} of {present}");
            assert_eq!(second.held, usize::from(count) - go);
            let third = sightings.judge(doubts(0..count, false), present, start + APART_IF_MANY);
            assert_eq!(third.go.len(), usize::from(count), "{count} of {present}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn blackholes_are_never_many() {
        let (mut sightings, start) = (Sightings::default(), Instant::now());
        sightings.judge(doubts(0..10, true), 10, start);
        assert_eq!(sightings.judge(doubts(0..10, true), 10, start + APART).go.len(), 10);
    }
}
