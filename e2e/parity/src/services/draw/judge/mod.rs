//! The comparison of drawn cases: properties of every case. Pure.
//!
//! - If both managers ensure the Service, then AWS, the Service and the writes in any order are the same ([`good`]).
//! - If both fail, their reports are the same, and each AWS resource of ours is unchanged or as in v1.37. In later
//!   steps only AWS and the Service are compared ([`failed`]).
//! - If only one fails, a row of `docs/parity.md` explains it ([`known`]).
//! - A deleted Service leaves no resources.

mod failed;
mod good;
mod known;
mod targets;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::compare::NOT_RECORDED;
use crate::services::case::{Action, Case};
use crate::services::compare::Problem;
use crate::services::outcome::{Account, Outcome, accounts};

pub use known::topics;

/// Rules of the nodes' group for groups of the user, which are not revoked.
const BROUGHT: [&str; 2] = ["all from <sg:extra>", "all from <sg:shared>"];
/// Text that names a group of the user. Ours then has one more read.
const BROUGHT_BY: [&str; 2] = ["<sg:", "-security-groups"];

/// The group of all Nodes.
const NODES_GROUP: &str = "security group parity-nodes";

/// The group that is created for a classic load balancer.
const OWN_GROUP: &str = "k8s-elb-<lb>";

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Failed,
}

/// A case with both results.
struct Both<'a> {
    case: &'a Case,
    theirs: &'a [Outcome],
    ours: &'a [Outcome],
}

pub fn problems(case: &Case, ours: &[Outcome]) -> Vec<Problem> {
    let Some(recorded) = &case.recorded else {
        return vec![Problem::of_case(NOT_RECORDED)];
    };

    let (theirs, ours) = (comparable(&as_ec2_takes_it(recorded)), comparable(ours));
    let both = Both {
        case,
        theirs: &theirs,
        ours: &ours,
    };
    let mut found = both.steps();
    found.extend(both.orphaned());

    found
}

impl Both<'_> {
    fn steps(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut ends = (End::Good, End::Good);
        let mut apart = false;

        for (index, (there, here)) in self.theirs.iter().zip(self.ours).enumerate() {
            ends = (end(there, ends.0), end(here, ends.1));
            match ends {
                (End::Good, End::Good) if !apart => found.extend(self.of_good_step(index)),
                (End::Good, End::Good) => found.extend(self.of_ends(index)),
                (End::Failed, End::Failed) => {
                    found.extend(self.of_failed_step(index, apart));
                    apart = true;
                }
                (End::Failed, End::Good) => {
                    apart = true;
                    found.extend(self.only_theirs_fails(index));
                }
                (End::Good, End::Failed) => {
                    apart = true;
                    found.extend(self.only_ours_fails(index));
                }
            }

            if there.service.is_none() != here.service.is_none() {
                let what = "exists on one side only";
                found.push(problem(here, "service", what, json!(here.service)));
            }
        }

        found
    }

    /// Orphaned resources of ours after the deletion of the Service that v1.37 does not leave too.
    fn orphaned(&self) -> Vec<Problem> {
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

    /// The accounts after a step, v1.37's and ours.
    fn accounts(&self, index: usize) -> (Account, Account) {
        both_accounts(self.theirs, self.ours, index, own_group_stays(self.case))
    }

    fn accounts_before(&self, index: usize) -> (Account, Account) {
        index
            .checked_sub(1)
            .map_or_else(Default::default, |index| self.accounts(index))
    }

    /// Whether the step has manual calls.
    fn by_hand(&self, index: usize) -> bool {
        self.case.steps.get(index).is_some_and(|step| !step.calls.is_empty())
    }
}

fn problem(step: &Outcome, field: &str, what: &str, ours: Value) -> Problem {
    Problem {
        step: step.step.clone(),
        field: field.to_owned(),
        what: format!("{what}: {ours}"),
        ours,
    }
}

/// A step without such an Event ends as the one before it.
fn end(outcome: &Outcome, before: End) -> End {
    // An update for Nodes repairs nothing else.
    if has_event(outcome, &known::SUCCEEDS) {
        End::Good
    } else if has_event(outcome, &known::FAILS) {
        End::Failed
    } else {
        before
    }
}

/// Whether the nodes' group is without the cluster's tag: v1.37 does not revoke rules of network load balancers in
/// it.
fn nodes_group_is_untagged(case: &Case) -> bool {
    let tags = case.aws.tags.get("sg:parity-nodes").into_iter().flatten();
    tags.into_iter()
        .any(|(key, value)| key.starts_with("kubernetes.io/cluster/") && value.is_none())
}

/// Whether ours keeps the replaced own group of a classic load balancer until its Service is deleted.
fn own_group_stays(case: &Case) -> bool {
    let disabled = case.config.get("DisableSecurityGroupIngress");
    disabled.is_some_and(|value| value == "true") && are_named(case)
}

/// Whether the case names groups of the user.
fn are_named(case: &Case) -> bool {
    let patches = case.steps.iter().map(|step| step.patch.to_string());
    let text = patches.fold(format!("{}{:?}", case.service, case.config), |text, patch| {
        text + &patch
    });
    BROUGHT_BY.iter().any(|key| text.contains(key))
}

/// The accounts after a step. Ours is without rules for groups of the user that v1.37 does not have. With `keeps_own`
/// it is also without an own group that v1.37 does not have.
fn both_accounts(theirs: &[Outcome], ours: &[Outcome], index: usize, keeps_own: bool) -> (Account, Account) {
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

fn has_event(outcome: &Outcome, reasons: &[&str]) -> bool {
    let mut events = outcome.events.iter();
    events.any(|event| reasons.contains(&event.reason.as_str()))
}

/// `field` is `aws/OBJECT/FIELD`. The object may contain slashes.
fn value(account: &Account, field: &str) -> Option<Value> {
    let (object, name) = field.strip_prefix("aws/")?.rsplit_once('/')?;
    account.get(object)?.get(name).cloned()
}

/// Without the networks of a case's subnets, whose order is random.
fn comparable(outcomes: &[Outcome]) -> Vec<Outcome> {
    rewritten(outcomes, without_networks, without_networks)
}

/// v1.37 creates rules of protocol `tls`. EC2 refuses them, but moto accepts them, so they are compared as `tcp`.
fn as_ec2_takes_it(outcomes: &[Outcome]) -> Vec<Outcome> {
    let line = |line: &str| line.replace("[tls ", "[tcp ").replace(", tls ", ", tcp ");
    let rule = |rule: &str| match rule.strip_prefix("tls ") {
        Some(bare) => format!("tcp {bare}"),
        None => rule.to_owned(),
    };
    rewritten(outcomes, line, rule)
}

/// With other lines of writes and other rules of security groups, which are sorted.
fn rewritten(outcomes: &[Outcome], line: impl Fn(&str) -> String, rule: impl Fn(&str) -> String) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for write in &mut outcome.writes {
            *write = line(write);
        }
        for fields in outcome.aws.values_mut().flatten() {
            if let Some(Value::Array(rules)) = fields.get_mut("ingress") {
                for one in rules.iter_mut() {
                    *one = json!(one.as_str().map(&rule));
                }
                rules.sort_by_key(Value::to_string);
            }
        }
    }

    outcomes
}

fn without_networks(text: &str) -> String {
    let networks = ["128", "129", "130", "131"].map(|third| format!("172.31.{third}.0/24"));
    networks
        .iter()
        .fold(text.to_owned(), |text, network| text.replace(network, "a network"))
}
