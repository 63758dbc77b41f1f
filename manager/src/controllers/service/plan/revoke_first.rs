//! Revokes rules before others are added, in a security group near its quota.
//!
//! Normally rules are added first and revoked last, so that a group has both for a while. If the quota does not allow
//! that, rules of this one group are revoked first: by the plan if the quota is configured, else after AWS has refused.
//! AWS's default quota is no reason to revoke early: the quota of the account may be higher.

use std::collections::BTreeMap;

use outrigger_aws::ec2::SecurityGroup;

use super::super::settings::Quota;
use super::quota::{at_aws, change};
use super::{Plan, Planned};

/// The same plan, with revocations first for groups that would exceed the quota.
pub fn revoke_where_full(mut plan: Plan, groups: &[SecurityGroup], quota: Quota) -> Plan {
    if !quota.enforced {
        return plan;
    }

    for group in overfull(&plan, groups, quota) {
        let Some(first) = plan.steps.iter().position(|planned| adds(planned, &group)) else {
            continue;
        };
        let rest = plan.steps.split_off(first);
        let (closing, others): (Vec<Planned>, Vec<Planned>) =
            rest.into_iter().partition(|planned| removes(planned, &group));
        plan.steps.extend(closing.into_iter().chain(others));
    }

    plan
}

/// After AWS has refused to add rules to a group: moves the group's revocations to the front, followed by the refused
/// step. `left` are the remaining steps, the next one last. Returns whether there are revocations.
pub fn revoke_after_refusal<'a>(refused: &'a Planned, left: &mut Vec<&'a Planned>) -> bool {
    let Some((Some(group), 1.., _)) = change(&refused.step) else {
        return false;
    };

    let (closing, mut others): (Vec<&Planned>, Vec<&Planned>) = std::mem::take(left)
        .into_iter()
        .partition(|planned| removes(planned, &group));
    let found = !closing.is_empty();
    if found {
        others.push(refused);
    }

    others.extend(closing);
    *left = others;

    found
}

/// Groups that exceed the quota at some step of the plan.
fn overfull(plan: &Plan, groups: &[SecurityGroup], quota: Quota) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut overfull = Vec::new();
    for planned in &plan.steps {
        let Some((Some(id), add, remove)) = change(&planned.step) else {
            continue;
        };

        let rules = counts.entry(id.clone()).or_insert_with(|| at_aws(groups, &id));
        *rules = (*rules + add).saturating_sub(remove);
        if add > 0 && *rules > quota.rules && !overfull.contains(&id) {
            overfull.push(id);
        }
    }

    overfull
}

fn adds(planned: &Planned, group: &str) -> bool {
    matches!(change(&planned.step), Some((Some(id), add, _)) if id == group && add > 0)
}

fn removes(planned: &Planned, group: &str) -> bool {
    matches!(change(&planned.step), Some((Some(id), _, remove)) if id == group && remove > 0)
}

#[cfg(test)]
mod tests {
    use outrigger_aws::ec2::{IpPermission, IpRange};

    use super::super::{GroupRef, GroupStep};
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
    fn a_quota_that_is_only_likely_closes_nothing_early() {
        assert_eq!(order(13, false), "+full +roomy -full -roomy");
    }

    #[test]
    fn after_a_refusal_the_group_loses_rules_and_then_gets_the_others_once() {
        let add = |id: &str| Planned::new(GroupStep::Authorize(GroupRef::Id(id.into()), ranges(4)), "");
        let close = |id: &str| Planned::new(GroupStep::Revoke(id.into(), ranges(1)), "");
        let steps = [add("sg-roomy"), close("sg-roomy"), close("sg-full")];
        let mut left: Vec<&Planned> = steps.iter().rev().collect();
        let refused = add("sg-full");
        assert!(revoke_after_refusal(&refused, &mut left));
        assert_eq!(text(left.iter().rev().copied()), "-full +full +roomy -roomy");
        let mut left: Vec<&Planned> = steps[..2].iter().rev().collect();
        assert!(!revoke_after_refusal(&refused, &mut left), "nothing would make room");
        assert_eq!(text(left.iter().rev().copied()), "+roomy -roomy");
    }
}
