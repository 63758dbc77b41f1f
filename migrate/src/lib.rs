//! The operator's tool, `outrigger`.
//!
//! ```text
//! args ─▶ documents ─▶ migrations ─▶ mutate ─▶ decide ─▶ outrigger_webhook::decide ─▶ report ─▶ text, JSON, YAML
//!         (IO read)    strict        one answer per object                                     (IO write)
//!                                └─▶ policies ─▶ MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
//! ```
//!
//! | question | module |
//! |---|---|
//! | which commands and flags are there | [`args`] |
//! | how is a file or stdin read, and what is refused | [`documents`] |
//! | which migrations count, and are they sound | [`migrations`] |
//! | what is asked of the webhook's decision | [`decide`] |
//! | what would the webhook do | [`mutate`] |
//! | which of its rules can the API server apply by itself | [`policies`] |

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command, WebhookCommand};

pub mod args;
pub mod decide;
pub mod documents;
pub mod migrations;
pub mod mutate;
pub mod policies;
mod yaml;

/// What a command comes to, besides what it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All is as it should be; exit code 0.
    Well,
    /// Something stands in the way of what was asked; exit code 2.
    Refused,
}

/// Why a command could not do its work; exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong input.
    #[error(transparent)]
    Documents(#[from] documents::Error),
    /// A migration that cannot be used.
    #[error(transparent)]
    Migrations(#[from] migrations::Error),
    /// What was asked for makes no sense with the objects at hand.
    #[error(transparent)]
    Mutate(#[from] mutate::Error),
    /// The output cannot be put in words.
    #[error("the output cannot be written as YAML: {0}")]
    Yaml(#[from] yaml::Error),
    /// The same, in JSON.
    #[error("the output cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Nobody takes the output.
    #[error("stdout: {0}")]
    Stdout(#[from] io::Error),
}

/// Runs one command: data to stdout, everything else to stderr.
pub fn run(arguments: impl IntoIterator<Item = OsString>, stdin: &mut dyn Read) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Nothing can be done about a terminal that takes no message.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let end = match &args.command {
        Command::Mutate(args) => mutate::run(args, stdin, &mut out, &mut err),
        Command::Webhook(args) => match &args.command {
            WebhookCommand::RenderPolicies(args) => policies::run(args, stdin, &mut out, &mut err),
        },
    };
    match end {
        Ok(End::Well) => ExitCode::SUCCESS,
        Ok(End::Refused) => ExitCode::from(2),
        // Whoever reads the output has seen enough, as with `| head`.
        Err(Failure::Stdout(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(err, "error: {failure}");
            ExitCode::FAILURE
        }
    }
}
