//! The comparison of drawn cases: what has to hold whatever was drawn. Pure.
//!
//! Where both managers say that they ensured, AWS and the Service are the same, and the writes are, in any order. Where
//! both refuse, or fail, it does not matter how far each came. From there on they may have come different ways, so that
//! only what AWS has at each end is compared. Where one fails and the other does not, it is one of [`MENDED`], or a
//! problem. A deleted Service leaves nothing, whatever was before.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::case::{Action, Case};
use super::super::compare::{self, Problem, SETTERS};
use super::super::outcome::{Account, Event, Outcome, accounts};

/// Words of v1.37.0 where it fails and ours does not, and the topic of `docs/parity.md` that says so.
const MENDED: [(&str, &str); 4] = [
    ("DuplicateListener", "port from TCP to UDP and back"),
    (
        "DuplicateTargetGroupName",
        "name of a target group taken by one with other settings",
    ),
    ("ResourceInUse", "port from TCP to TLS and back"),
    (
        "HealthCheck Target must begin with",
        "`healthcheck-protocol` in lower case",
    ),
];
/// Said by ours only, each with a row of its own.
const OURS_ONLY: [&str; 1] = ["SecurityGroupNearlyFull"];
/// Rules of the nodes' group for groups that the user brought, which stay there.
const BROUGHT: [&str; 2] = ["all from <sg:extra>", "all from <sg:shared>"];
/// Where one is named; ours reads once more then.
const BROUGHT_BY: [&str; 2] = ["<sg:", "-security-groups"];
/// What a load balancer made by hand or left behind has already, v1.37.0 asks for again.
const AGAIN: [&str; 2] = ["CreateTargetGroup", "RegisterTargets"];

/// Topics of `docs/parity.md` on which this comparison relies.
pub fn topics() -> impl Iterator<Item = &'static str> {
    let relied_on = [
        "on a load balancer with traffic",
        "unhealthy threshold, path",
        "target groups that outlive their load balancer",
        "groups that the user brought (`security-groups`, `ElbSecurityGroup`)",
        "details of access logs and draining that are off",
        "health check of a new classic load balancer",
    ];
    MENDED.iter().map(|(_, topic)| *topic).chain(relied_on)
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    Failed,
}

/// What is wrong with a case.
pub fn problems(case: &Case, ours: &[Outcome]) -> Vec<Problem> {
    let shared = case.config.contains_key("ElbSecurityGroup");
    let mut case = case.clone();
    case.recorded = case.recorded.map(|recorded| comparable(&recorded, shared));
    problems_of(&case, &comparable(ours, shared))
}

/// Without what differs from run to run: networks of subnets that are made for a case (AWS makes up which gets which),
/// and rules for the group of `ElbSecurityGroup`, which ours leaves to the next case.
fn comparable(outcomes: &[Outcome], shared: bool) -> Vec<Outcome> {
    let text = |text: &str| {
        let networks = ["128", "129", "130", "131"].map(|third| format!("172.31.{third}.0/24"));
        networks
            .iter()
            .fold(text.to_owned(), |text, network| text.replace(network, "a network"))
    };
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for line in &mut outcome.writes {
            *line = text(line);
        }
        for fields in outcome.aws.values_mut().flatten() {
            let Some(Value::Array(rules)) = fields.get_mut("ingress") else {
                continue;
            };
            rules.retain(|rule| !shared || rule != "all from <sg:shared>");
            for rule in rules.iter_mut() {
                *rule = json!(rule.as_str().map(text));
            }
            rules.sort_by_key(Value::to_string);
        }
        // A group without a rule is as it was.
        outcome.aws.retain(|_, fields| match fields {
            Some(fields) => !shared || fields.get("ingress") != Some(&json!([])),
            None => true,
        });
    }
    outcomes
}

fn problems_of(case: &Case, ours: &[Outcome]) -> Vec<Problem> {
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    let mut ends = (End::Good, End::Good);
    let mut apart = false;
    for (index, (there, here)) in recorded.iter().zip(ours).enumerate() {
        ends = (end(there, ends.0), end(here, ends.1));
        match ends {
            (End::Good, End::Good) if !apart => found.extend(of_good_step(case, ours, index)),
            (End::Good, End::Good) => found.extend(of_ends(recorded, ours, index)),
            (End::Failed, End::Failed) => apart = true,
            (End::Failed, End::Good) => {
                apart = true;
                found.extend(unless_mended(there, here, &recorded[..=index]));
            }
            (End::Good, End::Failed) => {
                apart = true;
                found.push(problem(here, "events", "only ours fails", json!(here.events)));
            }
        }
        if there.service.is_none() != here.service.is_none() {
            found.push(problem(
                here,
                "service",
                "is there, or is gone, on one side only",
                json!(here.service),
            ));
        }
    }
    found.extend(left_over(case, ours));
    found
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
    if said(&["EnsuredLoadBalancer", "DeletedLoadBalancer"]) {
        End::Good
    } else if said(&[
        "SyncLoadBalancerFailed",
        "UpdateLoadBalancerFailed",
        "DeleteLoadBalancerFailed",
    ]) {
        End::Failed
    } else {
        before
    }
}

fn unless_mended(there: &Outcome, here: &Outcome, so_far: &[Outcome]) -> Option<Problem> {
    let messages = so_far
        .iter()
        .flat_map(|outcome| &outcome.events)
        .map(|event| &event.message);
    let text: String = messages.cloned().collect();
    if MENDED.iter().any(|(words, _)| text.contains(words)) {
        return None;
    }
    Some(problem(here, "events", "only v1.37.0 fails", json!(there.events)))
}

/// Both ensured, on the same way.
fn of_good_step(case: &Case, ours: &[Outcome], index: usize) -> Vec<Problem> {
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let (there, here) = (&recorded[index], &ours[index]);
    let (theirs, mine) = both_accounts(recorded, ours, index);
    let mended = case.steps.get(index).is_some_and(|step| !step.calls.is_empty());
    let mut found = compare::problems_of_step(case, ours, index);
    found.retain(|problem| match problem.field.as_str() {
        "writes" => !same_in_any_order(there, here, mended),
        "events" => reasons(there) != reasons(here),
        "reads" => !BROUGHT_BY.iter().any(|key| text_of(case).contains(key)),
        field if field.starts_with("aws/") => !alike(field, value(&theirs, field), value(&mine, field)),
        _ => true,
    });
    found
}

/// Where groups of the user are named.
fn text_of(case: &Case) -> String {
    let patches = case.steps.iter().map(|step| step.patch.to_string());
    patches.fold(format!("{}{:?}", case.service, case.config), |text, patch| {
        text + &patch
    })
}

/// What is said, but for what only ours can say.
fn reasons(outcome: &Outcome) -> BTreeSet<&str> {
    let reasons = outcome.events.iter().map(|event| event.reason.as_str());
    reasons.filter(|reason| !OURS_ONLY.contains(reason)).collect()
}

/// What AWS has after a step; ours without rules for groups that the user brought where v1.37.0 has them not.
fn both_accounts(recorded: &[Outcome], ours: &[Outcome], index: usize) -> (Account, Account) {
    let at = |outcomes: &[Outcome]| accounts(outcomes).get(index).cloned().unwrap_or_default();
    let (theirs, mut mine) = (at(recorded), at(ours));
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

/// The field's value: `aws/OBJECT/FIELD`, where the object may have slashes.
fn value(account: &Account, field: &str) -> Option<Value> {
    let (object, name) = field.strip_prefix("aws/")?.rsplit_once('/')?;
    account.get(object)?.get(name).cloned()
}

/// Whether two values of a field mean the same, as far as the page of parity says.
fn alike(field: &str, theirs: Option<Value>, ours: Option<Value>) -> bool {
    let (Some(theirs), Some(ours)) = (&theirs, &ours) else {
        return theirs == ours;
    };
    if field.ends_with("/attributes") {
        let on = |value: &Value| {
            let mut fields: BTreeMap<String, Value> = serde_json::from_value(value.clone()).unwrap_or_default();
            for (switch, details) in [
                ("AccessLog.", "AccessLog."),
                ("ConnectionDraining.", "ConnectionDraining."),
            ] {
                if fields.get(&format!("{switch}Enabled")) == Some(&json!("false")) {
                    fields.retain(|key, _| !key.starts_with(details) || key.ends_with("Enabled"));
                }
            }
            fields
        };
        return on(theirs) == on(ours);
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

/// The same writes in any order, rules of groups one by one.
fn same_in_any_order(there: &Outcome, here: &Outcome, by_hand: bool) -> bool {
    let items = |outcome: &Outcome, again: bool| -> Vec<String> {
        let lines = outcome.writes.iter().filter(|line| {
            let action = line.split(' ').next().unwrap_or_default();
            !SETTERS.contains(&action) && action != "ModifyTargetGroupAttributes" && !(again && AGAIN.contains(&action))
        });
        let mut items: Vec<String> = lines.flat_map(|line| one_by_one(line)).collect();
        items.sort();
        items
    };
    items(there, by_hand) == items(here, by_hand)
}

fn one_by_one(line: &str) -> Vec<String> {
    match line.split_once(" IpPermissions=[") {
        Some((call, rules)) => {
            let rules = rules.trim_end_matches(']').split(", ");
            let counts = rules.filter(|rule| !BROUGHT.contains(rule));
            counts.map(|rule| format!("{call} {rule}")).collect()
        }
        None => vec![line.to_owned()],
    }
}

/// Both ensured after they went apart: AWS is the same, but for what v1.37.0 left behind.
fn of_ends(recorded: &[Outcome], ours: &[Outcome], index: usize) -> Vec<Problem> {
    let (theirs, account) = both_accounts(recorded, ours, index);
    let Some(step) = ours.get(index) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let there = recorded.get(index).and_then(|outcome| outcome.service.as_ref());
    if there != step.service.as_ref() {
        found.push(problem(step, "service", "is another one", json!(step.service)));
    }
    for (object, fields) in &account {
        for (name, value) in fields {
            let field = format!("aws/{object}/{name}");
            let there = theirs.get(object).and_then(|fields| fields.get(name));
            if !alike(&field, there.cloned(), Some(value.clone())) {
                let what = format!("after a failure v1.37.0 has {}, ours", json!(there));
                found.push(problem(step, &field, &what, value.clone()));
            }
        }
    }
    let ends = ours.iter().take(index + 1).flat_map(|outcome| &outcome.events);
    let is_end = |event: &&Event| ["EnsuredLoadBalancer", "DeletedLoadBalancer"].contains(&event.reason.as_str());
    if ends
        .rev()
        .find(is_end)
        .is_some_and(|event| event.reason == "DeletedLoadBalancer")
    {
        return found; // of what a failure left, ours finds more
    }
    let missing = theirs.keys().filter(|object| !account.contains_key(*object));
    for object in missing.filter(|object| !object.starts_with("target group ")) {
        found.push(problem(step, &format!("aws/{object}"), "ours has it not", Value::Null));
    }
    found
}

/// What is there when the Service is deleted, and v1.37.0 does not leave it too.
fn left_over(case: &Case, ours: &[Outcome]) -> Vec<Problem> {
    let deleted = case.steps.last().is_some_and(|step| step.action == Action::Delete);
    let (Some(last), true) = (ours.last(), deleted) else {
        return Vec::new();
    };
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let (theirs, account) = both_accounts(recorded, ours, ours.len() - 1);
    let left = account
        .into_iter()
        .filter(|(object, fields)| theirs.get(object) != Some(fields));
    left.map(|(object, fields)| problem(last, &format!("aws/{object}"), "ours leaves it", json!(fields)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::case::Case;
    use super::super::super::outcome::Outcome;
    use super::problems;

    const ENSURED: &str = "Normal EnsuredLoadBalancer of c: m";
    const FAILED: &str = "Warning SyncLoadBalancerFailed of c: m";

    fn step(label: &str, event: &str, writes: &[&str], aws: Value) -> Outcome {
        let service = json!({"finalizers": []});
        let outcome = json!({
            "step": label, "events": [event], "writes": writes, "reads": 1, "aws": aws, "service": service,
        });
        serde_json::from_value(outcome).expect("an outcome")
    }

    /// A Service that is made and changed.
    fn both(update: Outcome) -> Vec<Outcome> {
        let create = step("1 create", ENSURED, &["A x"], json!({"lb": {"scheme": "internal"}}));
        vec![create, update]
    }

    fn found(theirs: Vec<Outcome>, ours: &[Outcome]) -> Vec<String> {
        let text = "about: a\nservice: {}\nsteps: [{do: create}, {do: update, patch: {spec: {}}}]\n";
        let mut case: Case = serde_saphyr::from_str(text).expect("a case");
        case.recorded = Some(theirs);
        problems(&case, ours)
            .iter()
            .map(|problem| format!("{} {}", problem.step, problem.field))
            .collect()
    }

    #[test]
    fn where_both_ensured_the_order_of_writes_does_not_matter_and_all_else_does() {
        let theirs = || {
            both(step(
                "2 update",
                ENSURED,
                &["A g IpPermissions=[a, b]", "B x"],
                json!({"lb": {"scheme": "x"}}),
            ))
        };
        let ours =
            |event, writes: &[&str], scheme| both(step("2 update", event, writes, json!({"lb": {"scheme": scheme}})));
        let good: &[&str] = &["B x", "A g IpPermissions=[b]", "A g IpPermissions=[a]"];
        assert_eq!(found(theirs(), &ours(ENSURED, good, "x")), Vec::<String>::new());
        assert_eq!(found(theirs(), &ours(ENSURED, &good[..2], "x")), ["2 update writes"]);
        assert_eq!(found(theirs(), &ours(ENSURED, good, "y")), ["2 update aws/lb/scheme"]);
        assert_eq!(found(theirs(), &ours(FAILED, good, "x")), ["2 update events"]);
    }

    #[test]
    fn who_fails_alone_is_told_unless_it_is_known() {
        let failed = |words: &str| both(step("2 update", &format!("{FAILED}{words}"), &["A x"], json!({})));
        let ensured = || both(step("2 update", ENSURED, &["B x"], json!({"lb": {"scheme": "y"}})));
        assert_eq!(found(failed(""), &ensured()), ["2 update events"]);
        assert_eq!(
            found(failed(" DuplicateListener: no"), &ensured()),
            Vec::<String>::new()
        );
        assert_eq!(found(failed(""), &failed(" in other words")), Vec::<String>::new());
    }

    #[test]
    fn what_is_left_when_the_service_is_gone_is_told_whatever_was_before() {
        let case = |recorded: &[Outcome]| {
            let text = "about: a\nservice: {}\nsteps: [{do: create}, {do: delete}]\n";
            let mut case: Case = serde_saphyr::from_str(text).expect("a case");
            case.recorded = Some(recorded.to_vec());
            case
        };
        let gone = |aws: Value| {
            let mut gone = step("2 delete", "Normal DeletedLoadBalancer of c: m", &[], aws);
            gone.service = None;
            gone
        };
        let failed = || step("1 create", FAILED, &["A x"], json!({"target group t": {"port": "1"}}));
        let theirs = [failed(), gone(json!({}))];
        let told = |ours: &[Outcome]| problems(&case(&theirs), ours).len();
        assert_eq!(told(&[failed(), gone(json!({"target group t": null}))]), 0);
        assert_eq!(told(&[failed(), gone(json!({}))]), 0, "v1.37.0 leaves it too");
        let other = json!({"target group t": null, "target group u": {"port": "2"}});
        assert_eq!(told(&[failed(), gone(other)]), 2);
        let stays = step("2 delete", FAILED, &[], json!({"target group t": null}));
        assert_eq!(told(&[failed(), stays]), 2, "only ours fails, and the Service is there");
    }
}
