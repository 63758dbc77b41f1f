//! SIGKILL in the middle: the manager dies at each write that a load balancer's creation and deletion send to AWS, and
//! the one that is started then brings the Service to the same end, with nothing double and nothing left over.
//!
//! The fake in the manager's own tests does this for the decisions; here it is the whole process, with its lease, its
//! caches and the AWS SDK.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

mod account;
mod alone;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use account::Account;
use alone::{Alone, LIMIT};
use outrigger_e2e::aws::{Call, When};

/// What an undisturbed creation writes, in order.
const CREATION: [&str; 6] = [
    "CreateSecurityGroup",
    "AuthorizeSecurityGroupIngress",
    "CreateLoadBalancer",
    "ConfigureHealthCheck",
    "AuthorizeSecurityGroupIngress",
    "RegisterInstancesWithLoadBalancer",
];
/// What an undisturbed deletion writes, in order.
const DELETION: [&str; 3] = [
    "DeleteLoadBalancer",
    "RevokeSecurityGroupIngress",
    "DeleteSecurityGroup",
];
/// How many rounds the six and three writes make.
const ROUNDS: usize = 6 * 3 + 3 * 3 + 6;

/// One write of a sequence: the `nth` call of its action.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Write {
    action: String,
    nth: usize,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.action, self.nth)
    }
}

/// What becomes of the write at which the manager dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// AWS never sees it.
    NeverSent,
    /// AWS does it, and the manager never hears.
    AnswerLost,
    /// It reaches AWS late: after the next manager has looked, and decided to write the same.
    Late,
}

const MOMENTS: [Moment; 3] = [Moment::NeverSent, Moment::AnswerLost, Moment::Late];

impl Moment {
    fn when(self) -> When {
        match self {
            Self::NeverSent | Self::Late => When::BeforeForwarding,
            Self::AnswerLost => When::AfterForwarding,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_at_any_write_leaves_one_load_balancer_or_none() {
    let mut stage = Alone::start().await;
    let empty = Account::read(&stage.moto).await;
    assert!(empty.load_balancers.is_empty());
    let (creation, deletion) = undisturbed(&stage, &empty).await;
    let mut rounds = 0;
    for (change, writes) in [(Change::Creation, &creation), (Change::Deletion, &deletion)] {
        for (write, moment) in writes.iter().flat_map(|write| MOMENTS.map(|moment| (write, moment))) {
            rounds += 1;
            let start = Instant::now();
            round(&mut stage, &empty, change, write, moment, rounds).await;
            println!("killed in {change:?} at {write}, {moment:?}: {:.1?}", start.elapsed());
        }
    }
    for write in &creation {
        rounds += 1;
        cut_off_and_deleted(&mut stage, &empty, write, rounds).await;
    }
    assert_eq!(rounds, ROUNDS);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Creation,
    Deletion,
}

/// The writes of a creation and a deletion that nobody disturbs.
async fn undisturbed(stage: &Alone, empty: &Account) -> (Vec<Write>, Vec<Write>) {
    let mark = stage.proxy.mark();
    stage.create_service("undisturbed").await;
    assert_served(stage, empty, "undisturbed").await;
    let creation = writes(&stage.proxy.calls_since(mark));
    let mark = stage.proxy.mark();
    stage.delete_service("undisturbed").await;
    assert_gone(stage, empty, "undisturbed").await;
    let deletion = writes(&stage.proxy.calls_since(mark));
    let actions = |writes: &[Write]| writes.iter().map(|write| write.action.clone()).collect::<Vec<_>>();
    assert_eq!(actions(&creation), CREATION, "every write needs its rounds here");
    assert_eq!(actions(&deletion), DELETION, "every write needs its rounds here");
    (creation, deletion)
}

/// One change during which the manager is killed at one write.
async fn round(stage: &mut Alone, empty: &Account, change: Change, write: &Write, moment: Moment, number: usize) {
    let name = format!("round-{number}");
    if change == Change::Deletion {
        stage.create_service(&name).await;
        assert_served(stage, empty, &name).await;
    }
    let held = stage.hold(&write.action, write.nth, moment.when());
    match change {
        Change::Creation => stage.create_service(&name).await,
        Change::Deletion => stage.delete_service(&name).await,
    }
    assert!(held.reached(1, LIMIT).await, "{write} was not sent");
    stage.kill_manager().await;
    if moment == Moment::Late {
        late(stage, write, &held).await;
    } else {
        end(moment, &held);
        stage.restart_manager();
    }
    if change == Change::Creation {
        assert_served(stage, empty, &name).await;
        stage.delete_service(&name).await;
    }
    assert_gone(stage, empty, &name).await;
}

fn end(moment: Moment, held: &outrigger_e2e::aws::FaultHandle) {
    match moment {
        Moment::NeverSent => held.discard(),
        Moment::AnswerLost | Moment::Late => held.release(),
    }
}

/// The dead manager's write reaches AWS between the next one's look and its own write.
async fn late(stage: &mut Alone, write: &Write, held: &outrigger_e2e::aws::FaultHandle) {
    let dead = stage.caller.name.clone();
    stage.restart_manager();
    let next = stage.hold(&write.action, 1, When::BeforeForwarding);
    assert!(next.reached(1, LIMIT).await, "{write} was not sent by the next manager");
    held.release();
    let arrived = |calls: &[Call]| {
        let of_dead = |call: &&Call| call.caller == dead && call.action == write.action;
        let last = calls.iter().rfind(of_dead)?;
        last.outcome.as_ref().map(|outcome| outcome.forwarded)
    };
    let forwarded = stage.proxy.wait_for("late write", LIMIT, arrived).await;
    assert!(forwarded.expect("it ends"), "{write} reached AWS");
    next.release();
}

/// A Service that is deleted while no manager runs, its creation cut off in the middle.
async fn cut_off_and_deleted(stage: &mut Alone, empty: &Account, write: &Write, number: usize) {
    let name = format!("cut-off-{number}");
    let held = stage.hold(&write.action, write.nth, When::AfterForwarding);
    stage.create_service(&name).await;
    assert!(held.reached(1, LIMIT).await, "{write} was not sent");
    stage.kill_manager().await;
    held.release();
    stage.delete_service(&name).await;
    let kept = stage.services.get(&name).await.expect("the finalizer keeps it");
    assert!(kept.metadata.deletion_timestamp.is_some());
    stage.restart_manager();
    assert_gone(stage, empty, &name).await;
}

/// Exactly one load balancer with its group, rules, tags, health check and targets, and nothing else that is new.
async fn assert_served(stage: &Alone, empty: &Account, name: &str) {
    let service = stage.wait_served(name).await;
    let finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    assert_eq!(finalizers, ["service.kubernetes.io/load-balancer-cleanup"]);
    let wanted = empty.with(&service, &stage.world);
    assert_eq!(Account::read(&stage.moto).await, wanted, "Service {name}");
}

/// The Service is gone, and AWS has what it had before there was one.
async fn assert_gone(stage: &Alone, empty: &Account, name: &str) {
    stage.wait_gone(name).await;
    assert_eq!(Account::read(&stage.moto).await, *empty, "after Service {name}");
}

fn writes(calls: &[Call]) -> Vec<Write> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for call in calls.iter().filter(|call| call.is_write()) {
        assert!(call.succeeded(), "{call}");
        let nth = counts.entry(&call.action).or_default();
        *nth += 1;
        let (action, nth) = (call.action.clone(), *nth);
        all.push(Write { action, nth });
    }
    all
}
