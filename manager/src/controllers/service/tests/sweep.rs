//! Orphaned resources.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::InstanceId;
use outrigger_aws::ec2::InstanceState;
use outrigger_aws::elbv2::Target;
use outrigger_aws::fake::World;
use serde_json::json;

use super::super::orphans::sweep::{ExistingServices, LastSweep, SweepMetrics, SweepSettings};
use super::fixture::{Fixture, LB, instance, world};
use super::network;
use crate::args::Sweep;

fn settings(mode: Sweep) -> SweepSettings {
    SweepSettings {
        mode,
        period: std::time::Duration::from_secs(3600),
        metrics: SweepMetrics::default(),
    }
}

fn living(fixture: Option<&Fixture>) -> ExistingServices {
    let kubernetes = json!({"metadata": {"namespace": "default", "name": "kubernetes", "uid": "u0"}});
    let kubernetes: Service = serde_json::from_value(kubernetes).unwrap();
    let web = fixture.map(Fixture::service);
    ExistingServices::of([kubernetes].iter().chain(web.iter()))
}

/// A cluster with one load balancer, and one of another cluster beside it.
async fn two_clusters() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.change(|world| {
        let mut other = world.load_balancers[LB].clone();
        other.described.name = "a99999999999999999999999999999999"[..32].into();
        other.tags = super::super::spec::names::cluster_tags("other", false);
        other
            .tags
            .insert("kubernetes.io/service-name".into(), "default/web".into());
        world.load_balancers.insert(other.described.name.clone(), other);
    });
    fixture.aws.forget_calls();
    fixture
}

async fn sweep(fixture: &Fixture, settings: &SweepSettings, living: &ExistingServices, found: &mut LastSweep) {
    super::super::orphans::sweep::sweep(&fixture.context, settings, living, found)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_has_a_service_is_never_touched() {
    let fixture = two_clusters().await;
    let mut found = LastSweep::default();
    for _ in 0..3 {
        sweep(&fixture, &settings(Sweep::Delete), &living(Some(&fixture)), &mut found).await;
    }
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn orphaned_resources_are_reported_and_deleted_only_if_configured() {
    let fixture = two_clusters().await;
    let (report, mut found) = (settings(Sweep::Report), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &report, &living(None), &mut found).await;
    }
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    assert_eq!(report.metrics.of("classic-load-balancer"), 1);
}

#[tokio::test(start_paused = true)]
async fn resources_found_by_two_sweeps_are_deleted_and_those_of_another_cluster_stay() {
    let fixture = two_clusters().await;
    fixture.lose_service();
    // The other cluster's load balancer uses groups of its own.
    fixture.aws.change(|world| {
        for (name, lb) in &mut world.load_balancers {
            if name != LB {
                lb.described.security_groups.clear();
            }
        }
    });
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    sweep(&fixture, &delete, &living(None), &mut found).await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new(), "one search is no proof");
    sweep(&fixture, &delete, &living(None), &mut found).await;
    assert_eq!(
        fixture.aws.writes(),
        [
            format!("DeleteLoadBalancer {LB}"),
            "RevokeSecurityGroupIngress sg-node -1/<-sg-new1".into(),
            "DeleteSecurityGroup sg-new1".into(),
        ]
    );
    let world = fixture.aws.world();
    assert_eq!((world.load_balancers.len(), world.security_groups.len()), (1, 1));
    sweep(&fixture, &delete, &living(None), &mut found).await;
    assert_eq!(delete.metrics.of("classic-load-balancer"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_mass_loss_is_reported_and_nothing_is_deleted() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.change(|world| {
        for letter in ["b", "c", "d"] {
            let mut more = world.load_balancers[LB].clone();
            more.described.name = format!("a{}", letter.repeat(31));
            world.load_balancers.insert(more.described.name.clone(), more);
        }
    });
    fixture.aws.forget_calls();
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &delete, &living(None), &mut found).await;
    }
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    assert_eq!(delete.metrics.of("classic-load-balancer"), 4);
}

/// A network load balancer with a group of its own, and a target group of another cluster that looks like its own.
async fn with_network() -> Fixture {
    let fixture = network::settle(network::managed()).await;
    fixture.aws.change(|world| {
        let groups = &mut world.network.target_groups;
        let mut other = groups.values().next().unwrap().clone();
        other.described.arn.push('f');
        let tags = super::super::spec::names::cluster_tags("other", false);
        other.tags.retain(|key, _| !key.starts_with("kubernetes.io/cluster/"));
        other.tags.extend(tags);
        groups.insert(other.described.arn.clone(), other);
    });
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_is_deleted_with_target_groups_rules_and_group() {
    let fixture = with_network().await;
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &delete, &living(Some(&fixture)), &mut found).await;
    }
    assert_eq!(network::actions(&fixture), Vec::<String>::new(), "its Service is there");
    fixture.lose_service();
    sweep(&fixture, &delete, &living(None), &mut found).await;
    assert_eq!(
        network::actions(&fixture),
        Vec::<String>::new(),
        "one search is no proof"
    );
    for (kind, number) in [
        ("network-load-balancer", 1),
        ("target-group", 2),
        ("security-group-rule", 1),
        ("security-group", 1),
    ] {
        assert_eq!(delete.metrics.of(kind), number, "{kind}");
    }
    sweep(&fixture, &delete, &living(None), &mut found).await;
    let expected = [
        "DeleteLoadBalancer/v2",
        "DeleteTargetGroup",
        "DeleteTargetGroup",
        "RevokeSecurityGroupIngress",
        "DeleteSecurityGroup",
    ];
    assert_eq!(network::actions(&fixture), expected);
    let world = fixture.aws.world();
    assert_eq!(
        (world.network.load_balancers.len(), world.network.listeners.len()),
        (0, 0)
    );
    assert_eq!(world.network.target_groups.len(), 1, "the other cluster's");
    let rules = network::rules(&world, "sg-node");
    assert!(!rules.iter().any(|rule| rule.contains(network::CLIENT)), "{rules:?}");
    assert_eq!(world.security_groups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn resources_in_use_are_deleted_by_the_next_sweep() {
    let fixture = with_network().await;
    fixture.lose_service();
    let arn = network::behind(&fixture.aws.world(), 80).described.arn;
    fixture.aws.change(|world| {
        world.lingering.insert(arn.clone(), 1);
        world.lingering.insert("sg-new1".into(), 1);
    });
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..2 {
        sweep(&fixture, &delete, &living(None), &mut found).await;
    }
    let world = fixture.aws.world();
    assert!(world.network.target_groups.contains_key(&arn) && world.security_groups.contains_key("sg-new1"));
    assert_eq!(world.network.load_balancers.len(), 0, "the others went");
    sweep(&fixture, &delete, &living(None), &mut found).await;
    let world = fixture.aws.world();
    assert!(!world.network.target_groups.contains_key(&arn) && !world.security_groups.contains_key("sg-new1"));
}

/// The Service with this node port is gone, and another one uses it already.
#[tokio::test(start_paused = true)]
async fn client_rules_that_another_load_balancer_needs_are_handed_over() {
    let fixture = with_network().await;
    fixture.lose_service();
    let neighbour = network::node_ports::neighbour(30080);
    let kubernetes = json!({"metadata": {"namespace": "default", "name": "kubernetes", "uid": "u0"}});
    let kubernetes: Service = serde_json::from_value(kubernetes).unwrap();
    let living = ExistingServices::of([&kubernetes, &neighbour].into_iter());
    fixture.api.neighbours.lock().unwrap().push(neighbour);
    network::shared_health_rules::sync_neighbour(&fixture).await;

    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &delete, &living, &mut found).await;
    }
    let left = format!(
        "tcp/30080-30080<-0.0.0.0/0 {}",
        network::node_ports::CLIENT_OF_NEIGHBOUR
    );
    assert_eq!(network::node_ports::clients(&fixture, "30"), [left]);
}

#[tokio::test(start_paused = true)]
async fn rules_for_health_checks_that_another_load_balancer_needs_are_handed_over() {
    let fixture = network::shared_health_rules::sharing().await;
    let kubernetes = json!({"metadata": {"namespace": "default", "name": "kubernetes", "uid": "u0"}});
    let kubernetes: Service = serde_json::from_value(kubernetes).unwrap();
    let neighbour = fixture.api.neighbours.lock().unwrap()[0].clone();
    let living = ExistingServices::of([&kubernetes, &neighbour].into_iter());
    fixture.lose_service();

    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &delete, &living, &mut found).await;
    }
    let handed = network::shared_health_rules::of(network::shared_health_rules::OTHER);
    assert_eq!(network::shared_health_rules::checks(&fixture), handed);
}

#[tokio::test(start_paused = true)]
async fn with_the_setting_rules_of_nodes_groups_are_not_touched() {
    let mut fixture = with_network().await;
    fixture.settings.disable_security_group_ingress = true;
    fixture.restart();
    fixture.lose_service();
    let before = network::rules(&fixture.aws.world(), "sg-node");
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    for _ in 0..3 {
        sweep(&fixture, &delete, &living(None), &mut found).await;
    }
    let world = fixture.aws.world();
    assert_eq!(network::rules(&world, "sg-node"), before);
    assert_eq!(world.network.load_balancers.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_complete_list_of_services_there_is_no_sweep() {
    let fixture = two_clusters().await;
    let mut found = LastSweep::default();
    sweep(
        &fixture,
        &settings(Sweep::Delete),
        &ExistingServices::default(),
        &mut found,
    )
    .await;
    sweep(&fixture, &settings(Sweep::Delete), &living(None), &mut found).await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_finds_nothing() {
    let fixture = Fixture::new(World::default());
    let denied = outrigger_aws::Error::answered("DescribeSecurityGroups", "UnauthorizedOperation", "no");
    fixture.aws.fail_next("DescribeSecurityGroups", denied);
    let sweep = super::super::orphans::sweep::sweep(
        &fixture.context,
        &settings(Sweep::Delete),
        &living(None),
        &mut LastSweep::default(),
    )
    .await;
    assert!(sweep.is_err());
}

/// An instance of the other cluster, which is no Node here. Its tags are those of this cluster, as the ID is the same.
fn others_instance(fixture: &Fixture, id: &str, launched: i64) {
    let mut other = instance(id);
    other.vpc_id = Some("vpc-1".into());
    other.state = Some(InstanceState::Running);
    other.launched = Some(launched);
    fixture
        .aws
        .change(|world| _ = world.instances.insert(other.id.clone(), other));
}

fn a_minute_ago() -> i64 {
    jiff::Timestamp::now().as_second() - 60
}

fn uid(n: usize) -> String {
    format!("{n:08x}-0000-0000-0000-000000000000")
}

/// A cluster with so many load balancers whose Services exist, and another one of the same ID in the same VPC with so
/// many whose Services do not exist here. None has targets.
async fn same_id(own: usize, others: usize) -> (Fixture, ExistingServices) {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.change(|world| {
        let mut made = world.load_balancers.remove(LB).unwrap();
        made.described.instances.clear();
        for n in 0..own + others {
            let mut more = made.clone();
            more.described.name = super::super::spec::names::load_balancer(&uid(n));
            if n >= own {
                let service = format!("other/web-{n}");
                more.tags.insert("kubernetes.io/service-name".into(), service);
            }
            world.load_balancers.insert(more.described.name.clone(), more);
        }
    });
    fixture.aws.forget_calls();
    let service = |(namespace, name, uid): (&str, String, String)| -> Service {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})).unwrap()
    };
    let own = (0..own).map(|n| ("default", format!("web-{n}"), uid(n)));
    let all = own.chain([
        ("default", "kubernetes".to_owned(), "u0".to_owned()),
        ("default", "web".to_owned(), "u1".to_owned()),
    ]);
    let services: Vec<Service> = all.map(service).collect();
    (fixture, ExistingServices::of(services.iter()))
}

/// The writes of three sweeps.
async fn three_sweeps(fixture: &Fixture, living: &ExistingServices) -> Vec<String> {
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    fixture.aws.forget_calls();
    for _ in 0..3 {
        sweep(fixture, &delete, living, &mut found).await;
        tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    }
    fixture.aws.writes()
}

#[tokio::test(start_paused = true)]
async fn a_fifth_as_many_load_balancers_of_another_cluster_of_the_same_id_stay() {
    let (fixture, living) = same_id(100, 20).await;
    assert_eq!(three_sweeps(&fixture, &living).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_instances_of_the_cluster_are_no_nodes() {
    let (fixture, living) = same_id(100, 3).await;
    others_instance(&fixture, "i-b", 0);
    assert_eq!(three_sweeps(&fixture, &living).await, [""; 0]);
    // It joins: it is this cluster's.
    fixture.node("i-b", false);
    assert_eq!(three_sweeps(&fixture, &living).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_has_just_started_is_about_to_join() {
    let (fixture, living) = same_id(100, 3).await;
    others_instance(&fixture, "i-b", a_minute_ago());
    assert_eq!(three_sweeps(&fixture, &living).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_if_instances_cannot_be_described() {
    let (fixture, living) = same_id(100, 3).await;
    let (delete, mut found) = (settings(Sweep::Delete), LastSweep::default());
    sweep(&fixture, &delete, &living, &mut found).await;
    let denied = outrigger_aws::Error::answered("DescribeInstances", "UnauthorizedOperation", "no");
    fixture.aws.fail_next("DescribeInstances", denied);
    assert!(
        super::super::orphans::sweep::sweep(&fixture.context, &delete, &living, &mut found)
            .await
            .is_err()
    );
    assert_eq!(fixture.aws.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_with_targets_that_are_no_nodes_stays_until_they_are_terminated() {
    let (fixture, living) = same_id(100, 1).await;
    let other = super::super::spec::names::load_balancer(&uid(100));
    // Too young to be counted as another cluster's, and a target all the same.
    others_instance(&fixture, "i-0123456789abcdef0", a_minute_ago());
    let id = InstanceId::new("i-0123456789abcdef0");
    fixture.aws.change(|world| {
        let balancer = world.load_balancers.get_mut(&other).unwrap();
        balancer.described.instances.insert(id.clone());
    });
    assert_eq!(three_sweeps(&fixture, &living).await, [""; 0]);
    fixture.aws.change(|world| {
        let instance = world.instances.get_mut(&id).unwrap();
        instance.state = Some(InstanceState::Terminated);
    });
    assert_eq!(
        three_sweeps(&fixture, &living).await,
        [format!("DeleteLoadBalancer {other}")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_with_targets_that_are_no_nodes_stays_with_all_that_it_uses() {
    let fixture = with_network().await;
    let arn = network::behind(&fixture.aws.world(), 80).described.arn;
    others_instance(&fixture, "i-0123456789abcdef0", a_minute_ago());
    fixture.aws.change(|world| {
        let group = world.network.target_groups.get_mut(&arn).unwrap();
        let id = InstanceId::new("i-0123456789abcdef0");
        group.targets.insert(Target { id, port: 30080 });
    });
    assert_eq!(three_sweeps(&fixture, &living(None)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_has_the_uid_of_another_cluster_stays_and_is_no_leftover() {
    let (mut fixture, living) = same_id(100, 1).await;
    let other = super::super::spec::names::load_balancer(&uid(100));
    let tag = |uid: &str| {
        fixture.aws.change(|world| {
            let balancer = world.load_balancers.get_mut(&other).unwrap();
            let key = super::super::spec::names::CLUSTER_UID_TAG.to_owned();
            balancer.tags.insert(key, uid.to_owned());
        });
    };
    tag("u-b");
    assert_eq!(
        three_sweeps(&fixture, &living).await,
        [""; 0],
        "its own UID is not known"
    );
    fixture.settings.cluster_uid = Some("u-a".into());
    fixture.restart();
    assert_eq!(three_sweeps(&fixture, &living).await, [""; 0]);
    let report = settings(Sweep::Report);
    sweep(&fixture, &report, &living, &mut LastSweep::default()).await;
    assert_eq!(report.metrics.of("classic-load-balancer"), 0);
    fixture.aws.change(|world| {
        let balancer = world.load_balancers.get_mut(&other).unwrap();
        let key = super::super::spec::names::CLUSTER_UID_TAG.to_owned();
        balancer.tags.insert(key, "u-a".to_owned());
    });
    assert_eq!(three_sweeps(&fixture, &living).await.len(), 1);
}

/// A group that is left over without its load balancer, which a rule of the nodes' group names.
async fn leftover_group() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.change(|world| world.load_balancers.clear());
    fixture.aws.forget_calls();
    fixture
}

#[tokio::test(start_paused = true)]
async fn rules_that_name_a_group_which_somebody_uses_stay() {
    let fixture = leftover_group().await;
    fixture.aws.change(|world| {
        let groups = ["sg-new1".to_owned()].into();
        world.interfaces.insert("eni-1".into(), groups);
    });
    assert_eq!(three_sweeps(&fixture, &living(None)).await, [""; 0]);
    fixture.aws.change(|world| world.interfaces.clear());
    assert_eq!(
        three_sweeps(&fixture, &living(None)).await,
        [
            "RevokeSecurityGroupIngress sg-node -1/<-sg-new1",
            "DeleteSecurityGroup sg-new1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn rules_stay_if_the_users_of_their_group_cannot_be_read() {
    let fixture = leftover_group().await;
    for _ in 0..3 {
        let denied = outrigger_aws::Error::answered("DescribeNetworkInterfaces", "UnauthorizedOperation", "no");
        fixture.aws.fail_next("DescribeNetworkInterfaces", denied);
    }
    assert_eq!(three_sweeps(&fixture, &living(None)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn without_orphaned_resources_no_instances_are_read() {
    let fixture = two_clusters().await;
    sweep(
        &fixture,
        &settings(Sweep::Report),
        &living(Some(&fixture)),
        &mut LastSweep::default(),
    )
    .await;
    let asked: Vec<_> = fixture.aws.calls().into_iter().map(|call| call.action).collect();
    assert!(!asked.contains(&"DescribeInstances"), "{asked:?}");
}
