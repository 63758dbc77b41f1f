//! Rules of security groups: their algebra, and their number. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServicePort;
use outrigger_aws::ec2::{GroupPair, IpPermission, IpRange, SecurityGroup};

/// ICMP "destination unreachable", "fragmentation needed": path MTU discovery needs it. EC2 reads a rule's ports as
/// ICMP type and code.
const ICMP_UNREACHABLE: (i32, i32) = (3, 4);

/// Protocol, ports, and network or security group, by which EC2 compares rules.
pub type Rule = (String, Option<i32>, Option<i32>, String);

/// Rules with one source each, by what EC2 compares.
pub type Rules = BTreeMap<Rule, IpPermission>;

/// Ingress of a load balancer's own group: each port of the Service, also one without a node port, and path MTU
/// discovery, from all client networks.
pub fn ingress(ports: &[ServicePort], networks: &BTreeSet<String>) -> Vec<IpPermission> {
    ingress_of(ports.iter().map(|port| ("tcp", port.port)), networks)
}

/// Ingress for these protocols and ports, and path MTU discovery, from all client networks.
pub fn ingress_of<'a>(ports: impl Iterator<Item = (&'a str, i32)>, networks: &BTreeSet<String>) -> Vec<IpPermission> {
    let range = |cidr: &String| IpRange {
        cidr: cidr.clone(),
        description: None,
    };
    let rule = |protocol: &str, from, to| IpPermission {
        protocol: protocol.to_owned(),
        from_port: Some(from),
        to_port: Some(to),
        ranges: networks.iter().map(range).collect(),
        ..IpPermission::default()
    };
    let ports: BTreeSet<(&str, i32)> = ports.collect();
    let rules = ports.into_iter().map(|(protocol, port)| rule(protocol, port, port));
    let unreachable = rule("icmp", ICMP_UNREACHABLE.0, ICMP_UNREACHABLE.1);

    rules.chain([unreachable]).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    pub add: Vec<IpPermission>,
    pub remove: Vec<IpPermission>,
}

/// The changes from `actual` to `wanted` for a managed group. Descriptions do not count. Rules for IPv6 clients and
/// prefix lists beside a wanted rule stay: a user has added them.
pub fn difference(wanted: &[IpPermission], actual: &[IpPermission]) -> Difference {
    let (wanted, have) = (flat(wanted), flat(actual));
    let add = wanted.difference(&have).cloned();
    let mut remove: Vec<IpPermission> = join(have.difference(&wanted).cloned(), None);
    let ports = wanted
        .iter()
        .map(|(protocol, from, to, _)| (protocol.as_str(), *from, *to));
    let ports: BTreeSet<_> = ports.collect();

    for rule in actual {
        let beside = ports.contains(&(rule.protocol.as_str(), rule.from_port, rule.to_port));
        let mut foreign = rule.clone();
        foreign.ranges.clear();
        if beside {
            foreign.ipv6_ranges.clear();
            foreign.prefix_lists.clear();
        }

        if !(foreign.ipv6_ranges.is_empty() && foreign.groups.is_empty() && foreign.prefix_lists.is_empty()) {
            remove.push(foreign);
        }
    }

    Difference {
        add: join(add, None),
        remove,
    }
}

fn flat(rules: &[IpPermission]) -> BTreeSet<Rule> {
    let each = |rule: &IpPermission| {
        let key = (rule.protocol.clone(), rule.from_port, rule.to_port);
        rule.ranges
            .iter()
            .map(move |range| (key.0.clone(), key.1, key.2, range.cidr.clone()))
            .collect::<Vec<_>>()
    };
    rules.iter().flat_map(each).collect()
}

/// Rules for networks, with one permission for each protocol and ports.
pub fn join(rules: impl Iterator<Item = Rule>, description: Option<&str>) -> Vec<IpPermission> {
    joined(rules.map(|(protocol, from_port, to_port, cidr)| IpPermission {
        protocol,
        from_port,
        to_port,
        ranges: vec![IpRange {
            cidr,
            description: description.map(str::to_owned),
        }],
        ..IpPermission::default()
    }))
}

/// Rules for networks and security groups, with one permission for each protocol and ports.
pub fn joined(rules: impl Iterator<Item = IpPermission>) -> Vec<IpPermission> {
    let mut joined: BTreeMap<(String, Option<i32>, Option<i32>), IpPermission> = BTreeMap::new();
    for rule in rules {
        let ports = (rule.protocol.clone(), rule.from_port, rule.to_port);
        let all = joined.entry(ports).or_insert_with(|| without_sources(&rule));
        all.ranges.extend(rule.ranges);
        all.groups.extend(rule.groups);
    }

    joined.into_values().collect()
}

/// The rules for IPv4 networks and security groups. No group of Nodes gets others from here.
pub fn by_rule(rules: &[IpPermission]) -> Rules {
    let single = one_source_each(rules).into_iter();
    single.filter_map(|rule| Some((as_compared(&rule)?, rule))).collect()
}

/// The parts of a rule with one source that EC2 compares, if that source is an IPv4 network or a security group.
pub fn as_compared(rule: &IpPermission) -> Option<Rule> {
    let network = rule.ranges.first().map(|range| &range.cidr);
    let source = network.or_else(|| rule.groups.first()?.group_id.as_ref());
    Some((rule.protocol.clone(), rule.from_port, rule.to_port, source?.clone()))
}

/// The description of a rule with one source; empty: it has none.
pub fn description(rule: &IpPermission) -> &str {
    let range = rule.ranges.first();
    range.and_then(|range| range.description.as_deref()).unwrap_or_default()
}

pub fn without_sources(rule: &IpPermission) -> IpPermission {
    IpPermission {
        protocol: rule.protocol.clone(),
        from_port: rule.from_port,
        to_port: rule.to_port,
        ..IpPermission::default()
    }
}

pub fn one_source_each(rules: &[IpPermission]) -> Vec<IpPermission> {
    let mut single = Vec::new();
    for rule in rules {
        let mut push = |fill: &dyn Fn(&mut IpPermission)| {
            let mut one = without_sources(rule);
            fill(&mut one);
            single.push(one);
        };

        for source in &rule.ranges {
            push(&|one| one.ranges.push(source.clone()));
        }
        for source in &rule.ipv6_ranges {
            push(&|one| one.ipv6_ranges.push(source.clone()));
        }
        for source in &rule.groups {
            push(&|one| one.groups.push(source.clone()));
        }
        for source in &rule.prefix_lists {
            push(&|one| one.prefix_lists.push(source.clone()));
        }
    }

    single
}

/// The rule that allows all traffic from a load balancer's group.
pub fn all_from(source: &str) -> IpPermission {
    IpPermission {
        protocol: "-1".to_owned(),
        groups: vec![GroupPair {
            group_id: Some(source.to_owned()),
            user_id: None,
        }],
        ..IpPermission::default()
    }
}

/// The rules of a group that name `source`, with only that source.
pub fn rules_from(group: &SecurityGroup, source: &str) -> Vec<IpPermission> {
    let of_source = |rule: &IpPermission| {
        let mut pairs = rule.groups.iter();
        let pair = pairs.find(|pair| pair.group_id.as_deref() == Some(source))?;
        Some(IpPermission {
            groups: vec![pair.clone()],
            ..without_sources(rule)
        })
    };
    group.ingress.iter().filter_map(of_source).collect()
}

/// The number of rules as EC2 counts them: every source of every rule, IPv4 and IPv6 apart; a group or prefix list counts in
/// both.
pub fn count(rules: &[IpPermission]) -> usize {
    let of_both = |rule: &IpPermission| rule.groups.len() + rule.prefix_lists.len();
    let ipv4: usize = rules.iter().map(|rule| rule.ranges.len() + of_both(rule)).sum();
    let ipv6: usize = rules.iter().map(|rule| rule.ipv6_ranges.len() + of_both(rule)).sum();
    ipv4.max(ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: i32, cidrs: &[&str]) -> IpPermission {
        IpPermission {
            protocol: "tcp".into(),
            from_port: Some(port),
            to_port: Some(port),
            ranges: cidrs
                .iter()
                .map(|c| IpRange {
                    cidr: (*c).into(),
                    description: None,
                })
                .collect(),
            ..IpPermission::default()
        }
    }

    #[test]
    fn only_what_differs_is_added_and_removed() {
        let wanted = [tcp(80, &["10.0.0.0/8"]), tcp(81, &["10.0.0.0/8"])];
        let actual = [tcp(80, &["10.0.0.0/8", "0.0.0.0/0"])];
        let found = difference(&wanted, &actual);
        assert_eq!(found.add, [tcp(81, &["10.0.0.0/8"])]);
        assert_eq!(found.remove, [tcp(80, &["0.0.0.0/0"])]);
        assert_eq!(difference(&wanted, &wanted), Difference::default());
    }

    #[test]
    fn descriptions_ipv6_and_prefix_lists_beside_a_wanted_rule_are_left_alone_and_foreign_sources_are_not() {
        let mut described = tcp(80, &["10.0.0.0/8"]);
        described.ranges[0].description = Some("by hand".into());
        described.ipv6_ranges = vec!["::/0".into()];
        described.prefix_lists = vec!["pl-1".into()];
        let wanted = [tcp(80, &["10.0.0.0/8"])];
        assert_eq!(difference(&wanted, &[described.clone()]), Difference::default());
        described.groups = vec![GroupPair {
            group_id: Some("sg-x".into()),
            user_id: None,
        }];
        let removed = difference(&wanted, &[described]).remove;
        assert_eq!(removed.len(), 1);
        assert!(
            removed[0].ipv6_ranges.is_empty() && removed[0].prefix_lists.is_empty() && removed[0].groups.len() == 1
        );
        let mut elsewhere = tcp(8080, &[]);
        elsewhere.prefix_lists = vec!["pl-1".into()];
        assert_eq!(
            difference(&wanted, &[wanted[0].clone(), elsewhere.clone()]).remove,
            [elsewhere]
        );
    }

    #[test]
    fn each_source_of_a_permission_is_a_rule_of_its_own() {
        let pair = |id: &str| GroupPair {
            group_id: Some(id.into()),
            user_id: None,
        };
        let mut all = tcp(80, &["10.0.0.0/8", "10.1.0.0/16"]);
        all.ipv6_ranges = vec!["::/0".into()];
        all.groups = vec![pair("sg-x")];
        all.prefix_lists = vec!["pl-1".into()];

        let (mut ipv6, mut of_group, mut of_list) = (tcp(80, &[]), tcp(80, &[]), tcp(80, &[]));
        ipv6.ipv6_ranges = vec!["::/0".into()];
        of_group.groups = vec![pair("sg-x")];
        of_list.prefix_lists = vec!["pl-1".into()];
        let (first, second, other_port) = (
            tcp(80, &["10.0.0.0/8"]),
            tcp(80, &["10.1.0.0/16"]),
            tcp(81, &["0.0.0.0/0"]),
        );
        assert_eq!(
            one_source_each(&[all, other_port.clone()]),
            [first, second, ipv6, of_group, of_list, other_port]
        );
    }
}
