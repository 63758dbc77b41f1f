//! Errors of control planes.

use std::path::PathBuf;

use thiserror::Error;

use crate::process::ProcessError;
use crate::tools::ToolsError;

/// Why a control plane did not come up.
#[derive(Debug, Error)]
pub enum ClusterError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Tools(#[from] ToolsError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("certificate for {subject}: {source}")]
    Certificate { subject: String, source: rcgen::Error },
    /// The service range is not one this harness can use.
    #[error("service range {range}: {reason}; use an IPv4 range in 127/8 such as 127.96.0.0/16")]
    ServiceRange { range: String, reason: String },
    /// A client cannot be made from a kubeconfig that the harness wrote.
    #[error("client for {user}: {reason}")]
    Client { user: String, reason: String },
}

impl ClusterError {
    pub(super) fn certificate(subject: &str, source: rcgen::Error) -> Self {
        Self::Certificate {
            subject: subject.to_owned(),
            source,
        }
    }
}
