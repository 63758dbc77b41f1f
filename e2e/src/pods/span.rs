//! When a process ran: plain data, no IO.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::process::{self, Process};

/// One run of one container's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpan {
    /// Unique name, which is the caller in the AWS record: `POD` (`POD~N` for the
    /// N-th Pod of that name), then `:CONTAINER` where a Pod has several, then `#N`
    /// for its N-th restart.
    pub process: String,
    /// What it is, by the image table: `kube-controller-manager`.
    pub component: String,
    /// The Pod's namespace; empty for a process that is no Pod's.
    pub namespace: String,
    /// The Pod's name; empty for a process that is no Pod's.
    pub pod: String,
    /// The Pod's UID; empty for a process that is no Pod's.
    pub uid: String,
    /// Process ID.
    pub pid: u32,
    /// The binary that ran.
    pub program: PathBuf,
    /// The argument list, first word included, as the API server stores it (references to variables expanded).
    pub argv: Vec<String>,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended; `None` while it runs.
    pub ended: Option<Timestamp>,
    /// How it ended; `None` while it runs.
    pub exit: Option<Exit>,
}

impl ProcessSpan {
    /// The span, as of now, of a process that is no Pod's.
    pub fn of(process: &Process, component: &str, program: &Path, arguments: &[String]) -> Self {
        let exit = process.exit();
        Self {
            process: process.name().to_owned(),
            component: component.to_owned(),
            namespace: String::new(),
            pod: String::new(),
            uid: String::new(),
            pid: u32::try_from(process.pid()).unwrap_or(0),
            program: program.to_owned(),
            argv: std::iter::once(component.to_owned())
                .chain(arguments.iter().cloned())
                .collect(),
            started: process.started(),
            ended: exit.as_ref().map(|exit| exit.at),
            exit: exit.map(|exit| Exit::of(&exit)),
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// How the operating system tells it.
    pub(super) fn of(exit: &process::Exit) -> Self {
        // A waited-for process whose status nobody can tell: -1 is no status that a process can give.
        exit.status.map_or(Self::Code(-1), Self::from)
    }

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

impl From<std::process::ExitStatus> for Exit {
    fn from(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            // A waited-for process has ended one way or the other; -1 is no status that a process can give.
            (None, None) => Self::Code(-1),
        }
    }
}
