//! Claims: the rules that load balancers need in the security groups of Nodes. Pure.
//!
//! EC2 keeps one rule for each protocol, ports and network, whatever its description says, so several load balancers rely
//! on one rule. A group therefore gets the union of all claims:
//!
//! - a claim is widened with the plan, by what the spec needs and by what AWS has for the load balancer, and narrowed to the
//!   needs of the spec after all steps have succeeded;
//! - a rule is revoked only if this process knows the load balancer that its description or its source names, no claim has
//!   the rule, and all Services have claimed. If another load balancer needs it, it gets the description of that one. A rule
//!   of path MTU discovery is revoked with the last clients of its network;
//! - all other rules stay: those of users, and those of load balancers that this process has never reconciled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use tokio::time::Instant;

use super::super::action::{ServiceAction, action, has_finalizer};
use super::super::settings::Settings;
use super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, rule};
use super::super::spec::permissions::{Rule, Rules, by_rule, description};
use super::super::spec::{names, request};
use super::rule_writes::{Purpose, RuleWrites};
use super::{GroupStep, Planned};

/// The needs of a load balancer; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// The needed rules in each group, with the name of the load balancer.
    pub groups: BTreeMap<String, Rules>,
    /// In these groups existing rules for its health checks stay.
    pub keeps_checks: bool,
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
    fn needs(&self, group: &str, key: &Rule) -> Option<&IpPermission> {
        self.groups.get(group)?.get(key)
    }

    /// Whether the load balancer may use an existing rule.
    fn may_use(&self, (_, from, to, source): &Rule) -> bool {
        let opens = |port: &i32| from.zip(*to).is_some_and(|(from, to)| (from..=to).contains(port));
        self.sources.contains(source) || self.ports.iter().any(opens)
    }

    fn uses(&self, group: &str, key: &Rule) -> bool {
        self.needs(group, key).is_some() || self.may_use(key)
    }

    /// Whether a rule of this kind with the name of the load balancer stays although it is not needed.
    fn keeps_check(&self, group: &str, kind: &str) -> bool {
        kind == HEALTH_RULE && self.keeps_checks && self.groups.contains_key(group)
    }

    pub fn join(&mut self, other: &Self) {
        for (group, rules) in &other.groups {
            let all = self.groups.entry(group.clone()).or_default();
            all.extend(rules.iter().map(|(key, rule)| (key.clone(), rule.clone())));
        }
        if other.own_group.is_some() {
            self.own_group.clone_from(&other.own_group);
        }
        self.ports.extend(&other.ports);
        self.sources.extend(other.sources.iter().cloned());
        self.keeps_checks |= other.keeps_checks;
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
    /// Groups with rules of the load balancer to revoke when all Services have claimed.
    pub deferred: BTreeSet<String>,
}

impl PlannedClaim {
    /// A claim that stays after the steps: the spec is refused.
    pub fn lasting(during: Claim, since: Instant) -> Self {
        Self {
            during,
            after: None,
            since,
            deferred: BTreeSet::new(),
        }
    }
}

/// The claims of this process by the name of the load balancer, and its writes to rules.
#[derive(Debug, Default)]
pub struct Claims {
    by_owner: BTreeMap<String, Claim>,
    /// Groups that may have rules with the name of a load balancer that it does not need: their revocation was deferred, or
    /// others have left them to it. They are narrowed at the end of its next plan.
    left: BTreeMap<String, BTreeSet<String>>,
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

    pub fn has(&self, owner: &str) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// Widens a claim by that of a plan.
    pub fn begin(&mut self, owner: &str, planned: &PlannedClaim) {
        self.widen(owner, &planned.during);
        self.leave(owner, planned.deferred.iter().cloned());
    }

    /// Replaces the claim by a complete one. Returns the groups in which rules with its name may be left.
    pub fn narrow(&mut self, owner: &str, claim: &Claim) -> BTreeSet<String> {
        let before = self.by_owner.insert(owner.to_owned(), claim.clone());
        let groups = before.unwrap_or_default().groups.into_keys();
        self.leave(owner, groups.filter(|group| !claim.groups.contains_key(group)));
        self.left.get(owner).cloned().unwrap_or_default()
    }

    fn leave(&mut self, owner: &str, groups: impl Iterator<Item = String>) {
        let mut groups = groups.peekable();
        if groups.peek().is_some() {
            self.left.entry(owner.to_owned()).or_default().extend(groups);
        }
    }

    /// Records that a group has no rule more than this load balancer needs.
    pub fn narrowed(&mut self, owner: &str, group: &str) {
        if let Some(left) = self.left.get_mut(owner) {
            left.remove(group);
        }
    }

    /// Drops a load balancer that is deleted. While rules may still have its name, it stays known, without needs.
    pub fn forget(&mut self, owner: &str) {
        self.abandon(owner);
        if self.keeps_descriptions {
            self.by_owner.insert(owner.to_owned(), Claim::default());
        }
    }

    /// Drops a load balancer whose rules AWS refuses to revoke.
    pub fn abandon(&mut self, owner: &str) {
        self.by_owner.remove(owner);
        self.left.remove(owner);
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
        let change = self.unneeded(group, (owner, after), settings);
        let is_complete = self.are_complete(services, owner);
        if !is_complete && change.owners.contains(owner) {
            self.leave(owner, std::iter::once(group.id.clone()));
            return Decision::Deferred;
        }
        if !is_complete || !is_usable(&change) {
            return Decision::Nothing;
        }

        if let Some((now, after)) = self.by_owner.get_mut(owner).zip(after) {
            now.groups.remove(&group.id);
            let needs = after.groups.get_key_value(&group.id);
            now.groups.extend(needs.map(|(id, rules)| (id.clone(), rules.clone())));
        }
        for other in &change.left_to {
            self.leave(other, std::iter::once(group.id.clone()));
        }
        Decision::Change(change)
    }

    /// The rules of a group that no load balancer needs, and those whose load balancer does not need them, but another one
    /// does. `by`: the load balancer that asks, and a claim that replaces its present one.
    fn unneeded(&self, group: &SecurityGroup, by: (&str, Option<&Claim>), settings: &Settings) -> Change {
        let wanted = Wanted {
            group: &group.id,
            now: &self.by_owner,
            by: by.0,
            as_if: by.1.map(|claim| (by.0, claim)),
            keeps_descriptions: self.keeps_descriptions,
        };
        wanted.change(group, settings)
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
            name == but || self.has(&name)
        })
    }
}

/// Changes of the existing rules of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Rules with new descriptions.
    pub describe: Vec<IpPermission>,
    pub revoke: Vec<IpPermission>,
    /// The load balancers of these rules until now.
    owners: BTreeSet<String>,
    /// Load balancers for which rules stay or are described: they narrow the group at the end of their plans.
    left_to: BTreeSet<String>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.describe.is_empty() && self.revoke.is_empty()
    }

    /// Whether rules stay until the claim of this load balancer is narrowed.
    pub fn is_left_to(&self, owner: &str) -> bool {
        self.left_to.contains(owner)
    }
}

/// The decision about a rule with the name of a load balancer.
enum Fate<'a> {
    Stays,
    /// Until the claim of this load balancer is narrowed.
    StaysMeanwhile(&'a str),
    /// It gets the name of another load balancer that needs it, or else of one that may use it.
    Moves {
        from: &'a str,
        to: &'a str,
        described: IpPermission,
    },
    Ends(&'a str),
}

/// The claims on one group.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    group: &'a str,
    now: &'a BTreeMap<String, Claim>,
    by: &'a str,
    as_if: Option<(&'a str, &'a Claim)>,
    keeps_descriptions: bool,
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

    fn change(&self, group: &SecurityGroup, settings: &Settings) -> Change {
        let rules = by_rule(&group.ingress);
        let mut change = Change::default();
        // The networks of clients whose rules stay.
        let mut clients: BTreeSet<&str> = BTreeSet::new();

        for (key, rule) in &rules {
            let named = description(rule).split_once('=');
            match named.map_or(Fate::Stays, |named| self.fate(key, rule, named)) {
                Fate::Stays => {}
                Fate::StaysMeanwhile(owner) => _ = change.left_to.insert(owner.to_owned()),
                Fate::Moves { from, to, described } => {
                    change.owners.insert(from.to_owned());
                    change.left_to.insert(to.to_owned());
                    change.describe.push(described);
                }
                Fate::Ends(owner) => {
                    change.owners.insert(owner.to_owned());
                    change.revoke.push(rule.clone());
                    continue;
                }
            }
            if let Some((CLIENT_RULE, _)) = named {
                clients.insert(&key.3);
            }
        }

        // Path MTU discovery is needed as long as clients of any load balancer come from the network.
        let is_needed = |key: &Rule| {
            let has_form = (key.0.as_str(), key.1, key.2) == MTU;
            has_form
                && (clients.contains(key.3.as_str()) || self.owners().any(|(_, claim)| claim.uses(self.group, key)))
        };
        let unneeded = rules
            .iter()
            .filter(|(key, rule)| description(rule) == MTU_RULE && !is_needed(key));
        change.revoke.extend(unneeded.map(|(_, rule)| rule.clone()));

        // Only groups of the cluster lose rules for classic load balancers.
        if names::in_cluster(&group.tags, &settings.cluster_id) {
            for (key, rule) in rules.iter().filter(|(key, _)| key.0 == "-1" && key.3 != group.id) {
                if let Some(owner) = self.owner_of_source(key) {
                    change.owners.insert(owner.to_owned());
                    change.revoke.push(rule.clone());
                }
            }
        }

        change
    }

    /// The decision about a rule with the name of a load balancer. Only a known one loses rules.
    fn fate<'b>(&self, key: &Rule, of: &IpPermission, (kind, owner): (&'b str, &'b str)) -> Fate<'b>
    where
        'a: 'b,
    {
        let claim = self.of(owner).filter(|_| [CLIENT_RULE, HEALTH_RULE].contains(&kind));
        let Some(claim) = claim.filter(|claim| claim.needs(self.group, key).is_none()) else {
            return Fate::Stays;
        };
        if claim.keeps_check(self.group, kind) && owner == self.by {
            return Fate::Stays;
        }
        if claim.may_use(key) || claim.keeps_named || claim.keeps_check(self.group, kind) {
            return Fate::StaysMeanwhile(owner);
        }

        let needing = |(to, claim): (&'a str, &'a Claim)| Some((to, claim.needs(self.group, key)?.clone()));
        let using = |(to, claim): (&'a str, &'a Claim)| {
            let mut described = of.clone();
            for range in &mut described.ranges {
                range.description = Some(rule(kind, to));
            }
            claim.may_use(key).then_some((to, described))
        };
        let (needing, using) = (self.owners().find_map(needing), self.owners().find_map(using));
        match (needing, using) {
            (Some(_), _) if self.keeps_descriptions => Fate::Stays,
            (None, Some((to, _))) if self.keeps_descriptions => Fate::StaysMeanwhile(to),
            (Some((to, described)), _) | (None, Some((to, described))) => Fate::Moves {
                from: owner,
                to,
                described,
            },
            (None, None) => Fate::Ends(owner),
        }
    }

    /// The load balancer whose own group is the source of a rule that none needs.
    fn owner_of_source(&self, key: &Rule) -> Option<&'a str> {
        let is_own = |claim: &Claim| claim.own_group.as_ref() == Some(&key.3);
        let (owner, _) = self.owners().find(|(_, claim)| is_own(claim))?;
        let is_used = self.owners().any(|(_, claim)| claim.uses(self.group, key));
        (!is_used).then_some(owner)
    }
}

/// Path MTU discovery: protocol, type and code.
const MTU: (&str, Option<i32>, Option<i32>) = ("icmp", Some(3), Some(4));

/// The rule of path MTU discovery for clients of a network.
pub fn mtu(network: &str) -> Rule {
    let (protocol, from, to) = MTU;
    (protocol.to_owned(), from, to, network.to_owned())
}

/// The first rules as text, and the number of the others.
fn listed(rules: &[(&Rule, &IpPermission)]) -> String {
    const MOST: usize = 3;

    let text = |((protocol, from, to, source), _): &(&Rule, &IpPermission)| match (protocol.as_str(), from, to) {
        ("-1", ..) => format!("all traffic from {source}"),
        (_, Some(from), Some(to)) if from != to => format!("{protocol} {from}-{to} from {source}"),
        (_, Some(from), _) => format!("{protocol} {from} from {source}"),
        _ => format!("{protocol} from {source}"),
    };
    let mut texts: Vec<String> = rules.iter().take(MOST).map(text).collect();
    if rules.len() > MOST {
        texts.push(format!("and {} more", rules.len() - MOST));
    }
    texts.join(", ")
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
    deferred: BTreeSet<String>,
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
        let now = |group: &SecurityGroup, purpose| view.claims.writes.applied_to(group, view.since, purpose);
        for group in groups.filter(|group| !settings.is_frozen(&group.id)) {
            let has = by_rule(&now(group, Purpose::Add).ingress);
            let needed = claim.groups.get(&group.id).into_iter().flatten();
            let lacking: Vec<_> = needed.filter(|(key, _)| !has.contains_key(*key)).collect();
            if !lacking.is_empty() {
                let reason = format!("rules are missing: {}", listed(&lacking));
                let rules = lacking.into_iter().map(|(_, rule)| rule.clone()).collect();
                let step = GroupStep::Widen(group.id.clone(), rules);
                steps.add.push(Planned::new(step, reason));
            }

            let by = (owner, Some(claim));
            let change = view.claims.unneeded(&now(group, Purpose::Revoke), by, settings);
            if change.is_empty() {
                continue;
            }
            if view.claims.are_complete(view.services, owner) {
                let step = GroupStep::Narrow(group.id.clone(), change);
                let planned = Planned::new(step, "no load balancer needs these rules, or only another one does");
                steps.remove.push(planned);
            } else if change.owners.contains(owner) {
                steps.deferred.insert(group.id.clone());
            }
        }

        steps
    }

    /// The claim with these steps. `in_use`: what AWS has for the load balancer.
    pub fn claim(&mut self, in_use: Claim, after: Claim, since: Instant) -> PlannedClaim {
        let mut during = in_use;
        during.join(&after);
        PlannedClaim {
            after: Some(after),
            deferred: std::mem::take(&mut self.deferred),
            ..PlannedClaim::lasting(during, since)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::spec::permissions::join;
    use super::*;

    const GROUP: &str = "sg-node";

    fn key(port: i32) -> Rule {
        ("tcp".to_owned(), Some(port), Some(port), "0.0.0.0/0".to_owned())
    }

    /// Rules for clients of a load balancer at these ports.
    fn rules(owner: &str, ports: &[i32]) -> Vec<IpPermission> {
        join(ports.iter().copied().map(key), Some(&rule(CLIENT_RULE, owner)))
    }

    /// A claim of clients at these ports.
    fn claim(owner: &str, ports: &[i32]) -> Claim {
        Claim {
            groups: [(GROUP.to_owned(), by_rule(&rules(owner, ports)))].into(),
            ..Claim::default()
        }
    }

    /// A group with rules for clients at these ports, each with the name of a load balancer.
    fn group(named: &[(i32, &str)]) -> SecurityGroup {
        SecurityGroup {
            id: GROUP.into(),
            ingress: named.iter().flat_map(|(port, owner)| rules(owner, &[*port])).collect(),
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
        let change = claims.unneeded(group, ("", None), &Settings::default());
        let port = |rule: &IpPermission| rule.from_port.unwrap_or_default();
        let described = change
            .describe
            .iter()
            .map(|rule| format!("{}: {}", port(rule), description(rule)));
        let revoked = change.revoke.iter().map(|rule| port(rule).to_string());
        described.chain(revoked).collect()
    }

    #[test]
    fn a_rule_is_revoked_only_if_no_claim_has_it_and_its_load_balancer_is_known() {
        let mut known = claims(&[("a1", claim("a1", &[1])), ("a2", claim("a2", &[2]))]);
        let group = group(&[(1, "a1"), (2, "a1"), (3, "a1"), (4, "a9")]);
        let text = format!("2: {CLIENT_RULE}=a2");
        assert_eq!(changes(&known, &group), [text.as_str(), "3"]);
        known.keep_descriptions();
        assert_eq!(changes(&known, &group), ["3"]);
    }

    /// Its load balancer serves the old port until the listener has moved.
    #[test]
    fn a_wider_claim_keeps_the_old_rules_until_it_is_narrowed() {
        let mut claims = claims(&[("a1", claim("a1", &[1]))]);
        let group = group(&[(1, "a1"), (2, "a1")]);
        claims.widen("a1", &claim("a1", &[2]));
        assert_eq!(changes(&claims, &group), Vec::<String>::new());
        claims.narrow("a1", &claim("a1", &[2]));
        assert_eq!(changes(&claims, &group), ["1"]);
    }

    #[test]
    fn what_aws_has_for_a_load_balancer_stays_until_its_claim_is_narrowed() {
        let in_use = Claim {
            ports: [2].into(),
            ..Claim::default()
        };
        let claims = claims(&[("a1", claim("a1", &[1])), ("a2", in_use)]);
        let group = group(&[(2, "a1"), (3, "a2"), (4, "a1")]);
        let text = format!("2: {CLIENT_RULE}=a2");
        assert_eq!(changes(&claims, &group), [text.as_str(), "3", "4"]);
    }

    #[test]
    fn rules_with_the_name_of_a_load_balancer_of_which_nothing_is_known_stay() {
        let unknown = Claim {
            keeps_named: true,
            ..Claim::default()
        };
        let claims = claims(&[("a1", claim("a1", &[1])), ("a2", unknown)]);
        assert_eq!(changes(&claims, &group(&[(2, "a2"), (3, "a1")])), ["3"]);
    }

    /// The other one narrows the group after its steps, whatever name the rule has, and whether AWS lets it change.
    #[test]
    fn a_rule_that_another_one_may_use_is_left_to_it() {
        let in_use = Claim {
            ports: [1].into(),
            ..Claim::default()
        };
        for (name, is_denied) in [("a1", false), ("a1", true), ("a2", false)] {
            let mut claims = claims(&[("a1", Claim::default()), ("a2", in_use.clone())]);
            if is_denied {
                claims.keep_descriptions();
            }
            let group = group(&[(1, name)]);
            let decision = claims.decide(("a1", None), &group, (&[], &Settings::default()), |_| true);
            let is_changed = matches!(decision, Decision::Change(change) if !change.is_empty());
            assert_eq!(is_changed, name == "a1" && !is_denied);
            assert_eq!(claims.narrow("a2", &Claim::default()), [GROUP.to_owned()].into());
        }
    }

    /// It is revoked with the next plan of its load balancer that does not keep it.
    #[test]
    fn a_rule_that_its_load_balancer_keeps_for_health_checks_is_left_to_it() {
        let keeping = Claim {
            keeps_checks: true,
            ..claim("a2", &[1])
        };
        let mut claims = claims(&[("a1", Claim::default()), ("a2", keeping)]);
        let mut group = group(&[(2, "a2")]);
        group.ingress[0].ranges[0].description = Some(rule(HEALTH_RULE, "a2"));
        let decision = claims.decide(("a1", None), &group, (&[], &Settings::default()), |_| true);
        assert!(matches!(decision, Decision::Change(change) if change.is_empty()));
        let left = claims.narrow("a2", &claim("a2", &[1]));
        assert_eq!(left, [GROUP.to_owned()].into());
    }

    /// Another one may have described its rule by the claim that is narrowed.
    #[test]
    fn a_narrower_claim_reports_groups_with_rules_that_others_have_left_to_it() {
        let mut claims = claims(&[("a1", Claim::default()), ("a2", claim("a2", &[1]))]);
        let group = group(&[(1, "a1")]);
        let decision = claims.decide(("a1", None), &group, (&[], &Settings::default()), |_| true);
        assert!(matches!(decision, Decision::Change(_)));
        for _ in 0..2 {
            assert_eq!(claims.narrow("a2", &claim("a2", &[1])), [GROUP.to_owned()].into());
        }
        claims.narrowed("a2", GROUP);
        assert!(claims.narrow("a2", &claim("a2", &[1])).is_empty());
        assert_eq!(claims.narrow("a2", &Claim::default()), [GROUP.to_owned()].into());
    }
}
