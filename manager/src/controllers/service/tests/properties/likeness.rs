//! The AWS resources of a settled Service, as far as they do not depend on its history.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::IpPermission;
use outrigger_aws::elb::{HealthCheck, Listener};
use outrigger_aws::elbv2::TargetHealthCheck;
use outrigger_aws::fake::{FakeListener, FakeTargetGroup, World};

use super::super::super::spec::names::{self, CLIENT_RULE, rule};
use super::super::fixture::LB;
use super::edits::own_groups;
use super::network_edits::balancer;
use super::specs::Kind;

/// A load balancer without its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Likeness {
    Classic(Option<Classic>),
    Network(Option<Network>),
}

/// The load balancer of this kind.
pub fn likeness(world: &World, kind: Kind) -> Likeness {
    match kind {
        Kind::Classic => Likeness::Classic(classic(world)),
        Kind::Network => Likeness::Network(network(world)),
    }
}

/// Of a classic one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classic {
    pub listeners: BTreeSet<Listener>,
    pub health_check: Option<HealthCheck>,
    pub groups: BTreeSet<String>,
    pub own_rules: BTreeSet<(String, Option<i32>, Option<i32>, String)>,
    pub flags: (Option<bool>, Option<bool>, Option<i32>),
    pub subnets: BTreeSet<String>,
    pub proxied: BTreeMap<i32, bool>,
}

/// The same, with the subnets of `ideal` where that has another scheme: the scheme stays as it was made, and decides
/// which subnets are chosen.
pub fn with_subnets_of(like: Likeness, (world, ideal): (&World, &World)) -> Likeness {
    let of = |world: &World| world.load_balancers.get(LB).map(|lb| lb.described.clone());
    match (like, of(world), of(ideal)) {
        (Likeness::Classic(Some(classic)), Some(lb), Some(ideal)) if lb.scheme != ideal.scheme => {
            let subnets = ideal.subnets;
            Likeness::Classic(Some(Classic { subnets, ..classic }))
        }
        (like, ..) => like,
    }
}

fn classic(world: &World) -> Option<Classic> {
    let lb = world.load_balancers.get(LB)?;
    let name = |id: &String| world.security_groups.get(id).and_then(|group| group.name.clone());
    let attached = own_groups(world)
        .into_iter()
        .filter(|own| lb.described.security_groups.contains(own));
    let rules = attached.flat_map(|id| &world.security_groups[&id].ingress);
    let described = &lb.described;
    let proxied = |listener: &Listener| {
        let policies = described.backend_policies.get(&listener.instance_port);
        let on = policies.is_some_and(|policies| policies.contains(names::PROXY_POLICY));
        (listener.instance_port, on)
    };
    Some(Classic {
        listeners: described.listeners.iter().cloned().collect(),
        health_check: described.health_check.clone(),
        groups: described.security_groups.iter().filter_map(name).collect(),
        own_rules: rules.flat_map(networks).collect(),
        flags: (
            lb.attributes.cross_zone,
            lb.attributes.connection_draining,
            lb.attributes.idle_timeout,
        ),
        subnets: described.subnets.clone(),
        proxied: described.listeners.iter().map(proxied).collect(),
    })
}

fn networks(rule: &IpPermission) -> Vec<(String, Option<i32>, Option<i32>, String)> {
    let key = |cidr: &String| (rule.protocol.clone(), rule.from_port, rule.to_port, cidr.clone());
    rule.ranges.iter().map(|range| key(&range.cidr)).collect()
}

/// Of a network one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    pub listeners: BTreeMap<i32, NetworkListener>,
    pub flags: BTreeMap<String, String>,
}

/// A listener with its target group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkListener {
    pub protocol: String,
    pub certificate: Option<String>,
    pub group: String,
    pub group_protocol: String,
    pub port: i32,
    pub health_check: TargetHealthCheck,
}

fn network(world: &World) -> Option<Network> {
    let arn = balancer(world)?;
    let listener = |(port, listener): (i32, &FakeListener)| {
        let group = behind(world, listener)?.described.clone();
        let settings = listener.settings.clone();
        let listener = NetworkListener {
            protocol: settings.protocol,
            certificate: settings.certificate,
            group: group.name,
            group_protocol: group.protocol,
            port: group.port,
            health_check: group.health_check,
        };
        Some((port, listener))
    };
    let lb = &world.network.load_balancers[&arn];
    let keys = ["load_balancing.cross_zone.enabled", "access_logs.s3.enabled"];
    let flag = |key: &str| Some((key.to_owned(), lb.attributes.get(key)?.clone()));
    Some(Network {
        listeners: world
            .network
            .listeners_of(&arn)
            .into_iter()
            .filter_map(listener)
            .collect(),
        flags: keys.into_iter().filter_map(flag).collect(),
    })
}

fn behind<'w>(world: &'w World, listener: &FakeListener) -> Option<&'w FakeTargetGroup> {
    world
        .network
        .target_groups
        .get(listener.settings.target_group_arn.as_ref()?)
}

/// The targets of each port; for a classic load balancer, of port 0.
pub fn targets(world: &World) -> BTreeMap<i32, BTreeSet<InstanceId>> {
    let mut targets = BTreeMap::new();
    if let Some(lb) = world.load_balancers.get(LB) {
        targets.insert(0, lb.described.instances.clone());
    }
    let Some(arn) = balancer(world) else { return targets };
    for (port, listener) in world.network.listeners_of(&arn) {
        let Some(group) = behind(world, listener) else { continue };
        let at_port = group
            .targets
            .iter()
            .filter(|target| target.port == group.described.port);
        targets.insert(port, at_port.map(|target| target.id.clone()).collect());
    }
    targets
}

/// Group, protocol, ports and network of a rule.
type Key = (String, String, Option<i32>, Option<i32>, String);

/// The rules of all groups for IPv4 networks; only those that let in the load balancer's clients, or all.
pub fn node_rules(world: &World, of_clients: bool) -> BTreeSet<Key> {
    let client = rule(CLIENT_RULE, LB);
    let mut found = BTreeSet::new();
    for group in world.security_groups.values() {
        for permission in &group.ingress {
            let ranges = permission.ranges.iter();
            for range in ranges.filter(|range| !of_clients || range.description.as_ref() == Some(&client)) {
                let (protocol, from, to) = (permission.protocol.clone(), permission.from_port, permission.to_port);
                found.insert((group.id.clone(), protocol, from, to, range.cidr.clone()));
            }
        }
    }
    found
}
