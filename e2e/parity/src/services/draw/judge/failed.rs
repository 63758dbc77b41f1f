//! Both fail: ours says so as v1.37.0 does, in the same step or, as it says the same failure once, in an earlier one; and it
//! leaves each thing at AWS as it was, or as v1.37.0 leaves it. How far each comes is its own affair: ours finds faults of
//! annotations before any call, and opens before it closes. So of two that stop half-way, no more can be said.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::super::compare::{self, Problem};
use super::super::super::outcome::{Event, Outcome};
use super::brought::NODES_GROUP;
use super::targets::is_of_targets;
use super::{Both, good, known, problem, value};

/// Descriptions of rules that let traffic of this load balancer in.
const OPENED: [&str; 3] = [
    "(kubernetes.io/rule/nlb/client=<lb>)",
    "(kubernetes.io/rule/nlb/health=<lb>)",
    "(kubernetes.io/rule/nlb/mtu)",
];

impl Both<'_> {
    /// `apart`: they have failed before, so that they need not have the same.
    pub(super) fn of_failed_step(&self, index: usize, apart: bool) -> Vec<Problem> {
        let (Some(there), Some(here)) = (self.theirs.get(index), self.ours.get(index)) else {
            return Vec::new();
        };

        let mut found = Vec::new();
        let (theirs, ours) = (failures(there), failures(here));
        if !ours.is_subset(&theirs) && !apart {
            let what = format!("fails otherwise than v1.37.0, which says {}, ours", json!(theirs));
            found.push(problem(here, "events", &what, json!(ours)));
        }

        if ours.is_empty() && !self.told_before(index) {
            found.push(problem(
                here,
                "events",
                "ours has not said that it fails",
                json!(here.events),
            ));
        }

        if there.service != here.service && !apart {
            found.push(problem(here, "service", "is another one", json!(here.service)));
        }

        if !apart {
            found.extend(self.made_by_nobody(index));
        }

        found
    }

    /// Whether ours has said that it fails since it last came to a good end.
    fn told_before(&self, index: usize) -> bool {
        let earlier = self.ours.iter().take(index).rev();
        let mut since = earlier.take_while(|outcome| !says(outcome, &known::ENDS_WELL));
        since.any(|outcome| says(outcome, &known::FAILS))
    }

    fn made_by_nobody(&self, index: usize) -> Vec<Problem> {
        let (theirs, ours) = self.accounts(index);
        let (_, before) = self.accounts_before(index);
        let mut found = Vec::new();
        let Some(step) = self.ours.get(index) else {
            return found;
        };

        for (object, fields) in &ours {
            for (name, here) in fields {
                let field = format!("aws/{object}/{name}");
                let (there, was) = (value(&theirs, &field), value(&before, &field));
                let targets = is_of_targets(&field) && self.has_wanted_targets(index, Some(here));
                let explained = targets
                    || is_of_nodes_group(object, name)
                    || was.as_ref() == Some(here)
                    || good::alike(&field, there.as_ref(), Some(here))
                    || is_between(was.as_ref(), there.as_ref(), here);

                if !explained {
                    let what = format!(
                        "is neither as it was ({}) nor as v1.37.0 leaves it ({})",
                        json!(was),
                        json!(there)
                    );
                    found.push(problem(step, &field, &what, here.clone()));
                }
            }
        }

        let gone = before
            .keys()
            .filter(|object| !ours.contains_key(*object) && theirs.contains_key(*object));
        found
            .extend(gone.map(|object| problem(step, &format!("aws/{object}"), "only ours takes it away", Value::Null)));

        found
    }
}

/// The group of all Nodes, in which ours opens what lets traffic in before it comes to the listeners. That this goes again
/// with the Service, the end of the case tells.
fn is_of_nodes_group(object: &str, field: &str) -> bool {
    object == NODES_GROUP && field != "ingress"
}

/// A list on the way from one to the other: it has what both have, and nothing else than what one of them has, but for rules
/// of this load balancer, which ours makes before its listeners.
fn is_between(was: Option<&Value>, there: Option<&Value>, here: &Value) -> bool {
    let items = |value: Option<&Value>| -> BTreeSet<String> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.map(Value::to_string).collect()
    };
    let (was, there, mut has) = (items(was), items(there), items(Some(here)));
    has.retain(|item| was.contains(item) || !OPENED.iter().any(|words| item.contains(words)));
    here.is_array() && has.is_subset(&(&was | &there)) && (&was & &there).is_subset(&has)
}

fn says(outcome: &Outcome, reasons: &[&str]) -> bool {
    let mut events = outcome.events.iter();
    events.any(|event| reasons.contains(&event.reason.as_str()))
}

/// Reasons and beginnings of what is said about failures.
fn failures(outcome: &Outcome) -> BTreeSet<(String, String)> {
    let fails = |event: &&Event| known::FAILS.contains(&event.reason.as_str());
    let events = outcome.events.iter().filter(fails);
    events
        .map(|event| (event.reason.clone(), compare::beginning(event)))
        .collect()
}
