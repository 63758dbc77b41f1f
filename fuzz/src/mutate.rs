//! Random changes of an input, for the runs without libFuzzer and for libFuzzer's custom mutator.

use fastrand::Rng;
use serde_json::{Value, json};

/// Strings that parsers often get wrong: empty, blank, escapes and signs of other formats, letters of several bytes.
const ODD: [&str; 18] = [
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "ü",
    "𝔘",
    "\u{2028}",
    "\"",
    "'",
    "\\",
    "~1",
    "/",
    "*",
    "-1",
    "99999999999999999999",
];

/// One change. A line of the input that is JSON mostly stays JSON. `other` gives parts to copy.
pub fn mutate(rng: &mut Rng, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = rng.usize(..=input.len());
    // A long line has more to change than a short one.
    let line = input[..at].iter().filter(|byte| **byte == b'\n').count();

    match serde_json::from_slice(&lines[line]) {
        Ok(mut value @ (Value::Array(_) | Value::Object(_))) if rng.u8(..32) > 0 => {
            let donor = other
                .split(|byte| *byte == b'\n')
                .rev()
                .find_map(|line| serde_json::from_slice(line).ok());
            change_json(rng, &mut value, &mut donor.unwrap_or_default(), words);
            lines[line] = value.to_string().into_bytes();
            lines.join(&b'\n')
        }
        _ => change_text(rng, input, other, words),
    }
}

/// One change of a random value inside of `value`.
pub(crate) fn change_json(rng: &mut Rng, value: &mut Value, donor: &mut Value, words: &[&str]) {
    let copy = place(rng, donor).clone();
    let place = place(rng, value);
    match (rng.u8(..8), place) {
        (0, Value::Object(fields)) => fields.retain(|_, _| rng.u8(..4) > 0),
        (0, Value::Array(list)) => list.retain(|_| rng.u8(..4) > 0),
        (1 | 2, Value::Object(fields)) => drop(fields.insert(word(rng, words).to_owned(), odd(rng, words))),
        (1 | 2, Value::Array(list)) => list.insert(rng.usize(..=list.len()), odd(rng, words)),
        (3, Value::Array(list)) if !list.is_empty() => list.extend(vec![list[0].clone(); rng.usize(..40)]),
        (4, place) => *place = (0..rng.u8(..80)).fold(place.take(), |inner, _| json!([inner])),
        (5, place) => *place = odd(rng, words),
        (6, place) => *place = copy,
        (_, Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(mut inner) if inner.is_array() || inner.is_object() => {
                change_json(rng, &mut inner, donor, words);
                *text = inner.to_string();
            }
            _ => *text = String::from_utf8_lossy(&change_text(rng, text.as_bytes(), b"", words)).into_owned(),
        },
        (_, place) => *place = odd(rng, words),
    }
}

/// A random value inside of `value`, or `value` itself. Of an admission request, mostly one inside of its object.
fn place<'a>(rng: &mut Rng, value: &'a mut Value) -> &'a mut Value {
    const OBJECT: &str = "/request/object";
    let start = if value.pointer(OBJECT).is_some() && rng.u8(..4) > 0 {
        value.pointer_mut(OBJECT).unwrap()
    } else {
        value
    };

    let mut left = rng.usize(..count(start));
    at(start, &mut left).unwrap()
}

/// The number of values in `value`, with itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(list) => list.iter().map(count).sum(),
        _ => 0,
    }
}

/// The value after `left` others; 0 is `value` itself.
fn at<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }

    *left -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|value| at(value, left)),
        Value::Array(list) => list.iter_mut().find_map(|value| at(value, left)),
        _ => None,
    }
}

/// The paths of all values in `value`; its own path is empty.
pub(crate) fn paths(value: &Value) -> Vec<Vec<String>> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, child)| (key.clone(), child)).collect(),
        Value::Array(list) => (0..).map(|index: usize| index.to_string()).zip(list).collect(),
        _ => Vec::new(),
    };
    let below = |(key, child): (String, &Value)| {
        let join = move |path: Vec<String>| [vec![key.clone()], path].concat();
        paths(child).into_iter().map(join)
    };

    let mut found = vec![Vec::new()];
    found.extend(children.into_iter().flat_map(below));
    found
}

/// A value that parsers seldom expect.
pub(crate) fn odd(rng: &mut Rng, words: &[&str]) -> Value {
    let fixed = [
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!([null]),
        json!(-1),
        json!(u64::MAX),
        json!(1e308),
    ];
    fixed
        .get(rng.usize(..fixed.len() * 2))
        .cloned()
        .unwrap_or_else(|| json!(word(rng, words)))
}

fn word<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    let words = if rng.u8(..4) == 0 { &ODD[..] } else { words };
    rng.choice(words).unwrap()
}

/// Replaces, inserts, copies or removes some bytes.
fn change_text(rng: &mut Rng, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let at = rng.usize(..=input.len());
    let end = (at + rng.usize(..24)).min(input.len());
    let from = rng.usize(..=other.len());
    let (end, new) = match rng.u8(..8) {
        0 => (end, Vec::new()),
        1 if at < input.len() => (at + 1, vec![*rng.choice(input).unwrap()]),
        2 if at < input.len() => (at + 1, vec![rng.u8(..)]),
        3 => (end, other[from..(from + rng.usize(..64)).min(other.len())].to_vec()),
        4 => (at, input[at..end].repeat(2)),
        5 => (at, word(rng, words).repeat(rng.usize(..500)).into()),
        6 => (end, word(rng, words).into()),
        _ => (at, word(rng, words).into()),
    };

    [&input[..at], &new[..], &input[end..]].concat()
}
