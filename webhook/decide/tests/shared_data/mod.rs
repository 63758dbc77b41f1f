//! Published objects and definitions of other systems, as values.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and each uses what it needs"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

#[path = "../../../../shared/tests/published/mod.rs"]
mod published;

use outrigger_decide::Decision;
use outrigger_shared::migration::Phase;
use serde_json::Value;

pub use published::find as path;

/// Every phase, there and back.
pub const WAY: [Phase; 7] = [
    Phase::InTree,
    Phase::Prepare,
    Phase::Migrate,
    Phase::Complete,
    Phase::Migrate,
    Phase::Prepare,
    Phase::InTree,
];

/// The entries of a folder, sorted.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

/// The one object of a file.
pub fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    // Placeholders that stand for names are no plain YAML.
    let text = text.replace("<< YOUR_PUBLIC_KEY >>", "key");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every YAML file one folder below `corpus` or `crds`, by its path from there.
pub fn objects(name: &str) -> Option<Vec<(String, Value)>> {
    let root = path(name)?;
    let folders = list(&root).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| list(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let named = |path: PathBuf| (path.strip_prefix(&root).unwrap().display().to_string(), read(&path));
    Some(files.into_iter().map(named).collect())
}

/// The object after the decision.
pub fn patched(object: &Value, decision: &Decision) -> Value {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &decision.patch).unwrap();
    patched
}
