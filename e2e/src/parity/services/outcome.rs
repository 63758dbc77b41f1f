//! What became of a step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything of AWS that concerns Services, by object and field. IDs are replaced by names.
pub type Account = BTreeMap<String, BTreeMap<String, Value>>;

/// What is there when nothing moves any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Outcome {
    /// The step's label.
    pub step: String,
    /// New Events about the Service, sorted. The same Event said twice counts once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// The Service; none: it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceState>,
    /// Calls that change AWS, one line each, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Calls that change nothing.
    pub reads: usize,
    /// What AWS has that it had not before the case, or had otherwise; none: as after the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<Account>,
}

/// What a controller writes on the Service.
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

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason.
    pub reason: String,
    /// The component that reports it.
    pub component: String,
    /// Message.
    pub message: String,
}

/// After each step: what AWS has, written out where the record leaves it out because nothing changed.
pub fn accounts(outcomes: &[Outcome]) -> Vec<Account> {
    let mut last = Account::new();
    let mut filled = Vec::new();
    for outcome in outcomes {
        if let Some(account) = &outcome.aws {
            last.clone_from(account);
        }
        filled.push(last.clone());
    }
    filled
}
