//! Rules of the Nodes' security groups for clients and health checks.
//!
//! Each rule has its load balancer in its description, by which it is found and revoked. EC2 compares rules by
//! protocol, ports and network only: an existing rule for another reason serves as well, and is never revoked.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{IpPermission, SecurityGroup, Subnet};

use super::super::super::error::Environment;
use super::super::super::model::network::{Observed, OwnedResources};
use super::super::super::settings::Settings;
use super::super::super::spec::desired::network::Desired;
use super::super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, UDP, rule};
use super::super::super::spec::permissions;
use super::super::security_groups::{Check, Key, OtherClients, OtherUsers, PROTOCOL, checks_of, shares};
use super::super::{GroupRef, GroupStep, NetworkInput, Planned, security_groups};

const EVERYONE: &str = "0.0.0.0/0";

/// The load balancers that need a rule beside the one that has described it.
#[derive(Debug, Clone, Copy)]
struct Others<'a> {
    health: &'a OtherUsers,
    clients: &'a OtherClients,
}

/// Changes of the Nodes' groups: rules are added before, and revoked after, all other steps.
#[derive(Debug, Default)]
pub(super) struct NodeRules {
    pub add: Vec<Planned>,
    pub remove: Vec<Planned>,
    /// Whether a rule of another load balancer serves this one.
    pub uses_shared_rules: bool,
}

/// The wanted rules of one group for one load balancer.
#[derive(Debug, Clone, Default)]
struct Wanted {
    /// For health checks; `None`: existing ones stay, and none is added.
    health: Option<BTreeSet<Key>>,
    client: BTreeSet<Key>,
}

/// The changes for a load balancer in these subnets.
///
/// Rules of groups without targets are revoked only if every target's groups are known.
pub(super) fn of_nodes(
    input: NetworkInput<'_>,
    subnets: &[Subnet],
    targets: &BTreeSet<InstanceId>,
) -> Result<NodeRules, Environment> {
    let (desired, settings, observed) = (input.desired, input.settings, input.observed);
    if settings.disable_security_group_ingress {
        return Ok(NodeRules::default());
    }

    let open = security_groups::of_targets(targets, &observed.instances, &observed.groups, &settings.cluster_id)?;
    let all_described = targets.iter().all(|target| observed.instances.contains_key(target));
    let wanted = wanted(desired, subnets);
    let mut rules = NodeRules::default();

    let others = Others {
        health: &observed.other_users,
        clients: &observed.other_clients,
    };

    for group in observed.groups.values().filter(|group| !settings.is_frozen(&group.id)) {
        if open.contains(&group.id) {
            rules.change(&desired.name, group, &wanted, others);
        } else if all_described {
            rules.change(&desired.name, group, &none(), others);
        }
    }

    Ok(rules)
}

/// Revokes all rules of a load balancer. A rule that another one needs gets its description.
pub(super) fn removal(owned_resources: &OwnedResources, settings: &Settings) -> Vec<Planned> {
    let OwnedResources { name, other_users, .. } = owned_resources;
    let others = Others {
        health: other_users,
        clients: &owned_resources.other_clients,
    };
    let mut rules = NodeRules::default();
    let groups = owned_resources.groups.values();
    for group in groups.filter(|group| !settings.is_frozen(&group.id)) {
        rules.change(name, group, &none(), others);
        let checks = checks_of([group].into_iter(), name);
        rules.remove.extend(hand_over(&group.id, name, checks, other_users));
    }

    rules.remove
}

/// Hands rules for these checks over to the other load balancers that need them.
pub fn hand_over(group: &str, name: &str, checks: BTreeSet<Check>, other_users: &OtherUsers) -> Vec<Planned> {
    let shares = shares(other_users, checks.into_iter()).into_iter();
    let step = |(other_user, checks): (&String, BTreeSet<Check>)| {
        let step = GroupStep::HandOver {
            group: group.to_owned(),
            rules: as_permissions(&checks, name),
            to: as_permissions(&checks, other_user),
        };
        Planned::new(step, format!("{other_user} needs the rule"))
    };

    shares.map(step).collect()
}

/// Gives a load balancer's client rules that others need the descriptions of those.
pub fn keep_for_others(group: &SecurityGroup, load_balancer: &str, others: &OtherClients) -> Vec<Planned> {
    let mut rules = NodeRules::default();
    let description = rule(CLIENT_RULE, load_balancer);
    rules.describe(group, &mut described(group), &description, |_| true, others);

    rules.remove
}

/// The rules that the clients of a load balancer need.
pub fn client_rules(desired: &Desired) -> BTreeSet<Key> {
    wanted(desired, &[]).client
}

/// Whether a group has client rules for this load balancer that it does not need any more; `None`: it needs none.
pub fn has_unneeded_clients<'a>(
    mut groups: impl Iterator<Item = &'a SecurityGroup>,
    load_balancer: &str,
    desired: Option<&Desired>,
) -> bool {
    let (needed, description) = (desired.map(client_rules), rule(CLIENT_RULE, load_balancer));
    let is_unneeded = |key: &Key| needed.as_ref().is_none_or(|needed| !needed.contains(key));
    groups.any(|group| {
        let rules = described(group);
        rules.iter().any(|(key, text)| *text == description && is_unneeded(key))
    })
}

/// Health checks that rules allow for this load balancer, with `subnets`, and that it does not have any more: at all,
/// or in a group without candidates.
pub fn unneeded_checks(desired: &Desired, subnets: &[Subnet], observed: &Observed) -> BTreeSet<Check> {
    let health = wanted(desired, subnets).health;
    let instances = observed.instances.values();
    let used: BTreeSet<&String> = instances.flat_map(|instance| &instance.security_groups).collect();
    let (here, elsewhere): (Vec<_>, Vec<_>) = observed.groups.values().partition(|group| used.contains(&group.id));
    let mut checks = checks_of(here.into_iter(), &desired.name);
    // If none is requested, existing rules stay.
    checks.retain(|check| health.as_ref().is_some_and(|health| !health.contains(&key_of(check))));
    checks.extend(checks_of(elsewhere.into_iter(), &desired.name));

    checks
}

/// The rules that allow these checks for a load balancer.
fn as_permissions(checks: &BTreeSet<Check>, load_balancer: &str) -> Vec<IpPermission> {
    let keys = checks.iter().map(key_of).collect();
    permissions(&keys, &rule(HEALTH_RULE, load_balancer))
}

fn key_of((port, cidr): &Check) -> Key {
    (PROTOCOL.to_owned(), *port, *port, cidr.clone())
}

fn check_of((protocol, from, to, cidr): &Key) -> Option<Check> {
    (protocol == PROTOCOL && from == to).then(|| (*from, cidr.clone()))
}

fn none() -> Wanted {
    Wanted {
        health: Some(BTreeSet::new()),
        client: BTreeSet::new(),
    }
}

/// If every client may use the checked ports, the checks need no rules of their own; without ports there are no checks.
fn wanted(desired: &Desired, subnets: &[Subnet]) -> Wanted {
    let udp = desired.ports.iter().any(|port| port.target_group.protocol == UDP);
    let ports: BTreeSet<i32> = desired.ports.iter().map(|port| port.target_group.port).collect();
    let checked: BTreeSet<i32> = desired.ports.iter().filter_map(|port| port.health_port()).collect();
    let everyone = desired.networks.len() == 1 && desired.networks.contains(EVERYONE);
    let cidrs: BTreeSet<String> = subnets.iter().filter_map(|subnet| subnet.cidr_block.clone()).collect();

    Wanted {
        health: (udp || !everyone || ports != checked || ports.is_empty()).then(|| keys(PROTOCOL, &checked, &cidrs)),
        client: keys(if udp { "udp" } else { "tcp" }, &ports, &desired.networks),
    }
}

fn keys(protocol: &str, ports: &BTreeSet<i32>, cidrs: &BTreeSet<String>) -> BTreeSet<Key> {
    let each = |port: &i32| {
        let key = |cidr: &String| (protocol.to_owned(), *port, *port, cidr.clone());
        cidrs.iter().map(key).collect::<Vec<_>>()
    };
    ports.iter().flat_map(each).collect()
}

impl NodeRules {
    /// A rule that only another load balancer needs stays as long as this one exists.
    fn change(&mut self, load_balancer: &str, group: &SecurityGroup, wanted: &Wanted, others: Others<'_>) {
        let (health, client) = (rule(HEALTH_RULE, load_balancer), rule(CLIENT_RULE, load_balancer));
        let mut rules = described(group);
        let empty = BTreeSet::new();
        let all: BTreeSet<&Key> = wanted.health.iter().flatten().chain(&wanted.client).collect();

        if wanted.health.is_some() {
            let is_needed = |key: &Key| check_of(key).is_some_and(|check| others.health.contains_key(&check));
            self.remove(group, &mut rules, &health, |key| !all.contains(key) && !is_needed(key));
            let of_another = |text: &String| *text != health && text.starts_with(HEALTH_RULE);
            let checks = wanted.health.iter().flatten();
            self.uses_shared_rules |= checks.filter_map(|key| rules.get(key)).any(of_another);
            self.add(group, &mut rules, &health, wanted.health.as_ref().unwrap_or(&empty));
        }

        let of_another = |text: &String| *text != client && text.starts_with(CLIENT_RULE);
        self.uses_shared_rules |= wanted.client.iter().filter_map(|key| rules.get(key)).any(of_another);
        self.describe(group, &mut rules, &client, |key| !all.contains(key), others.clients);
        self.remove(group, &mut rules, &client, |key| !all.contains(key));
        self.add(group, &mut rules, &client, &wanted.client);

        let of_clients = rules.iter().filter(|(_, text)| text.contains(CLIENT_RULE));
        let mtu = of_clients.map(|(key, _)| ("icmp".to_owned(), 3, 4, key.3.clone()));
        let mtu: BTreeSet<Key> = mtu.collect();
        self.remove(group, &mut rules, MTU_RULE, |key| !mtu.contains(key));
        self.add(group, &mut rules, MTU_RULE, &mtu);
    }

    /// Gives client rules that only another load balancer needs the description of that one.
    fn describe(
        &mut self,
        group: &SecurityGroup,
        rules: &mut BTreeMap<Key, String>,
        description: &str,
        unwanted: impl Fn(&Key) -> bool,
        other_clients: &OtherClients,
    ) {
        let mut shares: BTreeMap<&String, BTreeSet<Key>> = BTreeMap::new();
        let unwanted = rules
            .iter_mut()
            .filter(|(key, text)| *text == description && unwanted(key));
        for (key, text) in unwanted {
            if let Some(other) = other_clients.get(key) {
                *text = rule(CLIENT_RULE, other);
                shares.entry(other).or_default().insert(key.clone());
            }
        }

        for (other, keys) in shares {
            let step = GroupStep::Describe(group.id.clone(), permissions(&keys, &rule(CLIENT_RULE, other)));
            self.remove.push(Planned::new(step, format!("{other} needs the rule")));
        }
    }

    fn remove(
        &mut self,
        group: &SecurityGroup,
        rules: &mut BTreeMap<Key, String>,
        description: &str,
        unwanted: impl Fn(&Key) -> bool,
    ) {
        let gone = rules.iter().filter(|(key, text)| *text == description && unwanted(key));
        let gone: BTreeSet<Key> = gone.map(|(key, _)| key.clone()).collect();

        rules.retain(|key, _| !gone.contains(key));
        if !gone.is_empty() {
            let step = GroupStep::Revoke(group.id.clone(), permissions(&gone, description));
            let reason = format!("no Service needs the rule {description} in this group");
            self.remove.push(Planned::new(step, reason));
        }
    }

    fn add(
        &mut self,
        group: &SecurityGroup,
        rules: &mut BTreeMap<Key, String>,
        description: &str,
        wanted: &BTreeSet<Key>,
    ) {
        let missing: BTreeSet<Key> = wanted.iter().filter(|key| !rules.contains_key(*key)).cloned().collect();
        rules.extend(missing.iter().map(|key| (key.clone(), description.to_owned())));
        if !missing.is_empty() {
            let step = GroupStep::Authorize(GroupRef::Id(group.id.clone()), permissions(&missing, description));
            self.add.push(Planned::new(step, format!("{description} is missing")));
        }
    }
}

/// The rules of a group for IPv4 networks, with their descriptions.
fn described(group: &SecurityGroup) -> BTreeMap<Key, String> {
    let mut rules = BTreeMap::new();
    for permission in &group.ingress {
        let (Some(from), Some(to)) = (permission.from_port, permission.to_port) else {
            continue;
        };
        for range in &permission.ranges {
            let key = (permission.protocol.clone(), from, to, range.cidr.clone());
            rules.insert(key, range.description.clone().unwrap_or_default());
        }
    }

    rules
}

fn permissions(keys: &BTreeSet<Key>, description: &str) -> Vec<IpPermission> {
    let rules = keys.iter().cloned();
    let rules = rules.map(|(protocol, from, to, cidr)| (protocol, Some(from), Some(to), cidr));
    permissions::join(rules, Some(description))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outrigger_aws::Tags;

    const OWN: &str = "a1";
    const OTHER: &str = "a2";

    /// A group with one rule for the port and subnet of a health check.
    fn group(protocol: &str, ports: (i32, i32), description: &str) -> SecurityGroup {
        let rule = (
            protocol.to_owned(),
            Some(ports.0),
            Some(ports.1),
            "10.0.0.0/24".to_owned(),
        );
        SecurityGroup {
            id: "sg-node".into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: permissions::join([rule].into_iter(), Some(description)),
            tags: Tags::new(),
        }
    }

    fn check() -> Check {
        (10256, "10.0.0.0/24".to_owned())
    }

    #[test]
    fn only_a_rule_in_the_form_of_a_health_check_stays_for_another_load_balancer() {
        let other_users = OtherUsers::from([(check(), OTHER.to_owned())]);
        let revoked = |protocol: &str, ports| {
            let mut rules = NodeRules::default();
            let group = group(protocol, ports, &rule(HEALTH_RULE, OWN));
            let others = Others {
                health: &other_users,
                clients: &OtherClients::new(),
            };
            rules.change(OWN, &group, &none(), others);
            rules.remove.len()
        };
        assert_eq!(revoked("tcp", (10256, 10256)), 0);
        assert_eq!(revoked("udp", (10256, 10256)), 1);
        assert_eq!(revoked("tcp", (10256, 10257)), 1);
    }

    #[test]
    fn only_a_health_check_rule_of_another_load_balancer_is_shared() {
        let shared = |description: &str| {
            let wanted = Wanted {
                health: Some(BTreeSet::from([key_of(&check())])),
                client: BTreeSet::new(),
            };
            let mut rules = NodeRules::default();
            let group = group("tcp", (10256, 10256), description);
            let others = Others {
                health: &OtherUsers::new(),
                clients: &OtherClients::new(),
            };
            rules.change(OWN, &group, &wanted, others);
            rules.uses_shared_rules
        };
        assert!(shared(&rule(HEALTH_RULE, OTHER)));
        assert!(!shared(&rule(HEALTH_RULE, OWN)));
        assert!(!shared(&rule(CLIENT_RULE, OTHER)));
        assert!(!shared("by hand"));
    }
}
