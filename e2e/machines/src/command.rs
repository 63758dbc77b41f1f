//! Short commands of the host.

use std::ffi::OsStr;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// Runs `program` with the words of `line`.
pub(crate) fn run(program: &str, line: &str) -> Result<String> {
    output(Command::new(program).args(line.split_whitespace()))
}

/// The standard output of a command that has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .collect();
    let words = words.join(OsStr::new(" ")).to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {words}"))?;
    succeeded(&words, &output)
}

/// The standard output of a command that has ended.
pub(crate) fn succeeded(words: &str, output: &Output) -> Result<String> {
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{words}: {}: {}", output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
