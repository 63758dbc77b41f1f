//! The command line: the incumbent's own flags and a few of ours.
//!
//! [`table`] lists every flag; [`parse`] reads them as Go's pflag does; `build` and `validate` make [`Options`] of
//! them; [`help`] renders the help and `docs/flags.md` from the same table.

mod build;
mod configz;
pub mod controllers;
pub mod help;
mod node_ipam;
mod options;
mod parse;
pub mod table;
mod tagging;
pub mod tls;
mod validate;
pub mod value;

pub use node_ipam::{NodeIpam, NodeRanges};
pub use options::{
    Authentication, DeletionBreaker, General, LeaderElection, Logs, Migration, MigrationCluster, Nodes, Options,
    RequestHeader, Routes, Services, Serving, Sweep, Tagging, TlsVersion,
};
pub use tls::NamedCertificate;

use parse::{CommandLine, Value};

#[derive(Debug)]
pub enum Request {
    Run(Box<Options>),
    /// Print this text on stdout and exit with 0.
    Print(String),
}

/// The command line cannot be used; the message lists everything wrong with it, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}\nrun with --help for the list of flags", .0.join("\n"))]
pub struct BadCommandLine(pub Vec<String>);

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// [`BadCommandLine`] with every problem found: unknown flags (with the nearest known name), values of the wrong
/// type, and combinations that contradict each other.
pub fn parse(arguments: &[String]) -> Result<Request, BadCommandLine> {
    let mut line = CommandLine::read(arguments);
    if let Some(text) = printed(&line)? {
        return Ok(Request::Print(text));
    }

    let options = build::options(&mut line);
    let errors = line.take_errors();
    if errors.is_empty() {
        Ok(Request::Run(Box::new(options)))
    } else {
        Err(BadCommandLine(errors))
    }
}

/// `--help` and `--version` win over everything else that may be wrong.
fn printed(line: &CommandLine) -> Result<Option<String>, BadCommandLine> {
    if line.value("help") == Some(&Value::Bool(true)) {
        return Ok(Some(help::text()));
    }
    let Some(Value::Text(version)) = line.value("version") else {
        return Ok(None);
    };

    let ours = env!("CARGO_PKG_VERSION");
    match version.as_str() {
        "false" => Ok(None),
        "true" => Ok(Some(format!("outrigger-manager v{ours}\n"))),
        "raw" => Ok(Some(format!("name=outrigger-manager\nversion={ours}\nprovider=aws\n"))),
        other => Err(BadCommandLine(vec![format!(
            "invalid argument {other:?} for --version: expected true, false or raw"
        )])),
    }
}
