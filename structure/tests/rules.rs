//! Each rule is violated once by a small project.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use outrigger_structure::packages::Root;
use outrigger_structure::rules;
use outrigger_structure::sources::{self, Sources};
use outrigger_structure::{Imports, Package, dependencies};

/// A package of one library with these files.
fn project(files: &[(&str, &str)]) -> (Sources, Imports) {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("create");
        std::fs::write(path, text).expect("write");
    }
    let sources = sources::read(folder.path(), &[package("one", &[])]).expect("sources");
    let imports = Imports::of(&sources);
    (sources, imports)
}

fn package(name: &str, dependencies: &[&str]) -> Package {
    Package {
        name: name.to_owned(),
        roots: vec![Root {
            file: PathBuf::from("src/lib.rs"),
            name: name.to_owned(),
            is_test: false,
        }],
        dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        needs: BTreeSet::new(),
    }
}

fn imported<'a>(sources: &'a Sources, imports: &Imports, file: &str) -> BTreeSet<&'a Path> {
    let at = sources
        .files
        .iter()
        .position(|source| source.path == Path::new(file))
        .expect("the file");
    let targets = imports.files.get(&at).into_iter().flatten();
    targets.map(|target| sources.files[*target].path.as_path()).collect()
}

#[test]
fn an_import_leads_to_the_file_that_defines_the_item() {
    let (sources, imports) = project(&[
        ("src/lib.rs", "pub mod a; pub mod b;"),
        (
            "src/a.rs",
            "use crate::b::{Thing, deep::Other as Renamed}; fn f() { super::b::deep::g() }",
        ),
        ("src/b/mod.rs", "pub mod deep; mod hidden; pub use hidden::Thing;"),
        (
            "src/b/deep.rs",
            "pub struct Other; pub fn g() {} #[cfg(test)] mod tests { use crate::a; fn h() { crate::a::f() } }",
        ),
        ("src/b/hidden.rs", "pub struct Thing;"),
    ]);
    let expected = BTreeSet::from([Path::new("src/b/deep.rs"), Path::new("src/b/hidden.rs")]);
    assert_eq!(imported(&sources, &imports, "src/a.rs"), expected);
    assert_eq!(
        imported(&sources, &imports, "src/b/deep.rs"),
        BTreeSet::new(),
        "tests do not count"
    );
    assert_eq!(
        imported(&sources, &imports, "src/b/mod.rs"),
        BTreeSet::from([Path::new("src/b/hidden.rs")])
    );
}

#[test]
fn a_large_import_cycle_is_a_violation() {
    let cycle = |size: usize| {
        let module = |at: usize| format!("use crate::m{}::f; pub fn f() {{}}", (at + 1) % size);
        let root = (0..size).map(|at| format!("mod m{at};")).collect();
        let mut files = vec![("src/lib.rs".to_owned(), root)];
        files.extend((0..size).map(|at| (format!("src/m{at}.rs"), module(at))));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let (sources, imports) = project(&files);
        rules::cycles(&sources, &imports)
    };

    let names: Vec<String> = (0..6).map(|at| format!("src/m{at}.rs")).collect();
    assert_eq!(cycle(6), [format!("an import cycle of 6 files: {}", names.join(", "))]);
    assert_eq!(cycle(5), Vec::<String>::new());
}

#[test]
fn a_decision_that_imports_io_is_a_violation() {
    let of = |plan: &str| {
        let (sources, imports) = project(&[
            ("src/lib.rs", "mod plan; mod report; mod reads; mod names;"),
            ("src/plan.rs", plan),
            ("src/report.rs", "pub use crate::reads::read; pub struct Report;"),
            ("src/reads.rs", "use std::fs; use crate::names::NAME; pub fn read() {}"),
            ("src/names.rs", "pub const NAME: &str = \"name\";"),
        ]);
        rules::purity(&sources, &imports)
    };

    let imports = |path: &str| [format!("src/plan.rs: a deciding module imports {path}")];
    assert_eq!(of("fn f() { tracing::warn!(\"\"); }"), imports("tracing"));
    assert_eq!(
        of("use tokio::time::Instant; fn f() { Instant::now(); }"),
        imports("tokio")
    );
    assert_eq!(of("use crate::reads;"), imports("src/reads.rs, which imports std::fs"));
    assert_eq!(
        of("use crate::{names, report::Report};"),
        imports("src/report.rs, which imports src/reads.rs, which imports std::fs")
    );
    // A re-export is followed to the file that defines the item.
    assert_eq!(
        of("use crate::report::read;"),
        imports("src/reads.rs, which imports std::fs")
    );
    // A value of a module of IO is no IO.
    let pure = "use tokio::time::Instant; use crate::names; fn f(now: Instant) {}";
    assert_eq!(of(pure), Vec::<String>::new());
}

#[test]
fn a_folder_that_imports_its_neighbour_is_a_violation() {
    let (sources, imports) = project(&[
        ("src/lib.rs", "mod controllers;"),
        ("src/controllers/mod.rs", "pub mod node; pub mod route;"),
        ("src/controllers/node.rs", "pub mod plan;"),
        (
            "src/controllers/node/plan.rs",
            "use super::super::route::apply; use crate::controllers::node;",
        ),
        ("src/controllers/route/mod.rs", "pub mod apply;"),
        ("src/controllers/route/apply.rs", ""),
    ]);
    let found = rules::separate_folders(&sources, &imports, "src/controllers");
    assert_eq!(
        found,
        ["src/controllers/node/plan.rs: imports src/controllers/route/apply.rs"]
    );
}

#[test]
fn a_folder_that_imports_a_later_one_is_a_violation() {
    let (sources, imports) = project(&[
        ("src/lib.rs", "mod service;"),
        ("src/service/mod.rs", "mod spec; mod plan; mod events;"),
        ("src/service/spec/mod.rs", "mod names; use super::events;"),
        ("src/service/spec/names.rs", "use super::super::plan::step;"),
        ("src/service/plan/mod.rs", "pub mod step;"),
        (
            "src/service/plan/step.rs",
            "use super::super::spec; use super::super::events;",
        ),
        ("src/service/events.rs", "use super::plan;"),
    ]);
    let found = rules::order_of_folders(&sources, &imports, "src/service", &["spec", "plan"]);
    assert_eq!(found, ["src/service/spec/names.rs: imports src/service/plan/step.rs"]);
}

#[test]
fn a_package_that_depends_on_another_one_than_the_table_says_is_a_violation() {
    let table = "| crate | depends on |\n|---|---|\n| `one` | `two`, `three` |\n| `two` | |\n";
    let packages = [
        package("one", &["two", "four"]),
        package("two", &[]),
        package("four", &[]),
    ];
    let found = rules::packages(&packages, table);
    assert_eq!(
        found,
        [
            "one: depends on four, which the table of packages does not allow",
            "one: does not depend on three, as the table of packages says",
            "four: has no row in the table of packages",
        ]
    );
}

#[test]
fn a_dependency_through_others_is_a_violation() {
    let tool = Package {
        needs: BTreeSet::from(["other".to_owned(), "json".to_owned()]),
        ..package("tool", &["harness"])
    };
    let lock = "version = 4\n\n[[package]]\nname = \"harness\"\nversion = \"1.0.0\"\ndependencies = [\n \"server\",\n]\n\n\
                [[package]]\nname = \"other\"\nversion = \"1.0.0\"\ndependencies = [\n \"client 2.0.0\",\n]\n\n\
                [[package]]\nname = \"client\"\nversion = \"1.0.0\"\ndependencies = [\n \"server\",\n]\n\n\
                [[package]]\nname = \"client\"\nversion = \"2.0.0\"\n\n\
                [[package]]\nname = \"tool\"\nversion = \"1.0.0\"\ndependencies = [\n \"harness\",\n \"other\",\n]\n";

    let tools = [tool];
    let chains = dependencies::chains(&tools, lock, "tool");
    // Dependencies of tests do not count, and all versions of a package are one.
    let found = rules::excluded(&chains, |name| name == "server" || name == "harness");
    assert_eq!(
        found,
        ["a dependency that is not permitted: tool, which needs other, which needs client, which needs server"]
    );
    assert_eq!(rules::excluded(&chains, |name| name == "absent"), Vec::<String>::new());
}

#[test]
fn a_source_that_only_compiles_on_linux_is_a_violation() {
    let of = |text: &str| {
        let (sources, imports) = project(&[("src/lib.rs", text)]);
        rules::portable(&sources, &imports, &["one"])
    };
    assert_eq!(
        of("use std::os::linux::fs::MetadataExt;"),
        ["src/lib.rs: imports std::os::linux"]
    );
    assert_eq!(of("fn f() { nix::unistd::getpid(); }"), ["src/lib.rs: imports nix"]);
    let path = "const PATH: &str = \"/proc/self/cgroup\";";
    assert_eq!(of(path), ["src/lib.rs: names a path of /proc"]);
    assert_eq!(of("use std::os::unix::fs::MetadataExt;"), Vec::<String>::new());
    let (sources, imports) = project(&[("src/lib.rs", path)]);
    assert_eq!(rules::portable(&sources, &imports, &["other"]), Vec::<String>::new());
}

#[test]
fn functions_without_blank_lines_are_a_violation() {
    let dense = "fn f() {\n    g();\n    g();\n    g();\n}\n";
    let (sources, _) = project(&[("src/lib.rs", dense)]);
    let found = rules::blank_lines(&sources, 3.0);
    assert_eq!(found, ["0.0 % of the lines in functions are blank, not 3 %"]);

    let (sources, _) = project(&[("src/lib.rs", &dense.replacen("g();\n", "g();\n\n", 1))]);
    assert_eq!(rules::blank_lines(&sources, 25.0), Vec::<String>::new());
    assert_eq!(rules::blank_lines(&sources, 26.0).len(), 1);
}

#[test]
fn a_page_that_begins_its_details_late_is_a_violation() {
    let page = "# Page\n\nText.\n\n## Details\n";
    assert_eq!(rules::beginning(page, "## Details", 4), Vec::<String>::new());
    let found = rules::beginning(page, "## Details", 3);
    assert_eq!(found, ["4 lines are before \"## Details\", and 3 may be"]);
    let found = rules::beginning(page, "## More", 3);
    assert_eq!(found, ["there is no heading \"## More\""]);
}

#[test]
fn a_place_that_does_not_exist_is_a_violation() {
    let table = "| topic | place |\n|---|---|\n| `not/read` | `a/{b,c}/`, from `d.rs` |\n\
                 | more | `a/e.rs`: one table for `a command/with words`; [`f/g.md`](f/g.md) |\n";
    let exists = |path: &Path| path == Path::new("a/b/") || path == Path::new("f/g.md");
    let found = rules::places(table, exists);
    assert_eq!(found, ["a/c/", "a/b/d.rs", "a/c/d.rs", "a/e.rs"]);
}
