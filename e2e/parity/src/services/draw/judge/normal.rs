//! What differs from run to run, and what v1.37.0 only gets through as moto is not AWS.

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

/// What v1.37.0 made, with rules of protocol `tcp` where it asks for `tls`, which EC2 does not have and moto takes.
pub(super) fn as_ec2_takes_it(outcomes: &[Outcome]) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        for line in &mut outcome.writes {
            *line = line.replace("[tls ", "[tcp ").replace(", tls ", ", tcp ");
        }
        for fields in outcome.aws.values_mut().flatten() {
            if let Some(Value::Array(rules)) = fields.get_mut("ingress") {
                for rule in rules {
                    let bare = rule.as_str().and_then(|rule| rule.strip_prefix("tls "));
                    *rule = bare.map_or_else(|| rule.clone(), |bare| json!(format!("tcp {bare}")));
                }
            }
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
