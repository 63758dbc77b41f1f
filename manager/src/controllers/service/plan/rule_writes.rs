//! The writes of this process to the rules of the Nodes' security groups. Pure.
//!
//! EC2 may describe a group as it was some seconds ago. Within that time an own write counts more than the answer: none is
//! missed that was just revoked, and no deletion waits until EC2 lists the newest rules. But an answer without an added rule
//! decides that the rule is added again, because somebody else may have revoked it: EC2 refuses a duplicate, which is no
//! failure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use tokio::time::Instant;

use super::super::spec::permissions::{self, Rule};

/// How old the state may be from which EC2 answers.
pub const STALE: Duration = Duration::from_secs(10);

/// Longer than any observation takes.
const KEPT: Duration = Duration::from_secs(3600);

/// The effect of a write on a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The write is under way, or its result was lost.
    InDoubt,
    Present,
    Absent,
}

/// The reason to ask for the rules of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To add those that are missing: a rule in doubt is absent.
    Add,
    /// To revoke those that are not needed: a rule in doubt is present.
    Revoke,
}

#[derive(Debug, Clone)]
struct Written {
    /// With only this source, and its description.
    rule: IpPermission,
    state: State,
    /// `None`: the write is under way.
    ended: Option<Instant>,
}

impl Written {
    /// Whether the rule is present, whatever EC2 answers that was asked after this moment; `None`: the answer decides.
    fn is_present(&self, since: Instant, purpose: Purpose) -> Option<bool> {
        if self.ended.is_some_and(|ended| ended + STALE < since) {
            return None;
        }

        match (self.state, purpose) {
            (State::Present, Purpose::Add) => None,
            (State::Present | State::InDoubt, Purpose::Revoke) => Some(true),
            (State::Absent, _) | (State::InDoubt, Purpose::Add) => Some(false),
        }
    }
}

/// The records of rules before a write.
#[derive(Debug)]
pub struct Former(Vec<(Rule, Option<Written>)>);

/// The last write of each rule, by group.
#[derive(Debug, Default)]
pub struct RuleWrites(HashMap<String, BTreeMap<Rule, Written>>);

impl RuleWrites {
    /// Records a write of rules. `ended`: `None` while it is under way.
    pub fn note(&mut self, group: &str, rules: &[IpPermission], state: State, ended: Option<Instant>) {
        let of_group = self.0.entry(group.to_owned()).or_default();
        if let Some(now) = ended {
            of_group.retain(|_, written| written.ended.is_none_or(|ended| ended + KEPT > now));
        }

        for (key, rule) in permissions::by_rule(rules) {
            of_group.insert(key, Written { rule, state, ended });
        }
    }

    /// Records a write that is under way.
    pub fn begin(&mut self, group: &str, rules: &[IpPermission]) -> Former {
        let of_group = self.0.entry(group.to_owned()).or_default();
        let keys = permissions::by_rule(rules).into_keys();
        let former = Former(keys.map(|key| (key.clone(), of_group.get(&key).cloned())).collect());
        self.note(group, rules, State::InDoubt, None);
        former
    }

    /// Records that a write had no effect: EC2 has refused it.
    pub fn restore(&mut self, group: &str, former: Former) {
        let of_group = self.0.entry(group.to_owned()).or_default();
        for (key, written) in former.0 {
            match written {
                Some(written) => _ = of_group.insert(key, written),
                None => _ = of_group.remove(&key),
            }
        }
    }

    /// Records that no write of these rules is under way any more.
    pub fn end(&mut self, group: &str, rules: &[IpPermission], now: Instant) {
        let Some(of_group) = self.0.get_mut(group) else {
            return;
        };
        for key in permissions::by_rule(rules).into_keys() {
            if let Some(written) = of_group.get_mut(&key) {
                written.ended = written.ended.or(Some(now));
            }
        }
    }

    pub fn forget_group(&mut self, group: &str) {
        self.0.remove(group);
    }

    /// A group that EC2 has described after this moment, with the writes that the description may lack.
    pub fn applied_to(&self, group: &SecurityGroup, since: Instant, purpose: Purpose) -> SecurityGroup {
        let written = self.0.get(&group.id).into_iter().flatten();
        let newer = written.filter_map(|(key, written)| Some((key, written, written.is_present(since, purpose)?)));
        let newer: Vec<_> = newer.collect();
        let mut group = group.clone();
        if newer.is_empty() {
            return group;
        }

        group.ingress = permissions::one_source_each(&group.ingress);
        let listed: BTreeSet<Rule> = group.ingress.iter().filter_map(permissions::as_compared).collect();
        // A listed rule in doubt keeps its description: it may be the rule of somebody else.
        let replaces = |key: &Rule, written: &Written| written.state != State::InDoubt || !listed.contains(key);
        let is_replaced = |rule: &IpPermission| {
            let key = permissions::as_compared(rule);
            let mut newer = newer.iter().filter(|(written, ..)| Some(*written) == key.as_ref());
            newer.any(|(key, written, is_present)| !is_present || replaces(key, written))
        };
        group.ingress.retain(|rule| !is_replaced(rule));
        let present = newer
            .iter()
            .filter(|(key, written, is_present)| *is_present && replaces(key, written));
        group
            .ingress
            .extend(present.map(|(_, written, _)| written.rule.clone()));

        group
    }

    /// Whether this process has certainly added a rule to a group after this moment.
    pub fn has_added(&self, group: &str, key: &Rule, since: Instant) -> bool {
        let written = self.0.get(group).and_then(|of_group| of_group.get(key));
        written
            .is_some_and(|written| written.state == State::Present && written.ended.is_some_and(|ended| ended >= since))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::spec::permissions::{all_from, count};
    use super::*;

    const GROUP: &str = "sg-node";

    fn group(rules: &[IpPermission]) -> SecurityGroup {
        SecurityGroup {
            id: GROUP.into(),
            ingress: rules.to_vec(),
            ..SecurityGroup::default()
        }
    }

    /// The number of rules for each purpose: to add, to revoke.
    fn seen(writes: &RuleWrites, listed: &[IpPermission], since: Instant) -> [usize; 2] {
        [Purpose::Add, Purpose::Revoke].map(|purpose| count(&writes.applied_to(&group(listed), since, purpose).ingress))
    }

    #[tokio::test(start_paused = true)]
    async fn an_own_write_counts_more_than_an_answer_that_may_be_older() {
        let (rule, mut writes, start) = ([all_from("sg-lb")], RuleWrites::default(), Instant::now());
        writes.note(GROUP, &rule, State::InDoubt, None);
        assert_eq!(seen(&writes, &[], start + STALE * 9), [0, 1], "under way");
        writes.note(GROUP, &rule, State::Present, Some(start));
        assert_eq!(
            seen(&writes, &[], start + STALE),
            [0, 1],
            "somebody may have revoked it"
        );
        assert_eq!(seen(&writes, &rule, start + STALE), [1, 1]);
        assert_eq!(seen(&writes, &[], start + STALE * 2), [0, 0], "somebody has revoked it");

        writes.note(GROUP, &rule, State::Absent, Some(start));
        assert_eq!(seen(&writes, &rule, start + STALE), [0, 0]);
        assert_eq!(seen(&writes, &rule, start + STALE * 2), [1, 1], "somebody has added it");
    }

    #[tokio::test(start_paused = true)]
    async fn the_effect_of_a_write_that_failed_is_in_doubt() {
        let (rule, mut writes, start) = ([all_from("sg-lb")], RuleWrites::default(), Instant::now());
        writes.note(GROUP, &rule, State::InDoubt, Some(start));
        assert_eq!(seen(&writes, &rule, start), [0, 1]);
        assert_eq!(seen(&writes, &rule, start + STALE * 2), [1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_write_leaves_the_record_of_the_one_before() {
        let (rule, mut writes, start) = ([all_from("sg-lb")], RuleWrites::default(), Instant::now());
        let former = writes.begin(GROUP, &rule);
        writes.restore(GROUP, former);
        assert_eq!(seen(&writes, &[], start), [0, 0]);
        assert_eq!(seen(&writes, &rule, start), [1, 1]);

        writes.note(GROUP, &rule, State::Absent, Some(start));
        let former = writes.begin(GROUP, &rule);
        writes.restore(GROUP, former);
        assert_eq!(seen(&writes, &rule, start), [0, 0], "revoked just before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_decided_revocation_ends_even_if_it_was_refused() {
        let (rule, mut writes, start) = ([all_from("sg-lb")], RuleWrites::default(), Instant::now());
        writes.note(GROUP, &rule, State::InDoubt, None);
        let former = writes.begin(GROUP, &rule);
        writes.restore(GROUP, former);
        assert_eq!(seen(&writes, &[], start + STALE * 9), [0, 1], "under way");
        writes.end(GROUP, &rule, start);
        assert_eq!(seen(&writes, &rule, start + STALE * 2), [1, 1]);
    }

    /// A user has added it before a call of ours whose answer was lost.
    #[tokio::test(start_paused = true)]
    async fn a_listed_rule_in_doubt_keeps_the_description_that_ec2_lists() {
        let of = |description: &str| permissions::join(std::iter::once(key()), Some(description));
        let (mut writes, start) = (RuleWrites::default(), Instant::now());
        writes.note(GROUP, &of("ours"), State::InDoubt, Some(start));
        let seen = writes.applied_to(&group(&of("by hand")), start, Purpose::Revoke);
        assert_eq!(seen.ingress, of("by hand"));
        let seen = writes.applied_to(&group(&[]), start, Purpose::Revoke);
        assert_eq!(seen.ingress, of("ours"));
        writes.note(GROUP, &of("ours"), State::Present, Some(start));
        let seen = writes.applied_to(&group(&of("before")), start, Purpose::Revoke);
        assert_eq!(seen.ingress, of("ours"), "described anew just before");
    }

    fn key() -> Rule {
        ("tcp".to_owned(), Some(1), Some(1), "0.0.0.0/0".to_owned())
    }
}
