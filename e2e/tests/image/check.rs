//! `image/check` accepts our image, and refuses one that is broken.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use outrigger_cluster_harness::repository;
use outrigger_environment::Binaries;

use super::root::{NO_ROOT, leave_out, user};
use super::{ARCHITECTURE, Image, PROGRAMS, dynamic_program, stand_ins};

fn check(image: &Image, options: &[&str]) -> Output {
    let mut command = Command::new(repository::root().join("image/check"));
    command.args(options).arg(image.path(""));
    command.output().expect("python3 runs image/check")
}

/// The message of a refusal.
fn refusal(image: &Image, options: &[&str]) -> String {
    let run = check(image, options);
    let message = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success(), "{run:?}");
    assert!(message.starts_with("image/check: "), "{message}");
    message
}

#[test]
fn our_programs_start_and_the_webhook_serves() {
    let programs = PROGRAMS.map(|name| Binaries::one(name).expect("built"));
    let folder = programs[0].parent().expect("a folder");
    let image = Image::build(folder, &["--strip"]);

    let run = check(&image, &[]);

    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{run:?}");
    if user().is_none() {
        assert!(text.contains("not started: "), "{text}");
        return leave_out("image::check", NO_ROOT);
    }
    let expected = format!(
        "{ARCHITECTURE}: three dynamic programs start and print {}, the webhook serves TLS\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
}

#[test]
fn a_dynamic_program_is_refused_where_static_ones_are_expected() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);

    let message = refusal(&image, &["--static"]);

    assert!(
        message.contains("is not static") && message.contains("LIBC=musl"),
        "{message}"
    );
}

/// `true` starts, and prints a version of its own.
#[test]
fn a_program_with_another_version_is_refused() {
    if user().is_none() {
        return leave_out("image::check", NO_ROOT);
    }
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);

    let message = refusal(&image, &[]);

    let expected = format!("outrigger-manager --version: expected {}", env!("CARGO_PKG_VERSION"));
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn a_file_with_another_digest_is_refused() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);
    let layer = image.blob(&image.manifest()["layers"][0]["digest"]);
    change(&layer);
    let message = refusal(&image, &[]);
    assert!(message.contains("has the digest sha256:"), "{message}");

    fs::write(image.path("digest"), "sha256:00\n").expect("written");
    let message = refusal(&image, &[]);
    assert!(message.contains("and the file digest sha256:00"), "{message}");
}

fn change(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[0] ^= 1;
    fs::write(file, bytes).expect("written");
}
