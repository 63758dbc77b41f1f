//! Security groups with intended differences, and orphaned resources in the end.

use serde_json::{Value, json};

use super::super::super::case::{Action, Case};
use super::super::super::compare::Problem;
use super::super::super::outcome::{Account, Outcome, accounts};
use super::{Both, problem, value};

/// Rules of the nodes' group for groups of the user, which are not revoked.
pub(super) const BROUGHT: [&str; 2] = ["all from <sg:extra>", "all from <sg:shared>"];
/// Text that names a group of the user. Ours then has one more read.
const BROUGHT_BY: [&str; 2] = ["<sg:", "-security-groups"];

/// The group of all Nodes.
pub(super) const NODES_GROUP: &str = "security group parity-nodes";

/// Whether the nodes' group is without the cluster's tag: v1.37.0 does not revoke rules of network load balancers in
/// it.
pub(super) fn nodes_group_is_untagged(case: &Case) -> bool {
    let tags = case.aws.tags.get("sg:parity-nodes").into_iter().flatten();
    tags.into_iter()
        .any(|(key, value)| key.starts_with("kubernetes.io/cluster/") && value.is_none())
}

/// The group that is created for a classic load balancer.
pub(super) const OWN_GROUP: &str = "k8s-elb-<lb>";

/// Whether ours keeps the replaced own group of a classic load balancer until its Service is deleted.
pub(super) fn own_group_stays(case: &Case) -> bool {
    let disabled = case.config.get("DisableSecurityGroupIngress");
    disabled.is_some_and(|value| value == "true") && are_named(case)
}

/// Whether the case names groups of the user.
pub(super) fn are_named(case: &Case) -> bool {
    let patches = case.steps.iter().map(|step| step.patch.to_string());
    let text = patches.fold(format!("{}{:?}", case.service, case.config), |text, patch| {
        text + &patch
    });
    BROUGHT_BY.iter().any(|key| text.contains(key))
}

/// The accounts after a step. Ours is without rules for groups of the user that v1.37.0 does not have. With `keeps_own`
/// it is also without an own group that v1.37.0 does not have.
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
    /// Orphaned resources of ours after the deletion of the Service that v1.37.0 does not leave too.
    pub(super) fn orphaned(&self) -> Vec<Problem> {
        let deleted = self.case.steps.last().is_some_and(|step| step.action == Action::Delete);
        let (Some(last), true) = (self.ours.last(), deleted) else {
            return Vec::new();
        };

        let (theirs, account) = both_accounts(self.theirs, self.ours, self.ours.len() - 1, false);
        let orphaned = account
            .into_iter()
            .filter(|(object, fields)| theirs.get(object) != Some(fields));
        orphaned
            .map(|(object, fields)| problem(last, &format!("aws/{object}"), "ours leaves it", json!(fields)))
            .collect()
    }
}
