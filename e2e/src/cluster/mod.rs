//! Real Kubernetes control planes on loopback: etcd, kube-apiserver, kube-controller-manager.
//!
//! Several API servers can run at once, each with a service range of its own in 127/8 (every such address is local on
//! Linux, so an API server reaches a webhook at its Service's cluster IP with no network set up), and may share one
//! etcd under different prefixes.

mod api_server;
mod audit_policy;
mod authority;
mod controller_manager;
mod etcd;
mod kubeconfig;

use std::net::AddrParseError;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::process::ProcessError;
use crate::tools::ToolsError;

pub use api_server::{ApiServer, ApiServerOptions, Version};
pub use authority::{Authority, Credentials, User};
pub use controller_manager::{ManagementControllerManager, TenantControllerManager};
pub use etcd::Etcd;

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
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A key or certificate cannot be made.
    #[error("certificate for {subject}: {source}")]
    Certificate {
        /// The subject's common name.
        subject: String,
        /// What rcgen said.
        source: rcgen::Error,
    },
    /// The service range is not one this harness can use.
    #[error("service range {range}: {reason}; use an IPv4 range in 127/8 such as 127.96.0.0/16")]
    ServiceRange {
        /// The range as given.
        range: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A client cannot be made from a kubeconfig that the harness wrote.
    #[error("client for {user}: {reason}")]
    Client {
        /// The user's name.
        user: String,
        /// What kube said.
        reason: String,
    },
}

impl ClusterError {
    fn service_range(range: &str, error: &AddrParseError) -> Self {
        Self::ServiceRange {
            range: range.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Writes a file of the run.
fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ClusterError> {
    std::fs::write(path, content).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

/// Makes a folder of the run.
fn folder(path: &Path) -> Result<(), ClusterError> {
    std::fs::create_dir_all(path).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })
}

/// Tries `start` again on other ports when the child lost the race for the one it was given.
async fn with_free_ports<T, F, Started>(mut start: F) -> Result<T, ClusterError>
where
    F: FnMut() -> Started,
    Started: Future<Output = Result<T, ClusterError>>,
{
    for _ in 0..2 {
        match start().await {
            Err(ClusterError::Process(error)) if error.lost_its_port() => {}
            other => return other,
        }
    }
    start().await
}
