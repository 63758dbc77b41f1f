//! The documents speak of what is there: paths exist; annotations, Events, keys, flags, metrics and
//! calls of AWS are those of the code, and all of them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use outrigger_manager::args::table;
use outrigger_manager::cloud_config::GLOBAL_KEYS;
use regex::Regex;

fn root() -> PathBuf {
    PathBuf::from("..").canonicalize().unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a folder, by the end of their name; without what was built or downloaded.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                files(&path, end, found);
            }
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), ".md", &mut found);
    assert!(found.len() > 12, "{found:?}");
    found
}

/// The code of a folder without its tests.
fn code(folder: &str) -> String {
    let mut found = Vec::new();
    files(&root().join(folder), ".rs", &mut found);
    let is_test = |path: &PathBuf| {
        let text = path.to_string_lossy();
        text.contains("/tests/") || text.contains("/fake/") || text.ends_with("tests.rs")
    };
    found.retain(|path| !is_test(path));
    found.sort();
    let texts = found.iter().map(|path| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    texts.collect()
}

fn all(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// The part of a document between two marks.
fn between(path: &str, name: &str) -> String {
    let text = read(path);
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let (_, rest) = text.split_once(&begin).unwrap();
    rest.split_once(&end).unwrap().0.to_owned()
}

/// The first cells of a table's rows, between backticks.
fn rows(path: &str, name: &str) -> BTreeSet<String> {
    all(r"(?m)^\| `([^`]+)` \|", &between(path, name))
}

/// A path in backticks that begins with one of the project's folders.
#[test]
fn every_path_is_there() {
    let path = Regex::new(
        r"`((?:certs|charts|docs|e2e|fuzz|manager|manifests|migrate|shared|webhook)/[A-Za-z0-9_./-]*[A-Za-z0-9_/])`",
    )
    .unwrap();
    let mut seen = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for found in path.captures_iter(&text) {
            seen += 1;
            assert!(
                root().join(&found[1]).exists(),
                "{}: there is no {}",
                document.display(),
                &found[1]
            );
        }
    }
    assert!(seen > 50, "{seen} paths");
}

#[test]
fn every_annotation_of_services_is_documented_and_read() {
    let read_by = [
        r#"(?:annotations|self)\s*\.(?:get|filled|flag|integer|present_integer|list|pairs)\(\s*"([a-z0-9-]+)""#,
        r#"(?:(?:untrimmed|number)\(annotations, |text\(|number\()"([a-z0-9-]+)""#,
        r#"const TARGET_GROUPS: &str = "([a-z-]+)""#,
    ];
    let code = code("manager/src/controllers/service");
    let read: BTreeSet<String> = read_by.iter().flat_map(|pattern| all(pattern, &code)).collect();
    assert_eq!(rows("docs/services.md", "annotations"), read);
    assert_eq!(read.len(), 30);
}

#[test]
fn every_event_of_services_is_documented_and_told() {
    let code = code("manager/src/controllers/service");
    let mut told = all(
        r#"(?:emit|warn|warn_once)\(\s*context,\s*service,\s*"([A-Za-z]+)""#,
        &code,
    );
    told.extend(all(r#""([A-Z][A-Za-z]+Failed)""#, &code));
    // Reasons that have a name, because a state remembers them.
    let events = read("manager/src/controllers/service/events.rs");
    told.extend(all(r#"const [A-Z_]+: &str = "([A-Z][A-Za-z]+)";"#, &events));
    assert_eq!(rows("docs/services.md", "events"), told);
}

/// The names between backticks in the first cells of the tables below a heading of the page about the status.
fn status(heading: &str) -> BTreeSet<String> {
    let text = read("docs/status.md");
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let section = rest.split("\n#").next().unwrap();
    let cells = all(r"(?m)^\| (`[^|]+) \|", section);
    let names = cells.iter().flat_map(|cell| all("`([A-Za-z]+)`", cell));
    names.collect()
}

#[test]
fn every_condition_and_reason_is_documented_and_used() {
    let types = read("shared/src/migration/status.rs");
    assert_eq!(
        status("## Conditions"),
        all(r#"pub const [A-Z_]+: &str = "([A-Za-z]+)";"#, &types)
    );

    let mut documented = status("### Reasons of Ready");
    documented.extend(status("### Reasons of the other conditions"));
    let mut used = all(
        r#""([A-Z][a-z]+[A-Za-z]*)""#,
        read("manager/leader/src/status/conditions.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
    );
    used.extend(all(
        r#"pub const [A-Z_]+: &str = "([A-Za-z]+)";"#,
        &read("manager/evidence/src/why.rs"),
    ));
    for path in [
        "webhook/src/stored_objects/report.rs",
        "webhook/src/registration_check.rs",
    ] {
        used.extend(all(r#"\("(?:True|False|Unknown)", "([A-Za-z]+)""#, &read(path)));
    }
    // Codes of missing facts and of warnings, which are no reasons.
    let facts = status("### Missing facts");
    documented.retain(|code| !facts.contains(code));
    used.retain(|code| !facts.contains(code) && !["MirrorPodIgnored", "AttestationLeftOver"].contains(&code.as_str()));
    assert_eq!(documented, used);
}

#[test]
fn every_event_of_migrations_is_documented_and_emitted() {
    let mut emitted = all(
        r#"Notice::(?:normal|warning)\(\s*"([A-Za-z]+)""#,
        &read("manager/leader/src/status/notices.rs"),
    );
    emitted.extend(all(
        r#"const [A-Z_]+: &str = "([A-Z][A-Za-z]+)""#,
        &code("manager/leader/src/status"),
    ));
    assert_eq!(status("## Events"), emitted);
}

#[test]
fn every_key_of_the_cloud_configuration_is_documented_and_known() {
    let documented = rows("docs/cloud-config.md", "keys");
    let known: BTreeSet<String> = GLOBAL_KEYS.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(documented, known);
}

#[test]
fn every_call_of_aws_is_documented_and_made() {
    let called = |folder: &str, prefix: &str| -> BTreeSet<String> {
        let code = code(folder);
        let mut actions = all(r#"(?:OPERATION|ACTION): &str = "([A-Za-z]+)""#, &code);
        actions.extend(all(r#"failed\(\s*"([A-Z][A-Za-z]+)""#, &code));
        assert!(actions.len() > 10, "{folder}: {actions:?}");
        actions.into_iter().map(|action| format!("{prefix}:{action}")).collect()
    };
    let mut made = called("manager/aws/src/ec2", "ec2");
    made.extend(called("manager/aws/src/elb", "elasticloadbalancing"));
    made.extend(called("manager/aws/src/elbv2", "elasticloadbalancing"));
    let documented = all(
        "`([a-z0-9]+:[A-Za-z]+)`",
        &between("docs/aws-permissions.md", "actions"),
    );
    assert_eq!(documented, made);
}

/// Only in documents that speak of no other program's flags.
#[test]
fn every_flag_and_metric_is_there() {
    let metrics = read("docs/metrics.md");
    for document in [
        "docs/services.md",
        "docs/aws-permissions.md",
        "docs/cloud-config.md",
        "docs/parity.md",
    ] {
        let text = read(document);
        for flag in all(r"`--([a-z0-9-]+)[=`]", &text) {
            assert!(table::find(&flag).is_some(), "{document}: there is no flag --{flag}");
        }
        for metric in all(r"`(outrigger_[a-z_]+)[{`]", &text) {
            assert!(
                metrics.contains(&format!("| `{metric}` |")),
                "{document}: there is no metric {metric}"
            );
        }
    }
}
