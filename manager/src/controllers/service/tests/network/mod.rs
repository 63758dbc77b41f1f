//! Network load balancers.

mod by_hand;
mod crash;
mod create;
pub mod deletion;
mod groups;
pub mod node_ports;
mod node_rules;
mod registered;
pub mod shared_health_rules;
mod source_ranges;
mod update;

use std::collections::BTreeMap;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{InstanceState, IpPermission};
use outrigger_aws::elbv2::Target;
use outrigger_aws::fake::{FakeListener, FakeNetworkLoadBalancer, FakeTargetGroup, World};
use outrigger_leader::Permit;

use super::super::settings::Settings;
use super::fixture::{Fixture, LB, world};

pub const CLIENT: &str = "kubernetes.io/rule/nlb/client=a12345678123412341234123456789ab";
pub const HEALTH: &str = "kubernetes.io/rule/nlb/health=a12345678123412341234123456789ab";
pub const MTU: &str = "kubernetes.io/rule/nlb/mtu";

/// The fixture's cluster, whose subnets have their ranges.
pub fn network_world() -> World {
    let mut world = world();
    for (at, subnet) in world.subnets.iter_mut().enumerate() {
        subnet.cidr_block = Some(format!("10.0.{at}.0/24"));
    }
    world
}

/// A Service that wants a network load balancer; nothing has been done for it.
pub fn fixture() -> Fixture {
    with(false)
}

/// The same with `NLBSecurityGroupMode=Managed`.
pub fn managed() -> Fixture {
    with(true)
}

fn with(managed: bool) -> Fixture {
    let settings = Settings {
        cluster_id: "prod".into(),
        cluster_name: "kubernetes".into(),
        vpc_id: "vpc-1".into(),
        nlb_security_groups_managed: managed,
        ..Settings::default()
    };
    let fixture = Fixture::with(network_world(), settings, Permit::always());
    fixture.annotate("type", "nlb");
    fixture
}

/// The same after all has been done.
pub async fn settled() -> Fixture {
    settle(fixture()).await
}

/// With an empty log.
pub async fn settle(fixture: Fixture) -> Fixture {
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

pub fn balancer(world: &World) -> &FakeNetworkLoadBalancer {
    world.network.named(LB).unwrap()
}

pub fn listeners(world: &World) -> BTreeMap<i32, FakeListener> {
    let all = world.network.listeners.values();
    all.map(|listener| (listener.settings.port, listener.clone())).collect()
}

/// The target group behind the listener on a port.
pub fn behind(world: &World, port: i32) -> FakeTargetGroup {
    let arn = listeners(world)[&port].settings.target_group_arn.clone().unwrap();
    world.network.target_groups[&arn].clone()
}

pub fn targets(group: &FakeTargetGroup) -> Vec<String> {
    let text = |target: &Target| format!("{}:{}", target.id, target.port);
    group.targets.iter().map(text).collect()
}

/// A group's ingress as `protocol/from-to<-network description`, sorted.
pub fn rules(world: &World, group: &str) -> Vec<String> {
    let each = |rule: &IpPermission| {
        let (protocol, ports) = (rule.protocol.clone(), (rule.from_port, rule.to_port));
        let text = |cidr: &str, why: Option<&str>| {
            let ports = format!("{}-{}", ports.0.unwrap_or(-1), ports.1.unwrap_or(-1));
            format!("{protocol}/{ports}<-{cidr} {}", why.unwrap_or_default())
        };
        let ranges = rule.ranges.iter().map(|r| text(&r.cidr, r.description.as_deref()));
        ranges.collect::<Vec<_>>()
    };
    let mut all: Vec<String> = world.security_groups[group].ingress.iter().flat_map(each).collect();
    all.sort();
    all
}

/// The name of the group of [`lead_by_hand`].
pub const BY_HAND: &str = "by-hand";

/// Somebody leads the listener on a port to a target group of their own, which has no targets.
pub fn lead_by_hand(fixture: &Fixture, port: i32) {
    fixture.aws.change(|world| {
        let mut group = behind(world, port);
        group.targets.clear();
        group.tags.clear();
        let arn = format!("arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/{BY_HAND}/1");
        (group.described.arn, group.described.name) = (arn.clone(), BY_HAND.to_owned());
        world.network.target_groups.insert(arn.clone(), group);
        let mut all = world.network.listeners.values_mut();
        let listener = all.find(|listener| listener.settings.port == port).unwrap();
        listener.settings.target_group_arn = Some(arn);
    });
}

/// The names of all target groups, with `own` for those of the Service.
pub fn group_names(world: &World) -> Vec<String> {
    let groups = world.network.target_groups.values();
    let names = groups.map(|group| group.described.name.as_str());
    let mut names: Vec<String> = names
        .map(|name| {
            if name.starts_with("k8s-default-web-") {
                "own"
            } else {
                name
            }
            .to_owned()
        })
        .collect();
    names.sort();
    names
}

/// A Node's instance has a security group of its own, which nobody else has.
pub fn own_group_of(fixture: &Fixture, instance: &str, group: &str) {
    fixture.aws.change(|world| {
        let mut own = world.security_groups["sg-node"].clone();
        own.id = group.into();
        world.security_groups.insert(own.id.clone(), own);
        let instance = world.instances.get_mut(&InstanceId::new(instance)).unwrap();
        instance.security_groups = vec![group.into()];
    });
}

/// EC2 has terminated an instance, and still lists it.
pub fn terminate(fixture: &Fixture, instance: &str) {
    fixture.aws.change(|world| {
        let gone = world.instances.get_mut(&InstanceId::new(instance)).unwrap();
        gone.state = Some(InstanceState::Terminated);
    });
}

/// The actions of the load balancer's writes, in order.
pub fn actions(fixture: &Fixture) -> Vec<String> {
    let first = |write: &String| write.split(' ').next().unwrap_or_default().to_owned();
    fixture.aws.writes().iter().map(first).collect()
}

/// The world without what only counts and passes.
pub fn essence(mut world: World) -> World {
    for group in world.security_groups.values_mut() {
        group.ingress.sort_by_key(|rule| format!("{rule:?}"));
    }
    for group in world.network.target_groups.values_mut() {
        group.draining.clear();
    }
    for balancer in world.network.load_balancers.values_mut() {
        balancer.provisioning = 0;
        balancer.described.state = Some("active".into());
    }
    world.network.made.clear();
    world.lingering.clear();
    world
}
