//! Published objects with a Pod in them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::{fs, path::Path};

use serde_json::Value;

/// Every object with a Pod in it: its file below the folder, its Pod (or Pod template).
pub fn pods(folder: &Path) -> Vec<(String, Value)> {
    let mut pods = Vec::new();
    for kind in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(files) = fs::read_dir(&kind) else { continue };
        for file in files.map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&file).unwrap();
            let object: Value =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let template = object.pointer("/spec/template").unwrap_or(&object);
            if template.pointer("/spec/containers").is_some_and(Value::is_array) {
                let name = file.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                pods.push((name, template.clone()));
            }
        }
    }
    pods.sort_by(|one, other| one.0.cmp(&other.0));
    pods
}
