//! Where seeds are read and failures are written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Target;

/// The top of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The inputs that are kept in the tree for a target: those that once broke something, and hand-made ones.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn kept(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    files_below(&folder)
        .iter()
        .map(|file| fs::read(file).unwrap())
        .collect()
}

/// Everything that a run starts with.
#[must_use]
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = kept(target);
    seeds.extend((target.seeds)());
    seeds
}

/// Every file below a folder, in order; none where there is no such folder.
#[must_use]
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
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

/// Real objects of provisioners, from the folder `corpus` beside the repository or in `OUTRIGGER_SHARED`. They only widen a
/// run: without them there are none.
#[must_use]
pub fn real_objects() -> Vec<Value> {
    let beside = repository().join("../shared");
    let root = std::env::var_os("OUTRIGGER_SHARED").map_or(beside, PathBuf::from);
    let texts = files_below(&root.join("corpus"))
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "json"))
        .filter_map(|file| fs::read_to_string(file).ok());
    texts
        .filter(|text| text.len() <= 64 * 1024)
        .filter_map(|text| serde_saphyr::from_multiple::<Value>(&text).ok())
        .flatten()
        .collect()
}

/// Writes a failing input to a file with a name that its content gives, and returns the path.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write_failure(folder: &Path, target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let folder = folder.join("failures").join(target.name);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{:016x}", hasher.finish()));
    fs::write(&path, input)?;
    Ok(path)
}
