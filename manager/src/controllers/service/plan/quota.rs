//! Checks the rule quota of security groups before anything is written.
//!
//! EC2 counts every source of every rule, IPv4 and IPv6 apart; a group or prefix list as source counts in both. A
//! prefix list counts with its maximum length, which its ID does not tell; here it counts as one. EC2 refuses a write
//! beyond the quota as a whole.
//! <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html#vpc-limits-security-groups>

use std::collections::BTreeMap;

use outrigger_aws::ec2::{IpPermission, SecurityGroup};

use super::super::error::Environment;
use super::super::settings::Quota;
use super::security_groups::all_from;
use super::{GroupRef, GroupStep, Plan, Step};

/// Users are warned from this percentage of the quota.
const WARN_PERCENT: usize = 80;

/// A group near its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fullness {
    /// The group's ID; `None`: the plan creates it.
    pub group: Option<String>,
    /// Its rules after the plan.
    pub rules: usize,
    pub quota: usize,
}

/// The number of rules as EC2 counts them.
pub fn count(rules: &[IpPermission]) -> usize {
    let of_both = |rule: &IpPermission| rule.groups.len() + rule.prefix_lists.len();
    let ipv4: usize = rules.iter().map(|rule| rule.ranges.len() + of_both(rule)).sum();
    let ipv6: usize = rules.iter().map(|rule| rule.ipv6_ranges.len() + of_both(rule)).sum();
    ipv4.max(ipv6)
}

/// Groups that are near the quota because the plan adds rules. A group that is not in `groups` counts as empty.
/// Fails when the quota is enforced and a group would exceed it at any step of the plan.
pub fn check(plan: &Plan, groups: &[SecurityGroup], quota: Quota) -> Result<Vec<Fullness>, Environment> {
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut near: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for planned in &plan.steps {
        let Some((id, add, remove)) = change(&planned.step) else {
            continue;
        };

        let rules = counts
            .entry(id.clone())
            .or_insert_with(|| id.as_deref().map_or(0, |id| at_aws(groups, id)));
        *rules = (*rules + add).saturating_sub(remove);
        if add > 0 && *rules > quota.rules && quota.enforced {
            return Err(Environment::TooManyRules {
                group: id.unwrap_or_else(|| "that is about to be made".to_owned()),
                rules: *rules,
                quota: quota.rules,
            });
        }

        if add > 0 || near.contains_key(&id) {
            near.insert(id, *rules);
        }
    }

    let full = |(group, rules): (Option<String>, usize)| {
        (rules * 100 >= quota.rules * WARN_PERCENT).then_some(Fullness {
            group,
            rules,
            quota: quota.rules,
        })
    };

    Ok(near.into_iter().filter_map(full).collect())
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
        Step::Group(GroupStep::Revoke(group, rules)) => Some((Some(group.clone()), 0, count(rules))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use outrigger_aws::ec2::{GroupPair, IpRange};

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
}
