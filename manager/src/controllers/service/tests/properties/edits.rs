//! Changes of a Service's AWS resources by others: by hand, by another program, by an older version of this one.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use outrigger_aws::elb::{HealthCheck, Listener};
use outrigger_aws::fake::{FakeLoadBalancer, World};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::super::spec::names::{self, Owner};
use super::super::fixture::{LB, UID};
use super::cluster::{CLUSTER_NAME, from_group, from_network};

/// A rule of a security group that nobody's plan has made.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    Network(i32, &'static str),
    Described(i32, &'static str),
    Ipv6(i32),
    PrefixList(i32),
    Group(&'static str, &'static str),
    FromOwn(&'static str),
}

/// One change. Without the resource it changes nothing.
#[derive(Debug, Clone)]
pub enum Edit {
    Listener(i32, i32, &'static str),
    DropListener(Index),
    ListenerPolicies(i32, Vec<&'static str>),
    BackendPolicies(i32, Vec<&'static str>),
    IdleTimeout(i32),
    Draining(bool, i32),
    CrossZone(bool),
    ForgetAttributes,
    HealthCheck(Option<&'static str>),
    Register(&'static str),
    Deregister(&'static str),
    Subnets(Vec<&'static str>),
    LoadBalancerGroups(Vec<&'static str>),
    Tag(&'static str, Option<&'static str>),
    OwnGroupTag(&'static str, Option<&'static str>),
    OwnRule(Rule),
    DropOwnRule(Index),
    NodeRule(&'static str, Rule),
    DropNodeRule(&'static str),
    DeleteLoadBalancer,
    DeleteOwnGroup,
    Linger(u32),
}

const POLICIES: &[&str] = &[
    "by-hand",
    names::PROXY_POLICY,
    "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-2016-08",
];
const CLUSTER_KEY: &str = "kubernetes.io/cluster/prod";
const NODE_GROUPS: &[&str] = &["sg-node", "sg-node2", "sg-plain"];

fn rules() -> impl Strategy<Value = Rule> {
    let port = || select(&[80, 443, 8080, 9][..]);
    let network = || select(&["0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12"][..]);
    prop_oneof![
        (port(), network()).prop_map(|(port, cidr)| Rule::Network(port, cidr)),
        (port(), network()).prop_map(|(port, cidr)| Rule::Described(port, cidr)),
        port().prop_map(Rule::Ipv6),
        port().prop_map(Rule::PrefixList),
        (select(&["tcp", "-1"][..]), select(&["sg-mine", "sg-next"][..])).prop_map(|(p, id)| Rule::Group(p, id)),
        select(&["tcp", "-1"][..]).prop_map(Rule::FromOwn),
    ]
}

/// Changes of what a classic load balancer consists of.
pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let number = || select(&[80, 443, 8080][..]);
    let node_port = || select(&[30080, 30443, 31000][..]);
    let policies = || subsequence(POLICIES, 0..=2);
    let instance = || select(&["i-1", "i-2", "i-3", "i-4", "i-9", "i-gone"][..]);
    let value = || prop::option::of(select(&["owned", "shared", ""][..]));
    let of_listeners = prop_oneof![
        3 => (number(), node_port(), select(&["tcp", "http"][..])).prop_map(|(a, b, c)| Edit::Listener(a, b, c)),
        2 => any::<Index>().prop_map(Edit::DropListener),
        1 => (number(), policies()).prop_map(|(port, names)| Edit::ListenerPolicies(port, names)),
        1 => (node_port(), policies()).prop_map(|(port, names)| Edit::BackendPolicies(port, names)),
    ];
    let of_attributes = prop_oneof![
        select(&[30, 60, 300][..]).prop_map(Edit::IdleTimeout),
        (any::<bool>(), select(&[30, 300][..])).prop_map(|(on, seconds)| Edit::Draining(on, seconds)),
        any::<bool>().prop_map(Edit::CrossZone),
        Just(Edit::ForgetAttributes),
        prop::option::of(select(&["TCP:1", "HTTP:80/x"][..])).prop_map(Edit::HealthCheck),
    ];
    let of_place = prop_oneof![
        3 => instance().prop_map(Edit::Register),
        3 => instance().prop_map(Edit::Deregister),
        1 => subsequence(&["subnet-a", "subnet-b", "subnet-c"][..], 1..=3).prop_map(Edit::Subnets),
        1 => subsequence(&["sg-mine", "sg-all"][..], 1..=2).prop_map(Edit::LoadBalancerGroups),
        1 => (select(&["team", CLUSTER_KEY, names::SERVICE_TAG][..]), value()).prop_map(|(k, v)| Edit::Tag(k, v)),
        1 => Just(Edit::DeleteLoadBalancer),
    ];
    let of_groups = prop_oneof![
        1 => (select(&[CLUSTER_KEY, "kubernetes.io/cluster/other"][..]), value()).prop_map(|(k, v)| Edit::OwnGroupTag(k, v)),
        3 => rules().prop_map(Edit::OwnRule),
        2 => any::<Index>().prop_map(Edit::DropOwnRule),
        2 => (select(NODE_GROUPS), rules()).prop_map(|(group, rule)| Edit::NodeRule(group, rule)),
        2 => select(NODE_GROUPS).prop_map(Edit::DropNodeRule),
        1 => Just(Edit::DeleteOwnGroup),
        1 => (1..4_u32).prop_map(Edit::Linger),
    ];
    prop::collection::vec(prop_oneof![of_listeners, of_attributes, of_place, of_groups], 0..=4)
}

/// The IDs of the groups that were made for the Service's load balancer.
pub fn own_groups(world: &World) -> BTreeSet<String> {
    let owner = Owner {
        namespace: "default",
        name: "web",
        uid: UID,
    };
    let names = [
        names::security_group(LB),
        names::network_security_group(CLUSTER_NAME, owner),
    ];
    let is_own = |group: &&SecurityGroup| {
        group.vpc_id.as_deref() == Some("vpc-1") && group.name.as_ref().is_some_and(|name| names.contains(name))
    };
    world
        .security_groups
        .values()
        .filter(is_own)
        .map(|group| group.id.clone())
        .collect()
}

impl Rule {
    fn permission(self, own: Option<&str>) -> Option<IpPermission> {
        let bare = |port| IpPermission {
            ranges: Vec::new(),
            ..from_network("tcp", port, "", None)
        };
        Some(match self {
            Self::Network(port, cidr) => from_network("tcp", port, cidr, None),
            Self::Described(port, cidr) => from_network("tcp", port, cidr, Some("by hand")),
            Self::Ipv6(port) => IpPermission {
                ipv6_ranges: vec!["::/0".into()],
                ..bare(port)
            },
            Self::PrefixList(port) => IpPermission {
                prefix_lists: vec!["pl-2".into()],
                ..bare(port)
            },
            Self::Group(protocol, id) => from_group(protocol, id),
            Self::FromOwn(protocol) => from_group(protocol, own?),
        })
    }
}

/// Adds a rule, unless EC2 would find it there already.
fn add_rule(group: &mut SecurityGroup, rule: IpPermission) {
    let key = |rule: &IpPermission| {
        let mut rule = rule.clone();
        rule.ranges.iter_mut().for_each(|range| range.description = None);
        rule.groups.iter_mut().for_each(|pair| pair.user_id = None);
        rule
    };
    if !group.ingress.iter().any(|other| key(other) == key(&rule)) {
        group.ingress.push(rule);
    }
}

fn set(tags: &mut outrigger_aws::Tags, key: &str, value: Option<&str>) {
    match value {
        Some(value) => drop(tags.insert(key.to_owned(), value.to_owned())),
        None => drop(tags.remove(key)),
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

impl Edit {
    pub fn apply(&self, world: &mut World) {
        let own = own_groups(world).into_iter().next();
        match self {
            Self::NodeRule(group, rule) => {
                let rule = rule.permission(own.as_deref());
                if let (Some(group), Some(rule)) = (world.security_groups.get_mut(*group), rule) {
                    add_rule(group, rule);
                }
            }
            Self::DropNodeRule(group) => {
                let group = world.security_groups.get_mut(*group).unwrap();
                group
                    .ingress
                    .retain(|rule| !rule.groups.iter().any(|pair| pair.group_id == own));
            }
            Self::DeleteLoadBalancer => drop(world.load_balancers.remove(LB)),
            Self::Linger(times) => drop(own.map(|own| world.lingering.insert(own, *times))),
            Self::DeleteOwnGroup => delete_group(world, own.as_deref()),
            Self::OwnGroupTag(..) | Self::OwnRule(_) | Self::DropOwnRule(_) => {
                if let Some(group) = own.as_ref().and_then(|id| world.security_groups.get_mut(id)) {
                    self.apply_to_group(group);
                }
            }
            _ => {
                if let Some(lb) = world.load_balancers.get_mut(LB) {
                    self.apply_to_balancer(lb);
                }
            }
        }
    }

    fn apply_to_group(&self, group: &mut SecurityGroup) {
        match self {
            Self::OwnGroupTag(key, value) => set(&mut group.tags, key, *value),
            Self::OwnRule(rule) => {
                let own = group.id.clone();
                if let Some(rule) = rule.permission(Some(&own)) {
                    add_rule(group, rule);
                }
            }
            Self::DropOwnRule(at) if !group.ingress.is_empty() => {
                drop(group.ingress.remove(at.index(group.ingress.len())))
            }
            _ => {}
        }
    }

    fn apply_to_balancer(&self, lb: &mut FakeLoadBalancer) {
        let FakeLoadBalancer {
            described,
            attributes,
            tags,
        } = lb;
        match self {
            Self::Listener(port, node_port, protocol) => {
                described.listeners.retain(|listener| listener.port != *port);
                described.listener_policies.remove(port);
                described.listeners.push(listener(*port, *node_port, protocol));
            }
            Self::DropListener(at) if !described.listeners.is_empty() => {
                let gone = described.listeners.remove(at.index(described.listeners.len()));
                described.listener_policies.remove(&gone.port);
            }
            Self::ListenerPolicies(port, names) if described.listeners.iter().any(|old| old.port == *port) => {
                described.policies.extend(owned(names));
                described
                    .listener_policies
                    .insert(*port, owned(names).into_iter().collect());
            }
            Self::BackendPolicies(port, names) => {
                described.policies.extend(owned(names));
                described
                    .backend_policies
                    .insert(*port, owned(names).into_iter().collect());
            }
            Self::IdleTimeout(seconds) => attributes.idle_timeout = Some(*seconds),
            Self::Draining(on, seconds) => {
                (attributes.connection_draining, attributes.connection_draining_timeout) = (Some(*on), Some(*seconds));
            }
            Self::CrossZone(on) => attributes.cross_zone = Some(*on),
            Self::ForgetAttributes => *attributes = outrigger_aws::elb::Attributes::default(),
            Self::HealthCheck(target) => {
                described.health_check = target.map(|target| HealthCheck {
                    target: target.to_owned(),
                    interval: 30,
                    timeout: 5,
                    unhealthy_threshold: 2,
                    healthy_threshold: 10,
                });
            }
            Self::Register(id) => drop(described.instances.insert(InstanceId::new(*id))),
            Self::Deregister(id) => drop(described.instances.remove(&InstanceId::new(*id))),
            Self::Subnets(ids) => described.subnets = owned(ids).into_iter().collect(),
            Self::LoadBalancerGroups(ids) => described.security_groups = owned(ids),
            Self::Tag(key, value) => set(tags, key, *value),
            _ => {}
        }
    }
}

fn listener(port: i32, instance_port: i32, protocol: &str) -> Listener {
    Listener {
        port,
        protocol: protocol.to_owned(),
        instance_port,
        instance_protocol: protocol.to_owned(),
        certificate: None,
    }
}

/// As EC2 allows it: nothing may use the group.
fn delete_group(world: &mut World, own: Option<&str>) {
    let Some(own) = own else { return };
    let of_balancer = world
        .load_balancers
        .values()
        .any(|lb| lb.described.security_groups.iter().any(|id| id == own));
    let of_rules = world
        .security_groups
        .values()
        .filter(|group| group.id != own)
        .any(|group| {
            group
                .ingress
                .iter()
                .flat_map(|rule| &rule.groups)
                .any(|pair| pair.group_id.as_deref() == Some(own))
        });
    if !of_balancer && !of_rules {
        world.security_groups.remove(own);
    }
}
