//! Calls for a Service that a user has changed go before the background's.

use std::collections::BTreeSet;

use outrigger_aws::limit::Priority;

use super::fixture::{Fixture, world};
use super::network;

/// The priorities of the calls since the last time.
fn priorities(fixture: &Fixture) -> BTreeSet<Priority> {
    let calls = fixture.aws.calls();
    fixture.aws.forget_calls();
    assert!(!calls.is_empty());
    calls.iter().map(|call| call.priority).collect()
}

async fn of_each_cause(mut fixture: Fixture) {
    fixture.sync().await.unwrap();
    assert_eq!(priorities(&fixture), [Priority::Initialize].into(), "created");

    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(priorities(&fixture), [Priority::Lifecycle].into(), "a Node joined");

    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    fixture.sync().await.unwrap();
    assert_eq!(priorities(&fixture), [Priority::Initialize].into(), "changed");

    fixture.restart();
    fixture.sync().await.unwrap();
    assert_eq!(priorities(&fixture), [Priority::Lifecycle].into(), "a start");
}

#[tokio::test(start_paused = true)]
async fn calls_for_a_classic_load_balancer_have_the_priority_of_their_cause() {
    of_each_cause(Fixture::new(world())).await;
}

#[tokio::test(start_paused = true)]
async fn calls_for_a_network_load_balancer_have_the_priority_of_their_cause() {
    of_each_cause(network::fixture()).await;
}
