//! The files that seeds come from.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::published;

/// Every file below a folder, in order; none if the folder does not exist.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }

    found.sort();
    found
}

/// Published objects of provisioners. None if their folder is absent.
pub(crate) fn real_objects() -> Vec<Value> {
    let Some(root) = published::find("corpus") else {
        return Vec::new();
    };
    let texts = files_below(&root)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "json"))
        .filter_map(|file| fs::read_to_string(file).ok());

    let objects: Vec<Value> = texts
        .filter(|text| text.len() <= 64 * 1024)
        .filter_map(|text| serde_saphyr::from_multiple::<Value>(&text).ok())
        .flatten()
        .collect();
    assert!(objects.len() >= 200, "only {} published objects", objects.len());
    objects
}

/// The input as text, for parsers that take only text.
pub(crate) fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}
