//! Published objects and definitions of other systems, which are not part of the repository: in `../shared`, or in the
//! folder that `OUTRIGGER_SHARED` names. Tests of several packages include this file by its path.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    thread,
};

/// If it is set, absent data is a failure.
pub const REQUIRE: &str = "OUTRIGGER_REQUIRE_SHARED";
/// The file that lists the tests that were left out. `make test` prints it.
pub const LEFT_OUT: &str = "OUTRIGGER_LEFT_OUT";

/// The root of the clone: cargo and nextest name the package in the environment, and `make` runs programs in the root.
/// Clones share compiled programs, so no program contains the path of the clone that compiled it.
pub fn repository() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let start = package.or_else(|| env::current_dir().ok()).unwrap_or_default();
    let root = start.ancestors().find(|folder| folder.join("deny.toml").is_file());
    root.map_or_else(|| start.clone(), PathBuf::from)
}

/// A file or folder, `corpus/node` for example. None if its top folder is absent: the caller returns, and its test is
/// left out.
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = || repository().join("../shared");
    let root = env::var_os("OUTRIGGER_SHARED").map_or_else(beside, PathBuf::from);
    let top = root.join(name.split('/').next().unwrap_or_default());
    if !top.is_dir() {
        leave_out(&top);
        return None;
    }

    let path = root.join(name);
    assert!(path.exists(), "{} is absent", path.display());
    Some(path)
}

fn leave_out(folder: &Path) {
    let required = env::var_os(REQUIRE).is_some_and(|value| !value.is_empty());
    assert!(
        !required,
        "{} is absent and {REQUIRE} is set; set OUTRIGGER_SHARED to the folder that holds it",
        folder.display()
    );

    // libtest gives the thread of a test its name.
    let thread = thread::current();
    let line = format!("{}::{}\n", env!("CARGO_CRATE_NAME"), thread.name().unwrap_or("?"));
    if let Some(file) = env::var_os(LEFT_OUT) {
        let mut options = fs::OpenOptions::new();
        let written = options
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", file.display());
    }
}
