//! Runs the real binary in the folder of the test files.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub mod machine;

/// The result of one run.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn files() -> PathBuf {
    PathBuf::from("tests/files")
}

pub fn outrigger(arguments: &[&str]) -> Run {
    outrigger_with(arguments, b"")
}

pub fn outrigger_with(arguments: &[&str], stdin: &[u8]) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_outrigger"))
        .args(arguments)
        .current_dir(files())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its input closes it; that is no error of the test's.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// Everything that a person sees.
    pub fn seen(&self) -> String {
        format!(
            "exit code {:?}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}
