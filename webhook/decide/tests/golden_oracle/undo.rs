//! The original of a changed object, by the records of `outrigger.dev/undo`: what the way back gives
//! byte for byte.

use serde_json::{Map, Value, json};

const UNDO: &str = "outrigger.dev/undo";
const OWN_VOLUME: &str = "outrigger-leader-migration";
const HOLDERS: [&str; 2] = ["/metadata", "/spec/template/metadata"];

/// The records, newest last; an error if the annotation is not JSON.
pub fn records(object: &Value) -> Result<Vec<Value>, serde_json::Error> {
    let texts = HOLDERS
        .iter()
        .filter_map(|holder| object.pointer(holder)?["annotations"][UNDO].as_str());
    texts.map(serde_json::from_str).next().unwrap_or(Ok(Vec::new()))
}

pub fn original(object: &Value) -> Result<Value, serde_json::Error> {
    let records = records(object)?;
    let mut object = object.clone();
    for record in records.iter().rev() {
        take_back(&mut object, record);
    }

    for holder in HOLDERS {
        remove(
            &mut object,
            &format!("{holder}/annotations/{}", UNDO.replace('/', "~1")),
            2,
        );
    }
    Ok(object)
}

fn take_back(object: &mut Value, record: &Value) {
    if record.get("made").is_some() {
        return take_back_file(object, record);
    }
    if record.get("container").is_some() {
        let container = container(object, &record["container"]);
        let list = record["list"].as_str().unwrap();
        let words = container[list].as_array_mut().unwrap();
        return swap(words, record, |word| word.clone());
    }

    let at = record["at"].as_str().unwrap();
    match record["what"].as_str().unwrap() {
        "field" if object.pointer(at) == record.get("now") => match record.get("was") {
            Some(was) => *object.pointer_mut(at).unwrap() = was.clone(),
            None => remove(object, at, 0),
        },
        "field" => {}
        "element" => {
            let list = object.pointer_mut(at).unwrap().as_array_mut().unwrap();
            list.retain(|element| *element != record["now"]);
            if list.is_empty() {
                remove(object, at, parents(record) + 1);
            }
        }
        "text" => take_back_lines(object, at, record),
        "arguments" => take_back_arguments(object, at, record),
        other => panic!("unknown record {other}"),
    }
}

fn take_back_lines(object: &mut Value, at: &str, record: &Value) {
    let text = place(object, at);
    let mut lines: Vec<Value> = text.as_str().unwrap_or_default().split('\n').map(Value::from).collect();
    for change in record["lines"].as_array().unwrap().iter().rev() {
        let mut change = change.clone();
        change["index"] = change["line"].clone();
        // Lines without a successor of their own stand after a line that may have moved.
        if let Some(before) = change.get("after") {
            let Some(at) = lines.iter().position(|line| line == before) else {
                continue;
            };
            change["index"] = json!(at + 1);
        }
        swap(&mut lines, &change, Value::clone);
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.as_str().unwrap()).collect();
    *text = json!(lines.join("\n"));
}

fn take_back_arguments(object: &mut Value, at: &str, record: &Value) {
    // v1beta2 of Cluster API has lists of names and values where v1beta1 has maps.
    let is_list = object["apiVersion"]
        .as_str()
        .is_some_and(|version| version.ends_with("/v1beta2"));
    let has_names = matches!(record["shape"].as_str(), Some("map" | "named"));
    let list = place(object, at);
    let is_named = |list: &[Value]| list.first().map_or(has_names, Value::is_object);
    match list {
        Value::Null if record["shape"] == "map" && !is_list => *list = json!({}),
        Value::Null => *list = json!([]),
        Value::String(text) => *list = json!([text]),
        _ => {}
    }

    match list {
        Value::Object(fields) => take_back_fields(fields, record),
        Value::Array(items) if is_named(items) => swap(items, record, |word| {
            let (name, value) = split(word);
            json!({"name": name, "value": value})
        }),
        Value::Array(words) => swap(words, record, Value::clone),
        other => panic!("no argument list: {other}"),
    }

    let is_empty = list.as_object().is_some_and(Map::is_empty) || list.as_array().is_some_and(Vec::is_empty);
    if is_empty && record["created"] == true {
        remove(object, at, parents(record));
    }
}

fn take_back_fields(fields: &mut Map<String, Value>, record: &Value) {
    let now: Vec<_> = words(record, "now").iter().map(split).collect();
    if now.iter().any(|(name, value)| fields.get(name) != Some(&json!(value))) {
        return;
    }
    for (name, _) in now {
        fields.remove(&name);
    }
    for (name, value) in words(record, "was").iter().map(split) {
        fields.entry(name).or_insert(json!(value));
    }
}

/// Puts `was` in the place of `now`, wherever `now` stands. If somebody else wrote the flag, his stays.
fn swap(list: &mut Vec<Value>, record: &Value, item: impl Fn(&Value) -> Value) {
    let now: Vec<Value> = words(record, "now").iter().map(&item).collect();
    let was: Vec<Value> = words(record, "was").iter().map(&item).collect();
    let index = usize::try_from(record["index"].as_u64().unwrap()).unwrap();
    let stands = |at: usize| list.get(at..at + now.len()).is_some_and(|found| found == now);
    let Some(at) = [index].into_iter().chain(0..list.len()).find(|at| stands(*at)) else {
        return;
    };

    list.drain(at..at + now.len());
    let flag = record["flag"].as_str();
    let is_another = |item: &Value| flag.is_some_and(|flag| flag_of(item) == flag);
    if !list.iter().any(is_another) || was.iter().all(|word| !is_another(word)) {
        list.splice(at..at, was);
    }
}

fn flag_of(item: &Value) -> String {
    let text = item["name"].as_str().or(item.as_str()).unwrap_or_default();
    let name = text.trim_start_matches('-').split('=').next().unwrap_or_default();
    name.replace('_', "-")
}

fn take_back_file(object: &mut Value, record: &Value) {
    let is_own =
        |item: &Value| item["name"] == OWN_VOLUME && (item["mountPath"].is_string() || item["downwardAPI"].is_object());
    let (owner, key) = match record["made"].as_str().unwrap() {
        "annotation" => {
            for holder in HOLDERS {
                remove(
                    object,
                    &format!("{holder}/annotations/outrigger.dev~1leader-migration"),
                    2,
                );
            }
            return;
        }
        "mount" => (container(object, &record["container"]), "volumeMounts"),
        "volume" => (pod(object), "volumes"),
        other => panic!("unknown record {other}"),
    };
    let list = owner[key].as_array_mut().unwrap();
    list.retain(|item| !is_own(item));
    if list.is_empty() && record["before"] == "missing" {
        owner.as_object_mut().unwrap().remove(key);
    }
}

fn pod(object: &mut Value) -> &mut Value {
    let at = if object["kind"] == "Pod" {
        "/spec"
    } else {
        "/spec/template/spec"
    };
    object.pointer_mut(at).unwrap()
}

fn container<'a>(object: &'a mut Value, name: &Value) -> &'a mut Value {
    let mut containers = pod(object)["containers"].as_array_mut().unwrap().iter_mut();
    containers.find(|container| container["name"] == *name).unwrap()
}

fn words(record: &Value, key: &str) -> Vec<Value> {
    record[key].as_array().cloned().unwrap_or_default()
}

fn split(word: &Value) -> (String, String) {
    let word = word.as_str().unwrap();
    let (name, value) = word.split_once('=').unwrap_or((word, "true"));
    (name.to_owned(), value.to_owned())
}

fn parents(record: &Value) -> u64 {
    record["parents"].as_u64().unwrap_or(0)
}

/// The value at a pointer, with the objects above it.
fn place<'a>(object: &'a mut Value, at: &str) -> &'a mut Value {
    let mut value = object;
    for key in at.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        value = match value {
            Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()).unwrap(),
            other => &mut other[key],
        };
    }
    value
}

/// Removes a value, and up to so many objects above it that are empty then.
fn remove(object: &mut Value, at: &str, parents: u64) {
    let (above, key) = at.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/").replace("~0", "~");
    let Some(Value::Object(fields)) = object.pointer_mut(above) else {
        return;
    };
    fields.remove(&key);
    if fields.is_empty() && parents > 0 {
        remove(object, above, parents - 1);
    }
}
