//! Steps in which both fail, and the steps after a failure.
//!
//! Ours reports the same failure as v1.37, in this step or in an earlier one. It leaves each AWS resource unchanged
//! or as v1.37 leaves it. The number of calls before the failure may differ: ours finds errors in annotations before
//! any call, and adds rules before it revokes others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::targets::is_of_targets;
use super::{Both, NODES_GROUP, good, has_event, known, problem, value};
use crate::services::compare::{self, Problem};
use crate::services::outcome::{Event, Outcome};

/// Descriptions of rules for traffic of this load balancer.
const OPENED: [&str; 3] = [
    "(kubernetes.io/rule/nlb/client=<lb>)",
    "(kubernetes.io/rule/nlb/health=<lb>)",
    "(kubernetes.io/rule/nlb/mtu)",
];

impl Both<'_> {
    /// Both ensured after a failure: AWS is the same, except for orphaned resources of v1.37.
    pub(super) fn of_ends(&self, index: usize) -> Vec<Problem> {
        let (theirs, account) = self.accounts(index);
        let (Some(there), Some(step)) = (self.theirs.get(index), self.ours.get(index)) else {
            return Vec::new();
        };

        let mut found = Vec::new();
        if there.service != step.service {
            found.push(problem(step, "service", "differs", json!(step.service)));
        }

        for (object, fields) in &account {
            for (name, value) in fields {
                let field = format!("aws/{object}/{name}");
                let there = theirs.get(object).and_then(|fields| fields.get(name));
                let wanted = is_of_targets(&field) && self.has_required_targets(index, Some(value));
                if !wanted && !good::alike(&field, there, Some(value)) {
                    let what = format!("after a failure v1.37 has {}, ours", json!(there));
                    found.push(problem(step, &field, &what, value.clone()));
                }
            }
        }

        let ends = self.ours.iter().take(index + 1).flat_map(|outcome| &outcome.events);
        let last = ends
            .rev()
            .find(|event| known::SUCCEEDS.contains(&event.reason.as_str()));
        if last.is_some_and(|event| event.reason == "DeletedLoadBalancer") {
            return found; // after a failure ours finds and deletes more
        }

        let missing = theirs.keys().filter(|object| !account.contains_key(*object));
        let missing = missing.filter(|object| !object.starts_with("target group "));
        found.extend(missing.map(|object| {
            let field = format!("aws/{object}");
            problem(step, &field, "ours does not have it", Value::Null)
        }));

        found
    }

    /// `apart`: after an earlier failure the resources need not be equal.
    pub(super) fn of_failed_step(&self, index: usize, apart: bool) -> Vec<Problem> {
        let (Some(there), Some(here)) = (self.theirs.get(index), self.ours.get(index)) else {
            return Vec::new();
        };

        let mut found = Vec::new();
        let (theirs, ours) = (failures(there), failures(here));
        if !ours.is_subset(&theirs) && !apart {
            let what = format!("differs from the failure {} of v1.37, ours", json!(theirs));
            found.push(problem(here, "events", &what, json!(ours)));
        }

        if ours.is_empty() && !self.reported_before(index) {
            let what = "ours does not report its failure";
            found.push(problem(here, "events", what, json!(here.events)));
        }

        if there.service != here.service && !apart {
            found.push(problem(here, "service", "differs", json!(here.service)));
        }

        if !apart {
            found.extend(self.unexplained(index));
        }

        found
    }

    /// Whether ours has reported a failure since its last success.
    fn reported_before(&self, index: usize) -> bool {
        let earlier = self.ours.iter().take(index).rev();
        let mut since = earlier.take_while(|outcome| !has_event(outcome, &known::SUCCEEDS));
        since.any(|outcome| has_event(outcome, &known::FAILS))
    }

    fn unexplained(&self, index: usize) -> Vec<Problem> {
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
                let targets = is_of_targets(&field) && self.has_required_targets(index, Some(here));
                let explained = targets
                    || is_of_nodes_group(object, name)
                    || was.as_ref() == Some(here)
                    || good::alike(&field, there.as_ref(), Some(here))
                    || is_between(was.as_ref(), there.as_ref(), here);

                if !explained {
                    let (was, there) = (json!(was), json!(there));
                    let what = format!("is neither unchanged ({was}) nor as v1.37 leaves it ({there})");
                    found.push(problem(step, &field, &what, here.clone()));
                }
            }
        }

        let is_gone = |object: &&String| !ours.contains_key(*object) && theirs.contains_key(*object);
        let gone = before.keys().filter(is_gone);
        found.extend(gone.map(|object| problem(step, &format!("aws/{object}"), "only ours deletes it", Value::Null)));

        found
    }
}

/// The group of all Nodes, to which ours adds rules before it creates listeners. The end of the case checks that the
/// deletion of the Service revokes them.
fn is_of_nodes_group(object: &str, field: &str) -> bool {
    object == NODES_GROUP && field != "ingress"
}

/// A list between two states: it contains the items of both, and others of one of them only. Rules of this load
/// balancer are not considered, because ours adds them before its listeners.
fn is_between(was: Option<&Value>, there: Option<&Value>, here: &Value) -> bool {
    let items = |value: Option<&Value>| -> BTreeSet<String> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.map(Value::to_string).collect()
    };
    let (was, there, mut has) = (items(was), items(there), items(Some(here)));
    has.retain(|item| was.contains(item) || !OPENED.iter().any(|words| item.contains(words)));
    here.is_array() && has.is_subset(&(&was | &there)) && (&was & &there).is_subset(&has)
}

/// Reasons and beginnings of Events about failures.
fn failures(outcome: &Outcome) -> BTreeSet<(String, String)> {
    let fails = |event: &&Event| known::FAILS.contains(&event.reason.as_str());
    let events = outcome.events.iter().filter(fails);
    events
        .map(|event| (event.reason.clone(), compare::beginning(event)))
        .collect()
}
