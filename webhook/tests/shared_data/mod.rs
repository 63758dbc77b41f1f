//! Real objects and definitions of other systems, as test data beside the repository.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Every YAML file below `corpus` or `crds` of the shared folder beside the repository, or of the one that
/// `OUTRIGGER_SHARED` names, by its path from there. None, with a message, where the folder is absent.
pub fn objects(name: &str) -> Option<Vec<(String, Value)>> {
    let shared = std::env::var_os("OUTRIGGER_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let root = shared.join(name);
    if !root.is_dir() {
        eprintln!("skipped: {} is absent; set OUTRIGGER_SHARED", root.display());
        return None;
    }
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.collect()
    };
    let folders = list(&root).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| list(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let object = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.strip_prefix(&root).unwrap().display().to_string(), object)
    };
    Some(files.into_iter().map(read).collect())
}
