//! What differs from run to run.

use serde_json::{Value, json};

use super::super::super::outcome::Outcome;

/// Without networks of subnets that are made for a case, as AWS makes up which gets which.
pub(super) fn comparable(outcomes: &[Outcome]) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for line in &mut outcome.writes {
            *line = without_networks(line);
        }
        for fields in outcome.aws.values_mut().flatten() {
            let Some(Value::Array(rules)) = fields.get_mut("ingress") else {
                continue;
            };
            for rule in rules.iter_mut() {
                *rule = json!(rule.as_str().map(without_networks));
            }
            rules.sort_by_key(Value::to_string);
        }
    }
    outcomes
}

fn without_networks(text: &str) -> String {
    let networks = ["128", "129", "130", "131"].map(|third| format!("172.31.{third}.0/24"));
    networks
        .iter()
        .fold(text.to_owned(), |text, network| text.replace(network, "a network"))
}
