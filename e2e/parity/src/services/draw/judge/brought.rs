//! Security groups that ours treats otherwise, and what is left over in the end.

use serde_json::{Value, json};

use super::super::super::case::{Action, Case};
use super::super::super::compare::Problem;
use super::super::super::outcome::{Account, Outcome, accounts};
use super::{Both, problem, value};

/// Rules of the nodes' group for groups that the user brought, which stay there.
pub(super) const BROUGHT: [&str; 2] = ["all from <sg:extra>", "all from <sg:shared>"];
/// Where one is named; ours reads once more then.
const BROUGHT_BY: [&str; 2] = ["<sg:", "-security-groups"];

/// The group of all Nodes.
pub(super) const NODES_GROUP: &str = "security group parity-nodes";

/// Whether the nodes' group has not the cluster's tag: rules of network load balancers stay in it under v1.37.0.
pub(super) fn nodes_group_is_untagged(case: &Case) -> bool {
    let tags = case.aws.tags.get("sg:parity-nodes").into_iter().flatten();
    tags.into_iter()
        .any(|(key, value)| key.starts_with("kubernetes.io/cluster/") && value.is_none())
}

/// The group that is made for a classic load balancer.
pub(super) const OWN_GROUP: &str = "k8s-elb-<lb>";

/// Whether ours keeps the own group of a classic load balancer until its Service goes, where others have replaced it.
pub(super) fn own_group_stays(case: &Case) -> bool {
    let hands_off = case.config.get("DisableSecurityGroupIngress");
    hands_off.is_some_and(|value| value == "true") && are_named(case)
}

/// Whether groups of the user are named.
pub(super) fn are_named(case: &Case) -> bool {
    let patches = case.steps.iter().map(|step| step.patch.to_string());
    let text = patches.fold(format!("{}{:?}", case.service, case.config), |text, patch| {
        text + &patch
    });
    BROUGHT_BY.iter().any(|key| text.contains(key))
}

/// What AWS has after a step; ours without rules for groups that the user brought where v1.37.0 has them not.
/// With `keeps_own`, also without the own group where v1.37.0 has it not; not so at the end.
pub(super) fn both_accounts(theirs: &[Outcome], ours: &[Outcome], index: usize, keeps_own: bool) -> (Account, Account) {
    let at = |outcomes: &[Outcome]| accounts(outcomes).get(index).cloned().unwrap_or_default();
    let (theirs, mut mine) = (at(theirs), at(ours));
    mine.retain(|object, _| !(keeps_own && object.ends_with(OWN_GROUP)) || theirs.contains_key(object));
    mine.retain(|object, fields| {
        let Some(Value::Array(rules)) = fields.get_mut("ingress") else {
            return true;
        };

        let there = value(&theirs, &format!("aws/{object}/ingress")).unwrap_or_default();
        let there = there.as_array().cloned().unwrap_or_default();
        let brought = |rule: &Value| rule.as_str().is_some_and(|rule| BROUGHT.contains(&rule));
        rules.retain(|rule| !brought(rule) || there.contains(rule));

        !rules.is_empty() || theirs.contains_key(object)
    });

    (theirs, mine)
}

impl Both<'_> {
    /// What is there when the Service is deleted, and v1.37.0 does not leave it too.
    pub(super) fn left_over(&self) -> Vec<Problem> {
        let deleted = self.case.steps.last().is_some_and(|step| step.action == Action::Delete);
        let (Some(last), true) = (self.ours.last(), deleted) else {
            return Vec::new();
        };

        let (theirs, account) = both_accounts(self.theirs, self.ours, self.ours.len() - 1, false);
        let left = account
            .into_iter()
            .filter(|(object, fields)| theirs.get(object) != Some(fields));
        left.map(|(object, fields)| problem(last, &format!("aws/{object}"), "ours leaves it", json!(fields)))
            .collect()
    }
}
