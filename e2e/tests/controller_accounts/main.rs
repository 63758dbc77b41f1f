//! `--use-service-account-credentials` on real API servers with RBAC: every controller of our real binary at work, with the
//! manifests' rights and the roles that API servers bring, the oldest ones and the newest.
//!
//! | what | seen by |
//! |---|---|
//! | a token that cannot be had stops its own controller and no other; it goes on when the token can be had | Service, log, audit log |
//! | each controller writes as its own account, and nothing as anybody else | audit log |
//! | an account that is deleted at run time is made again | its UID, audit log |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod fixture;
mod record;

use std::time::Duration;

use outrigger_cluster_harness::cluster::Version;
use serde_json::json;
use tokio::time::{Instant, sleep};

use fixture::Fixture;
use record::{ACCOUNTS, MANAGER};

/// The API server remembers for so long that a token was good.
const REMEMBERED: Duration = Duration::from_secs(11);
/// So long somebody's token cannot be had.
const WITHOUT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn controllers_act_as_their_own_accounts_under_the_roles_of_kubernetes_1_26() {
    run(Version::V1_26, "127.80.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_act_as_their_own_accounts_under_the_roles_of_kubernetes_1_36() {
    run(Version::V1_36, "127.79.0.0/16").await;
}

async fn run(version: Version, range: &str) {
    let mut fixture = Fixture::build(version, range).await;
    // A kube-controller-manager has made this one already.
    fixture.make_account("route-controller").await;
    fixture.let_tokens_be_had_but("service-controller").await;
    let started = Instant::now();
    fixture.start_manager();
    one_cannot_have_its_token(&fixture, started).await;
    fixture.let_all_tokens_be_had().await;
    fixture.eventually("the Service is served", Fixture::is_served).await;
    nobody_writes_as_another(&fixture).await;
    an_account_is_deleted(&fixture).await;
}

/// The others have done all they have to do, and the Service waits. The failure is logged, and not at every retry.
async fn one_cannot_have_its_token(fixture: &Fixture, started: Instant) {
    fixture.eventually("the Nodes are done", Fixture::are_nodes_done).await;
    let cause = "no token for service account kube-system/service-controller";
    let told = async |fixture: &Fixture| fixture.log().contains(cause);
    fixture.eventually("the cause is told", told).await;
    let lines = || fixture.log().lines().filter(|line| line.contains(cause)).count();
    let (before, began) = (lines(), Instant::now());
    sleep(WITHOUT).await;
    let more = u64::try_from(lines() - before).expect("a number");
    let took = began.elapsed();
    assert!(more <= took.as_secs(), "{more} lines in {took:?}");
    assert!(!fixture.is_served().await);
    let refused = fixture.record().await.refused();
    assert_eq!(
        refused.keys().collect::<Vec<_>>(),
        [&format!(
            "{MANAGER}: 403 create serviceaccounts/token service-controller"
        )],
    );
    // Once a second.
    let asked = refused.values().sum::<usize>();
    let took = started.elapsed();
    assert!(asked as u64 <= took.as_secs() + 2, "{asked} times in {took:?}");
}

async fn nobody_writes_as_another(fixture: &Fixture) {
    let record = fixture.record().await;
    println!("{:#?}", record.writes());
    assert_eq!(record.strangers(), [""; 0]);
    assert_eq!(record.writes(), record::expected());
    let made = ACCOUNTS.iter().filter(|account| **account != "route-controller");
    let made: Vec<String> = made.map(|account| (*account).to_owned()).collect();
    assert_eq!(record.accounts_made(), made, "each that was missing, once");
}

/// Its tokens are worth nothing from then on, long before they end.
async fn an_account_is_deleted(fixture: &Fixture) {
    let account = "tagging-controller";
    let first = fixture.account(account).await.expect("there");
    fixture.delete_account(account).await;
    sleep(REMEMBERED).await;
    let node = fixture.any_node();
    let without = json!({"metadata": {"labels": {fixture::TAGGED: null}}});
    fixture.patch_node(&node, &without).await;
    fixture
        .eventually("it is labelled again", Fixture::are_nodes_done)
        .await;
    let second = fixture.account(account).await.expect("there again");
    assert_ne!(first, second);
    assert!(
        fixture.log().contains("rejected the token; requesting another one"),
        "{}",
        fixture.log()
    );
    assert_eq!(fixture.record().await.strangers(), [""; 0]);
}
