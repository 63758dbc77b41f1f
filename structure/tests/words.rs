//! Comments and pages obey the rules of language that a program can check.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use outrigger_structure::words::{self, Finding};
use outrigger_structure::{packages, sources};

/// The findings that are still there, by folder. A number may only become smaller, and a folder that is not named has none.
const REMAINING: &[(&str, usize)] = &[];

fn findings() -> BTreeSet<Finding> {
    let root = &Path::new("..").canonicalize().expect("the root");
    let packages = packages::read(root).expect("packages");
    let sources = sources::read(root, &packages).expect("sources");
    // Fewer would mean that they were not found.
    assert!(sources.files.len() > 500, "{} files", sources.files.len());
    let pages = words::pages(root, &["docs"]).expect("pages");
    assert!(pages.len() > 10, "{} pages", pages.len());

    words::all(root, &sources).expect("pages")
}

/// The longest folder of [`REMAINING`] that holds the file, or the file itself.
fn folder_of(file: &str) -> &str {
    let folders = REMAINING.iter().map(|(folder, _)| *folder);
    let holding = folders.filter(|folder| file.starts_with(&format!("{folder}/")));
    holding.max_by_key(|folder| folder.len()).unwrap_or(file)
}

#[test]
fn comments_and_pages_are_plain_english() {
    let findings = findings();
    let mut by_folder: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for finding in &findings {
        let file = finding.file.to_str().expect("a path");
        let line = format!("{file}:{}: {}", finding.line, finding.text);
        by_folder.entry(folder_of(file)).or_default().push(line);
    }

    let remaining: BTreeMap<&str, usize> = REMAINING.iter().copied().collect();
    for (folder, lines) in &by_folder {
        let allowed = remaining.get(folder).copied().unwrap_or_default();
        let (count, lines) = (lines.len(), lines.join("\n"));
        assert!(
            count <= allowed,
            "{folder}: {count} findings, {allowed} allowed:\n{lines}"
        );
    }
    for (folder, allowed) in remaining {
        let count = by_folder.get(folder).map_or(0, Vec::len);
        assert_eq!(
            count, allowed,
            "{folder} has fewer findings: write their number, or remove the folder"
        );
    }
}

fn texts(findings: Vec<Finding>) -> Vec<(usize, String)> {
    findings
        .into_iter()
        .map(|finding| (finding.line, finding.text))
        .collect()
}

#[test]
fn each_rule_finds_a_comment_that_breaks_it() {
    let source = "/// Who waits, waits long.\n/// He waits. What is done is done. What is left?\nfn one() {}\n\
                  \n/// It.\nfn two() {}\n// A heir is\n// told of it.\n/// A list:\n/// - one\n";
    let expected = [
        (5, "adds nothing to the name: It."),
        (1, "begins with Who: Who waits, waits long."),
        (1, "begins with What: What is done is done."),
        (
            7,
            "\"is told\": write \"is logged, emits an Event, is reported\": A heir is told of it.",
        ),
        (
            7,
            "\"heir\": write \"other user of a shared rule\": A heir is told of it.",
        ),
    ];
    let expected = expected.map(|(line, text)| (line, text.to_owned()));
    assert_eq!(texts(words::of_source(Path::new("one.rs"), source)), expected);
}

#[test]
fn each_phrase_and_each_beginning_is_found_in_comments_and_in_pages() {
    let phrases = words::PHRASES.map(|(phrase, instead)| {
        let rule = format!("\"{phrase}\": write \"{instead}\"");
        (rule, format!("The Service {phrase} there."))
    });
    let beginnings = words::RELATIVE.map(|word| (format!("begins with {word}"), format!("{word} waits, waits long.")));

    for (rule, sentence) in phrases.into_iter().chain(beginnings) {
        let expected = [(1, format!("{rule}: {sentence}"))];
        let comment = format!("// {sentence}\n");
        assert_eq!(texts(words::of_source(Path::new("one.rs"), &comment)), expected);
        assert_eq!(texts(words::of_page(Path::new("one.md"), &sentence)), expected);

        // A part of a longer word is not the phrase, and a string is no comment.
        let longer = sentence.replace(' ', "x ");
        assert_eq!(texts(words::of_page(Path::new("one.md"), &longer)), []);
        let code = format!("const A: &str = \"{sentence}\";\n");
        assert_eq!(texts(words::of_source(Path::new("one.rs"), &code)), []);
    }
}

#[test]
fn the_program_fails_if_a_comment_breaks_a_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    std::fs::write(folder.path().join("Cargo.toml"), manifest).expect("write");
    std::fs::create_dir_all(folder.path().join("src")).expect("create");
    std::fs::create_dir_all(folder.path().join("docs")).expect("create");

    for (comment, is_good) in [
        ("// The Service is deleted.\n", true),
        ("// The Service is doomed.\n", false),
    ] {
        std::fs::write(folder.path().join("src/lib.rs"), comment).expect("write");
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_outrigger-structure"));
        let root = folder.path().canonicalize().expect("the folder");
        let output = program.arg("words").current_dir(root).output().expect("it runs");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_eq!(output.status.success(), is_good, "{text}");
        assert_eq!(text.contains("src/lib.rs:1: \"doomed\""), !is_good, "{text}");
    }
}

#[test]
fn each_rule_finds_a_page_that_breaks_it() {
    let page =
        "# What is this\n\nA Service is left\nalone.\n\n```\nWhat is code\n```\n\n| Name | Whoever reads this |\n";
    let expected = [
        (
            3,
            "\"left alone\": write \"unmanaged, unchanged\": A Service is left alone.".to_owned(),
        ),
        (10, "begins with Whoever: Whoever reads this |".to_owned()),
    ];
    assert_eq!(texts(words::of_page(Path::new("one.md"), page)), expected);
}
