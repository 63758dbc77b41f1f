//! Waiting for AWS's limit of new load balancers.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::Elb;
use outrigger_aws::elb::{Listener, NewLoadBalancer};
use outrigger_aws::limit::{Limited, Share};

use super::super::action::Next;
use super::fixture::{Fixture, LB, world};

/// A cluster whose account has used up what AWS lets it make at once.
async fn used_up() -> Fixture {
    let mut fixture = Fixture::new(world());
    fixture.context.aws.elb = budget_used_up(&fixture).await;
    fixture.aws.forget_calls();
    fixture
}

async fn budget_used_up(fixture: &Fixture) -> Arc<dyn Elb> {
    let limited: Arc<dyn Elb> = Arc::new(Limited::elb(fixture.aws.clone(), Share::fixed(1.0).unwrap()));
    for n in 0..10 {
        let listener = Listener {
            port: 80,
            protocol: "tcp".into(),
            instance_port: 30080,
            instance_protocol: "tcp".into(),
            certificate: None,
        };
        let other = NewLoadBalancer {
            name: format!("other-{n}"),
            internal: false,
            listeners: vec![listener],
            subnets: vec!["subnet-a".into()],
            security_groups: vec![],
            tags: outrigger_aws::Tags::new(),
        };
        limited.create(&other).await.unwrap();
    }
    limited
}

fn after(next: Next) -> Duration {
    match next {
        Next::After(time) => time,
        Next::OnChange => panic!("it would wait for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_has_to_wait_is_requeued_and_blocks_no_worker() {
    let fixture = used_up().await;
    let began = tokio::time::Instant::now();
    let wait = after(fixture.sync().await.unwrap());
    assert!(
        began.elapsed() < Duration::from_secs(1) && wait > Duration::from_secs(3),
        "{wait:?}"
    );
    assert_eq!(
        fixture.aws.writes(),
        Vec::<String>::new(),
        "nothing half-made while it waits"
    );
    fixture.aws.forget_calls();
    let again = after(fixture.sync().await.unwrap());
    assert!(fixture.aws.calls().is_empty() && again <= wait, "waiting costs no call");
    tokio::time::advance(wait).await;
    fixture.settle().await;
    assert!(fixture.aws.world().load_balancers.contains_key(LB));
    let told = fixture.events();
    assert!(told.len() == 2 && told[1].contains("EnsuredLoadBalancer"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_created_again_waits_in_the_queue() {
    let mut fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.context.aws.elb = budget_used_up(&fixture).await;
    fixture.aws.change(|world| _ = world.load_balancers.remove(LB));
    fixture.annotate("beat", "1");
    let wait = after(fixture.sync().await.unwrap());
    assert!(wait < Duration::from_secs(10), "{wait:?}");
    tokio::time::advance(wait).await;
    fixture.sync().await.unwrap();
    assert!(
        fixture.aws.world().load_balancers.contains_key(LB),
        "nothing else wakes it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_existing_load_balancer_does_not_wait_for_the_limit_of_creations() {
    let mut fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.context.aws.elb = budget_used_up(&fixture).await;
    fixture.aws.forget_calls();
    fixture.annotate("connection-idle-timeout", "99");
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), [format!("ModifyLoadBalancerAttributes {LB}")]);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_reported_once_with_its_duration() {
    let fixture = used_up().await;
    let other = super::super::spec::desired::desired(&fixture.service(), &fixture.settings).unwrap();
    let mut first = fixture.service();
    first.metadata.uid = Some("first".into());
    assert!(
        super::super::reconcile::wait_for_creation(&fixture.context, &first, &other)
            .await
            .is_some()
    );
    for _ in 0..3 {
        let wait = after(fixture.sync().await.unwrap());
        assert!(wait > Duration::from_secs(8), "{wait:?}");
    }
    let told = fixture.events();
    let waiting: Vec<&String> = told
        .iter()
        .filter(|event| event.contains("WaitingToCreateLoadBalancer"))
        .collect();
    assert_eq!(waiting.len(), 1, "{told:?}");
    assert!(
        waiting[0].contains("(Services ahead in the queue: 1); expected in about 10 s"),
        "{waiting:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_leaves_the_queue() {
    let fixture = used_up().await;
    fixture.sync().await.unwrap();
    fixture.change(|service| {
        service.metadata.deletion_timestamp =
            Some(serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap());
    });
    fixture.sync().await.unwrap();
    assert!(!fixture.context.creation_queues.has(super::fixture::UID));
}
