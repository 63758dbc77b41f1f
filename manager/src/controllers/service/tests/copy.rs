//! A restored copy of a cluster beside the original: the same cluster ID and UIDs of Services, so the same names of
//! load balancers, and another UID of the namespace `kube-system`.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;

use super::super::spec::names;
use super::fixture::{Fixture, world};
use super::network::deletion::delete;
use super::{network, tags_denied};

/// A Service of the original cluster with its load balancer.
async fn original(mut fixture: Fixture) -> Fixture {
    fixture.settings.cluster_uid = Some("u-original".into());
    fixture.restart();
    fixture.settle().await;
    fixture
}

/// The same Service in the copy, which has other Nodes.
fn copy(fixture: &mut Fixture) {
    fixture.settings.cluster_uid = Some("u-copy".into());
    fixture.restart();
    fixture.drop_node("i-1");
    fixture.drop_node("i-2");
    fixture.node("i-3", true);
    fixture.aws.forget_calls();
}

async fn all() -> Vec<Fixture> {
    let fixtures = [Fixture::new(world()), network::fixture(), network::managed()];
    futures::future::join_all(fixtures.map(original)).await
}

/// Several passes, a minute apart, whatever comes of them.
async fn passes(fixture: &Fixture) {
    for _ in 0..4 {
        let _ = fixture.sync().await; // a refusal is told by an Event
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    }
}

fn other_port(service: &mut Service) {
    let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
    ports[0].port = 8080;
}

/// The tags of all load balancers.
fn of_balancers(fixture: &Fixture, change: impl Fn(&mut Tags)) {
    fixture.aws.change(|world| {
        let classic = world.load_balancers.values_mut().map(|balancer| &mut balancer.tags);
        let network = world.network.load_balancers.values_mut();
        classic
            .chain(network.map(|balancer| &mut balancer.tags))
            .for_each(change);
    });
}

#[tokio::test(start_paused = true)]
async fn a_copy_changes_nothing_of_the_originals_and_an_event_names_both_clusters() {
    for mut fixture in all().await {
        copy(&mut fixture);
        passes(&fixture).await;
        fixture.change(other_port);
        passes(&fixture).await;
        assert_eq!(fixture.aws.writes(), [""; 0]);
        let events = fixture.events();
        let named = events
            .iter()
            .find(|event| event.contains("u-original"))
            .expect("an Event");
        assert!(named.starts_with("Warning SyncLoadBalancerFailed "), "{named}");
        assert!(
            named.contains("u-copy") && named.contains("delete this Service"),
            "{named}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn targets_of_the_originals_are_not_updated_for_an_invalid_service_of_the_copy() {
    for mut fixture in all().await {
        copy(&mut fixture);
        fixture.annotate("subnets", "subnet-none");
        passes(&fixture).await;
        assert_eq!(fixture.aws.writes(), [""; 0], "{:?}", fixture.events());
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_deletes_nothing_of_the_originals() {
    for mut fixture in all().await {
        copy(&mut fixture);
        fixture.change(delete);
        passes(&fixture).await;
        assert_eq!(fixture.aws.writes(), [""; 0]);
        assert!(fixture.service().metadata.finalizers.unwrap().is_empty());
    }
}

/// As in the middle of a change of the original's listeners.
#[tokio::test(start_paused = true)]
async fn a_copy_deletes_no_target_group_that_the_originals_does_not_use_for_now() {
    let mut fixture = original(network::fixture()).await;
    copy(&mut fixture);
    fixture.aws.change(|world| world.network.listeners.clear());
    fixture.change(delete);
    passes(&fixture).await;
    assert_eq!(fixture.aws.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_without_the_tag_is_adopted_and_so_is_one_whose_tag_was_removed() {
    for mut fixture in all().await {
        copy(&mut fixture);
        passes(&fixture).await;
        of_balancers(&fixture, |tags| _ = tags.remove(names::CLUSTER_UID_TAG));
        fixture.settle().await;
        assert!(!fixture.aws.writes().is_empty());
        fixture.restart();
        fixture.aws.forget_calls();
        fixture.settle().await;
        assert_eq!(fixture.aws.writes(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn where_tags_may_not_be_read_a_load_balancer_is_taken_for_the_clusters() {
    for mut fixture in all().await {
        copy(&mut fixture);
        tags_denied::deny(&fixture);
        fixture.settle().await;
        assert!(!fixture.aws.writes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_a_network_load_balancer_is_read_once_per_process() {
    let reads = |fixture: &Fixture| {
        let calls = fixture.aws.calls();
        calls.iter().filter(|call| call.action == "DescribeTags/v2").count()
    };
    let mut fixture = network::fixture();
    fixture.settings.cluster_uid = Some("u-1".into());
    fixture.restart();
    fixture.settle().await;
    fixture.change(other_port);
    fixture.settle().await;
    assert_eq!(reads(&fixture), 0, "this process has created it");

    fixture.restart();
    fixture.aws.forget_calls();
    fixture.settle().await;
    assert_eq!(reads(&fixture), 0, "nothing is changed");
    for node in ["i-3", "i-4"] {
        fixture.node(node, true);
        fixture.settle().await;
        assert_eq!(reads(&fixture), 1);
    }
}
