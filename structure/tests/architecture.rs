//! The project's sources obey the rules of ARCHITECTURE.md.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use outrigger_structure::rules::{self, Exception};
use outrigger_structure::sources::Sources;
use outrigger_structure::{Imports, Package, packages, sources};

fn root() -> PathBuf {
    Path::new("..").canonicalize().expect("the root of the project")
}

fn read() -> (Vec<Package>, Sources, Imports) {
    let packages = packages::read(&root()).expect("packages");
    let sources = sources::read(&root(), &packages).expect("sources");
    let imports = Imports::of(&sources);
    (packages, sources, imports)
}

#[track_caller]
fn none(violations: &[String]) {
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_sources_obey_the_rules() {
    let (packages, sources, imports) = read();
    // Fewer would mean that they were not found.
    assert!(sources.files.len() > 500, "{} files", sources.files.len());
    assert!(imports.files.len() > 400, "{} files import others", imports.files.len());

    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let violations = [
        rules::packages(&packages, &architecture),
        rules::separate_folders(&sources, &imports, "manager/src/controllers"),
        rules::cycles(&sources, &imports, CYCLES),
        rules::purity(&sources, &imports, IMPURE),
        rules::compiled_paths(&sources),
    ];
    none(&violations.concat());
}

const fn exception(file: &'static str, what: &'static str, reason: &'static str) -> Exception {
    Exception { file, what, reason }
}

/// Import cycles that are larger than they may be, and how they can be cut.
const CYCLES: &[Exception] = &[];

const BESIDE_IO: &str = "the imported type stands beside the IO that fills it";

/// Deciding modules that import IO, and why.
const IMPURE: &[Exception] = &[exception(
    "migrate/src/decide.rs",
    "migrate/src/documents.rs",
    BESIDE_IO,
)];
