//! The traffic that load balancers carry: from a network of clients through the load balancer's security groups and a
//! listener to a registered target, and through the security groups of its instance. Pure.
//!
//! Not modelled: health checks, zones, network ACLs, IPv6, and rules that let in a classic load balancer by its address.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::World;
use crate::InstanceId;
use crate::ec2::{InstanceState, IpPermission};

/// One listener that serves an instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// The load balancer's name, which one of each kind may have.
    pub load_balancer: String,
    pub is_network: bool,
    /// The listener's port and its protocol in lower case.
    pub port: i32,
    pub protocol: String,
    pub instance: InstanceId,
    pub instance_port: i32,
    /// Of a classic load balancer. AWS changes it only by another listener.
    pub instance_protocol: String,
}

/// A path, and the client network from which it is open.
pub type Connection = (Path, String);

/// A path with the security groups that decide about its clients.
struct Gate<'w> {
    path: Path,
    /// The security groups of the load balancer.
    groups: &'w [String],
}

/// The open connections of all load balancers from these networks.
#[must_use]
pub fn connections(world: &World, clients: &BTreeSet<String>) -> BTreeSet<Connection> {
    let gates: Vec<Gate<'_>> = classic(world).chain(network(world)).collect();
    let open = gates.iter().flat_map(|gate| {
        let passing = clients.iter().filter(|client| gate.lets_in(world, client));
        passing.map(|client| (gate.path.clone(), client.clone()))
    });
    open.collect()
}

/// The IPv4 networks that rules of any security group name.
#[must_use]
pub fn named_networks(world: &World) -> BTreeSet<String> {
    let rules = world.security_groups.values().flat_map(|group| &group.ingress);
    let ranges = rules.flat_map(|rule| &rule.ranges);
    ranges.map(|range| range.cidr.clone()).collect()
}

/// Whether an IPv4 network in CIDR notation contains another one.
#[must_use]
pub fn contains(outer: &str, inner: &str) -> bool {
    let Some(((outer, long), (inner, longer))) = parsed(outer).zip(parsed(inner)) else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32 - long).unwrap_or_default();
    long <= longer && outer & mask == inner & mask
}

fn parsed(cidr: &str) -> Option<(u32, u32)> {
    let (address, length) = cidr.split_once('/')?;
    Some((address.parse::<Ipv4Addr>().ok()?.into(), length.parse().ok()?))
}

fn is_running(world: &World, id: &InstanceId) -> bool {
    let instance = world.instances.get(id);
    instance.is_some_and(|instance| matches!(instance.state, None | Some(InstanceState::Running)))
}

fn classic(world: &World) -> impl Iterator<Item = Gate<'_>> {
    let balancers = world.load_balancers.values().map(|balancer| &balancer.described);
    let pairs = balancers.flat_map(|balancer| {
        let listeners = balancer.listeners.iter();
        listeners.flat_map(move |listener| balancer.instances.iter().map(move |id| (balancer, listener, id)))
    });
    let running = pairs.filter(|(.., id)| is_running(world, id));
    running.map(|(balancer, listener, instance)| Gate {
        path: Path {
            load_balancer: balancer.name.clone(),
            is_network: false,
            port: listener.port,
            protocol: listener.protocol.clone(),
            instance: instance.clone(),
            instance_port: listener.instance_port,
            instance_protocol: listener.instance_protocol.clone(),
        },
        groups: &balancer.security_groups,
    })
}

fn network(world: &World) -> impl Iterator<Item = Gate<'_>> {
    let listeners = world.network.listeners.values().filter_map(|listener| {
        let balancer = &world.network.load_balancers.get(&listener.load_balancer)?.described;
        let group = listener.settings.target_group_arn.as_ref()?;
        Some((balancer, listener, world.network.target_groups.get(group)?))
    });
    let pairs = listeners
        .flat_map(|(balancer, listener, group)| group.targets.iter().map(move |target| (balancer, listener, target)));
    let running = pairs.filter(|(.., target)| is_running(world, &target.id));
    running.map(|(balancer, listener, target)| Gate {
        path: Path {
            load_balancer: balancer.name.clone(),
            is_network: true,
            port: listener.settings.port,
            protocol: listener.settings.protocol.to_lowercase(),
            instance: target.id.clone(),
            instance_port: target.port,
            instance_protocol: String::new(),
        },
        groups: &balancer.security_groups,
    })
}

impl Gate<'_> {
    fn lets_in(&self, world: &World, client: &str) -> bool {
        let path = &self.path;
        let of_client = |rule: &IpPermission| rule.ranges.iter().any(|range| contains(&range.cidr, client));
        let of_balancer = |rule: &IpPermission| {
            let mut sources = rule.groups.iter().filter_map(|pair| pair.group_id.as_ref());
            sources.any(|id| self.groups.contains(id))
        };

        // A network load balancer without security groups takes all clients.
        let enters =
            (path.is_network && self.groups.is_empty()) || self.groups.iter().any(|id| admits(world, id, path, client));
        let instance = world.instances.get(&path.instance);
        let mut of_instance = instance.iter().flat_map(|instance| &instance.security_groups);
        // A network load balancer passes the client's address on.
        let fits = |rule: &IpPermission| of_balancer(rule) || (path.is_network && of_client(rule));

        enters && of_instance.any(|id| opens(world, id, (path.transport(), path.instance_port), fits))
    }
}

impl Path {
    fn transport(&self) -> &'static str {
        if self.protocol == "udp" { "udp" } else { "tcp" }
    }
}

/// Whether a security group lets these clients in at the port of the path's listener.
#[must_use]
pub fn admits(world: &World, group: &str, path: &Path, client: &str) -> bool {
    let of_client = |rule: &IpPermission| rule.ranges.iter().any(|range| contains(&range.cidr, client));
    opens(world, group, (path.transport(), path.port), of_client)
}

/// Whether a security group has a rule for this protocol and port whose source fits.
fn opens(world: &World, group: &str, (protocol, port): (&str, i32), fits: impl Fn(&IpPermission) -> bool) -> bool {
    let covers = |rule: &&IpPermission| {
        let ports = rule.from_port.zip(rule.to_port);
        let is_in_range = ports.is_some_and(|(from, to)| (from..=to).contains(&port));
        rule.protocol == "-1" || (rule.protocol == protocol && is_in_range)
    };
    let group = world.security_groups.get(group);
    let rules = group.into_iter().flat_map(|group| &group.ingress);
    rules.filter(covers).any(fits)
}

#[cfg(test)]
mod tests {
    use super::super::world::FakeLoadBalancer;
    use super::*;
    use crate::Tags;
    use crate::ec2::{GroupPair, Instance, IpRange, SecurityGroup};
    use crate::elb::{Listener, LoadBalancer};

    fn group(id: &str, ingress: Vec<IpPermission>) -> (String, SecurityGroup) {
        let group = SecurityGroup {
            id: id.into(),
            ingress,
            tags: Tags::new(),
            ..SecurityGroup::default()
        };
        (id.to_owned(), group)
    }

    fn rule(protocol: &str, ports: (i32, i32), cidr: Option<&str>, source: Option<&str>) -> IpPermission {
        let range = |cidr: &str| IpRange {
            cidr: cidr.into(),
            description: None,
        };
        let pair = |id: &str| GroupPair {
            group_id: Some(id.into()),
            user_id: None,
        };
        IpPermission {
            protocol: protocol.into(),
            from_port: Some(ports.0),
            to_port: Some(ports.1),
            ranges: cidr.map(range).into_iter().collect(),
            groups: source.map(pair).into_iter().collect(),
            ..IpPermission::default()
        }
    }

    /// A classic load balancer with one target, open to 10.0.0.0/8.
    fn world() -> World {
        let mut instance = Instance::new("i-1");
        instance.security_groups = vec!["sg-node".into()];
        let listener = Listener {
            port: 80,
            protocol: "http".into(),
            instance_port: 30080,
            instance_protocol: "http".into(),
            certificate: None,
        };
        let described = LoadBalancer {
            name: "a1".into(),
            listeners: vec![listener],
            security_groups: vec!["sg-lb".into()],
            instances: [InstanceId::new("i-1")].into(),
            ..LoadBalancer::default()
        };
        let balancer = FakeLoadBalancer {
            described,
            ..FakeLoadBalancer::default()
        };
        World {
            instances: [(instance.id.clone(), instance)].into(),
            load_balancers: [("a1".to_owned(), balancer)].into(),
            security_groups: [
                group("sg-lb", vec![rule("tcp", (80, 80), Some("10.0.0.0/8"), None)]),
                group("sg-node", vec![rule("tcp", (30000, 32767), None, Some("sg-lb"))]),
            ]
            .into(),
            ..World::default()
        }
    }

    fn open(world: &World, client: &str) -> bool {
        !connections(world, &[client.to_owned()].into()).is_empty()
    }

    #[test]
    fn networks_contain_smaller_ones() {
        for (outer, inner, expected) in [
            ("0.0.0.0/0", "203.0.113.7/32", true),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("203.0.113.7/32", "203.0.113.7/32", true),
            ("x", "10.0.0.0/8", false),
        ] {
            assert_eq!(contains(outer, inner), expected, "{outer} {inner}");
        }
    }

    /// Each part of the way is needed.
    #[test]
    fn a_connection_ends_at_the_first_part_that_is_missing() {
        assert!(open(&world(), "10.1.0.0/16"));
        assert!(!open(&world(), "11.0.0.0/8"), "the load balancer does not let it in");

        let breaks: [fn(&mut World); 6] = [
            |world| world.security_groups.get_mut("sg-lb").unwrap().ingress.clear(),
            |world| world.security_groups.get_mut("sg-node").unwrap().ingress.clear(),
            |world| world.security_groups.get_mut("sg-node").unwrap().ingress[0].protocol = "udp".into(),
            |world| world.load_balancers.get_mut("a1").unwrap().described.listeners.clear(),
            |world| world.load_balancers.get_mut("a1").unwrap().described.instances.clear(),
            |world| world.instances.clear(),
        ];
        for (at, break_it) in breaks.iter().enumerate() {
            let mut world = world();
            break_it(&mut world);
            assert!(!open(&world, "10.1.0.0/16"), "{at}");
        }
    }
}
