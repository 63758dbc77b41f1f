//! Errors of control planes.

use std::net::AddrParseError;
use std::path::PathBuf;

use thiserror::Error;

use crate::process::ProcessError;
use crate::tools::ToolsError;

/// Why a control plane did not come up.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A process did not start or get ready.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A binary is missing.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A file of the run cannot be written or read.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// A key or certificate cannot be made.
    #[error("certificate for {subject}: {source}")]
    Certificate {
        /// The subject's common name.
        subject: String,
        source: rcgen::Error,
    },
    /// The service range is not one this harness can use.
    #[error("service range {range}: {reason}; use an IPv4 range in 127/8 such as 127.96.0.0/16")]
    ServiceRange {
        /// The range as given.
        range: String,
        reason: String,
    },
    /// A client cannot be made from a kubeconfig that the harness wrote.
    #[error("client for {user}: {reason}")]
    Client {
        /// The user's name.
        user: String,
        reason: String,
    },
}

impl ClusterError {
    pub(super) fn service_range(range: &str, error: &AddrParseError) -> Self {
        Self::ServiceRange {
            range: range.to_owned(),
            reason: error.to_string(),
        }
    }
}
