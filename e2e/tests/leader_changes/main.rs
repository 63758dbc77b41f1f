//! The leader ends again and again, by SIGTERM and by SIGKILL, while Nodes flip between Ready and NotReady, are
//! labelled, come and go, and while Services change. No target whose Node is there all the time is ever deregistered,
//! no two leaders write in turn, and in the end AWS has what the Services ask for and nothing else.
//!
//! `OUTRIGGER_LEADER_CHANGES=200` makes it longer; each change takes one to seven seconds.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod churn;
mod nodes;
mod pair;
mod services;
mod verdict;

use std::time::Duration;

use outrigger_aws_sim::Call;
use outrigger_e2e::single_cluster::{Options, SingleCluster};
use outrigger_timeline::Limits;
use tokio::time::{Instant, sleep};

use churn::Churn;
use pair::{Gap, How, Pair};
use verdict::Verdict;

/// How many changes, if not [`USUAL`].
const CHANGES: &str = "OUTRIGGER_LEADER_CHANGES";
const USUAL: usize = 20;
/// Of these instances some have a Node all the time.
const STEADY: usize = 10;
/// The Nodes of the others come and go. Together they are more than a fifth of all.
const TRANSIENT: usize = 4;
/// Within this everything is as asked for, once nothing changes any more.
const SETTLED: Duration = Duration::from_secs(90);
/// Within this a new leader calls AWS.
const CALLS: Duration = Duration::from_secs(60);
/// Within this after its first call it pauses, mostly.
const PAUSES: Duration = Duration::from_secs(4);
/// Longer than a manager lets pass between two looks at a loss of many targets.
const CONFIRMATION: Duration = Duration::from_secs(7);

#[tokio::test(flavor = "multi_thread")]
async fn no_change_of_the_leader_costs_a_target() {
    let changes = std::env::var(CHANGES).map_or(USUAL, |text| text.parse().expect("a number"));
    let options = Options {
        name: "outrigger-leader-changes-",
        service_range: "127.92.0.0/16",
        instances: STEADY + TRANSIENT,
        global: &["NLBSecurityGroupMode = Managed"],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    let untouched = cluster.read_account(&[]).await.expect("an account");
    let mut pair = Pair::start(&cluster).await;
    let churn = Churn::prepare(&cluster, STEADY).await;
    services::wait_served(&cluster, &pair, SETTLED).await;

    let start = Instant::now();
    let running = churn.start();
    let tenures = change_leaders(&cluster, &mut pair, changes).await;
    let (done, causes) = running.stop().await;
    let took = start.elapsed();
    services::wait_complete(&cluster, &pair, SETTLED).await;
    let calls = cluster.proxy.calls();
    let verdict = Verdict::of(&calls, &causes);
    println!("{changes} changes in {took:.1?}: {tenures}; churn: {done}; {verdict}");
    tenures.assert_gaps();
    assert!(verdict.without_cause.is_empty(), "{:#?}", verdict.without_cause);
    assert!(verdict.out_of_turn.is_empty(), "{:#?}", verdict.out_of_turn);
    assert!(verdict.made_twice.is_empty(), "{:#?}", verdict.made_twice);
    assert!(
        verdict.with_cause > 0,
        "nothing was deregistered at all: the test shows nothing"
    );
    assert!(tenures.looked * 2 > changes, "few leaders looked at AWS: {tenures}");

    services::delete_all(&cluster).await;
    services::wait_nothing_left(&cluster, &pair, &untouched, SETTLED).await;
}

/// The ends of the leaders.
#[derive(Debug, Default)]
struct Tenures {
    terminated: usize,
    killed: usize,
    /// Of the terminated ones.
    unreleased: usize,
    /// Leaders that described a load balancer before their end.
    looked: usize,
    /// Gaps after a release.
    releases: Vec<Duration>,
    slowest_expiry: Duration,
}

impl Tenures {
    fn add(&mut self, how: How, gap: Gap) {
        let count = match how {
            How::Kill => &mut self.killed,
            How::Terminate => &mut self.terminated,
        };
        *count += 1;
        self.unreleased += usize::from(how == How::Terminate && !gap.released);

        if gap.released {
            self.releases.push(gap.lasted);
        } else {
            self.slowest_expiry = gap.lasted.max(self.slowest_expiry);
        }
    }

    /// The gap after a release that half of all do not exceed, and the longest.
    fn median_and_slowest_release(&self) -> (Duration, Duration) {
        let mut sorted = self.releases.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        (median, sorted.last().copied().unwrap_or_default())
    }

    fn assert_gaps(&self) {
        let limits = Limits::of_lease(pair::LEASE);
        let (release, expiry) = (limits.new_to_new_released, limits.beside_other_work().new_to_new_killed);
        let (median, slowest) = self.median_and_slowest_release();
        assert!(median <= release, "{self}; the limit of most releases is {release:?}");
        // A standby that overlooks a release waits until the lease runs out, which was renewed shortly before.
        let most = pair::LEASE - Duration::from_secs(1);
        assert!(slowest <= most, "{self}; the limit of each release is {most:?}");
        assert!(self.slowest_expiry <= expiry, "{self}; the limit is {expiry:?}");
        assert_eq!(self.unreleased, 0, "{self}");
    }
}

impl std::fmt::Display for Tenures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (median, slowest) = self.median_and_slowest_release();
        write!(
            f,
            "{} by SIGTERM ({} without a release), {} by SIGKILL; median after a release {median:.1?}, slowest \
             {slowest:.1?}, after an expiry {:.1?}; {} leaders looked at AWS",
            self.terminated, self.unreleased, self.killed, self.slowest_expiry, self.looked
        )
    }
}

/// Every fifth leader is killed. Of three, one has no time to do more than begin, one goes as soon as it pauses, and one
/// some time later; every tenth stays long enough to look twice at a loss of many targets.
async fn change_leaders(cluster: &SingleCluster, pair: &mut Pair, changes: usize) -> Tenures {
    let mut tenures = Tenures::default();
    for number in 1..=changes {
        let mark = cluster.proxy.mark();
        let how = if number % 5 == 0 { How::Kill } else { How::Terminate };
        tenures.add(how, pair.change(cluster, how).await);
        let (leader, spread) = (pair.leader().to_owned(), number as u64);
        match number {
            _ if number % 10 == 0 => sleep(CONFIRMATION).await,
            _ if number % 3 == 0 => sleep(Duration::from_millis((spread * 53) % 300)).await,
            _ if number % 3 == 1 => pause_of(cluster, &leader, mark).await,
            _ => {
                pause_of(cluster, &leader, mark).await;
                sleep(Duration::from_millis((spread * 37) % 500)).await;
            }
        }
        let looks = |call: &Call| call.caller == leader && call.action == "DescribeLoadBalancers";
        tenures.looked += usize::from(cluster.proxy.calls_since(mark).iter().any(looks));
    }
    tenures
}

/// Waits until the leader has called AWS, and then has not for a moment.
async fn pause_of(cluster: &SingleCluster, leader: &str, mark: u64) {
    let called = |calls: &[Call]| {
        let mut since = calls.iter().filter(|call| call.seq >= mark);
        since.any(|call| call.caller == leader).then_some(())
    };
    let called = cluster.proxy.wait_for("call of the leader", CALLS, called).await;
    called.expect("it works");

    let deadline = Instant::now() + PAUSES;
    let (mut seen, mut since) = (0, Instant::now());
    while Instant::now() < deadline && (seen == 0 || since.elapsed() < Duration::from_millis(200)) {
        let calls = cluster.proxy.calls_since(mark);
        let own: Vec<_> = calls.iter().filter(|call| call.caller == leader).collect();
        if own.len() != seen || own.iter().any(|call| call.outcome.is_none()) {
            (seen, since) = (own.len(), Instant::now());
        }
        sleep(Duration::from_millis(20)).await;
    }
}
