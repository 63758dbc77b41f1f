//! Golden objects to which a random owner has added fields, lines and texts.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::golden;
use crate::random::Random;
use crate::{compare, count, peer};

#[tokio::test]
async fn the_patch_of_every_altered_object_applies() -> Result<()> {
    let mut peers = peer::all().await?;
    let cases = golden::read()?;
    let (mut accepted, mut patched, mut escaped) = (0, 0, 0);
    for number in 0..count(3000) {
        let case = &cases[number % cases.len()];
        let mut random = Random::of_case(number);
        let mut object = case.object().clone();
        for _ in 0..=random.below(3) {
            alter(&mut random, &mut object);
        }

        // The releases send most objects alike.
        let mut decided: BTreeMap<String, Vec<PatchOperation>> = BTreeMap::new();
        for peer in &mut peers {
            // A field of a Go type got a value of another type: no webhook is called.
            let Some(sent) = peer.sent(&object).await? else {
                continue;
            };
            accepted += 1;
            let read: Value = serde_json::from_str(&sent)?;
            let patch = match decided.get(&sent) {
                Some(patch) => patch.clone(),
                None => case.decide(&read)?.patch,
            };
            if !patch.is_empty() {
                patched += 1;
                escaped += usize::from(replaces_an_escape(&read, &patch));
                let what = || format!("case {number}, of {}", case.name);
                compare(peer, &sent, &read, &patch).await.with_context(what)?;
            }
            decided.insert(sent, patch);
        }
    }
    println!("{accepted} objects, {patched} patches, {escaped} of them of texts that Go escapes");
    let all = count(3000) * peers.len();
    ensure!(
        accepted > all * 3 / 4 && patched > all / 2 && escaped > all / 20,
        "{accepted} objects, {patched} patches, {escaped} of texts that Go escapes: too few of {all}"
    );
    Ok(())
}

/// Whether a changed value has a character that Go escapes: a `test` of it would fail.
fn replaces_an_escape(object: &Value, patch: &[PatchOperation]) -> bool {
    patch.iter().any(|operation| {
        let path = match operation {
            PatchOperation::Replace(one) => one.path.to_string(),
            PatchOperation::Remove(one) => one.path.to_string(),
            _ => return false,
        };
        let old = object.pointer(&path).map(ToString::to_string);
        old.is_some_and(|old| old.contains(['<', '>', '&', '\u{2028}', '\u{2029}']))
    })
}

/// One change at a random place.
fn alter(random: &mut Random, object: &mut Value) {
    match random.below(4) {
        0 => {
            let annotations = &mut object["metadata"]["annotations"];
            if annotations.is_null() {
                *annotations = json!({});
            }
            annotations[format!("example.dev/{}", random.below(9))] = json!(random.text());
        }
        1 => {
            let mut places = Vec::new();
            find(
                object,
                "",
                &|value| value.as_str().is_some_and(|text| text.contains('\n')),
                &mut places,
            );
            if let Some(Value::String(text)) = object.pointer_mut(&random.pick(&with_root(places))) {
                text.insert_str(0, &format!("# {}\n", random.line()));
            }
        }
        2 => {
            let is_list_of_texts =
                |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
            let mut places = Vec::new();
            find(object, "", &is_list_of_texts, &mut places);
            if let Some(Value::Array(list)) = object.pointer_mut(&random.pick(&with_root(places))) {
                list.insert(random.below(list.len() + 1), json!(format!("--x={}", random.text())));
            }
        }
        _ => {
            let mut places = Vec::new();
            find(object, "", &Value::is_object, &mut places);
            places.retain(|place| !place.starts_with("/metadata"));
            let (key, value) = (random.key(), random.value(3));
            if let Some(Value::Object(fields)) = object.pointer_mut(&random.pick(&places)) {
                fields.entry(key).or_insert(value);
            }
        }
    }
}

/// The root is none of these places, so nothing happens where there are no others.
fn with_root(mut places: Vec<String>) -> Vec<String> {
    if places.is_empty() {
        places.push(String::new());
    }
    places
}

/// The places of such values.
fn find(value: &Value, at: &str, is_wanted: &dyn Fn(&Value) -> bool, found: &mut Vec<String>) {
    if is_wanted(value) {
        found.push(at.to_owned());
    }
    match value {
        Value::Object(fields) => {
            for (key, part) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                find(part, &format!("{at}/{key}"), is_wanted, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find(item, &format!("{at}/{index}"), is_wanted, found);
            }
        }
        _ => {}
    }
}
