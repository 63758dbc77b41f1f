//! What our manager gives beside what the incumbent gave. Pure.
//!
//! Equal means: the same Events, the same Service, the same things in AWS, the same writes in the same order. Three
//! things are not asked for, in any case:
//!
//! - a write of the incumbent that only sets what may be set already ([`SETTERS`]): ours may leave it out, since what
//!   AWS has in the end is compared;
//! - writes of a step after which AWS is as before: ours may have none;
//! - the words of a Warning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::case::{Action, Case, Difference};
use super::outcome::{Account, Event, Outcome, accounts};

/// Actions that set something, whether or not it is so already.
pub const SETTERS: [&str; 8] = [
    "AddTags",
    "ConfigureHealthCheck",
    "CreateLoadBalancerPolicy",
    "ModifyListener",
    "ModifyLoadBalancerAttributes",
    "ModifyTargetGroup",
    "SetLoadBalancerPoliciesForBackendServer",
    "SetLoadBalancerPoliciesOfListener",
];

/// Topics of `docs/parity.md` that say what holds for all cases: see the module's text.
pub const GENERAL: [&str; 2] = ["unchanged Service", "words of a failure"];

/// What is wrong with a case; empty when ours is equal to the record, or differs as the case and the page of parity
/// say.
pub fn problems(case: &Case, ours: &[Outcome], topics: &BTreeSet<String>) -> Vec<String> {
    let mut problems = undocumented(case, topics);
    let Some(recorded) = &case.recorded else {
        problems.push("nothing is recorded: run `make parity-record`".to_owned());
        return problems;
    };
    let labels = case.labels();
    let steps: Vec<&String> = recorded.iter().map(|outcome| &outcome.step).collect();
    if steps != labels.iter().collect::<Vec<_>>() {
        problems.push(format!(
            "the record has the steps {steps:?}, the case {labels:?}: record it again"
        ));
        return problems;
    }
    for index in 0..labels.len() {
        problems.extend(problems_of_step(case, ours, index));
    }
    problems
}

/// What is wrong with one step.
pub fn problems_of_step(case: &Case, ours: &[Outcome], index: usize) -> Vec<String> {
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let (Some(there), Some(here)) = (recorded.get(index), ours.get(index)) else {
        return vec![format!("step {}: there is no outcome", index + 1)];
    };
    let mut pairs = aws_fields(&accounts(recorded), &accounts(ours), index);
    pairs.push(("events".to_owned(), events(there), events(here)));
    pairs.push(("service".to_owned(), json!(there.service), json!(here.service)));
    pairs.push(("writes".to_owned(), json!(there.writes), json!(here.writes)));
    let label = &there.step;
    let of_step = case.differs.iter().filter(|difference| difference.step == *label);
    let allowed: BTreeMap<&str, &Difference> = of_step
        .map(|difference| (difference.field.as_str(), difference))
        .collect();
    let mut problems = Vec::new();
    for (field, there_value, here_value) in &pairs {
        let equal = match field.as_str() {
            "writes" => same_writes(there, &here.writes),
            _ => there_value == here_value,
        };
        let problem = judge(equal, allowed.get(field.as_str()).copied(), there_value, here_value);
        problems.extend(problem.map(|problem| format!("{label}: {field}: {problem}")));
    }
    for field in allowed.keys() {
        if pairs.iter().all(|(known, _, _)| known != field) {
            problems.push(format!(
                "{label}: {field}: the case says that it differs, and neither side has it"
            ));
        }
    }
    let unchanged = case.steps.get(index).map(|step| step.action) == Some(Action::NoOp) && there.aws.is_none();
    if unchanged && here.reads > there.reads {
        problems.push(format!(
            "{label}: reads: v1.37.0 has {}, ours {}",
            there.reads, here.reads
        ));
    }
    problems
}

fn judge(equal: bool, allowed: Option<&Difference>, there: &Value, here: &Value) -> Option<String> {
    match allowed {
        None if equal => None,
        None => Some(format!("v1.37.0: {}\n      ours:    {}", lines(there), lines(here))),
        Some(_) if equal => Some("is equal to the record; take the row out of `differs`".to_owned()),
        Some(allowed) if says(&allowed.ours, here) => None,
        Some(allowed) => Some(format!(
            "differs otherwise than the case says\n      v1.37.0: {}\n      differs: {}\n      ours:    {}",
            lines(there),
            lines(&allowed.ours),
            lines(here)
        )),
    }
}

fn lines(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| match item {
                Value::String(text) => format!("\n        {text}"),
                other => format!("\n        {other}"),
            });
            format!("[{}]", items.collect::<String>())
        }
        other => other.to_string(),
    }
}

/// Whether ours has the writes of the record in their order, but for those that need not be.
fn same_writes(recorded: &Outcome, ours: &[String]) -> bool {
    if ours.is_empty() && recorded.aws.is_none() {
        return true;
    }
    let mut rest = ours.iter().peekable();
    for line in &recorded.writes {
        if rest.peek() == Some(&line) {
            rest.next();
        } else if !SETTERS.contains(&line.split(' ').next().unwrap_or_default()) {
            return false;
        }
    }
    rest.next().is_none()
}

/// Events as they are compared: without the words of Warnings.
fn events(outcome: &Outcome) -> Value {
    let comparable = |event: &Event| {
        let mut event = event.clone();
        if event.kind == "Warning" {
            event.message.clear();
        }
        event
    };
    let events: BTreeSet<Event> = outcome.events.iter().map(comparable).collect();
    json!(events)
}

/// All fields of all objects on either side that are not as different as they were after the step before.
fn aws_fields(recorded: &[Account], ours: &[Account], index: usize) -> Vec<(String, Value, Value)> {
    let flat = |accounts: &[Account], index: Option<usize>| -> Map<String, Value> {
        let account = index.and_then(|index| accounts.get(index)).cloned().unwrap_or_default();
        let fields = account.into_iter().flat_map(|(object, fields)| {
            let named = move |(field, value)| (format!("aws/{object}/{field}"), value);
            fields.into_iter().map(named)
        });
        fields.collect()
    };
    let before = index.checked_sub(1);
    let (there, here) = (flat(recorded, Some(index)), flat(ours, Some(index)));
    let (there_before, here_before) = (flat(recorded, before), flat(ours, before));
    let names: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
    let told = |name: &String| {
        there.get(name) == there_before.get(name)
            && here.get(name) == here_before.get(name)
            && there.get(name) != here.get(name)
    };
    let field = |name: &&String| {
        let of = |map: &Map<String, Value>| map.get(*name).cloned().unwrap_or_default();
        ((*name).clone(), of(&there), of(&here))
    };
    names.iter().filter(|name| !told(name)).map(field).collect()
}

/// Whether a value is what a case says of it: objects of a list may have more keys than the case says.
fn says(wanted: &Value, here: &Value) -> bool {
    match (wanted, here) {
        (Value::Array(wanted), Value::Array(here)) => {
            wanted.len() == here.len() && wanted.iter().zip(here).all(|(wanted, here)| contains(wanted, here))
        }
        (wanted, here) => wanted == here,
    }
}

fn contains(wanted: &Value, here: &Value) -> bool {
    match (wanted, here) {
        (Value::Object(wanted), Value::Object(here)) => wanted.iter().all(|(key, value)| here.get(key) == Some(value)),
        (wanted, here) => wanted == here,
    }
}

fn undocumented(case: &Case, topics: &BTreeSet<String>) -> Vec<String> {
    let named = case.differs.iter().map(|difference| difference.parity.as_str());
    let missing: BTreeSet<&str> = named.chain(GENERAL).filter(|topic| !topics.contains(*topic)).collect();
    let missing = missing.into_iter();
    missing
        .map(|topic| format!("docs/parity.md has no row {topic:?}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::super::case::Case;
    use super::super::outcome::{Account, Event, Outcome, ServiceState};
    use super::{GENERAL, problems};

    fn event(kind: &str, reason: &str, message: &str) -> Event {
        Event {
            kind: kind.into(),
            reason: reason.into(),
            component: "c".into(),
            message: message.into(),
        }
    }

    fn account(scheme: &str) -> Account {
        serde_json::from_value(json!({"lb": {"scheme": scheme}})).expect("an account")
    }

    fn outcomes() -> Vec<Outcome> {
        let create = Outcome {
            step: "1 create".into(),
            events: vec![event("Normal", "Ensured", "m"), event("Warning", "Failed", "theirs")],
            service: Some(ServiceState::default()),
            writes: vec!["AddTags b".into(), "Create a".into(), "Delete c".into()],
            reads: 5,
            aws: Some(account("internal")),
        };
        let no_op = Outcome {
            step: "2 no-op".into(),
            writes: vec!["Create d".into()],
            reads: 3,
            ..Outcome::default()
        };
        let delete = Outcome {
            step: "3 delete".into(),
            aws: Some(Account::new()),
            ..Outcome::default()
        };
        vec![create, no_op, delete]
    }

    fn found(differs: &str, change: impl FnOnce(&mut Vec<Outcome>)) -> Vec<String> {
        let text = format!("about: a\nservice: {{}}\n{differs}");
        let mut case: Case = serde_saphyr::from_str(&text).expect("a case");
        case.recorded = Some(outcomes());
        let mut ours = outcomes();
        change(&mut ours);
        let topics: BTreeSet<String> = GENERAL
            .iter()
            .map(|topic| (*topic).to_owned())
            .chain(["row".to_owned()])
            .collect();
        problems(&case, &ours, &topics)
    }

    #[test]
    fn equal_is_no_problem_and_neither_is_what_need_not_be() {
        assert_eq!(found("", |_| {}), Vec::<String>::new());
        let lenient = |ours: &mut Vec<Outcome>| {
            ours[0].writes.remove(0);
            ours[0].events[1].message = "ours".into();
            ours[1].writes.clear();
            ours[1].reads = 1;
        };
        assert_eq!(found("", lenient), Vec::<String>::new());
    }

    #[test]
    fn every_other_difference_is_a_problem() {
        type Change = fn(&mut Vec<Outcome>);
        let changes: [(Change, &str); 9] = [
            (|o| o[0].writes.swap(1, 2), "1 create: writes"),
            (|o| drop(o[0].writes.remove(1)), "1 create: writes"),
            (|o| o[0].writes.push("AddTags b".into()), "1 create: writes"),
            (|o| o[0].events[0].message = "other".into(), "1 create: events"),
            (|o| drop(o[0].events.remove(1)), "1 create: events"),
            (|o| o[0].service = None, "1 create: service"),
            (|o| o[0].aws = Some(account("public")), "1 create: aws/lb/scheme"),
            (|o| o[1].writes = vec!["Create e".into()], "2 no-op: writes"),
            (|o| o[1].reads = 4, "2 no-op: reads"),
        ];
        for (change, beginning) in changes {
            let problems = found("", change);
            assert!(
                problems.len() == 1 && problems[0].starts_with(beginning),
                "{beginning}: {problems:?}"
            );
        }
        let left = found("", |o| o[2].aws = None);
        assert!(
            left[0].starts_with("3 delete: aws/lb/scheme"),
            "what is left behind: {left:?}"
        );
    }

    #[test]
    fn a_difference_that_is_meant_is_pinned_once_and_has_a_row() {
        let row = |ours: &str, parity: &str| {
            format!("differs: [{{step: 1 create, field: aws/lb/scheme, ours: {ours}, why: w, parity: {parity}}}]\n")
        };
        let public = |o: &mut Vec<Outcome>| o[0].aws = Some(account("public"));
        assert_eq!(
            found(&row("public", "row"), public),
            Vec::<String>::new(),
            "and not told again in step 2"
        );
        assert!(found(&row("other", "row"), public)[0].contains("differs otherwise"));
        assert!(found(&row("public", "row"), |_| {})[0].contains("take the row out"));
        assert!(found(&row("public", "elsewhere"), public)[0].contains("no row \"elsewhere\""));
    }
}
