//! How a command ends.

use std::io;
use std::path::PathBuf;

use crate::apply::error::Error as PlanError;
use crate::check::error::Error as CheckError;
use crate::status::error::Error as StatusError;
use crate::{documents, migrations, mutate, node, register, yaml};

/// The result of a command, besides its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Exit code 0.
    Success,
    /// An object cannot be changed as the migration requires, or an error was found; exit code 2.
    Refused,
    /// A failure that was printed already; exit code 1.
    Failed,
    /// A condition was not reached in time; exit code 3.
    NotYet,
}

/// Why a command failed; exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Documents(#[from] documents::Error),
    #[error(transparent)]
    Migrations(#[from] migrations::Error),
    #[error(transparent)]
    Mutate(#[from] mutate::Error),
    #[error(transparent)]
    Node(#[from] node::error::Error),
    #[error(transparent)]
    Register(#[from] register::Error),
    #[error("the output cannot be written as YAML: {0}")]
    Yaml(#[from] yaml::Error),
    #[error("the output cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("--html: cannot write {}: {source}", path.display())]
    Page { path: PathBuf, source: io::Error },
    #[error("stdout: {0}")]
    Stdout(#[from] io::Error),
}
