//! The command `outrigger`.
//!
//! ```text
//! args ─▶ facts ─▶ check ─▶ report ─▶ text, JSON
//!         (IO: API server, kubelets)
//! args ─▶ documents ─▶ migrations ─▶ mutate ─▶ outrigger_decide ─▶ report ─▶ text, JSON, YAML
//!         (IO read)    strict        one answer per object                  (IO write)
//!                                ├─▶ node ─▶ outrigger_decide::static_pods ─▶ edited files (IO write)
//!                                ├─▶ policies ─▶ MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
//! args ─▶ register ─▶ outrigger_decide::registration ─▶ YAML
//! ```
//!
//! | subject | module |
//! |---|---|
//! | commands and flags | [`args`] |
//! | `outrigger facts`: what is known about a cluster | [`facts`] |
//! | `outrigger check`: what is in the way | [`check`] |
//! | `outrigger status`: where the migration is | [`status`] |
//! | `outrigger verify`: whether the migration went well | [`verify`] |
//! | `outrigger plan`, `outrigger apply`, `outrigger rollback`: the steps | [`apply`] |
//! | reading of files and stdin | [`documents`] |
//! | selection and validation of migrations | [`migrations`] |
//! | `outrigger mutate`: the webhook's decisions about objects | [`mutate`] |
//! | `outrigger node edit` and `outrigger node undo` | [`node`] |
//! | `outrigger webhook register` | [`register`] |
//! | `outrigger webhook render-policies` | [`policies`] |
//! | `outrigger version` | [`version`] |
//! | `outrigger completion` | [`completion`] |

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command, NodeCommand, WebhookCommand};

pub mod apply;
pub mod args;
mod ca_bundle;
pub mod check;
pub mod completion;
pub mod documents;
mod end;
mod explain;
pub mod facts;
pub mod migrations;
pub mod mutate;
pub mod node;

pub mod policies;
pub mod register;
pub mod status;
pub mod verify;
pub mod version;
mod yaml;

pub use self::end::{End, Failure};

/// Runs one command: data to stdout, everything else to stderr.
pub fn run(arguments: impl IntoIterator<Item = OsString>, stdin: &mut dyn Read) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // A message that cannot be printed is lost.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };

    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let end = match &args.command {
        Command::Check(args) => check::run(args, &mut out, &mut err),
        Command::Status(args) => status::run(args, &mut out, &mut err),
        Command::Plan(args) => apply::plan(args, &mut out, &mut err),
        Command::Apply(args) => apply::apply(args, &mut out, &mut err),
        Command::Rollback(args) => apply::rollback(args, &mut out, &mut err),
        Command::Verify(args) => verify::run(args, &mut out),
        Command::Facts(args) => check::facts(args, &mut out),
        Command::Mutate(args) => mutate::run(args, stdin, &mut out, &mut err),
        Command::Node(NodeCommand::Edit(args)) => node::edit(args, stdin, &mut out, &mut err),
        Command::Node(NodeCommand::Undo(args)) => node::undo(args, &mut out),
        Command::Webhook(WebhookCommand::Register(args)) => register::run(args, &mut out, &mut err),
        Command::Webhook(WebhookCommand::RenderPolicies(args)) => policies::run(args, stdin, &mut out, &mut err),
        Command::Version(args) => version::run(args, &mut out),
        Command::Completion(args) => completion::run(args, &mut out),
    };

    match end {
        Ok(End::Success) => ExitCode::SUCCESS,
        Ok(End::Refused) => ExitCode::from(2),
        Ok(End::Failed) => ExitCode::FAILURE,
        Ok(End::NotYet) => ExitCode::from(3),
        Err(Failure::Plan(error)) if error.is_refusal() => {
            let _ = writeln!(err, "error: {}", explain::printable(&error.to_string()));
            ExitCode::from(2)
        }
        Err(Failure::Node(error)) if error.is_refusal() => {
            let _ = writeln!(err, "error: {error}");
            ExitCode::from(2)
        }
        // Nobody reads on, and the phase is not reached.
        Err(Failure::Stdout(error))
            if error.kind() == ErrorKind::BrokenPipe
                && matches!(args.command, Command::Apply(_) | Command::Rollback(_)) =>
        {
            ExitCode::from(3)
        }
        // The reader closed the pipe, as `head` does.
        Err(Failure::Stdout(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Json(error)) if error.io_error_kind() == Some(ErrorKind::BrokenPipe) => ExitCode::SUCCESS,
        // A cluster's texts are in these.
        Err(failure @ (Failure::Check(_) | Failure::Status(_) | Failure::Plan(_))) => {
            let _ = writeln!(err, "error: {}", explain::printable(&failure.to_string()));
            ExitCode::FAILURE
        }
        Err(failure) => {
            let _ = writeln!(err, "error: {failure}");
            ExitCode::FAILURE
        }
    }
}
