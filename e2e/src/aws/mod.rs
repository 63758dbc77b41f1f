//! A simulated AWS: moto as the state of the account, and in front of it a proxy that records every call, limits
//! rates as AWS does, evaluates an IAM policy, injects faults, and corrects moto where it is not AWS.
//!
//! ```text
//! controllers ──▶ Proxy ── limits ── IAM ── faults ── gaps ──▶ Moto
//!                   │                     └─ Fleet, if there is one: thousands of instances
//!                   └─ ledger: who called what, when, with which answer
//! ```
//!
//! Every process gets an access key of its own ([`Caller`]), by which the ledger tells callers apart. Signatures are
//! not checked, here or in moto.

pub mod bucket;
pub mod call;
pub mod fault;
mod fleet;
mod gaps;
pub mod iam;
mod ledger;
mod moto;
mod proxy;
pub mod query;
mod service;
mod serving;
mod world;
pub mod xml;

use thiserror::Error;

use crate::loopback::HttpError;
use crate::process::ProcessError;
use crate::tools::ToolsError;

pub use call::{Answer, Call, Caller, Outcome};
pub use fault::{Fault, FaultHandle, When};
pub use fleet::Fleet;
pub use moto::Moto;
pub use proxy::Proxy;
pub use query::is_write;
pub use service::Service;
pub use world::{Instance, Subnet, World};

/// The region of every simulated world. moto names load balancers after this one whatever it is asked.
pub const REGION: &str = "us-east-1";

/// The local zone of every simulated world, beside moto's availability zones.
pub const LOCAL_ZONE: &str = "us-east-1-bos-1a";

/// What went wrong with the simulated AWS.
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
        /// The action.
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
        /// The action.
        action: String,
        /// The element that should be there.
        field: &'static str,
    },
    /// A wait for a recorded call ran out.
    #[error("no {what} within {seconds:.1} s; the last calls were:\n{last}")]
    NotSeen {
        /// What was waited for.
        what: String,
        /// How long was waited.
        seconds: f64,
        /// The last recorded calls, one a line.
        last: String,
    },
}
