//! Errors of the simulated AWS.

use thiserror::Error;

use outrigger_cluster_harness::loopback::HttpError;
use outrigger_cluster_harness::process::ProcessError;
use outrigger_cluster_harness::tools::ToolsError;

use super::xml;

#[derive(Debug, Error)]
pub enum AwsError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Tools(#[from] ToolsError),
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The proxy cannot listen, or its record cannot be written.
    #[error("the AWS proxy: {0}")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Xml(#[from] xml::XmlError),
    #[error("{action}: moto answers {status} {code}: {message}")]
    Refused {
        action: String,
        status: u16,
        code: String,
        message: String,
    },
    #[error("{action}: no {field} in moto's answer")]
    Missing { action: String, field: &'static str },
    #[error("no {what} within {seconds:.1} s; the last calls were:\n{last}")]
    NotSeen {
        what: String,
        seconds: f64,
        /// The last recorded calls, one a line.
        last: String,
    },
}
