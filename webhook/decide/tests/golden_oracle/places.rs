//! Nothing but what the records of `outrigger.dev/undo` name is changed, and they name only places that the phases are
//! about.

use serde_json::Value;

use crate::{case::Case, lines, table, undo};

pub fn check(case: &Case) -> Vec<String> {
    let (object, result) = (case.object(), case.result());
    let mut wrong = Vec::new();
    let originals = (undo::original(object), undo::original(result));
    let (Ok(before), Ok(after)) = originals else {
        return vec!["the undo annotation of the result is not JSON".to_owned()];
    };
    if tidied(&before) != tidied(&after) {
        wrong.push(format!("the original of the result is\n  {after}\nnot\n  {before}"));
    }
    for record in undo::records(result).unwrap_or_default() {
        if !is_allowed(result, &record) {
            wrong.push(format!("not a place of the phase table: {record}"));
        }
    }
    for at in lines::TEXTS {
        let text = |object: &Value| object.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let (Some(before), Some(after)) = (text(&before), text(result)) else {
            continue;
        };
        if rest_of_text(&before) != rest_of_text(&after) {
            wrong.push(format!("{at}: more than the phase table's flags is changed"));
        }
    }
    wrong
}

/// Empty metadata of a template is none.
fn tidied(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(template) = object.pointer_mut("/spec/template").and_then(Value::as_object_mut) {
        template.retain(|key, value| key != "metadata" || value.as_object().is_none_or(|fields| !fields.is_empty()));
    }
    object
}

fn is_allowed(object: &Value, record: &Value) -> bool {
    if let Some(flag) = record["flag"].as_str() {
        let at = record["at"].as_str();
        let is_place = at.is_none_or(|at| is_list(object, at) || is_ebs(object, at) || at == "/spec/values/args");
        return table::FLAGS.contains(&flag) && is_place;
    }
    let at = record["at"].as_str().unwrap_or_default();
    let (_, field) = at.rsplit_once('/').unwrap_or_default();
    match record["what"].as_str() {
        None => matches!(record["made"].as_str(), Some("volume" | "mount" | "annotation")),
        Some("text") => lines::TEXTS.contains(&at),
        Some("element") => field == "kubernetesComponents" && record["now"] == "cloudController",
        Some("field") => match field {
            "disable-cloud-controller" | "useInstanceMetadataHostname" => record["now"] == true,
            "name" => at.ends_with("/cloudProvider/name") && record["was"] == "aws" && record["now"] == "external-aws",
            "machineGlobalConfig" => record["was"].is_null() && record["now"] == serde_json::json!({}),
            // A list where there was a null or a single text.
            _ => is_list(object, at) && record["now"].is_array(),
        },
        Some(_) => false,
    }
}

fn is_list(object: &Value, at: &str) -> bool {
    lines::places(object).iter().any(|(_, place)| place == at)
}

/// The driver's controller is a workload whose record stands on the object.
fn is_ebs(object: &Value, at: &str) -> bool {
    lines::pod(object).is_some() && at.starts_with("/spec/template/spec/containers/")
}

/// The rest of a text, without the flags of the table.
fn rest_of_text(text: &str) -> Vec<Value> {
    let mut all = serde_saphyr::from_multiple::<Value>(text).unwrap_or_default();
    for value in &mut all {
        if let Some(inner) = value.pointer_mut("/spec/valuesContent") {
            let rest = rest_of_text(inner.as_str().unwrap_or_default());
            *inner = Value::Array(rest);
        }
        strip(value);
    }
    all
}

fn strip(value: &mut Value) {
    let name = |text: &str| {
        text.trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let is_flag = |text: &str| table::FLAGS.contains(&name(text).as_str()) || text == "--v=2";
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !table::FLAGS.contains(&key.as_str()));
            fields.values_mut().for_each(strip);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => {
            items.retain(|item| !item["name"].as_str().or(item.as_str()).is_some_and(is_flag));
            items.iter_mut().for_each(strip);
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}
