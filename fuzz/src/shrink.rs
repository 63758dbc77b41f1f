//! A smaller input that breaks the same promise.

use serde_json::Value;

use crate::Target;
use crate::engine::{self, Failure};

/// Most inputs that are tried.
const TRIES: usize = 3000;

/// Takes parts of the input away while the failure stays at its place in the source.
#[must_use]
pub fn shrink(target: &Target, failure: Failure) -> Failure {
    let place = |message: &str| message.lines().next().unwrap_or_default().to_owned();
    let wanted = place(&failure.message);
    // Slowness has no place, and each try would take long.
    if wanted.starts_with("too slow") {
        return failure;
    }
    let mut best = failure;
    let mut tries = TRIES;
    loop {
        let before = best.input.len();
        for step in 0.. {
            let Some(smaller) = without_node(&best.input, step) else {
                break;
            };
            let smaller = if smaller.len() < best.input.len() {
                smaller
            } else {
                continue;
            };
            keep_if_failing(target, &wanted, &place, smaller, &mut best, &mut tries);
        }
        let mut size = best.input.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < best.input.len() {
                let end = (at + size).min(best.input.len());
                let smaller = [&best.input[..at], &best.input[end..]].concat();
                if !keep_if_failing(target, &wanted, &place, smaller, &mut best, &mut tries) {
                    at += size;
                }
            }
            size /= 2;
        }
        if best.input.len() == before || tries == 0 {
            return best;
        }
    }
}

fn keep_if_failing(
    target: &Target,
    wanted: &str,
    place: &impl Fn(&str) -> String,
    input: Vec<u8>,
    best: &mut Failure,
    tries: &mut usize,
) -> bool {
    if *tries == 0 {
        return false;
    }
    *tries -= 1;
    match engine::execute(target, &input).failure {
        Some(message) if place(&message) == wanted => {
            *best = Failure { input, message };
            true
        }
        _ => false,
    }
}

/// The input, whose lines are JSON, without its `step`th value; none past the last.
fn without_node(input: &[u8], step: usize) -> Option<Vec<u8>> {
    let mut left = step;
    let mut lines: Vec<Vec<u8>> = input.splitn(2, |byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for line in &mut lines {
        let Ok(mut value) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if remove(&mut value, &mut left) {
            *line = serde_json::to_vec(&value).ok()?;
            return Some(lines.join(&b'\n'));
        }
    }
    None
}

/// Takes the `left`th entry out, counted from the outside, level by level of each branch.
fn remove(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::Object(fields) => {
            if *left < fields.len() {
                let key = fields.keys().nth(*left).cloned();
                return key.is_some_and(|key| fields.remove(&key).is_some());
            }
            *left -= fields.len();
            fields.values_mut().any(|value| remove(value, left))
        }
        Value::Array(list) => {
            if *left < list.len() {
                list.remove(*left);
                return true;
            }
            *left -= list.len();
            list.iter_mut().any(|value| remove(value, left))
        }
        _ => false,
    }
}
