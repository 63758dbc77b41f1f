//! A test that needs published data does not pass silently without them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod published;

use std::{
    collections::BTreeSet,
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use published::{LEFT_OUT, REQUIRE};

const NAME: &str = "OUTRIGGER_TEST_DATA_NAME";

fn repository() -> PathBuf {
    PathBuf::from("..")
}

/// The other tests run it in a process of its own.
#[test]
fn looks_for_data() {
    if let Ok(name) = env::var(NAME) {
        published::find(&name);
    }
}

/// Looks for data in a folder where only `crds` exists.
fn look(name: &str, folder: &Path, require: &str) -> Output {
    fs::create_dir_all(folder.join("crds")).unwrap();
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "looks_for_data"])
        .env(NAME, name)
        .env("OUTRIGGER_SHARED", folder)
        .env(REQUIRE, require)
        .env(LEFT_OUT, folder.join("left-out"))
        .output()
        .unwrap()
}

#[test]
fn a_test_without_its_data_is_in_the_line_that_make_test_prints() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("left-out");
    let print = || {
        let script = repository().join("e2e/tools/left-out");
        let run = Command::new(script).arg(&list).output().unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    assert!(look("crds", folder.path(), "").status.success());
    assert_eq!(print(), "");

    for _ in 0..2 {
        let run = look("corpus/node", folder.path(), "");
        assert!(run.status.success(), "{run:?}");
    }

    assert_eq!(
        print(),
        "left out without ../shared (CONTRIBUTING.md): 1 test: published_data::looks_for_data\n"
    );
}

#[test]
fn absent_data_fail_where_they_are_required() {
    let folder = tempfile::tempdir().unwrap();
    let run = look("corpus/node", folder.path(), "1");
    assert!(!run.status.success(), "{run:?}");
    assert!(!folder.path().join("left-out").exists());
    assert!(look("crds", folder.path(), "1").status.success());
}

#[test]
fn a_single_absent_file_fails_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = look("crds/none.yaml", folder.path(), "");
    assert!(!run.status.success(), "{run:?}");
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// A test that looks for the folder by itself would pass without it.
#[test]
fn every_test_finds_published_data_by_the_one_function() {
    let marks = [concat!("\"OUTRIGGER_", "SHARED\""), concat!("../", "shared\")")];
    let mut files = Vec::new();
    sources(&repository(), &mut files);
    assert!(files.len() > 500, "only {} sources", files.len());
    files.retain(|file| {
        let text = fs::read_to_string(file).unwrap();
        marks.iter().any(|mark| text.contains(mark))
    });

    let names: BTreeSet<_> = files
        .iter()
        .map(|file| file.strip_prefix(repository()).unwrap())
        .collect();

    let own = ["shared/tests/published/mod.rs", "shared/tests/published_data.rs"];
    assert_eq!(names, own.map(Path::new).into());
}

/// `make` is replaced by a program that prints its environment.
#[test]
fn the_run_before_a_merge_requires_the_data_and_rewrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let make = folder.path().join("make");
    fs::write(&make, "#!/bin/sh\nenv\n").unwrap();
    fs::set_permissions(&make, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap());
    let mut run = Command::new(repository().join(".ci/run"));
    for name in [
        "UPDATE_GOLDEN",
        "UPDATE_DOCS",
        "UPDATE_MANIFESTS",
        "INSTA_UPDATE",
        "INSTA_FORCE_PASS",
    ] {
        run.env(name, "1");
    }
    for name in [
        "OUTRIGGER_IAM_ROLES",
        "OUTRIGGER_PARITY_CASES",
        "OUTRIGGER_CRASH",
        "PROPTEST_CASES",
    ] {
        run.env(name, "1");
    }

    let output = run.env("PATH", path).env("OUTRIGGER_SHARED", "data").output().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    let prefixes = ["UPDATE_", "INSTA_", "OUTRIGGER_", "PROPTEST_"];
    let kept: BTreeSet<&str> = text
        .lines()
        .filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)))
        .filter(|line| !line.starts_with("OUTRIGGER_CACHE="))
        .collect();
    assert_eq!(
        kept,
        BTreeSet::from(["OUTRIGGER_REQUIRE_SHARED=1", "OUTRIGGER_SHARED=data"])
    );
}
