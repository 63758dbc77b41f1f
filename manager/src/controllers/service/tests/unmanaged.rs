//! Rules and groups that are not the controller's to touch, and nodes whose group for a rule is not clear.

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::fake::World;

use super::super::error::{Environment as Refused, Error};
use super::super::spec::permissions::all_from;
use super::fixture::{Fixture, HOST, LB, world};
use super::network::{self, deletion::delete};

/// Somebody lets a group in at the nodes.
fn let_in(fixture: &Fixture, source: &str) {
    let rule = all_from(source);
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-node").unwrap().ingress.push(rule));
}

fn tell_hands_off(fixture: &mut Fixture) {
    fixture.settings.disable_security_group_ingress = true;
    fixture.restart();
}

fn finalizers(fixture: &Fixture) -> usize {
    fixture.service().metadata.finalizers.unwrap_or_default().len()
}

#[tokio::test(start_paused = true)]
async fn a_managed_group_in_an_unmanaged_rule_does_not_block_a_deletion() {
    let mut fixture = network::settle(network::managed()).await;
    let_in(&fixture, "sg-new1");
    tell_hands_off(&mut fixture);
    fixture.change(delete);
    fixture.sync().await.unwrap();
    assert_eq!(finalizers(&fixture), 0);
    let writes = network::actions(&fixture);
    assert!(writes.contains(&"DeleteLoadBalancer/v2".to_owned()), "{writes:?}");
    assert!(
        !writes.iter().any(|write| write.contains("SecurityGroup")),
        "{writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_managed_group_in_an_unmanaged_rule_is_detached_and_stays() {
    let mut fixture = network::settle(network::managed()).await;
    let_in(&fixture, "sg-new1");
    add_group(&fixture, "sg-mine", false);
    tell_hands_off(&mut fixture);
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
    assert_eq!(network::actions(&fixture), ["SetSecurityGroups"]);
}

/// A rule of the Nodes' groups may name it, and EC2 would refuse its deletion.
#[tokio::test(start_paused = true)]
async fn the_own_group_of_a_classic_load_balancer_is_detached_and_stays_where_rules_are_unmanaged() {
    let mut fixture = Fixture::new(world());
    fixture.settle().await;
    add_group(&fixture, "sg-mine", false);
    tell_hands_off(&mut fixture);
    fixture.aws.forget_calls();
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
    assert_eq!(network::actions(&fixture), ["ApplySecurityGroupsToLoadBalancer"]);
}

fn add_group(fixture: &Fixture, id: &str, of_cluster: bool) {
    fixture.aws.change(|world| {
        let mut group = SecurityGroup {
            id: id.into(),
            name: Some(id.into()),
            ingress: Vec::new(),
            ..world.security_groups["sg-node"].clone()
        };
        if !of_cluster {
            group.tags.clear();
        }
        world.security_groups.insert(id.into(), group);
    });
}

/// The configured group is the nodes' group too. Whatever rules it needs, its owner makes them.
#[tokio::test(start_paused = true)]
async fn the_configured_group_gets_no_rules_where_nodes_have_it() {
    for kind in ["clb", "nlb"] {
        let mut fixture = if kind == "clb" {
            Fixture::new(world())
        } else {
            network::fixture()
        };
        fixture.settings.elb_security_group = Some("sg-node".into());
        fixture.restart();
        add_group(&fixture, "sg-mine", false);
        fixture.annotate("security-groups", "sg-mine");
        fixture.settle().await;
        let rules = |fixture: &Fixture| fixture.aws.world().security_groups["sg-node"].ingress.clone();
        assert_eq!(rules(&fixture), [], "{kind}");
        assert!(
            !fixture
                .service()
                .status
                .unwrap()
                .load_balancer
                .unwrap()
                .ingress
                .unwrap()
                .is_empty()
        );
        // As made by another program, or before the group was configured.
        let_in(&fixture, "sg-mine");
        fixture.change(delete);
        fixture.sync().await.unwrap();
        assert_eq!(rules(&fixture), [all_from("sg-mine")], "{kind}");
    }
}

/// The second Node has another group with the cluster's tag.
fn make_ambiguous(fixture: &Fixture) {
    add_group(fixture, "sg-second", true);
    fixture.aws.change(|world: &mut World| {
        let instance = world.instances.get_mut(&InstanceId::new("i-2")).unwrap();
        instance.security_groups.push("sg-second".into());
    });
}

fn is_ambiguous(result: &Result<super::super::action::Next, Error>) -> bool {
    matches!(result, Err(Error::Environment(Refused::AmbiguousGroups { .. })))
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_is_created_except_for_the_rules_of_a_node_with_an_ambiguous_group() {
    let fixture = Fixture::new(world());
    make_ambiguous(&fixture);
    for _ in 0..2 {
        assert!(is_ambiguous(&fixture.sync().await));
    }
    let expected = [
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "CreateLoadBalancer",
        "ConfigureHealthCheck",
    ];
    assert_eq!(network::actions(&fixture), expected);
    assert!(
        fixture
            .service()
            .status
            .is_none_or(|status| status.load_balancer.is_none())
    );
    let told: Vec<String> = fixture.events().iter().map(|event| event[..30].to_owned()).collect();
    assert_eq!(
        told,
        ["Normal EnsuringLoadBalancer En", "Warning SyncLoadBalancerFailed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_is_updated_while_one_node_has_an_ambiguous_group() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    make_ambiguous(&fixture);
    fixture.node("i-3", true);
    fixture.annotate("connection-idle-timeout", "99");
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    fixture.aws.forget_calls();
    assert!(is_ambiguous(&fixture.sync().await));
    let writes = network::actions(&fixture);
    assert_eq!(
        writes,
        ["ModifyLoadBalancerAttributes", "RegisterInstancesWithLoadBalancer"]
    );
    assert_eq!(fixture.aws.world().load_balancers[LB].attributes.idle_timeout, Some(99));
    fixture.aws.change(|world| {
        let instance = world.instances.get_mut(&InstanceId::new("i-2")).unwrap();
        instance.security_groups.pop();
    });
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    fixture.settle().await;
    assert!(super::super::writer::has_address(&fixture.service(), HOST));
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_is_created_and_updated_except_for_the_rules_of_nodes() {
    let fixture = network::fixture();
    make_ambiguous(&fixture);
    assert!(is_ambiguous(&fixture.sync().await));
    assert_eq!(network::listeners(&fixture.aws.world()).len(), 2);
    assert_eq!(network::targets(&network::behind(&fixture.aws.world(), 80)).len(), 2);
    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap().truncate(1));
    assert!(is_ambiguous(&fixture.sync().await));
    assert_eq!(network::listeners(&fixture.aws.world()).len(), 1);
    assert_eq!(network::rules(&fixture.aws.world(), "sg-node"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_of_targets_is_confirmed_for_a_network_load_balancer_without_an_address() {
    let fixture = network::fixture();
    make_ambiguous(&fixture);
    assert!(is_ambiguous(&fixture.sync().await));
    fixture.drop_node("i-1");
    for _ in 0..2 {
        tokio::time::advance(super::super::queue::service_state::CONFIRMATION).await;
        assert!(is_ambiguous(&fixture.sync().await));
    }
    let targets = network::targets(&network::behind(&fixture.aws.world(), 80));
    assert_eq!(targets, ["i-2:30080"]);
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_keeps_its_groups_while_nodes_cannot_allow_others() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    make_ambiguous(&fixture);
    add_group(&fixture, "sg-mine", false);
    fixture.annotate("security-groups", "sg-mine");
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    fixture.aws.forget_calls();
    assert!(is_ambiguous(&fixture.sync().await));
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

/// Another load balancer has the same group, and targets which this one does not have.
#[tokio::test(start_paused = true)]
async fn a_rule_for_a_shared_group_stays_where_this_load_balancer_has_no_target() {
    let fixture = Fixture::new(world());
    add_group(&fixture, "sg-mine", false);
    add_group(&fixture, "sg-nodes2", true);
    fixture.annotate("security-groups", "sg-mine");
    let rule = all_from("sg-mine");
    fixture
        .aws
        .change(|world| world.security_groups.get_mut("sg-nodes2").unwrap().ingress.push(rule));
    fixture.settle().await;
    assert_eq!(
        fixture.aws.world().security_groups["sg-nodes2"].ingress,
        [all_from("sg-mine")]
    );
    assert_eq!(
        fixture.aws.world().security_groups["sg-node"].ingress,
        [all_from("sg-mine")]
    );
}
