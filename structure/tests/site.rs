//! The pages of the documentation lead to each other, and its site has all of them. Each check finds a planted fault.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use outrigger_structure::links::{self, Pages, SUMMARY};
use outrigger_structure::words;

const FOLDERS: [&str; 7] = ["certs", "charts", "docs", "e2e/iam", "e2e/parity", "fuzz", "manifests"];

fn root() -> PathBuf {
    Path::new("..").canonicalize().expect("the root")
}

fn pages() -> Pages {
    let mut pages = words::pages(&root(), &FOLDERS).expect("pages");
    // fuzz/cargo-fuzz has a target folder of its own.
    pages.retain(|(path, _)| path.iter().all(|part| part != "target"));
    assert!(pages.len() > 45, "{} pages", pages.len());
    pages.into_iter().collect()
}

fn planted(pages: &[(&str, &str)]) -> Pages {
    let owned = pages.iter().map(|(path, text)| ((*path).into(), (*text).to_owned()));
    owned.collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let root = root();
    let broken = links::broken(&pages(), |path| root.join(path).exists());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_site_has_every_page_and_the_target_of_every_link() {
    let incomplete = links::incomplete(&pages());
    assert!(incomplete.is_empty(), "{}", incomplete.join("\n"));
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let root = root();
    let missing = links::missing_tests(&pages(), |file| std::fs::read_to_string(root.join(file)).ok());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Each finding about leadership has a rule, and a test or a reason why there is none.
#[test]
fn every_finding_about_owners_has_a_row() {
    let pages = pages();
    let page = &pages[Path::new("docs/adr/0001-tests.md")];
    let findings = (1..=16).map(|finding| format!("L{finding}"));
    // M1 has a scenario alone: it is about fields that are not read.
    for finding in findings.chain((2..=15).map(|finding| format!("M{finding}"))) {
        let of_it = |line: &&str| line.starts_with(&format!("| {finding}:"));
        let mut rows = page.lines().filter(of_it);
        assert!(
            rows.any(|row| !links::named_tests(row).is_empty()),
            "{finding} names no test"
        );
    }
}

#[test]
fn tests_that_are_not_there_are_found() {
    let page = "`a/b.rs::one` and `a/b.rs::tw`, `a::b`\n```\n`a/b.rs::four`\n```\n`a/c.rs::three`\n";
    let pages = planted(&[("docs/a.md", page)]);
    let read = |file: &Path| (file == Path::new("a/b.rs")).then(|| "fn one() {} async fn two() {}".to_owned());
    let expected = [
        "docs/a.md: a/b.rs has no test tw",
        "docs/a.md: a/c.rs has no test three",
    ];
    assert_eq!(links::missing_tests(&pages, read), expected);
}

#[test]
fn broken_links_are_found() {
    let page = "# A\n## Go back\n## Go back\n[1](b.md) [2](#go-back-1) [3](#go-back-2) [4](../LICENSE)\n\
                [5](b.md#b-1-c) [6](b.md#b)\n```\n[7](c.md)\n## Code\n```\n[8](#code) [9](../../LICENSE) [10](https://a/b.md)\n";
    let pages = planted(&[("docs/a.md", page), ("docs/b.md", "# `b`: 1, c\n")]);
    let broken = links::broken(&pages, |path| path == Path::new("LICENSE"));
    let expected = ["#go-back-2", "b.md#b", "#code", "../../LICENSE"];
    assert_eq!(broken, expected.map(|link| format!("docs/a.md: {link} leads nowhere")));
}

#[test]
fn gaps_of_the_site_are_found() {
    let summary = "[A](a.md)\n[B](guides/b.md)\n[B](guides/b.md)\n[C](c.md)\n[R](../README.md)\n";
    let pages = planted(&[
        (SUMMARY, summary),
        ("README.md", "[1](LICENSE) [2](docs/a.md) [3](docs/c.md)"),
        ("SECURITY.md", "[1](fuzz)"),
        ("docs/a.md", "[1](guides/b.md) [2](../SECURITY.md) [3](../manifests)"),
        ("docs/guides/b.md", "[1](../a.md)"),
        ("docs/guides/new.md", ""),
    ]);
    let expected = [
        "docs/SUMMARY.md: docs/guides/b.md is there twice",
        "docs/SUMMARY.md: there is no page docs/c.md",
        "docs/SUMMARY.md: docs/guides/new.md is missing",
        "docs/a.md: ../SECURITY.md is not in the site: add it to docs/SUMMARY.md",
        "docs/a.md: ../manifests is not in the site: add it to docs/SUMMARY.md",
    ];
    assert_eq!(links::incomplete(&pages), expected);
}
