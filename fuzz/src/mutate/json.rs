//! JSON by its structure, so that what comes out is JSON again and most of it what the reader expects.

use serde_json::{Map, Value, json};

use super::text;
use crate::random::Random;

/// Changes one value somewhere in `value`: another type, null, gone, twice, renamed, nested deeply, a long list, a part of
/// `other`, another text. A text that is JSON is changed inside.
pub fn mutate(random: &mut Random, value: &mut Value, other: &Value, words: &[&str]) {
    let mut left = random.below(count(value));
    let graft = part(random, other);
    let swap = part(random, value);
    let Some(place) = at(value, &mut left) else { return };
    match random.below(12) {
        0 => *place = odd(random, words),
        1 => *place = retyped(place.take()),
        2 | 3 => remove(random, place),
        4 => add(random, place, words),
        5 => rename(random, place, words),
        6 => *place = graft,
        7 => *place = swap,
        8 => lengthen(random, place),
        9 => *place = nested(random, place.take()),
        _ => edit(random, place, words),
    }
}

/// How many values there are, the outermost one included.
#[must_use]
pub fn count(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(list) => list.iter().map(count).sum(),
        _ => 0,
    }
}

/// The `left`th value, the outermost one being 0.
pub fn at<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
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

/// JSON Pointers to all values.
#[must_use]
pub fn pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let below = |key: &str, value: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        pointers(value).into_iter().map(move |rest| format!("/{key}{rest}"))
    };
    match value {
        Value::Object(fields) => found.extend(fields.iter().flat_map(|(key, value)| below(key, value))),
        Value::Array(list) => {
            found.extend(
                list.iter()
                    .enumerate()
                    .flat_map(|(index, value)| below(&index.to_string(), value)),
            );
        }
        _ => {}
    }
    found
}

fn part(random: &mut Random, value: &Value) -> Value {
    let mut left = random.below(count(value));
    let mut copy = value.clone();
    at(&mut copy, &mut left).map(Value::take).unwrap_or_default()
}

/// A value that is seldom what a reader expects.
#[must_use]
pub fn odd(random: &mut Random, words: &[&str]) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 => json!([]),
        3 => json!({}),
        4 => json!([null]),
        5 => json!({"": null}),
        6 => random
            .pick(&[
                json!(0),
                json!(-1),
                json!(1.5),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(1e308),
                json!(0.1),
            ])
            .clone(),
        7 => json!(random.pick(&text::ODD)),
        8 => json!("x".repeat(random.below(4000))),
        _ if words.is_empty() => json!("word"),
        _ => json!(random.pick(words)),
    }
}

fn retyped(value: Value) -> Value {
    match value {
        Value::Null => json!(""),
        Value::Bool(flag) => json!(flag.to_string()),
        Value::Number(number) => json!(number.to_string()),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(_) => json!([text]),
        },
        Value::Array(list) => list.into_iter().next().unwrap_or_default(),
        Value::Object(fields) => json!(
            fields
                .into_iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect::<Vec<_>>()
        ),
    }
}

fn remove(random: &mut Random, place: &mut Value) {
    match place {
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len())).cloned();
            drop(key.and_then(|key| fields.remove(&key)));
        }
        Value::Array(list) if !list.is_empty() => drop(list.remove(random.below(list.len()))),
        other => *other = Value::Null,
    }
}

fn add(random: &mut Random, place: &mut Value, words: &[&str]) {
    match place {
        Value::Object(fields) => {
            let copied = fields.values().nth(random.below(fields.len())).cloned();
            let new = copied
                .filter(|_| random.one_in(2))
                .unwrap_or_else(|| odd(random, words));
            fields.insert(key(random, words), new);
        }
        Value::Array(list) => {
            let copied = (!list.is_empty() && random.one_in(2)).then(|| random.pick(list).clone());
            let new = copied.unwrap_or_else(|| odd(random, words));
            list.insert(random.below(list.len() + 1), new);
        }
        other => *other = json!([other.take()]),
    }
}

fn key(random: &mut Random, words: &[&str]) -> String {
    if random.one_in(6) || words.is_empty() {
        (*random.pick(&text::ODD)).to_owned()
    } else {
        (*random.pick(words)).to_owned()
    }
}

fn rename(random: &mut Random, place: &mut Value, words: &[&str]) {
    let Value::Object(fields) = place else {
        return add(random, place, words);
    };
    let old = fields.keys().nth(random.below(fields.len())).cloned();
    if let Some(value) = old.and_then(|old| fields.remove(&old)) {
        fields.insert(key(random, words), value);
    }
}

fn lengthen(random: &mut Random, place: &mut Value) {
    let times = if random.one_in(30) { 5000 } else { random.below(40) };
    match place {
        Value::Array(list) if !list.is_empty() => {
            let item = random.pick(list).clone();
            // A long list of large things is only large.
            let times = times.min(20_000 / count(&item));
            list.extend(std::iter::repeat_n(item, times));
        }
        Value::Object(fields) => fields.extend((0..times.min(300)).map(|number| (format!("k{number}"), json!(number)))),
        Value::String(text) => *text = text.repeat(1 + times % 50),
        other => *other = json!(vec![other.take(); times.min(50)]),
    }
}

fn nested(random: &mut Random, value: Value) -> Value {
    let depth = if random.one_in(10) { 70 } else { random.below(8) };
    (0..depth).fold(value, |inner, level| {
        if level % 2 == 0 {
            json!([inner])
        } else {
            Value::Object(Map::from_iter([("spec".to_owned(), inner)]))
        }
    })
}

fn edit(random: &mut Random, place: &mut Value, words: &[&str]) {
    let Value::String(old) = place else {
        *place = odd(random, words);
        return;
    };
    let inner = serde_json::from_str::<Value>(old).ok();
    *old = match inner.filter(|inner| inner.is_array() || inner.is_object()) {
        Some(mut inner) => {
            let other = inner.clone();
            mutate(random, &mut inner, &other, words);
            inner.to_string()
        }
        None => String::from_utf8_lossy(&text::mutate(random, old.as_bytes(), &[], words)).into_owned(),
    };
}
