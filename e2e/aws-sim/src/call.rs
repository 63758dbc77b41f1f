//! One recorded call.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::query::{Parameters, is_write};
use super::service::Service;

/// A process that calls AWS, known by its access key. Each process of a run gets one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub access_key_id: String,
}

impl Caller {
    /// A caller with a fresh key.
    pub fn new(name: impl Into<String>) -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string().to_uppercase();
        Self {
            name: name.into(),
            access_key_id: format!("AKIA{}", &random[..16]),
        }
    }

    /// The environment of its process: static credentials, the region, and no instance metadata. `AWS_ENDPOINT_URL`
    /// is for SDKs of the present generation; the in-tree provider reads its endpoints from its cloud config.
    pub fn environment(&self, endpoint: &str) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            pair("AWS_ACCESS_KEY_ID", &self.access_key_id),
            pair(
                "AWS_SECRET_ACCESS_KEY",
                "not-a-secret-the-simulation-checks-no-signature",
            ),
            pair("AWS_REGION", super::REGION),
            pair("AWS_EC2_METADATA_DISABLED", "true"),
            pair("AWS_ENDPOINT_URL", endpoint),
        ]
    }
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Aws,
    Throttle,
    Denial,
    /// An injected fault answered instead of AWS. AWS may still have done the work: see [`Outcome::forwarded`].
    Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The HTTP status sent; `None` when the connection was dropped instead.
    pub status: Option<u16>,
    pub error_code: Option<String>,
    pub answer: Answer,
    /// Whether the simulated AWS got to see the call, whatever the caller was told.
    pub forwarded: bool,
    /// From arrival to answer, waiting in faults included.
    #[serde(serialize_with = "milliseconds")]
    pub duration: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Number in order of arrival, from 0.
    pub seq: u64,
    /// When it arrived, by the wall clock.
    pub at: Timestamp,
    /// When it arrived, since the proxy's start, by the monotonic clock.
    #[serde(serialize_with = "milliseconds")]
    pub offset: Duration,
    /// The caller's name; the bare access key for one that nobody named.
    pub caller: String,
    pub service: Service,
    pub version: String,
    pub action: String,
    pub parameters: Parameters,
    pub user_agent: String,
    /// Whether the caller marked it as a probe (`preflight` in the user agent), or a read as a part of a dry run (`dry-run`).
    pub preflight: bool,
    /// How it ended; `None` while it is under way.
    pub outcome: Option<Outcome>,
}

impl Call {
    /// Whether it asked for a change in AWS. A dry run changes nothing.
    pub fn is_write(&self) -> bool {
        is_write(&self.action) && self.parameters.get("DryRun") != Some("true")
    }

    /// Whether it was answered with a 2xx status.
    pub fn succeeded(&self) -> bool {
        self.outcome
            .as_ref()
            .and_then(|outcome| outcome.status)
            .is_some_and(|status| (200..300).contains(&status))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} {:>9.3}s {:<24} {}",
            self.seq,
            self.offset.as_secs_f64(),
            self.caller,
            self.action
        )?;

        for (key, value) in self.parameters.iter() {
            write!(f, " {key}={value}")?;
        }

        let Some(outcome) = &self.outcome else {
            return write!(f, " -> under way");
        };
        match outcome.status {
            Some(status) => write!(f, " -> {status}")?,
            None => write!(f, " -> dropped")?,
        }
        match &outcome.error_code {
            Some(code) => write!(f, " {code}"),
            None => Ok(()),
        }
    }
}

fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1000.0)
}
