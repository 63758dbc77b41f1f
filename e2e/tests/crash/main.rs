//! SIGKILL in the middle: the manager dies at each write that a load balancer's creation, its updates and its deletion
//! send to AWS, and the one that is started then brings everything to the same end, with nothing double and nothing
//! left over. How many writes there are, and what the end is, an undisturbed run tells first.
//!
//! The fake in the manager's own tests does this for the decisions; here it is the whole process, with its caches and
//! the AWS SDK. There is no leader election, so that the next manager starts at once; what leases do is shown elsewhere.
//!
//! Without more, the manager is killed at every write of the creation and the deletion, and at every third of the updates.
//! `OUTRIGGER_CRASH=all` (`make test-long`) tries every moment of every write, the late ones included. It takes a quarter of
//! an hour.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

mod change;
mod fixture;
mod round;

use std::time::Instant;

use change::{Change, Kind};
use fixture::Fixture;
use round::{Depth, OUT_OF, Tally, cut_off_and_deleted, there_and_back};

/// Tries everything when it is `all`.
const DEPTH: &str = "OUTRIGGER_CRASH";

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_at_any_write_of_a_classic_load_balancer_leaves_no_trace() {
    killed_everywhere(Kind::Classic, "127.95.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_at_any_write_of_a_network_load_balancer_leaves_no_trace() {
    killed_everywhere(Kind::Network, "127.93.0.0/16").await;
}

async fn killed_everywhere(kind: Kind, service_range: &'static str) {
    let all = std::env::var(DEPTH).is_ok_and(|value| value == "all");
    let depth = if all { Depth::EveryMoment } else { Depth::EachState };
    let start = Instant::now();
    let mut fixture = Fixture::start(kind.service(), service_range).await;
    let untouched = fixture.state().await;
    let mut total = Tally::default();
    let everything = kind.everything();
    total += there_and_back(&mut fixture, &everything, depth).await;
    total += cut_off_and_deleted(&mut fixture, &everything).await;
    assert!(total.writes > 0 && total.kills > total.writes, "{total}");

    let plain = Change {
        name: "a plain Service",
        there: kind.plain(),
        back: change::Edit::Delete,
    };
    let (mark, events) = (fixture.mark(), fixture.last_events().await);
    fixture.edit(&plain.there).await;
    fixture.quiet(mark, events).await;
    for (number, update) in kind.updates(&fixture.given_group.clone()).into_iter().enumerate() {
        let (update_start, before) = (Instant::now(), total);
        let depth = if all {
            Depth::EveryMoment
        } else {
            Depth::SomeStates(number % OUT_OF)
        };
        total += there_and_back(&mut fixture, &update, depth).await;
        let kills = total.kills - before.kills;
        assert!(kills > 0, "{}", update.name);
        println!(
            "{kind:?}: {}: {kills} kills in {:.1?}",
            update.name,
            update_start.elapsed()
        );
    }
    let mark = fixture.mark();
    fixture.edit(&plain.back).await;
    fixture.reach(&untouched, mark, "deleted at the end").await;
    println!("{kind:?}: {total} in {:.1?}", start.elapsed());
}
