//! How a command ends.

use std::io;

use crate::{documents, migrations, mutate, node, register, yaml};

/// The result of a command, besides its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Exit code 0.
    Success,
    /// An object cannot be changed as the migration requires; exit code 2.
    Refused,
}

/// Why a command failed; exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Invalid input.
    #[error(transparent)]
    Documents(#[from] documents::Error),
    /// An invalid migration.
    #[error(transparent)]
    Migrations(#[from] migrations::Error),
    /// Flags and objects that contradict each other.
    #[error(transparent)]
    Mutate(#[from] mutate::error::Error),
    /// Files of a machine that cannot be changed.
    #[error(transparent)]
    Node(#[from] node::error::Error),
    /// A registration that cannot be printed.
    #[error(transparent)]
    Register(#[from] register::Error),
    #[error("the output cannot be written as YAML: {0}")]
    Yaml(#[from] yaml::Error),
    #[error("the output cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("stdout: {0}")]
    Stdout(#[from] io::Error),
}
