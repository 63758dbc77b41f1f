//! The clone that runs. Clones share compiled programs, so no program contains the path of the clone that compiled it.

use std::path::PathBuf;

/// The root of the clone: cargo and nextest name the package in the environment, and `make` runs programs in the root.
/// Outside of a clone it is the working directory.
#[must_use]
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let start = package.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let root = start.ancestors().find(|folder| folder.join("deny.toml").is_file());
    root.map_or_else(|| start.clone(), PathBuf::from)
}
