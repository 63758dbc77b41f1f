//! `outrigger completion`: completion of commands and flags, for the shells that clap knows.

use std::io::Write;

use clap::CommandFactory as _;

use crate::args::{Args, CompletionArgs};
use crate::{End, Failure};

/// # Errors
/// When stdout fails.
pub fn run(args: &CompletionArgs, out: &mut dyn Write) -> Result<End, Failure> {
    // clap_complete panics where a writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "outrigger", &mut script);
    out.write_all(&script)?;

    Ok(End::Success)
}
