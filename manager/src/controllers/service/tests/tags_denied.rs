//! A role without `elasticloadbalancing:DescribeTags`, which is usual for v1.37: all else is done.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Error as AwsError;

use super::super::orphans::sweep::{ExistingServices, LastSweep, SweepMetrics, SweepSettings};
use super::super::reconcile::reconcile;
use super::fixture::{Fixture, LB, world};
use super::network;
use super::network::deletion::{delete, is_clean};
use crate::args::Sweep;

/// Denies reading tags for good.
pub fn deny(fixture: &Fixture) {
    for action in ["DescribeTags", "DescribeTags/v2"] {
        let words = "User: outrigger is not authorized to perform: elasticloadbalancing:DescribeTags";
        fixture
            .aws
            .fail_always(action, AwsError::answered("DescribeTags", "AccessDenied", words));
    }
}

fn reported(fixture: &Fixture) -> Vec<String> {
    let mut events = fixture.events();
    events.retain(|event| event.contains("TagsUnreadable"));
    events
}

fn port(service: &mut Service, at: usize, port: i32, node_port: i32) {
    let port_at = &mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[at];
    (port_at.port, port_at.node_port) = (port, Some(node_port));
}

/// Another port, another Node and another tag, after a restart.
async fn change(fixture: &mut Fixture) {
    fixture.restart();
    fixture.settle().await;
    fixture.change(|service| port(service, 0, 8080, 31080));
    fixture.annotate("additional-resource-tags", "team=blue");
    fixture.settle().await;
    fixture.node("i-3", true);
    fixture.settle().await;
}

async fn classic() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_reported_about_a_service_with_a_load_balancer() {
    let fixture = classic().await;
    let denied = AwsError::answered("DescribeTags", "AccessDenied", "no");
    assert!(
        fixture
            .context
            .aws
            .tag_reads
            .allowed::<()>(Err(denied))
            .unwrap()
            .is_none()
    );

    // The Service of the API server itself, which may be the next one in the queue.
    let mut other = fixture.service();
    other.metadata.uid = Some("other".into());
    other.metadata.finalizers = None;
    other.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    reconcile(&fixture.context, &other).await.unwrap();
    assert_eq!(reported(&fixture), [""; 0]);

    fixture.sync().await.unwrap();
    assert_eq!(reported(&fixture).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_ends_as_with_the_permission() {
    let (mut allowed, mut denied) = (classic().await, classic().await);
    deny(&denied);
    change(&mut allowed).await;
    change(&mut denied).await;
    assert_eq!(denied.aws.world(), allowed.aws.world());
    let lb = &denied.aws.world().load_balancers[LB];
    assert!(lb.described.listeners.iter().any(|listener| listener.port == 8080));
    assert_eq!(lb.described.instances.len(), 3);
    assert_eq!(lb.tags["team"], "blue");

    let reported = reported(&denied);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].starts_with("Warning") && reported[0].contains("elasticloadbalancing:DescribeTags"),
        "{reported:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tags_are_not_repaired_and_not_written_again_and_again() {
    let fixture = classic().await;
    fixture.annotate("additional-resource-tags", "team=blue,cost=1");
    fixture.settle().await;
    deny(&fixture);
    fixture.aws.change(|world| {
        let tags = &mut world.load_balancers.get_mut(LB).unwrap().tags;
        tags.remove("kubernetes.io/service-name");
        tags.remove("team");
    });
    fixture.aws.forget_calls();
    tokio::time::advance(std::time::Duration::from_secs(2000)).await;
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    fixture.annotate("additional-resource-tags", "team=blue,cost=2");
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), [format!("AddTags {LB} cost")]);
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_is_changed_and_deleted_to_the_end() {
    let mut fixture = network::settle(network::managed()).await;
    deny(&fixture);
    fixture.restart();
    fixture.settle().await;
    // AWS holds the group of the port that goes for a while.
    let group = network::behind(&fixture.aws.world(), 80).described.arn;
    fixture.aws.change(|world| {
        world.lingering.insert(group, 2);
    });
    fixture.change(|service| port(service, 0, 80, 31080));
    fixture.settle().await;
    let world = fixture.aws.world();
    assert_eq!(
        network::targets(&network::behind(&world, 80)),
        ["i-1:31080", "i-2:31080"]
    );
    assert_eq!(world.network.target_groups.len(), 2, "the old group is left");

    let group = network::behind(&world, 443).described.arn;
    fixture.aws.change(|world| {
        world.lingering.insert(group, 2);
    });
    fixture.restart();
    fixture.change(delete);
    fixture.settle().await;
    assert!(is_clean(fixture.aws.world()), "{:#?}", fixture.aws.world());
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
    assert_eq!(
        reported(&fixture).len(),
        2,
        "one for each start: {:?}",
        fixture.events()
    );
}

/// The beginning of a target group's name stands for several Services; only its tags tell for which it was made.
#[tokio::test(start_paused = true)]
async fn an_unused_target_group_of_another_name_is_kept() {
    let mut fixture = network::settled().await;
    deny(&fixture);
    fixture.aws.change(|world| {
        let mut other = network::behind(world, 80);
        other.described.name = format!("{}0123456789", &other.described.name[..16]);
        other.described.arn = other.described.arn.replace("targetgroup/", "targetgroup/o");
        other.described.load_balancers.clear();
        world.network.target_groups.insert(other.described.arn.clone(), other);
    });
    fixture.restart();
    fixture.settle().await;
    fixture.change(delete);
    fixture.settle().await;
    assert_eq!(fixture.aws.world().network.target_groups.len(), 1);
    assert_eq!(fixture.service().metadata.finalizers, Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_sweep_deletes_no_load_balancer_whose_tags_are_unknown() {
    let fixture = classic().await;
    deny(&fixture);
    fixture.aws.forget_calls();
    let kubernetes = serde_json::json!({"metadata": {"namespace": "default", "name": "kubernetes", "uid": "u0"}});
    let kubernetes: Service = serde_json::from_value(kubernetes).unwrap();
    let (living, mut found) = (ExistingServices::of([kubernetes].iter()), LastSweep::default());
    let settings = SweepSettings {
        mode: Sweep::Delete,
        period: std::time::Duration::from_secs(3600),
        metrics: SweepMetrics::default(),
    };
    for _ in 0..3 {
        super::super::orphans::sweep::sweep(&fixture.context, &settings, &living, &mut found)
            .await
            .unwrap();
    }
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}
