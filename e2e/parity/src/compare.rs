//! The comparison of our manager with the record. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::case::{Case, Outcome};

/// Events that only our manager emits, in any case, with the topic of their row in `docs/parity.md`.
pub const OWN_EVENTS: [(&str, &str); 2] = [
    ("NotInitialized", "why a node waits"),
    ("AddressesContested", "someone else writes the addresses too"),
];

pub(super) const NOT_RECORDED: &str = "nothing is recorded: run `make parity-record`";
pub(super) const UNKNOWN_FIELD: &str = "the case says that it differs, and neither side has it";

/// The problems of a case. Without any, ours is equal to the record, or differs as the case and `docs/parity.md` say.
pub fn problems(case: &Case, ours: &Outcome, topics: &BTreeSet<String>) -> Vec<String> {
    let named = case.differs.iter().map(|difference| difference.parity.as_str());
    let mut problems = undocumented(named.chain(OWN_EVENTS.map(|(_, topic)| topic)), topics);
    let Some(recorded) = &case.recorded else {
        problems.push(NOT_RECORDED.to_owned());
        return problems;
    };

    let fields = fields(recorded, ours);
    for (name, (there, here)) in &fields {
        let allowed = case.differs.iter().find(|difference| difference.field == *name);
        let problem = judge(there == here, allowed.map(|allowed| &allowed.ours), there, here);
        problems.extend(problem.map(|problem| format!("{name}: {problem}")));
    }

    let unknown = case.differs.iter();
    let unknown = unknown.filter(|difference| !fields.contains_key(&difference.field));
    problems.extend(unknown.map(|difference| format!("{}: {UNKNOWN_FIELD}", difference.field)));

    problems
}

/// The problem of a field, if any. `allowed` is our value in the case.
pub(super) fn judge(equal: bool, allowed: Option<&Value>, there: &Value, here: &Value) -> Option<String> {
    let values = || format!("v1.37: {}\n      ours:    {}", lines(there), lines(here));
    match allowed {
        None if equal => None,
        None => Some(values()),
        Some(_) if equal => Some("is equal to the record: remove the row from `differs`".to_owned()),
        Some(allowed) if says(allowed, here) => None,
        Some(allowed) => Some(format!(
            "differs otherwise than the case says\n      differs: {}\n      {}",
            lines(allowed),
            values()
        )),
    }
}

fn lines(value: &Value) -> String {
    let Value::Array(items) = value else {
        return value.to_string();
    };
    let line = |item: &Value| {
        let text = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
        format!("\n        {text}")
    };
    format!("[{}]", items.iter().map(line).collect::<String>())
}

/// One problem for each topic without a row in `docs/parity.md`.
pub(super) fn undocumented<'a>(named: impl Iterator<Item = &'a str>, topics: &BTreeSet<String>) -> Vec<String> {
    let missing: BTreeSet<&str> = named.filter(|topic| !topics.contains(*topic)).collect();
    let problem = |topic| format!("docs/parity.md has no row {topic:?}");
    missing.into_iter().map(problem).collect()
}

/// Whether ours is equal to the record in all fields without an intended difference.
pub fn settled(case: &Case, ours: &Outcome) -> bool {
    case.recorded.as_ref().is_none_or(|recorded| {
        let is_intended = |name: &String| case.differs.iter().any(|difference| difference.field == *name);
        let mut fields = fields(recorded, ours).into_iter();
        fields.all(|(name, (there, here))| there == here || is_intended(&name))
    })
}

/// The values of all fields in the record and in ours, without our own Events; `null` for a field that is missing.
fn fields(recorded: &Outcome, ours: &Outcome) -> BTreeMap<String, (Value, Value)> {
    let own = |reason: &str| OWN_EVENTS.iter().any(|(event, _)| *event == reason);
    let mut ours = ours.clone();
    ours.events
        .retain(|event| !own(&event.reason) || recorded.events.contains(event));

    let (there, here) = (json!(recorded), json!(ours));
    let objects = [&there, &here].into_iter().filter_map(Value::as_object);
    let pair = |name: &String| (name.clone(), (there[name].clone(), here[name].clone()));
    objects.flat_map(Map::keys).map(pair).collect()
}

/// Whether a value is that of a case. In objects of a list, a key that the case omits may have any value.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::case::{Case, Event, Outcome};
    use super::super::page::topics_of;
    use super::problems;

    const PAGE: &str = "| topic | v1.37 |\n|---|---|\n| why a node waits | log only |\n\
                        | someone else writes the addresses too | x |\n| grace | none |\n";

    fn case(differs: &str) -> Case {
        let text = format!(
            "about: x\nnode: {{name: n}}\n{differs}recorded: {{deleted: true, events: [{{type: Normal, reason: DeletingNode, \
             component: c, message: gone}}]}}\n"
        );
        serde_saphyr::from_str(&text).expect("a case")
    }

    fn outcome(deleted: bool, reasons: &[&str]) -> Outcome {
        let event = |reason: &&str| Event {
            kind: "Normal".into(),
            reason: (*reason).into(),
            component: "c".into(),
            message: Some("gone".into()),
        };
        Outcome {
            deleted,
            events: reasons.iter().map(event).collect(),
            ..Outcome::default()
        }
    }

    fn found(differs: &str, ours: &Outcome) -> Vec<String> {
        problems(&case(differs), ours, &topics_of(PAGE))
    }

    #[test]
    fn equal_is_no_problem_and_our_own_events_are_none_either() {
        assert!(found("", &outcome(true, &["DeletingNode"])).is_empty());
        assert!(found("", &outcome(true, &["DeletingNode", "NotInitialized"])).is_empty());
    }

    #[test]
    fn every_other_difference_is_a_problem() {
        assert_eq!(found("", &outcome(false, &["DeletingNode"])).len(), 1);
        assert_eq!(found("", &outcome(true, &[])).len(), 1);
        assert_eq!(found("", &outcome(true, &["DeletingNode", "Other"])).len(), 1);
    }

    #[test]
    fn an_intended_difference_is_exact_and_has_a_row_in_the_page() {
        let row = |parity: &str| format!("differs: [{{field: deleted, ours: false, why: w, parity: {parity}}}]\n");
        assert!(found(&row("grace"), &outcome(false, &["DeletingNode"])).is_empty());
        let stale = found(&row("grace"), &outcome(true, &["DeletingNode"]));
        assert!(stale.len() == 1 && stale[0].contains("remove the row"), "{stale:?}");
        let undocumented = found(&row("elsewhere"), &outcome(false, &["DeletingNode"]));
        assert_eq!(undocumented, ["docs/parity.md has no row \"elsewhere\""]);
    }

    #[test]
    fn only_the_message_of_an_event_may_be_omitted() {
        let row = |reason: &str| {
            format!(
                "differs: [{{field: events, ours: [{{type: Normal, component: c, reason: {reason}}}], why: w, parity: grace}}]\n"
            )
        };
        assert!(found(&row("Other"), &outcome(true, &["Other"])).is_empty());
        assert_eq!(found(&row("Other"), &outcome(true, &["Third"])).len(), 1);
        assert_eq!(found(&row("Other"), &outcome(true, &["Other", "Third"])).len(), 1);
    }

    #[test]
    fn a_case_without_a_record_is_a_problem() {
        let mut case = case("");
        case.recorded = None;
        assert_eq!(problems(&case, &outcome(true, &[]), &topics_of(PAGE)).len(), 1);
        assert_eq!(problems(&case, &outcome(true, &[]), &BTreeSet::new()).len(), 3);
    }
}
