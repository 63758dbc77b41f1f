//! The writes of this process to the rules of security groups. Pure.
//!
//! EC2 may describe a group as it was some seconds ago. Within that time an own write counts more than the answer: no rule is
//! added twice, none is missed that was just revoked, and no deletion waits until EC2 lists the newest rules.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use tokio::time::Instant;

use super::super::spec::permissions::{Rule, one_source_each};

/// How old the state may be from which EC2 answers.
pub const STALE: Duration = Duration::from_secs(10);

/// Longer than any observation takes.
const KEPT: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Added,
    Revoked,
}

/// Whether a rule counts as present while a write of it is under way, or after its result was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDoubt {
    /// To find the rules that are missing.
    Absent,
    /// To find the rules that are to be revoked.
    Present,
}

#[derive(Debug, Clone)]
struct Written {
    /// With only this source, and its description.
    rule: IpPermission,
    effect: Effect,
    /// `None`: the write is under way.
    ended: Option<Instant>,
    is_certain: bool,
}

impl Written {
    fn is_newer(&self, since: Instant) -> bool {
        self.ended.is_none_or(|ended| ended + STALE >= since)
    }

    fn is_present(&self, in_doubt: InDoubt) -> bool {
        match self.is_certain {
            true => self.effect == Effect::Added,
            false => in_doubt == InDoubt::Present,
        }
    }
}

/// The last write of each rule, by group.
#[derive(Debug, Default)]
pub struct RuleWrites(HashMap<String, BTreeMap<Rule, Written>>);

impl RuleWrites {
    pub fn begin(&mut self, group: &str, rules: &[IpPermission], effect: Effect) {
        self.note(group, rules, |_| Some((effect, None, false)));
    }

    /// Ends a write. After an error its effect is not known.
    pub fn end(&mut self, group: &str, rules: &[IpPermission], is_done: bool, now: Instant) {
        self.note(group, rules, |known| Some((known?.effect, Some(now), is_done)));
        let of_group = self.0.entry(group.to_owned()).or_default();
        of_group.retain(|_, written| written.ended.is_none_or(|ended| ended + KEPT > now));
    }

    /// Records rules that certainly exist, with these descriptions.
    pub fn found(&mut self, group: &str, rules: &[IpPermission], now: Instant) {
        self.note(group, rules, |_| Some((Effect::Added, Some(now), true)));
    }

    fn note(
        &mut self,
        group: &str,
        rules: &[IpPermission],
        change: impl Fn(Option<&Written>) -> Option<(Effect, Option<Instant>, bool)>,
    ) {
        let of_group = self.0.entry(group.to_owned()).or_default();
        for rule in one_source_each(rules) {
            let Some(key) = key(&rule) else {
                continue;
            };
            if let Some((effect, ended, is_certain)) = change(of_group.get(&key)) {
                let written = Written {
                    rule,
                    effect,
                    ended,
                    is_certain,
                };
                of_group.insert(key, written);
            }
        }
    }

    /// A group that EC2 has described after this moment, with the writes that the description may lack.
    pub fn applied_to(&self, group: &SecurityGroup, since: Instant, in_doubt: InDoubt) -> SecurityGroup {
        let mut group = group.clone();
        let Some(of_group) = self.0.get(&group.id) else {
            return group;
        };

        let newer = || of_group.iter().filter(|(_, written)| written.is_newer(since));
        if newer().next().is_none() {
            return group;
        }

        let is_written = |rule: &IpPermission| key(rule).is_some_and(|key| newer().any(|(written, _)| *written == key));
        group.ingress = one_source_each(&group.ingress);
        group.ingress.retain(|rule| !is_written(rule));
        let present = newer().filter(|(_, written)| written.is_present(in_doubt));
        group.ingress.extend(present.map(|(_, written)| written.rule.clone()));

        group
    }

    /// The rules that may have been added or described after this moment, each with its group.
    pub fn added_since(&self, since: Instant) -> impl Iterator<Item = (&String, &Rule)> {
        let is_added = move |written: &Written| {
            written.is_present(InDoubt::Present) && written.ended.is_none_or(|ended| ended >= since)
        };
        let groups = self.0.iter();
        groups.flat_map(move |(group, rules)| {
            let added = rules.iter().filter(move |(_, written)| is_added(written));
            added.map(move |(rule, _)| (group, rule))
        })
    }
}

/// Where EC2 compares rules. Rules for IPv6 and prefix lists are not followed: no group of Nodes gets any from here.
fn key(rule: &IpPermission) -> Option<Rule> {
    let range = rule.ranges.first().map(|range| &range.cidr);
    let source = range.or_else(|| rule.groups.first()?.group_id.as_ref());
    Some((rule.protocol.clone(), rule.from_port, rule.to_port, source?.clone()))
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

    /// The number of rules for both ways to count doubtful ones: absent, present.
    fn seen(writes: &RuleWrites, listed: &[IpPermission], since: Instant) -> [usize; 2] {
        [InDoubt::Absent, InDoubt::Present]
            .map(|in_doubt| count(&writes.applied_to(&group(listed), since, in_doubt).ingress))
    }

    #[tokio::test(start_paused = true)]
    async fn an_own_write_counts_more_than_an_answer_that_may_be_older() {
        let (rule, mut writes, start) = ([all_from("sg-lb")], RuleWrites::default(), Instant::now());
        writes.begin(GROUP, &rule, Effect::Added);
        assert_eq!(seen(&writes, &[], start + STALE * 9), [0, 1], "under way");
        writes.end(GROUP, &rule, true, start);
        assert_eq!(seen(&writes, &[], start + STALE), [1, 1]);
        assert_eq!(seen(&writes, &[], start + STALE * 2), [0, 0], "somebody has revoked it");

        writes.begin(GROUP, &rule, Effect::Revoked);
        writes.end(GROUP, &rule, true, start);
        assert_eq!(seen(&writes, &rule, start + STALE), [0, 0]);
        writes.begin(GROUP, &rule, Effect::Added);
        writes.end(GROUP, &rule, true, start);
        assert_eq!(seen(&writes, &rule, start + STALE), [1, 1], "added again, once");
    }

    #[tokio::test(start_paused = true)]
    async fn the_effect_of_a_write_that_failed_is_in_doubt() {
        let (rule, start) = ([all_from("sg-lb")], Instant::now());
        for effect in [Effect::Added, Effect::Revoked] {
            let mut writes = RuleWrites::default();
            writes.begin(GROUP, &rule, effect);
            writes.end(GROUP, &rule, false, start);
            assert_eq!(seen(&writes, &rule, start), [0, 1], "{effect:?}");
            assert_eq!(seen(&writes, &rule, start + STALE * 2), [1, 1], "{effect:?}");
        }
    }
}
