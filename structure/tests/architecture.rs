//! The project's sources obey the rules of ARCHITECTURE.md.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use outrigger_structure::rules;
use outrigger_structure::sources::Sources;
use outrigger_structure::{Imports, Package, dependencies, packages, sources};

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
        rules::order_of_folders(&sources, &imports, SERVICE, &STEPS),
        rules::cycles(&sources, &imports),
        rules::purity(&sources, &imports),
        rules::compiled_paths(&sources),
        rules::blank_lines(&sources, LEAST_BLANK),
    ];
    none(&violations.concat());
}

#[test]
fn the_operators_tool_has_no_server_and_no_manager_and_may_run_on_other_systems() {
    let (packages, sources, imports) = read();
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let is_excluded = |name: &str| EXCLUDED.contains(&name) || name.starts_with("aws-sdk-");

    let chains = dependencies::chains(&packages, &lock, TOOL);
    let own: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let needed: Vec<&str> = chains.iter().filter_map(|chain| chain.last().copied()).collect();
    let own_needed: Vec<&str> = needed.iter().copied().filter(|name| own.contains(name)).collect();
    none(&rules::excluded(&chains, is_excluded));
    none(&rules::portable(&sources, &imports, &own_needed));

    // Fewer would mean that they were not found.
    assert!(needed.len() > 50 && own_needed.len() > 2, "{needed:?}");
    for program in ["outrigger-manager", "outrigger-webhook"] {
        let chains = dependencies::chains(&packages, &lock, program);
        assert!(!rules::excluded(&chains[1..], is_excluded).is_empty(), "{program}");
    }
}

#[test]
fn every_place_of_architecture_md_exists() {
    let root = root();
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, section) = architecture
        .split_once("\n## Where the code is\n")
        .expect("the section");
    let (table, _) = section.split_once("\n## ").expect("a further section");

    let paths = std::cell::Cell::new(0);
    let exists = |path: &Path| {
        paths.set(paths.get() + 1);
        root.join(path).exists()
    };
    none(&rules::places(table, exists));
    // Fewer would mean that they were not found.
    assert!(paths.get() > 40, "{} paths", paths.get());
}

#[test]
fn the_readme_gets_to_its_details_within_60_lines() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    none(&rules::beginning(&readme, DETAILS, 60));
}

/// Before it the README says what Outrigger is, how to try it, and which guide is for the reader's cluster.
const DETAILS: &str = "## What it does to your cluster";

/// The package of the command `outrigger`.
const TOOL: &str = "outrigger-migrate";

/// Packages that it does not contain, besides AWS's SDKs: servers and the other programs.
const EXCLUDED: [&str; 4] = ["axum", "outrigger-leader", "outrigger-manager", "outrigger-webhook"];

const SERVICE: &str = "manager/src/controllers/service";

/// The folders of the service controller. Each may import those before it.
const STEPS: [&str; 6] = ["spec", "plan", "inventory", "queue", "execute", "orphans"];

/// The least share of blank lines in functions, in percent.
const LEAST_BLANK: f64 = 3.0;
