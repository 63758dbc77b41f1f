//! The result of a step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The AWS resources of Services, by object and field. IDs are replaced by names.
pub type Account = BTreeMap<String, BTreeMap<String, Value>>;

/// Changes of an [`Account`]: fields with their new values, and `null` for deleted fields and objects.
pub type Change = BTreeMap<String, Option<BTreeMap<String, Value>>>;

/// The state when nothing changes any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Outcome {
    /// The step's label.
    pub step: String,
    /// New Events about the Service, sorted, without their counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// None for a deleted Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceState>,
    /// Calls that change AWS, one line each, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Calls that change nothing.
    pub reads: usize,
    /// Changes of the resources that are new or changed since the begin of the case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aws: Change,
}

/// The fields of a Service that a controller writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServiceState {
    /// `metadata.finalizers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// `status.loadBalancer.ingress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Value>,
}

/// An Event; in files `TYPE REASON of COMPONENT: MESSAGE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: String,
    pub reason: String,
    pub component: String,
    pub message: String,
}

impl From<Event> for String {
    fn from(event: Event) -> Self {
        let Event { kind, reason, .. } = &event;
        format!("{kind} {reason} of {}: {}", event.component, event.message)
    }
}

impl TryFrom<String> for Event {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let event = || {
            let (kind, rest) = text.split_once(' ')?;
            let (reason, rest) = rest.split_once(" of ")?;
            let (component, message) = rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
            Some(Self {
                kind: kind.to_owned(),
                reason: reason.to_owned(),
                component: component.to_owned(),
                message: message.to_owned(),
            })
        };
        event().ok_or_else(|| format!("{text:?} is no Event; write TYPE REASON of COMPONENT: MESSAGE"))
    }
}

pub fn change(before: &Account, after: &Account) -> Change {
    let gone = before.keys().filter(|object| !after.contains_key(*object));
    let mut change: Change = gone.map(|object| (object.clone(), None)).collect();
    for (object, fields) in after {
        let nothing = BTreeMap::new();
        let old = before.get(object).unwrap_or(&nothing);
        let gone = old.keys().filter(|field| !fields.contains_key(*field));
        let mut changed: BTreeMap<String, Value> = gone.map(|field| (field.clone(), Value::Null)).collect();
        let new = fields.iter().filter(|(field, value)| old.get(*field) != Some(value));
        changed.extend(new.map(|(field, value)| (field.clone(), value.clone())));
        if !changed.is_empty() || !before.contains_key(object) {
            change.insert(object.clone(), Some(changed));
        }
    }

    change
}

/// The account after each step.
pub fn accounts(outcomes: &[Outcome]) -> Vec<Account> {
    let mut account = Account::new();
    let mut after = Vec::new();
    for outcome in outcomes {
        for (object, fields) in &outcome.aws {
            let Some(fields) = fields else {
                account.remove(object);
                continue;
            };
            let kept = account.entry(object.clone()).or_default();
            kept.extend(fields.clone());
            kept.retain(|_, value| !value.is_null());
        }
        after.push(account.clone());
    }

    after
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Account, Event, Outcome, accounts, change};

    fn account(value: serde_json::Value) -> Account {
        serde_json::from_value(value).expect("an account")
    }

    #[test]
    fn changes_add_up_to_the_account() {
        let states = [
            account(json!({})),
            account(json!({"a": {"x": 1, "y": [1]}, "b": {}})),
            account(json!({"a": {"x": 2}})),
            account(json!({"a": {"x": 2}})),
            account(json!({})),
        ];
        let step = |pair: &[Account]| Outcome {
            aws: change(&pair[0], &pair[1]),
            ..Outcome::default()
        };
        let outcomes: Vec<Outcome> = states.windows(2).map(step).collect();
        assert_eq!(accounts(&outcomes), states[1..]);
        assert!(outcomes[2].aws.is_empty());
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let event = Event {
            kind: "Warning".into(),
            reason: "Failed".into(),
            component: "service-controller".into(),
            message: "a: b of c".into(),
        };
        let text = String::from(event.clone());
        assert_eq!(text, "Warning Failed of service-controller: a: b of c");
        assert_eq!(Event::try_from(text), Ok(event));
        assert!(Event::try_from("Warning".to_owned()).is_err());
    }
}
