//! Steps in which both ensure, without an earlier failure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::known::OURS_ONLY;
use super::targets::is_of_targets;
use super::{BROUGHT, Both, NODES_GROUP, OWN_GROUP, are_named, nodes_group_is_untagged, own_group_stays, value};
use crate::services::case::{Action, Step};
use crate::services::compare::{self, Problem, SETTERS};
use crate::services::outcome::Outcome;

/// Calls that v1.37 repeats for a load balancer that was created manually or is orphaned.
const AGAIN: [&str; 2] = ["CreateTargetGroup", "RegisterTargets"];
/// Attaches groups to a classic load balancer.
const APPLY: &str = "ApplySecurityGroupsToLoadBalancer";
/// Changes the certificate of a classic listener in place.
const SET_CERTIFICATE: &str = "SetLoadBalancerListenerSSLCertificate";
/// The calls of v1.37 instead.
const REPLACE_LISTENERS: [&str; 2] = ["CreateLoadBalancerListeners", "DeleteLoadBalancerListeners"];
/// For a change of Nodes.
const UPDATED: &str = "UpdatedLoadBalancer";

impl Both<'_> {
    pub(super) fn of_good_step(&self, index: usize) -> Vec<Problem> {
        let (theirs, mine) = self.accounts(index);
        let mut case = self.case.clone();
        case.recorded = Some(self.theirs.to_vec());

        let mut found = compare::problems_of_step(&case, self.ours, index);
        found.retain(|problem| match problem.field.as_str() {
            "writes" => !self.same_in_any_order(index),
            "events" => !self.same_reasons(index),
            "reads" => !are_named(self.case),
            field if own_group_stays(self.case) && field.contains(OWN_GROUP) => {
                value(&theirs, field) != value(&mine, field)
            }
            field if self.has_other_node_rules(index) && field.contains(NODES_GROUP) => false,
            field if field.starts_with("aws/") => {
                let (there, here) = (value(&theirs, field), value(&mine, field));
                let wanted = is_of_targets(field) && self.has_required_targets(index, here.as_ref());
                !wanted && !alike(field, there.as_ref(), here.as_ref())
            }
            _ => true,
        });

        found
    }

    /// Whether the rules of the nodes' group may differ: one side has no targets, or v1.37 does not revoke rules.
    fn has_other_node_rules(&self, index: usize) -> bool {
        let gone = self.case.steps.iter().take(index + 1).any(ends_load_balancer);
        self.one_is_without_targets(index) || (gone && nodes_group_is_untagged(self.case))
    }

    /// Compares the reasons of Events, without those that only ours has. Ours emits `UpdatedLoadBalancer` only if its
    /// targets change.
    fn same_reasons(&self, index: usize) -> bool {
        let reasons = |outcomes: &[Outcome]| -> BTreeSet<String> {
            let events = outcomes.get(index).map(|outcome| &outcome.events).into_iter().flatten();
            let reasons = events.map(|event| event.reason.clone());
            reasons.filter(|reason| !OURS_ONLY.contains(&reason.as_str())).collect()
        };
        let (mut theirs, mut ours) = (reasons(self.theirs), reasons(self.ours));
        let updated = ours.remove(UPDATED);
        if updated != theirs.remove(UPDATED) && updated != self.changes_targets(index) {
            return false;
        }

        theirs == ours
    }

    /// Compares the writes in any order, with each rule and each target as one write. Writes about targets of one side
    /// only and refused writes of v1.37 do not count. If ours changes a certificate in place, writes of listeners do not
    /// count either: the listeners of AWS are compared.
    fn same_in_any_order(&self, index: usize) -> bool {
        let unlike = self.unlike_targets(index);
        let (again, rules) = (self.by_hand(index), self.has_other_node_rules(index));
        let own = own_group_stays(self.case);
        let mut ours = self
            .ours
            .get(index)
            .map(|outcome| &outcome.writes)
            .into_iter()
            .flatten();
        let in_place = ours.any(|line| line.starts_with(SET_CERTIFICATE));
        let items = |outcomes: &[Outcome], theirs: bool| -> Vec<String> {
            let lines = outcomes.get(index).map(|outcome| &outcome.writes).into_iter().flatten();
            let lines = lines.filter(|line| {
                let action = line.split(' ').next().unwrap_or_default();
                let refused = theirs && line.contains(" -> ");
                let does_not_count = refused
                    || SETTERS.contains(&action)
                    || action == "ModifyTargetGroupAttributes"
                    || (again && AGAIN.contains(&action))
                    || (in_place && (action == SET_CERTIFICATE || REPLACE_LISTENERS.contains(&action)))
                    || (own && line.contains(OWN_GROUP) && action.contains("SecurityGroup") && action != APPLY)
                    || (rules && line.contains("GroupId=<sg:parity-nodes>"));

                !does_not_count
            });

            let mut items: Vec<String> = lines.flat_map(|line| one_by_one(line)).collect();
            items.retain(|item| !is_about(item, &unlike));
            if !theirs {
                without_short_registrations(&mut items);
            }

            items.sort();

            items
        };

        items(self.theirs, true) == items(self.ours, false)
    }
}

fn ends_load_balancer(step: &Step) -> bool {
    step.action == Action::Delete || step.patch["spec"]["type"] == "ClusterIP"
}

/// Without targets that are registered and deregistered in this step: right after a start ours keeps all existing
/// targets, also in a new target group.
fn without_short_registrations(items: &mut Vec<String>) {
    let ended: BTreeSet<String> = items.iter().filter_map(|item| registration(item)).collect();
    let short: BTreeSet<String> = items.iter().filter(|item| ended.contains(*item)).cloned().collect();
    items.retain(|item| {
        !short.contains(item) && registration(item).is_none_or(|registered| !short.contains(&registered))
    });
}

/// The registration that a deregistration ends.
fn registration(item: &str) -> Option<String> {
    let target = item.strip_prefix("DeregisterTargets ")?;
    Some(format!("RegisterTargets {target}"))
}

fn is_about(item: &str, instances: &BTreeSet<String>) -> bool {
    let registers = item.starts_with("Register") || item.starts_with("Deregister");
    registers && instances.iter().any(|instance| item.contains(instance))
}

/// Lists whose items count as one call each, and their separators.
const LISTS: [(&str, &str); 4] = [
    (" IpPermissions=[", ", "),
    (" Instances=[", "} {"),
    (" Targets=[", "} {"),
    (" Subnets=[", " "),
];

fn one_by_one(line: &str) -> Vec<String> {
    for (list, between) in LISTS {
        let Some((call, rest)) = line.split_once(list) else {
            continue;
        };
        if call.starts_with("CreateLoadBalancer ") {
            continue; // its subnets have an order
        }

        let (items, rest) = rest.split_once(']').unwrap_or((rest, ""));
        let items = items.split(between).map(|item| item.trim_matches(['{', '}']));
        let counts = items.filter(|item| !BROUGHT.contains(item));
        return counts.map(|item| format!("{call}{rest} {item}")).collect();
    }
    vec![line.to_owned()]
}

/// Whether two values of a field have the same meaning according to `docs/parity.md`.
pub(super) fn alike(field: &str, theirs: Option<&Value>, ours: Option<&Value>) -> bool {
    let (Some(theirs), Some(ours)) = (theirs, ours) else {
        return theirs == ours;
    };
    if field.ends_with("/attributes") {
        return effective_attributes(theirs) == effective_attributes(ours);
    }
    if field.starts_with("aws/target group ") && field.ends_with("/healthCheck") {
        // "PROTOCOL PORT/PATH every N s, healthy after N, unhealthy after N"
        let kept = |value: &Value| -> Option<(String, String)> {
            let (target, rest) = value.as_str()?.split_once(" every ")?;
            let (target, numbers) = (target.split('/').next()?, rest.split(", unhealthy").next()?);
            Some((target.to_owned(), numbers.to_owned()))
        };
        return kept(theirs).is_some() && kept(theirs) == kept(ours);
    }

    theirs == ours
}

/// Without details of a feature that is off.
fn effective_attributes(value: &Value) -> BTreeMap<String, Value> {
    let mut fields: BTreeMap<String, Value> = serde_json::from_value(value.clone()).unwrap_or_default();
    for switch in ["AccessLog.", "ConnectionDraining."] {
        if fields.get(&format!("{switch}Enabled")) == Some(&json!("false")) {
            fields.retain(|key, _| !key.starts_with(switch) || key.ends_with("Enabled"));
        }
    }
    fields
}
