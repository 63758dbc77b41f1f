//! What our manager gives beside what the incumbent gave. Pure.
//!
//! Equal means: the same Events, the same Service, the same things in AWS, the same writes in the same order. In all
//! cases less is asked for where a row of the page of parity says so ([`GENERAL`]), and nowhere else:
//!
//! - writes that only set what may be set already ([`SETTERS`]): ours may leave them out, or set a part, since what AWS has
//!   in the end is compared; so may it leave out what AWS refused;
//! - a step that deletes the load balancer: ours has the same writes in its own order ([`DELETION`]);
//! - a Service that was never given anything: ours may be silent where v1.37.0 says again what is wrong;
//! - a Warning: what went wrong is said in words of our own, after the same beginning;
//! - the tag with the cluster's UID on what ours creates ([`without_cluster_uid`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

use super::super::compare::says;
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
pub const GENERAL: [&str; 5] = [
    "unchanged Service",
    "words of a failure",
    "order of a deletion",
    "a Service that is refused",
    "tags of new resources",
];

/// Key of the tag that ours sets besides, on what it creates.
const CLUSTER_UID: &str = "outrigger.dev/cluster-uid";

/// Calls that set it.
const CREATIONS: [&str; 3] = ["CreateLoadBalancer", "CreateSecurityGroup", "CreateTargetGroup"];

/// The order of ours in a deletion: traffic ends first, and a group goes when no rule names it any more.
const DELETION: [&str; 4] = [
    "DeleteLoadBalancer",
    "DeleteTargetGroup",
    "RevokeSecurityGroupIngress",
    "DeleteSecurityGroup",
];

/// Something that is not as it has to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The step's label; empty: the case as a whole.
    pub step: String,
    /// The field, spelled as in [`Difference::field`].
    pub field: String,
    /// What ours gives in it.
    pub ours: Value,
    /// What is wrong.
    pub what: String,
}

impl Problem {
    /// Whether it concerns the objects after a step, and not Events or calls.
    pub fn is_of_the_end_state(&self) -> bool {
        self.step.is_empty() || self.field == "service" || self.field.starts_with("aws/")
    }

    fn of_case(what: impl Into<String>) -> Self {
        Self {
            step: String::new(),
            field: String::new(),
            ours: Value::Null,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.step.is_empty() {
            write!(f, "{}: {}: ", self.step, self.field)?;
        }
        f.write_str(&self.what)
    }
}

/// The outcome without that tag. In any other call than a creation it stays, and so is a difference: nothing that is there
/// gets the tag, or loses it.
#[must_use]
pub fn without_cluster_uid(mut outcome: Outcome) -> Outcome {
    for line in outcome
        .writes
        .iter_mut()
        .filter(|line| CREATIONS.contains(&action(line)))
    {
        let key = format!("{CLUSTER_UID}=");
        while let Some(start) = line.find(&key) {
            let rest = &line[start..];
            let end = start + rest.find([' ', ']']).unwrap_or(rest.len());
            let (before, after) = (&line[..start], &line[end..]);
            *line = match before.strip_suffix(' ') {
                Some(before) => format!("{before}{after}"),
                None => format!("{before}{}", after.trim_start()),
            };
        }
    }

    for fields in outcome.aws.values_mut().flatten() {
        if let Some(Value::Object(tags)) = fields.get_mut("tags") {
            tags.remove(CLUSTER_UID);
        }
    }

    outcome
}

/// What is wrong with a case; empty when ours is equal to the record, or differs as the case and the page of parity
/// say.
pub fn problems(case: &Case, ours: &[Outcome], topics: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = undocumented(case, topics).into_iter().map(Problem::of_case).collect();
    let Some(recorded) = &case.recorded else {
        problems.push(Problem::of_case("nothing is recorded: run `make parity-record`"));
        return problems;
    };

    let labels = case.labels();
    let steps: Vec<&String> = recorded.iter().map(|outcome| &outcome.step).collect();
    if steps != labels.iter().collect::<Vec<_>>() {
        let what = format!("the record has the steps {steps:?}, the case {labels:?}: record it again");
        problems.push(Problem::of_case(what));
        return problems;
    }

    for index in 0..labels.len() {
        problems.extend(problems_of_step(case, ours, index));
    }

    problems
}

/// What is wrong with one step.
pub fn problems_of_step(case: &Case, ours: &[Outcome], index: usize) -> Vec<Problem> {
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let (Some(there), Some(here)) = (recorded.get(index), ours.get(index)) else {
        return vec![Problem::of_case(format!("step {}: there is no outcome", index + 1))];
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
    let found = |field: &str, ours: Value, what: String| Problem {
        step: label.clone(),
        field: field.to_owned(),
        ours,
        what,
    };
    let nothing_made = recorded.iter().take(index + 1).all(|outcome| outcome.writes.is_empty());
    let mut problems = Vec::new();

    for (field, there_value, here_value) in &pairs {
        let equal = match field.as_str() {
            "writes" => same_writes(there, here),
            "events" => same_events(there, here, nothing_made && index > 0),
            _ => there_value == here_value,
        };
        let problem = judge(equal, allowed.get(field.as_str()).copied(), there_value, here_value);
        problems.extend(problem.map(|what| found(field, here_value.clone(), what)));
    }

    for field in allowed.keys() {
        if *field != "reads" && pairs.iter().all(|(known, _, _)| known != field) {
            let what = "the case says that it differs, and neither side has it";
            problems.push(found(field, Value::Null, what.to_owned()));
        }
    }

    let ensured = there.events.iter().any(|event| event.reason == "EnsuredLoadBalancer");
    // What somebody has changed by hand is put right, which is no sync without effect.
    let no_op = case
        .steps
        .get(index)
        .is_some_and(|step| step.action == Action::NoOp && step.calls.is_empty());
    let unchanged = no_op && ensured && there.aws.is_empty();

    if unchanged && here.reads > there.reads && !allowed.contains_key("reads") {
        let what = format!("v1.37.0 has {}, ours {}", there.reads, here.reads);
        problems.push(found("reads", json!(here.reads), what));
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

/// Whether ours has the writes of the record, as far as it has to, and no others.
fn same_writes(recorded: &Outcome, ours: &Outcome) -> bool {
    let deletes = |line: &String| action(line) == "DeleteLoadBalancer";
    if !recorded.writes.iter().any(deletes) {
        return is_way(&recorded.writes, &ours.writes);
    }

    let place = |line: &String| DELETION.iter().position(|known| *known == action(line));
    let sorted = |lines: &[String]| {
        let mut lines: Vec<String> = lines.iter().filter(|line| !may_be_left_out(line)).cloned().collect();
        lines.sort();
        lines
    };

    sorted(&recorded.writes) == sorted(&ours.writes) && ours.writes.is_sorted_by_key(place)
}

/// Whether ours goes through the lines of the record in their order, and passes over none but those that may be left out.
fn is_way(recorded: &[String], ours: &[String]) -> bool {
    let mut ours = ours.iter().peekable();
    for line in recorded {
        let here = |ours: &&String| *ours == line || (SETTERS.contains(&action(line)) && is_part(ours, line));
        if ours.next_if(here).is_none() && !may_be_left_out(line) {
            return false;
        }
    }

    ours.next().is_none()
}

fn action(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// What changes nothing that counts: it sets what may be set already, or AWS refused it.
fn may_be_left_out(line: &str) -> bool {
    SETTERS.contains(&action(line)) || line.contains(" -> ")
}

/// Whether a call of the same action sets nothing that the other does not set so too.
fn is_part(ours: &str, recorded: &str) -> bool {
    let words = |line: &str| -> BTreeSet<String> {
        let words = line.split([' ', '[', ']', '{', '}']);
        words.map(str::to_owned).collect()
    };
    action(ours) == action(recorded) && words(ours).is_subset(&words(recorded))
}

/// `nothing_made`: v1.37.0 has written nothing so far, and this is not the first step.
fn same_events(recorded: &Outcome, ours: &Outcome, nothing_made: bool) -> bool {
    let (theirs, ours) = (comparable(recorded), comparable(ours));
    // What went wrong is told once, not in each step.
    let said_again = |event: &Event| nothing_made && event.kind == "Warning";
    ours.is_subset(&theirs) && theirs.difference(&ours).all(said_again)
}

/// Events as they are compared: of Warnings the beginning.
fn comparable(outcome: &Outcome) -> BTreeSet<Event> {
    let comparable = |event: &Event| {
        let mut event = event.clone();
        if event.kind == "Warning" {
            event.message = beginning(&event);
        }
        event
    };
    outcome.events.iter().map(comparable).collect()
}

/// What comes before the words about the fault: of a sync also what was being done.
pub(super) fn beginning(event: &Event) -> String {
    if let Some((hosts, _)) = event.message.split_once(", error: ") {
        return hosts.to_owned();
    }
    let parts = if event.reason == "SyncLoadBalancerFailed" { 2 } else { 1 };
    let parts: Vec<&str> = event.message.split(": ").take(parts).collect();
    parts.join(": ")
}

fn events(outcome: &Outcome) -> Value {
    json!(comparable(outcome))
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
    use super::super::outcome::{Change, Event, Outcome, ServiceState};
    use super::{GENERAL, problems, same_events, without_cluster_uid};

    fn event(kind: &str, reason: &str, message: &str) -> Event {
        Event {
            kind: kind.into(),
            reason: reason.into(),
            component: "c".into(),
            message: message.into(),
        }
    }

    fn aws(scheme: &str) -> Change {
        serde_json::from_value(json!({"lb": {"scheme": scheme}})).expect("a change")
    }

    fn outcomes() -> Vec<Outcome> {
        let create = Outcome {
            step: "1 create".into(),
            events: vec![
                event("Normal", "Ensured", "m"),
                event("Warning", "Failed", "sync: theirs"),
            ],
            service: Some(ServiceState::default()),
            writes: [
                "AddTags [b c]",
                "Create a",
                "ModifyListener d",
                "Delete c",
                "Create x -> Refused",
            ]
            .map(str::to_owned)
            .into(),
            reads: 5,
            aws: aws("internal"),
        };
        let no_op = Outcome {
            step: "2 no-op".into(),
            events: vec![event("Normal", "EnsuredLoadBalancer", "m")],
            writes: vec!["ModifyListener d".into()],
            reads: 3,
            ..Outcome::default()
        };
        let delete = Outcome {
            step: "3 delete".into(),
            writes: ["DeleteLoadBalancer a", "RevokeSecurityGroupIngress b"]
                .map(str::to_owned)
                .into(),
            aws: Change::from([("lb".to_owned(), None)]),
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
        let problems = problems(&case, &ours, &topics);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_is_no_problem_and_neither_is_what_need_not_be() {
        assert_eq!(found("", |_| {}), Vec::<String>::new());
        let lenient = |ours: &mut Vec<Outcome>| {
            ours[0].writes = vec!["AddTags [c]".into(), "Create a".into(), "Delete c".into()];
            ours[0].events[1].message = "sync: ours".into();
            ours[1].writes.clear();
            ours[1].reads = 1;
        };
        assert_eq!(found("", lenient), Vec::<String>::new());
    }

    #[test]
    fn the_tag_with_the_clusters_uid_counts_only_where_nothing_is_created() {
        let uid = "outrigger.dev/cluster-uid=0-1";
        let outcome = |writes: [&str; 5], tags: serde_json::Value| Outcome {
            writes: writes.map(str::to_owned).into(),
            aws: serde_json::from_value(json!({"lb": {"tags": tags}, "gone": null})).expect("a change"),
            ..Outcome::default()
        };
        let lines = |uid: &dyn Fn(&str) -> String| {
            [
                format!("CreateTargetGroup Name=a Tags=[kubernetes.io/x=y{}] VpcId=v", uid(" ")),
                format!("CreateLoadBalancer Tags=[a=b{} team=web]", uid(" ")),
                format!("CreateSecurityGroup Tags=[{}team=web]", uid("")),
                "AddTags Tags=[outrigger.dev/cluster-uid=0-1]".to_owned(),
                "CreateTags Tag=[outrigger.dev/cluster-uid=0-1]".to_owned(),
            ]
        };
        let with = lines(&|before| match before {
            "" => format!("{uid} "),
            before => format!("{before}{uid}"),
        });
        let without = lines(&|_| String::new());
        let ours = outcome(
            with.each_ref().map(String::as_str),
            json!({"a": "b", "outrigger.dev/cluster-uid": "0-1"}),
        );
        let expected = outcome(without.each_ref().map(String::as_str), json!({"a": "b"}));
        assert_eq!(without_cluster_uid(ours), expected);
    }

    #[test]
    fn every_other_difference_is_a_problem() {
        type Change = fn(&mut Vec<Outcome>);
        let changes: [(Change, &str); 14] = [
            (|o| o[0].writes.swap(1, 3), "1 create: writes"),
            (|o| o[0].writes.swap(2, 3), "1 create: writes"),
            (|o| drop(o[0].writes.remove(1)), "1 create: writes"),
            (|o| o[0].writes.push("ModifyListener b".into()), "1 create: writes"),
            (|o| o[0].writes[0] = "AddTags [b d]".into(), "1 create: writes"),
            (|o| o[0].events[0].message = "other".into(), "1 create: events"),
            (|o| o[0].events[1].message = "update: theirs".into(), "1 create: events"),
            (|o| drop(o[0].events.remove(1)), "1 create: events"),
            (|o| o[0].service = None, "1 create: service"),
            (|o| o[0].aws = aws("public"), "1 create: aws/lb/scheme"),
            (|o| o[1].writes = vec!["Create e".into()], "2 no-op: writes"),
            (|o| o[1].events.clear(), "2 no-op: events"),
            (|o| o[1].reads = 4, "2 no-op: reads"),
            (|o| o[2].writes.swap(0, 1), "3 delete: writes"),
        ];
        for (change, beginning) in changes {
            let problems = found("", change);
            assert!(
                problems.len() == 1 && problems[0].starts_with(beginning),
                "{beginning}: {problems:?}"
            );
        }
        let left = found("", |o| o[2].aws.clear());
        assert!(
            left[0].starts_with("3 delete: aws/lb/scheme"),
            "what is left behind: {left:?}"
        );
    }

    #[test]
    fn a_service_that_was_never_given_anything_hears_what_is_wrong_once() {
        let refused = |o: &mut Vec<Outcome>| {
            o[0].writes.clear();
            o[1].writes.clear();
            o[1].events.push(event("Warning", "Failed", "sync: theirs"));
        };
        let mut recorded = outcomes();
        refused(&mut recorded);
        let mut ours = recorded.clone();
        assert!(same_events(&recorded[1], &ours[1], true));
        ours[1].events.pop();
        assert!(same_events(&recorded[1], &ours[1], true));
        assert!(!same_events(&recorded[1], &ours[1], false), "something was made");
        ours[1].events.clear();
        assert!(
            !same_events(&recorded[1], &ours[1], true),
            "all that is no Warning is said"
        );
    }

    #[test]
    fn a_difference_that_is_meant_is_pinned_once_and_has_a_row() {
        let row = |ours: &str, parity: &str| {
            format!("differs: [{{step: 1 create, field: aws/lb/scheme, ours: {ours}, why: w, parity: {parity}}}]\n")
        };
        let public = |o: &mut Vec<Outcome>| o[0].aws = aws("public");
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
