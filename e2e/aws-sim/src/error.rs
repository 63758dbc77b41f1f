//! Errors of the simulated AWS.

use thiserror::Error;

use outrigger_cluster_harness::loopback::HttpError;
use outrigger_cluster_harness::process::ProcessError;
use outrigger_cluster_harness::tools::ToolsError;

use super::xml;

/// A failure of the simulated AWS.
#[derive(Debug, Error)]
pub enum AwsError {
    /// moto's process did not start or get ready.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// moto is not installed.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// No HTTP answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The proxy cannot listen, or its record cannot be written.
    #[error("the AWS proxy: {0}")]
    Io(#[from] std::io::Error),
    /// An answer is not XML.
    #[error(transparent)]
    Xml(#[from] xml::XmlError),
    /// moto refused a call of the harness.
    #[error("{action}: moto answers {status} {code}: {message}")]
    Refused {
        action: String,
        /// The HTTP status.
        status: u16,
        /// AWS's error code.
        code: String,
        /// AWS's error message.
        message: String,
    },
    /// An answer lacks a field.
    #[error("{action}: no {field} in moto's answer")]
    Missing {
        action: String,
        /// The element that should be there.
        field: &'static str,
    },
    /// A wait for a recorded call ran out.
    #[error("no {what} within {seconds:.1} s; the last calls were:\n{last}")]
    NotSeen {
        what: String,
        /// How long was waited.
        seconds: f64,
        /// The last recorded calls, one a line.
        last: String,
    },
}
