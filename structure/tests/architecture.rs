//! The project's sources obey the rules of ARCHITECTURE.md.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use outrigger_structure::rules::{self, Exception};
use outrigger_structure::sources::Sources;
use outrigger_structure::{Imports, Package, packages, sources};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the root of the project").to_owned()
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
        rules::cycles(&sources, &imports, &CYCLES),
        rules::purity(&sources, &imports, &IMPURE),
    ];
    none(&violations.concat());
}

const fn exception(file: &'static str, what: &'static str, reason: &'static str) -> Exception {
    Exception { file, what, reason }
}

/// Import cycles that are larger than they may be, and how they can be cut.
const CYCLES: [Exception; 6] = [
    exception(
        "webhook/src/decide/kinds.rs",
        "37",
        "move the types of a decision into a module of their own",
    ),
    exception(
        "manager/src/controllers/service/network/observe.rs",
        "19",
        "move the types out of the files that read AWS",
    ),
    exception(
        "e2e/src/aws/mod.rs",
        "15",
        "move errors and constants into a module of their own",
    ),
    exception(
        "manager/src/controllers/service/settings.rs",
        "11",
        "move the rule quota into the settings, its check into the plan",
    ),
    exception(
        "manager/src/controllers/service/sync.rs",
        "7",
        "one context for all functions of the controller",
    ),
    exception(
        "webhook/src/decide/tags/rows.rs",
        "6",
        "move the types of a row into a module of their own",
    ),
];

const NAME_ONLY: &str = "its name is that of a decision, but it decides nothing";
const LOGS: &str = "the imported file logs a warning beside its decision";
const BESIDE_IO: &str = "the imported type stands beside the IO that fills it";

/// Deciding modules that import IO, and why.
const IMPURE: [Exception; 18] = [
    exception("e2e/src/pods/plan.rs", "e2e/src/pods/probe.rs", BESIDE_IO),
    exception("e2e/src/timeline/attribute.rs", "e2e/src/pods/span.rs", BESIDE_IO),
    exception("e2e/src/timeline/input.rs", "e2e/src/pods/span.rs", BESIDE_IO),
    exception("e2e/src/timeline/rules.rs", "e2e/src/pods/span.rs", BESIDE_IO),
    exception("e2e/src/timeline/tenure.rs", "e2e/src/pods/span.rs", BESIDE_IO),
    exception(
        "manager/aws/src/limit/gate.rs",
        "manager/aws/src/limit/lane.rs",
        NAME_ONLY,
    ),
    exception(
        "manager/aws/src/limit/gate.rs",
        "manager/aws/src/limit/turn.rs",
        NAME_ONLY,
    ),
    exception("manager/aws/src/limit/gate.rs", "tokio", NAME_ONLY),
    exception("manager/aws/src/limit/gate.rs", "tracing", NAME_ONLY),
    exception(
        "manager/src/controllers/node/plan.rs",
        "manager/src/node_patch.rs",
        BESIDE_IO,
    ),
    exception(
        "manager/src/controllers/service/classic/plan/balancer.rs",
        "manager/src/controllers/service/tag_reads.rs",
        BESIDE_IO,
    ),
    exception(
        "manager/src/controllers/service/classic/plan/mod.rs",
        "manager/src/controllers/service/tag_reads.rs",
        BESIDE_IO,
    ),
    exception(
        "manager/src/controllers/service/network/desired.rs",
        "manager/src/controllers/service/network/ports.rs",
        LOGS,
    ),
    exception(
        "manager/src/controllers/service/network/plan/first_listeners.rs",
        "manager/src/controllers/service/network/ports.rs",
        LOGS,
    ),
    exception(
        "manager/src/controllers/service/network/plan/listeners.rs",
        "manager/src/controllers/service/network/ports.rs",
        LOGS,
    ),
    exception(
        "manager/src/controllers/service/network/plan/node_rules.rs",
        "manager/src/controllers/service/network/ports.rs",
        LOGS,
    ),
    exception(
        "manager/src/controllers/service/network/plan/target_groups.rs",
        "manager/src/controllers/service/network/ports.rs",
        LOGS,
    ),
    exception("migrate/src/decide.rs", "migrate/src/documents.rs", BESIDE_IO),
];
