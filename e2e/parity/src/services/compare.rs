//! The comparison of our manager with the record. Pure.
//!
//! Equal are the Events, the Service, the AWS resources, and the writes in their order, rule by rule. Rows of `docs/parity.md`
//! ([`GENERAL`]) allow these exceptions in all cases:
//!
//! - Writes that only set a value ([`SETTERS`]): ours may omit them or set a part, because the resources in the end are
//!   compared. It may also omit writes that AWS refused.
//! - A step that deletes the load balancer: ours has the same writes in its own order ([`DELETION`]).
//! - Calls that a quota refused are not compared, of both. Nor are the writes of two Services:
//!   what the first one finds depends on the speed of the second one.
//! - A Service without any resource: ours may omit repeated Warnings.
//! - A Warning: the words about the failure differ, after the same beginning.
//! - The tag with the cluster's UID on new resources ([`without_cluster_uid`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

use super::super::compare::{NOT_RECORDED, UNKNOWN_FIELD, judge, undocumented};
use super::case::{Action, Case, Difference};
use super::outcome::{Account, Event, Outcome, accounts};

/// Actions that set a value, also one that is already set.
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

/// Topics of `docs/parity.md` for all cases, see the text of this module.
pub const GENERAL: [&str; 5] = [
    "unchanged Service",
    "words of a failure",
    "order of a deletion",
    "a Service that is refused",
    "tags of new resources",
];

/// The codes of refusals by quotas.
const QUOTAS: [&str; 2] = ["RulesPerSecurityGroupLimitExceeded", "TooManyTargets"];

/// Key of a tag that only ours sets, on new resources.
const CLUSTER_UID: &str = "outrigger.dev/cluster-uid";

/// Calls that set it.
const CREATIONS: [&str; 3] = ["CreateLoadBalancer", "CreateSecurityGroup", "CreateTargetGroup"];

/// The order of a deletion in ours: traffic ends first, and a group is deleted after all rules that name it.
const DELETION: [&str; 4] = [
    "DeleteLoadBalancer",
    "DeleteTargetGroup",
    "RevokeSecurityGroupIngress",
    "DeleteSecurityGroup",
];

#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The step's label; empty for the whole case.
    pub step: String,
    /// The field, spelled as in [`Difference::field`].
    pub field: String,
    /// The value of ours.
    pub ours: Value,
    pub what: String,
}

impl Problem {
    /// Whether it is about objects after a step, and not about Events or calls.
    pub fn is_of_the_end_state(&self) -> bool {
        self.step.is_empty() || self.field == "service" || self.field.starts_with("aws/")
    }

    pub(super) fn of_case(what: impl Into<String>) -> Self {
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

/// The outcome without that tag in creations and resources. In any other call the tag is a difference: ours neither
/// adds it to existing resources nor removes it.
#[must_use]
pub fn without_cluster_uid(mut outcome: Outcome) -> Outcome {
    let writes = outcome.writes.iter_mut();
    for line in writes.filter(|line| CREATIONS.contains(&action(line))) {
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

/// The problems of a case. Without any, ours is equal to the record, or differs as the case and `docs/parity.md` say.
pub fn problems(case: &Case, ours: &[Outcome], topics: &BTreeSet<String>) -> Vec<Problem> {
    let named = case.differs.iter().map(|difference| difference.parity.as_str());
    let undocumented = undocumented(named.chain(GENERAL), topics).into_iter();
    let mut problems: Vec<Problem> = undocumented.map(Problem::of_case).collect();
    let Some(recorded) = &case.recorded else {
        problems.push(Problem::of_case(NOT_RECORDED));
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

pub fn problems_of_step(case: &Case, ours: &[Outcome], index: usize) -> Vec<Problem> {
    let recorded = case.recorded.as_deref().unwrap_or_default();
    let (Some(there), Some(here)) = (recorded.get(index), ours.get(index)) else {
        return vec![Problem::of_case(format!("step {}: there is no outcome", index + 1))];
    };
    let (there, here) = (&without_refused_quotas(there), &without_refused_quotas(here));

    let mut pairs = aws_fields(&accounts(recorded), &accounts(ours), index);
    pairs.push(("events".to_owned(), events(there), events(here)));
    pairs.push(("service".to_owned(), json!(there.service), json!(here.service)));
    let writes = |outcome: &Outcome| json!(rule_by_rule(&outcome.writes));
    pairs.push(("writes".to_owned(), writes(there), writes(here)));

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
    let nothing_created = recorded.iter().take(index + 1).all(|outcome| outcome.writes.is_empty());
    let mut problems = Vec::new();

    for (field, there_value, here_value) in &pairs {
        let equal = match field.as_str() {
            "writes" if case.neighbour.is_some() => true,
            "writes" => same_writes(there, here),
            "events" => same_events(there, here, nothing_created && index > 0),
            _ => there_value == here_value,
        };
        let allowed = allowed.get(field.as_str()).map(|allowed| match field.as_str() {
            "writes" => json!(rule_by_rule(&texts(&allowed.ours))),
            _ => allowed.ours.clone(),
        });
        let problem = judge(equal, allowed.as_ref(), there_value, here_value);
        problems.extend(problem.map(|what| found(field, here_value.clone(), what)));
    }

    for field in allowed.keys() {
        if *field != "reads" && pairs.iter().all(|(known, _, _)| known != field) {
            problems.push(found(field, Value::Null, UNKNOWN_FIELD.to_owned()));
        }
    }

    let ensured = there.events.iter().any(|event| event.reason == "EnsuredLoadBalancer");
    // Drift after a manual call is repaired.
    let step = case.steps.get(index);
    let no_op = step.is_some_and(|step| step.action == Action::NoOp && step.calls.is_empty());
    let unchanged = no_op && ensured && there.aws.is_empty();

    if unchanged && here.reads > there.reads && !allowed.contains_key("reads") {
        let what = format!("v1.37 has {}, ours {}", there.reads, here.reads);
        problems.push(found("reads", json!(here.reads), what));
    }

    problems
}

/// Without the calls that a quota refused: they change nothing, and their number depends on backoffs.
fn without_refused_quotas(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    let is_refused = |line: &String| QUOTAS.iter().any(|code| line.ends_with(&format!(" -> {code}")));
    outcome.writes.retain(|line| !is_refused(line));
    outcome
}

/// Calls with rules of a security group.
const RULE_CALLS: [&str; 2] = ["AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"];

/// Whether ours has the required writes of the record, and no others.
fn same_writes(recorded: &Outcome, ours: &Outcome) -> bool {
    let deletes = |line: &String| action(line) == "DeleteLoadBalancer";
    let (theirs, ours) = (rule_by_rule(&recorded.writes), rule_by_rule(&ours.writes));
    if !theirs.iter().any(deletes) {
        return in_order(&theirs, &ours);
    }

    let place = |line: &String| DELETION.iter().position(|known| *known == action(line));
    let sorted = |lines: &[String]| {
        let mut lines: Vec<String> = lines.iter().filter(|line| !is_optional(line)).cloned().collect();
        lines.sort();
        lines
    };

    sorted(&theirs) == sorted(&ours) && ours.is_sorted_by_key(place)
}

/// The writes, with one line for each rule of a security group. In calls of one action after another they have no order:
/// v1.37 makes a call for each kind of rule, and ours makes one for each group.
fn rule_by_rule(writes: &[String]) -> Vec<String> {
    let of_rules = |line: &String| RULE_CALLS.contains(&action(line)) && !line.contains(" -> ");
    let runs = writes.chunk_by(|before, line| of_rules(before) && of_rules(line) && action(before) == action(line));
    let run = |run: &[String]| {
        let mut lines: Vec<String> = run.iter().flat_map(|line| single_rules(line)).collect();
        lines.sort();
        lines
    };
    runs.flat_map(|lines| match lines.iter().all(of_rules) {
        true => run(lines),
        false => lines.to_vec(),
    })
    .collect()
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// The line of a call with several rules as lines with one each.
fn single_rules(line: &str) -> Vec<String> {
    const RULES: &str = "IpPermissions=[";

    let parts = line.split_once(RULES);
    let Some((before, rules, after)) = parts.and_then(|(before, rest)| {
        let (rules, after) = rest.rsplit_once(']')?;
        Some((before, rules, after))
    }) else {
        return vec![line.to_owned()];
    };
    let single = |rule: &str| format!("{before}{RULES}{rule}]{after}");
    rules.split(", ").map(single).collect()
}

/// Whether ours has the lines of the record in their order. It may omit optional ones only.
fn in_order(recorded: &[String], ours: &[String]) -> bool {
    let mut ours = ours.iter().peekable();
    for line in recorded {
        let here = |ours: &&String| *ours == line || (SETTERS.contains(&action(line)) && is_part(ours, line));
        if ours.next_if(here).is_none() && !is_optional(line) {
            return false;
        }
    }

    ours.next().is_none()
}

fn action(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Whether a write changes nothing: it sets a value that may be set already, or AWS refused it.
fn is_optional(line: &str) -> bool {
    SETTERS.contains(&action(line)) || line.contains(" -> ")
}

/// Whether a call sets a part of the values of the other one.
fn is_part(ours: &str, recorded: &str) -> bool {
    let words = |line: &str| -> BTreeSet<String> {
        let words = line.split([' ', '[', ']', '{', '}']);
        words.map(str::to_owned).collect()
    };
    action(ours) == action(recorded) && words(ours).is_subset(&words(recorded))
}

/// `nothing_created`: v1.37 has written nothing so far, and this is not the first step.
fn same_events(recorded: &Outcome, ours: &Outcome, nothing_created: bool) -> bool {
    let (theirs, ours) = (comparable(recorded), comparable(ours));
    let repeated = |event: &Event| nothing_created && event.kind == "Warning";
    ours.is_subset(&theirs) && theirs.difference(&ours).all(repeated)
}

/// Events, of Warnings only the beginning.
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

/// The part before the words about the failure. For a sync it contains the operation.
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

/// All fields of all objects, without differences that the step before had already.
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
    let known = |name: &String| {
        there.get(name) == there_before.get(name)
            && here.get(name) == here_before.get(name)
            && there.get(name) != here.get(name)
    };
    let field = |name: &&String| {
        let of = |map: &Map<String, Value>| map.get(*name).cloned().unwrap_or_default();
        ((*name).clone(), of(&there), of(&here))
    };

    names.iter().filter(|name| !known(name)).map(field).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::super::case::Case;
    use super::super::outcome::{Change, Event, Outcome, ServiceState};
    use super::{GENERAL, problems, rule_by_rule, same_events, without_cluster_uid};

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
    fn rules_of_a_group_may_be_in_one_call_or_in_several() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let of = |rules: &str| format!("AuthorizeSecurityGroupIngress GroupId=a IpPermissions=[{rules}]");
        let (one, two) = (of("tcp 1 from b (c)"), of("udp 2 from b (d)"));
        let theirs = lines(&["Create x", &two, &one, "Delete y"]);
        let ours = lines(&["Create x", &of("tcp 1 from b (c), udp 2 from b (d)"), "Delete y"]);
        assert_eq!(rule_by_rule(&theirs), rule_by_rule(&ours));

        let apart = lines(&[&one, "Create x", &two]);
        assert_ne!(rule_by_rule(&apart), rule_by_rule(&lines(&["Create x", &one, &two])));
        let refused = lines(&[&format!("{one} -> InvalidPermission.Duplicate")]);
        assert_eq!(rule_by_rule(&refused), refused);
    }

    #[test]
    fn equal_is_no_problem_and_neither_is_an_allowed_exception() {
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
            "orphaned resources: {left:?}"
        );
    }

    #[test]
    fn a_service_without_resources_may_get_its_warning_once() {
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
        assert!(!same_events(&recorded[1], &ours[1], false), "resources were created");
        ours[1].events.clear();
        assert!(
            !same_events(&recorded[1], &ours[1], true),
            "only Warnings may be omitted"
        );
    }

    #[test]
    fn an_intended_difference_is_exact_and_has_a_row() {
        let row = |ours: &str, parity: &str| {
            format!("differs: [{{step: 1 create, field: aws/lb/scheme, ours: {ours}, why: w, parity: {parity}}}]\n")
        };
        let public = |o: &mut Vec<Outcome>| o[0].aws = aws("public");
        assert_eq!(
            found(&row("public", "row"), public),
            Vec::<String>::new(),
            "and not reported again in step 2"
        );
        assert!(found(&row("other", "row"), public)[0].contains("differs otherwise"));
        assert!(found(&row("public", "row"), |_| {})[0].contains("remove the row"));
        assert!(found(&row("public", "elsewhere"), public)[0].contains("no row \"elsewhere\""));
    }
}
