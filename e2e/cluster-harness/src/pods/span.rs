//! When a process ran: plain data, no IO.

use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;

/// One run of one container's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpan {
    /// Unique name, which is the caller in the AWS record: `POD` (`POD~N` for the N-th Pod of that name), then
    /// `:CONTAINER` where a Pod has several, then `#N` for its N-th restart.
    pub process: String,
    /// The program, by the image table: `kube-controller-manager`.
    pub component: String,
    /// Empty for a process that is no Pod's, like `pod` and `uid`.
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub pid: u32,
    pub program: PathBuf,
    /// The argument list, first word included, as the API server stores it (references to variables expanded).
    pub argv: Vec<String>,
    pub started: Timestamp,
    /// `None` while it runs, like `exit`.
    pub ended: Option<Timestamp>,
    pub exit: Option<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The exit code as a container runtime reports it: 128 + signal for a signal.
    pub fn container_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
