//! Claims: the rules that load balancers need in the security groups of Nodes. Pure.
//!
//! EC2 keeps one rule for each protocol, ports and network, whatever its description says, so several load balancers rely
//! on one rule. A group therefore gets the union of all claims:
//!
//! - a claim is widened with the plan, by what the spec needs and by what AWS has for the load balancer, and narrowed to the
//!   needs of the spec after all steps have succeeded;
//! - a rule is revoked only if this process knows the load balancer that its description names, no claim has the rule, and
//!   all Services have claimed. If another load balancer needs it, it gets the description of that one;
//! - all other rules stay: those of users, and those of load balancers that this process has never reconciled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use tokio::time::Instant;

use super::super::action::{ServiceAction, action, has_finalizer};
use super::super::settings::Settings;
use super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, rule};
use super::super::spec::permissions::{self, all_from, rules_from};
use super::super::spec::{names, request};
use super::rule_writes::{InDoubt, RuleWrites};
use super::{GroupStep, Planned};

/// Protocol, first and last port, and network, by which EC2 compares rules.
pub type Key = (String, i32, i32, String);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Health checks of a network load balancer.
    Check(Key),
    /// Clients of a network load balancer.
    Client(Key),
    /// All traffic from this security group of a classic load balancer.
    From(String),
}

/// The needs of a load balancer in one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub rules: BTreeSet<Rule>,
    /// Existing rules for its health checks stay.
    pub keeps_checks: bool,
}

impl Needs {
    /// The rules, with the name of the load balancer, and path MTU discovery for its clients.
    pub fn permissions(&self, owner: &str) -> Vec<IpPermission> {
        let (mut described, mut sources) = (BTreeMap::new(), Vec::new());
        for rule in &self.rules {
            match (described_as(rule, owner), rule) {
                (Some((key, text)), _) => _ = described.entry(key.clone()).or_insert(text),
                (None, Rule::From(source)) => sources.push(all_from(source)),
                (None, _) => {}
            }
            if let Rule::Client((.., network)) = rule {
                described.entry(mtu(network)).or_insert_with(|| MTU_RULE.to_owned());
            }
        }

        let mut by_text = Rules::new();
        for (key, text) in described {
            by_text.entry(text).or_default().insert(key);
        }
        [permissions_of(by_text), sources].concat()
    }
}

/// The needs of a load balancer; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    pub groups: BTreeMap<String, Needs>,
    /// The security group that was created for it.
    pub own_group: Option<String>,
    /// Existing rules for clients and health checks that open one of these ports stay, in all groups.
    pub ports: BTreeSet<i32>,
    /// Existing rules that allow all traffic from these security groups stay, in all groups.
    pub sources: BTreeSet<String>,
    /// Existing rules with its name stay: its needs are not known.
    pub keeps_named: bool,
}

impl Claim {
    fn needs(&self, group: &str, rule: &Rule) -> bool {
        self.groups.get(group).is_some_and(|needs| needs.rules.contains(rule))
    }

    fn has(&self, group: &str, key: &Key) -> bool {
        let of = |rule: &Rule| matches!(rule, Rule::Client(of) | Rule::Check(of) if of == key);
        let needs = self.groups.get(group);
        needs.is_some_and(|needs| needs.rules.iter().any(of))
    }

    /// Whether the rule opens a port that the load balancer may use.
    fn may_use(&self, key: &Key) -> bool {
        self.ports.iter().any(|port| (key.1..=key.2).contains(port))
    }

    fn uses_source(&self, group: &str, source: &str) -> bool {
        self.sources.contains(source) || self.needs(group, &Rule::From(source.to_owned()))
    }

    fn uses(&self, group: &str, (protocol, from, to, source): &permissions::Rule) -> bool {
        match (from, to) {
            (Some(from), Some(to)) => {
                let key = (protocol.clone(), *from, *to, source.clone());
                self.has(group, &key) || self.may_use(&key)
            }
            _ => self.uses_source(group, source),
        }
    }

    pub fn join(&mut self, other: &Self) {
        for (group, needs) in &other.groups {
            let all = self.groups.entry(group.clone()).or_default();
            all.rules.extend(needs.rules.iter().cloned());
            all.keeps_checks |= needs.keeps_checks;
        }
        if other.own_group.is_some() {
            self.own_group.clone_from(&other.own_group);
        }
        self.ports.extend(&other.ports);
        self.sources.extend(other.sources.iter().cloned());
        self.keeps_named |= other.keeps_named;
    }
}

/// A claim of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedClaim {
    /// Also what AWS has for the load balancer: it may be used until all steps have succeeded.
    pub during: Claim,
    /// `None`: the wider claim stays after the steps.
    pub after: Option<Claim>,
    /// The moment before AWS was read.
    pub since: Instant,
}

/// The claims of this process by the name of the load balancer, and its writes to rules.
#[derive(Debug, Default)]
pub struct Claims {
    by_owner: BTreeMap<String, Claim>,
    pub writes: RuleWrites,
    /// Whether AWS has refused to describe a rule by the load balancer that needs it.
    keeps_descriptions: bool,
}

/// The decision about the rules of a group that no load balancer needs.
#[derive(Debug)]
pub enum Decision {
    Nothing,
    /// They stay until all Services have claimed.
    Deferred,
    Change(Change),
}

impl Claims {
    pub fn widen(&mut self, owner: &str, claim: &Claim) {
        self.by_owner.entry(owner.to_owned()).or_default().join(claim);
    }

    /// Replaces the claim by a complete one. Returns the groups in which others have left rules to this load balancer since
    /// that moment that it does not need any more.
    pub fn narrow(&mut self, owner: &str, claim: &Claim, since: Instant) -> BTreeSet<String> {
        let before = self
            .by_owner
            .insert(owner.to_owned(), claim.clone())
            .unwrap_or_default();
        let added = self.writes.added_since(since);
        let left = added.filter(|(group, rule)| before.uses(group, rule) && !claim.uses(group, rule));
        left.map(|(group, _)| group.clone()).collect()
    }

    /// The groups in which the load balancer needs rules.
    pub fn groups_of(&self, owner: &str) -> BTreeSet<String> {
        let claim = self.by_owner.get(owner);
        claim
            .map(|claim| claim.groups.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Drops a load balancer that is deleted, unless rules may still have its name.
    pub fn forget(&mut self, owner: &str) {
        if !self.keeps_descriptions {
            self.by_owner.remove(owner);
        }
    }

    pub fn keep_descriptions(&mut self) {
        self.keeps_descriptions = true;
    }

    /// Decides about the rules of a group, as it is now. `after`: the claim of the load balancer after its steps, which counts
    /// in this group from now on; `None`: all claims count as they are.
    pub fn decide(
        &mut self,
        (owner, after): (&str, Option<&Claim>),
        group: &SecurityGroup,
        (services, settings): (&[Arc<Service>], &Settings),
        is_usable: impl FnOnce(&Change) -> bool,
    ) -> Decision {
        let change = plan_group(
            group,
            &self.wanted(&group.id, after.map(|claim| (owner, claim))),
            settings,
        );
        if change.is_empty() || !is_usable(&change) {
            return Decision::Nothing;
        }
        if !self.are_complete(services, owner) {
            return Decision::Deferred;
        }

        if let Some((now, after)) = self.by_owner.get_mut(owner).zip(after) {
            let needs = after.groups.get(&group.id).cloned().unwrap_or_default();
            now.groups.insert(group.id.clone(), needs);
        }
        Decision::Change(change)
    }

    /// The claims on a group. `as_if`: a claim that replaces the one that its load balancer has now.
    fn wanted<'a>(&'a self, group: &'a str, as_if: Option<(&'a str, &'a Claim)>) -> Wanted<'a> {
        Wanted {
            group,
            now: &self.by_owner,
            as_if,
        }
    }

    /// Whether all Services that may have traffic have claimed, except for this one. Without our finalizer and without an
    /// address a Service has none.
    fn are_complete(&self, services: &[Arc<Service>], but: &str) -> bool {
        let mut serving = services.iter().filter(|service| {
            action(service) == ServiceAction::Ensure
                && (has_finalizer(service) || request::kind_in_status(service).is_some())
        });
        serving.all(|service| {
            let name = names::load_balancer(names::uid(service));
            name == but || self.by_owner.contains_key(&name)
        })
    }
}

/// The claims on one group.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    group: &'a str,
    now: &'a BTreeMap<String, Claim>,
    as_if: Option<(&'a str, &'a Claim)>,
}

impl<'a> Wanted<'a> {
    fn of(&self, owner: &str) -> Option<&'a Claim> {
        let as_if = self.as_if.filter(|(name, _)| *name == owner);
        as_if.map(|(_, claim)| claim).or_else(|| self.now.get(owner))
    }

    fn owners(&self) -> impl Iterator<Item = (&'a str, &'a Claim)> {
        let as_if = self.as_if;
        let now = self.now.iter().map(|(owner, claim)| (owner.as_str(), claim));
        let others = now.filter(move |(owner, _)| as_if.is_none_or(|(name, _)| name != *owner));
        others.chain(as_if)
    }

    /// Whether clients of a load balancer come from this network.
    fn has_clients(&self, network: &str) -> bool {
        let is_client = |rule: &Rule| matches!(rule, Rule::Client((.., of)) if of == network);
        let mut needs = self.owners().filter_map(|(_, claim)| claim.groups.get(self.group));
        needs.any(|needs| needs.rules.iter().any(is_client))
    }

    /// The change of a rule with this description; `None`: it stays.
    fn fate(&self, key: &Key, text: &str) -> Option<Fate> {
        let (kind, owner) = text.split_once('=')?;
        let claim = self.of(owner).filter(|_| [CLIENT_RULE, HEALTH_RULE].contains(&kind))?;
        let needs = claim.groups.get(self.group);
        let keeps_checks = kind == HEALTH_RULE && needs.is_some_and(|needs| needs.keeps_checks);
        if claim.has(self.group, key) || claim.may_use(key) || keeps_checks || claim.keeps_named {
            return None;
        }

        let needed = [Rule::Client(key.clone()), Rule::Check(key.clone())]
            .iter()
            .find_map(|rule| {
                let (owner, _) = self.owners().find(|(_, claim)| claim.needs(self.group, rule))?;
                Some(described_as(rule, owner)?.1)
            });
        let kept = || Some(rule(kind, self.owners().find(|(_, claim)| claim.may_use(key))?.0));
        Some(needed.or_else(kept).map_or(Fate::Revoke, Fate::Describe))
    }

    /// Whether the source is the own group of a load balancer that is known, and none needs a rule for it.
    fn is_unneeded_source(&self, source: &str) -> bool {
        let is_own = |claim: &Claim| claim.own_group.as_deref() == Some(source);
        let is_known = self.owners().any(|(_, claim)| is_own(claim));
        is_known && !self.owners().any(|(_, claim)| claim.uses_source(self.group, source))
    }
}

enum Fate {
    Describe(String),
    Revoke,
}

/// Changes of the existing rules of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Rules with new descriptions.
    pub describe: Vec<IpPermission>,
    pub revoke: Vec<IpPermission>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.describe.is_empty() && self.revoke.is_empty()
    }
}

/// The rules of a group that no claim has any more, and those whose load balancer does not need them, but another one does.
fn plan_group(group: &SecurityGroup, wanted: &Wanted<'_>, settings: &Settings) -> Change {
    let rules = described(group);
    let (mut describe, mut revoke) = (Rules::new(), Rules::new());
    let mut clients: BTreeSet<&str> = BTreeSet::new();

    for (key, text) in &rules {
        match wanted.fate(key, text) {
            Some(Fate::Revoke) => _ = revoke.entry(text.clone()).or_default().insert(key.clone()),
            Some(Fate::Describe(text)) => {
                if text.contains(CLIENT_RULE) {
                    clients.insert(&key.3);
                }
                describe.entry(text).or_default().insert(key.clone());
            }
            None if text.contains(CLIENT_RULE) => _ = clients.insert(&key.3),
            None => {}
        }
    }

    // Path MTU discovery is needed as long as clients of any load balancer come from the network.
    let has_clients = |network: &str| clients.contains(network) || wanted.has_clients(network);
    let is_needed = |key: &Key| *key == mtu(&key.3) && has_clients(&key.3);
    let unneeded = rules.iter().filter(|(key, text)| *text == MTU_RULE && !is_needed(key));
    for (key, text) in unneeded {
        revoke.entry(text.clone()).or_default().insert(key.clone());
    }

    let mut change = Change {
        describe: permissions_of(describe),
        revoke: permissions_of(revoke),
    };
    change.revoke.extend(unneeded_sources(group, wanted, settings));
    change
}

/// The rules that let in the own groups of classic load balancers without targets here. Only groups of the cluster lose
/// them.
fn unneeded_sources(group: &SecurityGroup, wanted: &Wanted<'_>, settings: &Settings) -> Vec<IpPermission> {
    if !names::in_cluster(&group.tags, &settings.cluster_id) {
        return Vec::new();
    }

    let all_traffic = group.ingress.iter().filter(|rule| rule.protocol == "-1");
    let pairs = all_traffic.flat_map(|rule| &rule.groups);
    let sources: BTreeSet<&String> = pairs.filter_map(|pair| pair.group_id.as_ref()).collect();
    let unneeded = sources
        .into_iter()
        .filter(|source| **source != group.id && wanted.is_unneeded_source(source));
    let rules = unneeded.flat_map(|source| rules_from(group, source));
    rules.filter(|rule| rule.protocol == "-1").collect()
}

/// The claims as a plan needs them.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub claims: &'a Claims,
    /// The moment before AWS was read.
    pub since: Instant,
    pub services: &'a [Arc<Service>],
}

/// The steps for a claim: rules are added before, and revoked after, the steps of the load balancer.
#[derive(Debug, Default)]
pub struct ClaimSteps {
    pub add: Vec<Planned>,
    pub remove: Vec<Planned>,
    /// Groups with rules to revoke when all Services have claimed.
    pub deferred: BTreeSet<String>,
}

impl ClaimSteps {
    /// The steps for a claim in these groups.
    pub fn of<'a>(
        view: View<'_>,
        (owner, claim): (&str, &Claim),
        groups: impl Iterator<Item = &'a SecurityGroup>,
        settings: &Settings,
    ) -> Self {
        let mut steps = Self::default();
        let now = |group: &SecurityGroup, in_doubt| view.claims.writes.applied_to(group, view.since, in_doubt);
        for group in groups.filter(|group| !settings.is_frozen(&group.id)) {
            let needs = claim.groups.get(&group.id);
            let needed = needs.map_or_else(Vec::new, |needs| needs.permissions(owner));
            let lacking = permissions::missing(&needed, &now(group, InDoubt::Absent).ingress);
            if !lacking.is_empty() {
                let step = GroupStep::Widen(group.id.clone(), lacking);
                let planned = Planned::new(step, "the load balancer needs these rules");
                steps.add.push(planned);
            }

            let change = unneeded(view.claims, (owner, claim), &now(group, InDoubt::Present), settings);
            if change.is_empty() {
                continue;
            }
            if view.claims.are_complete(view.services, owner) {
                let step = GroupStep::Narrow(group.id.clone(), change);
                let planned = Planned::new(step, "the load balancer does not need these rules");
                steps.remove.push(planned);
            } else {
                steps.deferred.insert(group.id.clone());
            }
        }

        steps
    }
}

/// The change of a group as if the load balancer had this claim, if one of the rules has its name, is in its claim now, or
/// has no name.
fn unneeded(claims: &Claims, as_if: (&str, &Claim), group: &SecurityGroup, settings: &Settings) -> Change {
    let (owner, claim) = as_if;
    let wanted = claims.wanted(&group.id, Some(as_if));
    let before = claims.by_owner.get(owner);
    let is_own = |key: &Key, text: &str| {
        let is_named = text.split_once('=').is_some_and(|(_, name)| name == owner);
        let is_used = |before: &Claim| before.has(&group.id, key) || before.may_use(key);
        is_named || before.is_some_and(is_used)
    };
    let mut rules = described(group).into_iter();
    let concerns = rules.any(|(key, text)| is_own(&key, &text) && wanted.fate(&key, &text).is_some());

    let change = plan_group(group, &wanted, settings);
    let own = claim.own_group.as_ref();
    let is_unnamed = |rule: &IpPermission| {
        let texts = rule.ranges.iter().map(|range| range.description.as_deref());
        let sources = rule.groups.iter().map(|pair| pair.group_id.as_ref());
        texts.into_iter().any(|text| text == Some(MTU_RULE)) || sources.into_iter().any(|id| id.is_some() && id == own)
    };
    match concerns || change.revoke.iter().any(is_unnamed) {
        true => change,
        false => Change::default(),
    }
}

/// Rules by their descriptions.
type Rules = BTreeMap<String, BTreeSet<Key>>;

fn described_as<'r>(wanted: &'r Rule, owner: &str) -> Option<(&'r Key, String)> {
    match wanted {
        Rule::Check(key) => Some((key, rule(HEALTH_RULE, owner))),
        Rule::Client(key) => Some((key, rule(CLIENT_RULE, owner))),
        Rule::From(_) => None,
    }
}

fn mtu(network: &str) -> Key {
    ("icmp".to_owned(), 3, 4, network.to_owned())
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

fn permissions_of(rules: Rules) -> Vec<IpPermission> {
    let of_text = |(text, keys): (String, BTreeSet<Key>)| {
        let rules = keys.into_iter();
        let rules = rules.map(|(protocol, from, to, cidr)| (protocol, Some(from), Some(to), cidr));
        permissions::join(rules, Some(&text))
    };
    rules.into_iter().flat_map(of_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "sg-node";

    fn key(port: i32) -> Key {
        ("tcp".to_owned(), port, port, "0.0.0.0/0".to_owned())
    }

    /// A claim of clients at these ports.
    fn claim(ports: &[i32]) -> Claim {
        let needs = Needs {
            rules: ports.iter().map(|port| Rule::Client(key(*port))).collect(),
            ..Needs::default()
        };
        Claim {
            groups: [(GROUP.to_owned(), needs)].into(),
            ..Claim::default()
        }
    }

    /// A group with rules for clients at these ports, each with the name of a load balancer.
    fn group(rules: &[(i32, &str)]) -> SecurityGroup {
        let named = rules
            .iter()
            .map(|(port, owner)| claim(&[*port]).groups[GROUP].permissions(owner));
        let ingress: Vec<IpPermission> = named.flatten().filter(|rule| rule.protocol == "tcp").collect();
        SecurityGroup {
            id: GROUP.into(),
            ingress,
            ..SecurityGroup::default()
        }
    }

    fn claims(of: &[(&str, Claim)]) -> Claims {
        let mut claims = Claims::default();
        for (owner, claim) in of {
            claims.widen(owner, claim);
        }
        claims
    }

    /// The changes as `port: description`, and `port` for a revoked rule.
    fn changes(claims: &Claims, group: &SecurityGroup) -> Vec<String> {
        let change = plan_group(group, &claims.wanted(GROUP, None), &Settings::default());
        let port = |rule: &IpPermission| rule.from_port.unwrap_or_default();
        let described = change.describe.iter().map(|rule| {
            let text = rule.ranges[0].description.as_deref().unwrap_or_default();
            format!("{}: {text}", port(rule))
        });
        let revoked = change.revoke.iter().map(|rule| port(rule).to_string());
        described.chain(revoked).collect()
    }

    #[test]
    fn a_rule_is_revoked_only_if_no_claim_has_it_and_its_load_balancer_is_known() {
        let known = claims(&[("a1", claim(&[1])), ("a2", claim(&[2]))]);
        let group = group(&[(1, "a1"), (2, "a1"), (3, "a1"), (4, "a9")]);
        let text = format!("2: {CLIENT_RULE}=a2");
        assert_eq!(changes(&known, &group), [text.as_str(), "3"]);
    }

    /// Its load balancer serves the old port until the listener has moved.
    #[tokio::test(start_paused = true)]
    async fn a_wider_claim_keeps_the_old_rules_until_it_is_narrowed() {
        let mut claims = claims(&[("a1", claim(&[1]))]);
        let group = group(&[(1, "a1"), (2, "a1")]);
        claims.widen("a1", &claim(&[2]));
        assert_eq!(changes(&claims, &group), Vec::<String>::new());
        claims.narrow("a1", &claim(&[2]), Instant::now());
        assert_eq!(changes(&claims, &group), ["1"]);
    }

    #[test]
    fn what_aws_has_for_a_load_balancer_stays_until_its_claim_is_narrowed() {
        let in_use = Claim {
            ports: [2].into(),
            ..Claim::default()
        };
        let claims = claims(&[("a1", claim(&[1])), ("a2", in_use)]);
        let group = group(&[(2, "a1"), (3, "a2"), (4, "a1")]);
        let text = format!("2: {CLIENT_RULE}=a2");
        assert_eq!(changes(&claims, &group), [text.as_str(), "4", "3"]);
    }

    #[test]
    fn rules_with_the_name_of_a_load_balancer_of_which_nothing_is_known_stay() {
        let unknown = Claim {
            keeps_named: true,
            ..Claim::default()
        };
        let claims = claims(&[("a1", claim(&[1])), ("a2", unknown)]);
        assert_eq!(changes(&claims, &group(&[(2, "a2"), (3, "a1")])), ["3"]);
    }

    /// Another one may have described its rule by the claim that is narrowed.
    #[tokio::test(start_paused = true)]
    async fn a_narrower_claim_reports_groups_with_rules_that_others_have_left_to_it_meanwhile() {
        let (mut claims, since) = (claims(&[("a1", claim(&[1]))]), Instant::now());
        let left = claim(&[1]).groups[GROUP].permissions("a1");
        claims
            .writes
            .begin(GROUP, &left, super::super::rule_writes::Effect::Added);
        assert!(claims.narrow("a1", &claim(&[1]), since).is_empty());
        assert_eq!(claims.narrow("a1", &Claim::default(), since), [GROUP.to_owned()].into());
        assert!(claims.narrow("a1", &Claim::default(), since).is_empty());
    }
}
