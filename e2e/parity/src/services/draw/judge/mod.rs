//! The comparison of drawn cases: properties of every case. Pure.
//!
//! - If both managers ensure the Service, then AWS, the Service and the writes in any order are the same ([`good`]).
//! - If both fail, their reports are the same, and each AWS resource of ours is unchanged or as in v1.37.0. In later
//!   steps only AWS and the Service are compared ([`failed`]).
//! - If only one fails, a row of `docs/parity.md` explains it ([`known`]).
//! - A deleted Service leaves no resources.

mod brought;
mod failed;
mod good;
mod known;
mod state;
mod targets;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::super::case::Case;
use super::super::compare::Problem;
use super::super::outcome::{Account, Outcome};
use crate::compare::NOT_RECORDED;

pub use known::topics;

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

    /// The accounts after a step, v1.37.0's and ours.
    fn accounts(&self, index: usize) -> (Account, Account) {
        let keeps_own = brought::own_group_stays(self.case);
        brought::both_accounts(self.theirs, self.ours, index, keeps_own)
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
    let said = |reasons: &[&str]| {
        outcome
            .events
            .iter()
            .any(|event| reasons.contains(&event.reason.as_str()))
    };
    // An update for Nodes repairs nothing else.
    if said(&known::SUCCEEDS) {
        End::Good
    } else if said(&known::FAILS) {
        End::Failed
    } else {
        before
    }
}

/// `field` is `aws/OBJECT/FIELD`. The object may contain slashes.
fn value(account: &Account, field: &str) -> Option<Value> {
    let (object, name) = field.strip_prefix("aws/")?.rsplit_once('/')?;
    account.get(object)?.get(name).cloned()
}

/// Without the networks of a case's subnets, whose order is random.
fn comparable(outcomes: &[Outcome]) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for line in &mut outcome.writes {
            *line = without_networks(line);
        }
        for fields in outcome.aws.values_mut().flatten() {
            let Some(Value::Array(rules)) = fields.get_mut("ingress") else {
                continue;
            };
            for rule in rules.iter_mut() {
                *rule = json!(rule.as_str().map(without_networks));
            }
            rules.sort_by_key(Value::to_string);
        }
    }

    outcomes
}

/// v1.37.0 creates rules of protocol `tls`. EC2 refuses them, but moto accepts them, so they are compared as `tcp`.
fn as_ec2_takes_it(outcomes: &[Outcome]) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for line in &mut outcome.writes {
            *line = line.replace("[tls ", "[tcp ").replace(", tls ", ", tcp ");
        }
        for fields in outcome.aws.values_mut().flatten() {
            if let Some(Value::Array(rules)) = fields.get_mut("ingress") {
                for rule in rules {
                    let bare = rule.as_str().and_then(|rule| rule.strip_prefix("tls "));
                    *rule = bare.map_or_else(|| rule.clone(), |bare| json!(format!("tcp {bare}")));
                }
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
