//! The comparison of drawn cases: what has to hold whatever was drawn. Pure.
//!
//! Where both managers say that they ensured, AWS and the Service are the same, and the writes are, in any order ([`good`]).
//! Where both refuse, or fail, they say the same, and ours has at AWS nothing that was not there before and v1.37.0 does not
//! make ([`failed`]). From there on they may have come different ways, so that only what AWS has at each end is compared
//! ([`apart`]). Where one fails and the other does not, it is a row of the page of parity ([`known`]), or a problem. A
//! deleted Service leaves nothing, whatever was before.

mod apart;
mod brought;
mod failed;
mod good;
mod known;
mod normal;
mod state;
mod targets;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::super::case::Case;
use super::super::compare::Problem;
use super::super::outcome::{Account, Outcome};

pub use known::topics;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Failed,
}

/// A case with what both made of it.
struct Both<'a> {
    case: &'a Case,
    theirs: &'a [Outcome],
    ours: &'a [Outcome],
}

/// What is wrong with a case.
pub fn problems(case: &Case, ours: &[Outcome]) -> Vec<Problem> {
    let Some(recorded) = &case.recorded else {
        let ours = Value::Null;
        let (step, field) = (String::new(), String::new());
        let what = "nothing is recorded".to_owned();

        return vec![Problem {
            step,
            field,
            ours,
            what,
        }];
    };

    let (theirs, ours) = (
        normal::comparable(&normal::as_ec2_takes_it(recorded)),
        normal::comparable(ours),
    );
    let both = Both {
        case,
        theirs: &theirs,
        ours: &ours,
    };
    let mut found = both.steps();
    found.extend(both.left_over());

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
                let what = "is there, or is gone, on one side only";
                found.push(problem(here, "service", what, json!(here.service)));
            }
        }

        found
    }

    /// What AWS has after a step: v1.37.0's, and ours.
    fn accounts(&self, index: usize) -> (Account, Account) {
        let keeps_own = brought::own_group_stays(self.case);
        brought::both_accounts(self.theirs, self.ours, index, keeps_own)
    }

    /// What AWS has before a step.
    fn accounts_before(&self, index: usize) -> (Account, Account) {
        index
            .checked_sub(1)
            .map_or_else(Default::default, |index| self.accounts(index))
    }

    /// The step's calls by hand change what both find.
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

/// A step that says nothing ends as the one before it.
fn end(outcome: &Outcome, before: End) -> End {
    let said = |reasons: &[&str]| {
        outcome
            .events
            .iter()
            .any(|event| reasons.contains(&event.reason.as_str()))
    };
    // An update for Nodes mends nothing else.
    if said(&known::ENDS_WELL) {
        End::Good
    } else if said(&known::FAILS) {
        End::Failed
    } else {
        before
    }
}

/// The field's value: `aws/OBJECT/FIELD`, where the object may have slashes.
fn value(account: &Account, field: &str) -> Option<Value> {
    let (object, name) = field.strip_prefix("aws/")?.rsplit_once('/')?;
    account.get(object)?.get(name).cloned()
}
