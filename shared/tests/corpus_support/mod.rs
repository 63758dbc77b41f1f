//! Real objects of other projects, where they are at hand: in `shared/corpus` beside the repository, or below the
//! folder that `OUTRIGGER_SHARED` names. Tests that need them skip without.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The folder; none, with a message, where it is absent.
pub fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("OUTRIGGER_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("corpus");
    if !folder.is_dir() {
        eprintln!("skipped: {} is absent; set OUTRIGGER_SHARED", folder.display());
        return None;
    }
    Some(folder)
}

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
