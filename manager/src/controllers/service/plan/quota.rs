//! Checks the rule quota of security groups before anything is written.
//!
//! EC2 counts every source of every rule, IPv4 and IPv6 apart; a group or prefix list as source counts in both. A
//! prefix list counts with its maximum length, which its ID does not tell; here it counts as one. EC2 refuses a write
//! beyond the quota as a whole.
//! <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html#vpc-limits-security-groups>

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;

use super::super::error::Environment;
use super::super::settings::Quota;
use super::super::spec::permissions::{all_from, count};
use super::{GroupRef, GroupStep, Plan, Planned, Step};

/// Users are warned from this percentage of the quota.
const WARN_PERCENT: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fullness {
    /// The group's ID; `None`: the plan creates it.
    pub group: Option<String>,
    /// Its rules after the plan.
    pub rules: usize,
    pub quota: usize,
}

/// The rules of each group that a plan changes, before and after the plan.
#[derive(Debug, Clone, Default)]
pub struct RuleCounts {
    by_group: BTreeMap<String, (usize, usize)>,
    quota: Quota,
}

impl RuleCounts {
    pub fn of(plan: &Plan, groups: &[SecurityGroup], quota: Quota) -> Self {
        let known = counts(plan, groups, quota).into_iter();
        let known = known.filter_map(|(id, _, after)| id.map(|id| (id, after)));
        let by_group = known.map(|(id, after)| (id.clone(), (at_aws(groups, &id), after)));
        Self {
            by_group: by_group.collect(),
            quota,
        }
    }

    /// Whether all rules of a group certainly fit after the plan: it has as many now, or the known quota allows them.
    fn fit(&self, group: &str) -> bool {
        let fit = |(now, after): &(usize, usize)| *after <= self.quota.rules.max(*now);
        self.by_group.get(group).is_some_and(fit)
    }

    /// A group with its rules after the plan.
    pub fn after(&self, group: &str) -> Fullness {
        Fullness {
            group: Some(group.to_owned()),
            rules: self.by_group.get(group).map_or(0, |(_, after)| *after),
            quota: self.quota.rules,
        }
    }
}

/// Groups that are near the quota because the plan adds rules. A group that is not in `groups` counts as empty.
/// Fails when the quota is enforced and a group would exceed it at any step of the plan.
pub fn check(plan: &Plan, groups: &[SecurityGroup], quota: Quota) -> Result<Vec<Fullness>, Environment> {
    let mut near: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for (id, adds, rules) in counts(plan, groups, quota) {
        if adds && rules > quota.rules && quota.enforced {
            return Err(Environment::TooManyRules {
                group: id.unwrap_or_else(|| "that is about to be created".to_owned()),
                rules,
                quota: quota.rules,
            });
        }

        if adds || near.contains_key(&id) {
            near.insert(id, rules);
        }
    }

    let full = |(group, rules): (Option<String>, usize)| {
        let quota = quota.rules;
        (rules * 100 >= quota * WARN_PERCENT).then_some(Fullness { group, rules, quota })
    };

    Ok(near.into_iter().filter_map(full).collect())
}

/// The changed group of each step that adds or revokes rules, whether it adds any, and the group's rules afterwards. In
/// groups of Nodes the executor revokes rules first where all do not fit.
fn counts(plan: &Plan, groups: &[SecurityGroup], quota: Quota) -> Vec<(Option<String>, bool, usize)> {
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let narrowed = plan.steps.iter().filter_map(|planned| match &planned.step {
        Step::Group(GroupStep::Narrow(group, _)) => Some((group, change(&planned.step)?.2)),
        _ => None,
    });
    let mut narrowed: BTreeMap<&String, usize> = narrowed.collect();
    let count = |planned: &Planned| {
        let (id, add, mut remove) = change(&planned.step)?;
        let before = || id.as_deref().map_or(0, |id| at_aws(groups, id));
        let rules = counts.entry(id.clone()).or_insert_with(before);
        let is_full = *rules + add > quota.rules;
        match &planned.step {
            Step::Group(GroupStep::Widen(group, _)) if is_full => remove = narrowed.remove(group).unwrap_or_default(),
            Step::Group(GroupStep::Narrow(group, _)) => remove = narrowed.remove(group).unwrap_or_default(),
            _ => {}
        }
        *rules = (*rules + add).saturating_sub(remove);
        Some((id, add > 0, *rules))
    };

    plan.steps.iter().filter_map(count).collect()
}

/// The number of rules of a group; 0 if it is not in `groups`.
pub(crate) fn at_aws(groups: &[SecurityGroup], id: &str) -> usize {
    let group = groups.iter().find(|group| group.id == id);
    group.map_or(0, |group| count(&group.ingress))
}

/// The group that a step changes, with the numbers of added and revoked rules.
pub(crate) fn change(step: &Step) -> Option<(Option<String>, usize, usize)> {
    let id = |group: &GroupRef| match group {
        GroupRef::Id(id) => Some(id.clone()),
        GroupRef::Created => None,
    };
    match step {
        Step::Group(GroupStep::Authorize(group, rules)) => Some((id(group), count(rules), 0)),
        Step::Group(GroupStep::LetIn { node_group, .. }) => Some((Some(node_group.clone()), count(&[all_from("")]), 0)),
        Step::Group(GroupStep::Widen(group, rules)) => Some((Some(group.clone()), count(rules), 0)),
        Step::Group(GroupStep::Narrow(group, change)) => Some((Some(group.clone()), 0, count(&change.revoke))),
        Step::Group(GroupStep::Revoke(group, rules)) => Some((Some(group.clone()), 0, count(rules))),
        _ => None,
    }
}

// Revokes rules before others are added, in a load balancer's own security group near its quota.
//
// Normally rules are added first and revoked last, so that a group has both for a while. If the quota does not allow
// that, rules of this one group are revoked first: by the plan if the quota is configured, else after AWS has refused.
// AWS's default quota is no reason to revoke early: the quota of the account may be higher.

/// The same plan, with revocations first for groups that would exceed the quota.
pub fn revoke_where_full(mut plan: Plan, groups: &[SecurityGroup], quota: Quota) -> Plan {
    if !quota.enforced {
        return plan;
    }

    let over = counts(&plan, groups, quota)
        .into_iter()
        .filter(|(_, adds, rules)| *adds && *rules > quota.rules);
    let mut seen = BTreeSet::new();
    let overfull = over.filter_map(|(id, ..)| id).filter(|id| seen.insert(id.clone()));

    for group in overfull {
        let Some(first) = plan.steps.iter().position(|planned| adds(planned, &group)) else {
            continue;
        };
        let rest = plan.steps.split_off(first);
        let (closing, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|planned| removes(planned, &group));
        plan.steps.extend(closing.into_iter().chain(others));
    }

    plan
}

/// After AWS has refused to add rules to a group: moves the group's revocations to the front, followed by the refused
/// step. `left` are the remaining steps, the next one last. Returns whether there are revocations.
/// If it is not certain that all rules fit afterwards, nothing is moved: the group would lose rules and get none.
pub fn revoke_after_refusal<'a>(refused: &'a Planned, left: &mut Vec<&'a Planned>, counts: &RuleCounts) -> bool {
    let Some((Some(group), 1.., _)) = change(&refused.step) else {
        return false;
    };
    if !counts.fit(&group) {
        return false;
    }

    let all = std::mem::take(left).into_iter();
    let (closing, mut others): (Vec<&Planned>, Vec<&Planned>) = all.partition(|planned| removes(planned, &group));
    let found = !closing.is_empty();
    if found {
        others.push(refused);
    }

    others.extend(closing);
    *left = others;

    found
}

fn adds(planned: &Planned, group: &str) -> bool {
    matches!(change(&planned.step), Some((Some(id), add, _)) if id == group && add > 0)
}

fn removes(planned: &Planned, group: &str) -> bool {
    matches!(&planned.step, Step::Group(GroupStep::Revoke(id, _)) if id == group)
}

#[cfg(test)]
mod tests {
    use super::super::{GroupRef, GroupStep};
    use outrigger_aws::ec2::{GroupPair, IpPermission, IpRange};

    use super::super::Planned;
    use super::*;

    fn ranges(number: usize) -> Vec<IpPermission> {
        let range = |n: usize| IpRange {
            cidr: format!("10.0.{n}.0/24"),
            description: None,
        };
        vec![IpPermission {
            protocol: "tcp".into(),
            ranges: (0..number).map(range).collect(),
            ..IpPermission::default()
        }]
    }

    fn group(id: &str, rules: usize) -> SecurityGroup {
        SecurityGroup {
            id: id.into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: ranges(rules),
            tags: outrigger_aws::Tags::new(),
        }
    }

    fn plan(steps: Vec<GroupStep>) -> Plan {
        Plan {
            steps: steps.into_iter().map(|step| Planned::new(step, "")).collect(),
            ..Plan::default()
        }
    }

    fn enforced(rules: usize) -> Quota {
        Quota { rules, enforced: true }
    }

    #[test]
    fn every_source_counts_and_groups_count_for_both_families() {
        let mut rules = ranges(3);
        rules[0].ipv6_ranges = vec!["::/0".into()];
        rules[0].groups = vec![GroupPair::default(), GroupPair::default()];
        rules[0].prefix_lists = vec!["pl-1".into()];
        assert_eq!(count(&rules), 6);
        rules[0].ranges.clear();
        assert_eq!(count(&rules), 4);
        assert_eq!(count(&[all_from("sg-1")]), 1);
    }

    #[test]
    fn from_four_fifths_on_there_is_a_warning_and_below_none() {
        let add = |number| plan(vec![GroupStep::Authorize(GroupRef::Created, ranges(number))]);
        assert_eq!(check(&add(47), &[], Quota::default()), Ok(vec![]));
        let near = |rules| {
            let (group, quota) = (None, 60);
            Ok(vec![Fullness { group, rules, quota }])
        };
        assert_eq!(check(&add(48), &[], Quota::default()), near(48));
        assert_eq!(check(&add(61), &[], Quota::default()), near(61), "AWS may allow more");
        let untouched = plan(vec![GroupStep::Revoke("sg-1".into(), ranges(1))]);
        assert_eq!(check(&untouched, &[group("sg-1", 60)], enforced(60)), Ok(vec![]));
    }

    #[test]
    fn a_quota_that_was_given_is_kept_at_every_moment_of_the_plan() {
        let swap = |add, remove| {
            plan(vec![
                GroupStep::Authorize(GroupRef::Id("sg-1".into()), ranges(add)),
                GroupStep::Revoke("sg-1".into(), ranges(remove)),
            ])
        };
        let groups = [group("sg-1", 8)];
        let full = Fullness {
            group: Some("sg-1".into()),
            rules: 8,
            quota: 10,
        };
        assert_eq!(check(&swap(2, 2), &groups, enforced(10)), Ok(vec![full]));
        assert_eq!(check(&swap(2, 6), &groups, enforced(10)), Ok(vec![]));
        let error = check(&swap(3, 8), &groups, enforced(10)).unwrap_err().to_string();
        assert!(
            error.contains("sg-1") && error.contains("11") && error.contains("10"),
            "{error}"
        );
    }

    #[test]
    fn rules_of_nodes_groups_count_too() {
        let from = GroupRef::Created;
        let node_group = "sg-node".to_owned();
        let plan = plan(vec![GroupStep::LetIn { node_group, from }]);
        assert!(check(&plan, &[group("sg-node", 60)], enforced(60)).is_err());
        assert_eq!(check(&plan, &[group("sg-node", 40)], enforced(60)), Ok(vec![]));
    }

    /// The order of actions on two groups of ten rules, of which each gets and loses four, with a quota.
    fn order(quota: usize, enforced: bool) -> String {
        let group = |id: &str| SecurityGroup {
            id: id.into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: ranges(if id == "sg-full" { 10 } else { 1 }),
            tags: outrigger_aws::Tags::new(),
        };
        let ids = ["sg-full", "sg-roomy"];
        let open = ids.map(|id| GroupStep::Authorize(GroupRef::Id(id.into()), ranges(4)));
        let close = ids.map(|id| GroupStep::Revoke(id.into(), ranges(1)));
        let steps = open.into_iter().chain(close).map(|step| Planned::new(step, ""));
        let plan = Plan {
            steps: steps.collect(),
            ..Plan::default()
        };
        let quota = Quota { rules: quota, enforced };
        let ordered = revoke_where_full(plan, &ids.map(group), quota);
        text(ordered.steps.iter())
    }

    fn text<'a>(steps: impl Iterator<Item = &'a Planned>) -> String {
        let text = |planned: &Planned| match change(&planned.step) {
            Some((Some(id), 0, _)) => format!("-{}", &id[3..]),
            Some((Some(id), ..)) => format!("+{}", &id[3..]),
            _ => String::new(),
        };
        steps.map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rules_are_revoked_first_only_in_a_full_group() {
        assert_eq!(order(14, true), "+full +roomy -full -roomy");
        assert_eq!(order(13, true), "-full +full +roomy -roomy");
    }

    #[test]
    fn steps_before_the_first_rule_of_a_full_group_stay_first() {
        let add = |id: &str| GroupStep::Authorize(GroupRef::Id(id.into()), ranges(4));
        let plan = plan(vec![
            add("sg-roomy"),
            add("sg-full"),
            GroupStep::Revoke("sg-full".into(), ranges(1)),
        ]);
        let groups = [group("sg-roomy", 1), group("sg-full", 10)];
        let ordered = revoke_where_full(plan, &groups, enforced(13));
        assert_eq!(text(ordered.steps.iter()), "+roomy -full +full");
    }

    #[test]
    fn a_quota_that_is_only_likely_closes_nothing_early() {
        assert_eq!(order(13, false), "+full +roomy -full -roomy");
    }

    #[test]
    fn rules_are_revoked_first_only_if_all_fit_afterwards() {
        let swap = |add, remove| {
            plan(vec![
                GroupStep::Authorize(GroupRef::Id("sg-1".into()), ranges(add)),
                GroupStep::Revoke("sg-1".into(), ranges(remove)),
            ])
        };
        let fits = |add, remove, now| {
            let quota = Quota::default();
            RuleCounts::of(&swap(add, remove), &[group("sg-1", now)], quota).fit("sg-1")
        };
        assert!(fits(40, 20, 40));
        assert!(!fits(41, 20, 40));
        assert!(fits(20, 20, 90), "the account has a higher quota");
        assert!(!fits(21, 20, 90));
    }

    #[test]
    fn after_a_refusal_the_group_loses_rules_and_then_gets_the_others_once() {
        let add = |id: &str| Planned::new(GroupStep::Authorize(GroupRef::Id(id.into()), ranges(4)), "");
        let close = |id: &str| Planned::new(GroupStep::Revoke(id.into(), ranges(1)), "");
        let steps = [add("sg-roomy"), close("sg-roomy"), close("sg-full")];
        let known = |quota| RuleCounts {
            by_group: [("sg-full".to_owned(), (quota, quota))].into(),
            quota: Quota::default(),
        };
        let mut left: Vec<&Planned> = steps.iter().rev().collect();
        let refused = add("sg-full");
        assert!(
            !revoke_after_refusal(&refused, &mut left, &RuleCounts::default()),
            "unknown"
        );
        assert!(revoke_after_refusal(&refused, &mut left, &known(60)));
        assert_eq!(text(left.iter().rev().copied()), "-full +full +roomy -roomy");
        let mut left: Vec<&Planned> = steps[..2].iter().rev().collect();
        assert!(
            !revoke_after_refusal(&refused, &mut left, &known(60)),
            "nothing would make room"
        );
        assert_eq!(text(left.iter().rev().copied()), "+roomy -roomy");
    }
}
