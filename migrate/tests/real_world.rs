//! Against published manifests and CRDs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints what it has seen")]

#[path = "../../shared/tests/published/mod.rs"]
mod published;
mod support;

use std::path::{Path, PathBuf};

use outrigger_decide::kinds;
use outrigger_migrate::mutate::is_cluster_scoped;
use support::{outrigger, outrigger_with};

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => files(&path, into),
            Some("yaml" | "yml" | "json") => into.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_published_manifest_is_read_or_refused_and_settled_after_one_decision() {
    let Some(root) = published::find("corpus") else { return };
    let mut all = Vec::new();
    files(&root, &mut all);
    let (mut read, mut changed) = (0, 0);
    for file in &all {
        let ask = |file: &str, stdin: &[u8]| {
            let settings = [
                "--migration=migrations.yaml",
                "--namespace-labels=cluster=prod",
                "--phase=Migrate",
                "--prepared",
                "-oyaml",
            ];
            outrigger_with(&[&["mutate", "-f", file], &settings[..]].concat(), stdin)
        };
        let run = ask(file.to_str().unwrap(), b"");
        assert!(
            !run.stderr.contains("panicked") && run.code.is_some(),
            "{}: {}",
            file.display(),
            run.stderr
        );
        if run.code == Some(1) {
            assert!(
                run.stderr.starts_with("error: ") && run.stdout.is_empty(),
                "{}: {}",
                file.display(),
                run.seen()
            );
            continue;
        }
        read += 1;
        changed += usize::from(run.stderr.contains(" changed"));
        assert_eq!(ask("-", run.stdout.as_bytes()).stdout, run.stdout, "{}", file.display());
    }
    println!("{} files, {read} read, {changed} with a change", all.len());
    assert!(read >= 200 && changed >= 11, "{read} read, {changed} changed");
}

/// The example of the page, run from the repository's root, prints what stands there.
#[test]
fn the_example_of_the_page_is_real() {
    let root = PathBuf::from("..");
    let page = std::fs::read_to_string(root.join("docs/mutate.md")).unwrap();
    let (_, page) = page.split_once("## Example").unwrap();
    let (_, rest) = page.split_once("$ outrigger mutate ").unwrap();
    let (command, rest) = rest.split_once('\n').unwrap();
    let (expected, _) = rest.split_once("```").unwrap();
    let arguments: Vec<String> = command
        .split(' ')
        .map(|word| word.replace("migrate/tests/files/", ""))
        .collect();
    let arguments: Vec<&str> = std::iter::once("mutate")
        .chain(arguments.iter().map(String::as_str))
        .collect();
    let run = outrigger(&arguments);
    assert_eq!(
        run.stdout
            .replace("(control-plane", "(migrate/tests/files/control-plane"),
        expected
    );
}

/// The first value of a key in a CRD, read line by line: names and scope stand before the schemas.
fn first<'a>(text: &'a str, key: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.trim_start().strip_prefix(key));
    found.unwrap_or_default().trim()
}

#[test]
fn the_webhooks_table_agrees_with_the_published_definitions() {
    let Some(root) = published::find("crds") else { return };
    let mut seen = 0;
    for folder in std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
    {
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap();
            let specification = text.split_once("\nspec:").map_or("", |(_, rest)| rest);
            let (group, scope) = (first(specification, "group: "), first(specification, "scope: "));
            let kind = first(specification, "kind: ");
            assert!(!group.is_empty() && !kind.is_empty(), "{}", file.display());
            let mut rows = kinds().filter(|row| row.group == group && row.kind == kind);
            if rows.next().is_none() {
                continue;
            }
            assert_eq!(
                is_cluster_scoped(group, kind),
                scope == "Cluster",
                "{}: {group} {kind}",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 73, "only {seen} definitions");
}
