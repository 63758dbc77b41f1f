//! The cluster around a Service: Nodes, settings, and what stands in the account that is none of the Service's.

use outrigger_aws::ec2::{GroupPair, Instance, InstanceState, IpPermission, IpRange, SecurityGroup, Subnet};
use outrigger_aws::elb::{Listener, LoadBalancer};
use outrigger_aws::fake::{FakeLoadBalancer, World};
use outrigger_aws::{InstanceId, Tags};
use proptest::prelude::*;
use proptest::sample::select;

use super::super::super::settings::HealthProbe;
use super::super::super::settings::Settings;
use super::super::super::spec::names;
use super::super::fixture::{LB, instance, world};
use super::network_edits;

/// The instances of the Nodes, by number.
pub const NODES: [&str; 4] = ["i-1", "i-2", "i-3", "i-4"];

/// The cluster's name on the command line.
pub const CLUSTER_NAME: &str = "kubernetes";

/// A Node as the load balancers see it.
#[derive(Debug, Clone)]
pub struct NodeState {
    pub id: &'static str,
    pub ready: bool,
    pub pool: bool,
    pub excluded: bool,
}

/// Some of the Nodes.
pub fn nodes() -> impl Strategy<Value = Vec<NodeState>> {
    let one = |id| {
        let state = (
            prop::bool::weighted(0.8),
            prop::bool::weighted(0.7),
            prop::bool::weighted(0.1),
        );
        let node = state.prop_map(move |(ready, pool, excluded)| NodeState {
            id,
            ready,
            pool,
            excluded,
        });
        prop::option::weighted(0.8, node)
    };
    NODES.map(one).prop_map(|nodes| nodes.into_iter().flatten().collect())
}

/// Settings of an operator for all Services.
pub fn settings() -> impl Strategy<Value = Settings> {
    let shared = HealthProbe::Shared {
        port: 10256,
        path: "/healthz".into(),
    };
    let probe = prop_oneof![4 => Just(HealthProbe::ServiceNodePort), 1 => Just(shared)];
    let group = prop::option::weighted(0.15, Just("sg-all".to_owned()));
    let flags = (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.4),
    );
    (flags, group, probe).prop_map(
        |((legacy_tags, hands_off, managed), elb_security_group, health_probe)| Settings {
            cluster_name: CLUSTER_NAME.into(),
            nlb_security_groups_managed: managed,
            cluster_id: "prod".into(),
            vpc_id: "vpc-1".into(),
            legacy_tags,
            disable_security_group_ingress: hands_off,
            elb_security_group,
            health_probe,
            ..Settings::default()
        },
    )
}

/// Unusual states of the cluster at EC2. The controller changes none of them.
#[derive(Debug, Clone)]
pub enum Fact {
    Terminated(&'static str),
    Unlisted(&'static str),
    Untagged(&'static str),
    Groups(&'static str, Vec<&'static str>),
    SubnetOfOthers(&'static str),
    RoleTag(&'static str),
    NoRoute,
}

pub fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let node = || select(&NODES[..]);
    let groups = || prop::sample::subsequence(&["sg-node", "sg-node2", "sg-plain"][..], 0..=2);
    let subnet = || select(&["subnet-a", "subnet-a2", "subnet-b"][..]);
    let fact = prop_oneof![
        2 => node().prop_map(Fact::Terminated),
        2 => node().prop_map(Fact::Unlisted),
        2 => node().prop_map(Fact::Untagged),
        2 => (node(), groups()).prop_map(|(node, groups)| Fact::Groups(node, groups)),
        2 => subnet().prop_map(Fact::SubnetOfOthers),
        2 => subnet().prop_map(Fact::RoleTag),
        1 => Just(Fact::NoRoute),
    ];
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(fact, 1..=2)]
}

impl Fact {
    pub fn apply(&self, world: &mut World) {
        let mut instance = |id: &str, change: &dyn Fn(&mut Instance)| {
            if let Some(instance) = world.instances.get_mut(&InstanceId::new(id)) {
                change(instance);
            }
        };
        match self {
            Self::Terminated(id) => instance(id, &|instance| instance.state = Some(InstanceState::Terminated)),
            Self::Unlisted(id) => drop(world.instances.remove(&InstanceId::new(*id))),
            Self::Untagged(id) => instance(id, &|instance| instance.tags.clear()),
            Self::Groups(id, groups) => {
                let ids: Vec<String> = groups.iter().map(|id| (*id).to_owned()).collect();
                instance(id, &|instance| instance.security_groups.clone_from(&ids));
            }
            Self::SubnetOfOthers(id) => subnet(world, id).tags = names::cluster_tags("other", false),
            Self::RoleTag(id) => drop(
                subnet(world, id)
                    .tags
                    .insert("kubernetes.io/role/elb".into(), "1".into()),
            ),
            Self::NoRoute => {
                for table in world.route_tables.values_mut().flatten() {
                    table.gateway_ids.clear();
                }
            }
        }
    }
}

fn subnet<'w>(world: &'w mut World, id: &str) -> &'w mut Subnet {
    world.subnets.iter_mut().find(|subnet| subnet.id == id).unwrap()
}

pub fn group(id: &str, name: &str, vpc: &str, tags: Tags) -> SecurityGroup {
    SecurityGroup {
        id: id.into(),
        name: Some(name.into()),
        description: None,
        vpc_id: Some(vpc.into()),
        ingress: Vec::new(),
        tags,
    }
}

pub fn from_network(protocol: &str, port: i32, cidr: &str, description: Option<&str>) -> IpPermission {
    IpPermission {
        protocol: protocol.into(),
        from_port: Some(port),
        to_port: Some(port),
        ranges: vec![IpRange {
            cidr: cidr.into(),
            description: description.map(str::to_owned),
        }],
        ..IpPermission::default()
    }
}

pub fn from_group(protocol: &str, group: &str) -> IpPermission {
    let pair = GroupPair {
        group_id: Some(group.into()),
        user_id: Some("123456789012".into()),
    };
    let ports = (protocol != "-1").then_some(80);
    IpPermission {
        protocol: protocol.into(),
        from_port: ports,
        to_port: ports,
        groups: vec![pair],
        ..IpPermission::default()
    }
}

/// A VPC with four zones' subnets, four nodes in three groups, groups of the user's, a load balancer of another
/// Service and the things of another cluster.
pub fn base() -> World {
    let mut world = world();
    let ours = || names::cluster_tags("prod", false);
    let more = |id: &str, zone: &str, name: &str| Subnet {
        id: id.into(),
        vpc_id: Some("vpc-1".into()),
        availability_zone: Some(zone.into()),
        cidr_block: Some("10.1.0.0/24".into()),
        tags: Tags::from([("Name".to_owned(), name.to_owned())]),
    };
    world.subnets.push(more("subnet-a2", "eu-central-1a", "Second"));
    world.subnets.push(more("subnet-c", "eu-central-1c", "Third"));
    for (at, subnet) in world.subnets.iter_mut().enumerate() {
        subnet.cidr_block = Some(format!("10.1.{at}.0/24"));
    }
    for (id, group) in [("i-3", "sg-node2"), ("i-4", "sg-plain")] {
        let mut node = instance(id);
        node.security_groups = vec![group.into()];
        world.instances.insert(node.id.clone(), node);
    }
    world.instances.insert(InstanceId::new("i-9"), Instance::new("i-9"));
    let mut groups = vec![
        group("sg-node2", "more-nodes", "vpc-1", ours()),
        group("sg-plain", "plain", "vpc-1", Tags::new()),
        group("sg-mine", "mine", "vpc-1", Tags::new()),
        group("sg-more", "more", "vpc-1", ours()),
        group("sg-all", "all", "vpc-1", ours()),
        group("sg-next", "k8s-elb-anext", "vpc-1", ours()),
        group(
            "sg-alien",
            &names::security_group(LB),
            "vpc-2",
            names::cluster_tags("other", false),
        ),
    ];
    groups[5].ingress = vec![from_network("tcp", 80, "0.0.0.0/0", None)];
    groups[2].ingress = vec![from_network("tcp", 443, "10.0.0.0/8", Some("by hand"))];
    for group in groups {
        world.security_groups.insert(group.id.clone(), group);
    }
    world.security_groups.get_mut("sg-node").unwrap().ingress = vec![
        from_network("tcp", 22, "10.0.0.0/8", Some("ssh")),
        from_group("-1", "sg-next"),
        from_group("-1", "sg-node"),
        IpPermission {
            ranges: vec![],
            prefix_lists: vec!["pl-1".into()],
            ..from_network("tcp", 9100, "", None)
        },
    ];
    world.load_balancers.insert("anext".into(), next_door());
    let rules = &mut world.security_groups.get_mut("sg-node").unwrap().ingress;
    rules.push(from_network(
        "tcp",
        32081,
        "0.0.0.0/0",
        Some("kubernetes.io/rule/nlb/client=abeside"),
    ));
    rules.push(from_network(
        "tcp",
        10256,
        "10.1.0.0/24",
        Some("kubernetes.io/rule/nlb/health=abeside"),
    ));
    network_edits::beside(&mut world);
    world
}

/// The load balancer of another Service.
fn next_door() -> FakeLoadBalancer {
    let listener = Listener {
        port: 80,
        protocol: "tcp".into(),
        instance_port: 32080,
        instance_protocol: "tcp".into(),
        certificate: None,
    };
    FakeLoadBalancer {
        described: LoadBalancer {
            name: "anext".into(),
            listeners: vec![listener],
            subnets: ["subnet-a".to_owned()].into(),
            security_groups: vec!["sg-next".into()],
            instances: [InstanceId::new("i-1")].into(),
            ..LoadBalancer::default()
        },
        tags: names::cluster_tags("prod", false),
        ..FakeLoadBalancer::default()
    }
}
