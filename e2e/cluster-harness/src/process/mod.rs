//! Child processes of a test run: started with nothing inherited, watched, stopped, and never left behind.
//!
//! Each child gets a process group of its own, no standard input, exactly the environment it is given, and a log file
//! in the run's folder for both of its outputs.
//!
//! A child must not outlive the run, however the run ends. Three things see to that:
//! 1. dropping a [`Process`] kills its group;
//! 2. a clean end of the run drops everything;
//! 3. for SIGKILL, `abort` and the like there is the guard (`guard.rs`): one small shell per run that reads from a
//!    pipe which children exist. The kernel closes the pipe with the run's process, and the guard then kills what is
//!    left. (A parent-death signal would need code between fork and exec, which is unsafe Rust.)
//!
//! Every public item works inside a tokio runtime only: a task waits for each child, so that the moment of its end is
//! known even when nobody asks.

mod guard;
mod port;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

pub use port::free_port;

/// The most memory that a process has had, in bytes; `None` when it has ended.
pub fn peak_memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// How often a readiness probe is asked again.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// The longest wait for the threads of a paused child.
const PAUSE_LIMIT: Duration = Duration::from_secs(10);
/// The state letter of proc(5) of a thread in vfork(2).
const UNINTERRUPTIBLE: char = 'D';
/// A moment for a child of vfork(2) to reach its exec.
const EXEC: Duration = Duration::from_millis(5);
/// How many of the log's last lines an error shows.
const TAIL_LINES: usize = 25;

#[derive(Debug, Error)]
pub enum ProcessError {
    /// The program could not be started: missing, not executable, or no log file could be made.
    #[error("{name}: cannot start {program}: {source}")]
    Start {
        name: String,
        program: String,
        source: std::io::Error,
    },
    #[error("{name}: ended with {status} before {what}; {log}")]
    EndedEarly {
        name: String,
        what: String,
        status: String,
        log: Box<LogEnd>,
    },
    #[error("{name}: ended with {status}; {log}")]
    Ended {
        name: String,
        status: String,
        log: Box<LogEnd>,
    },
    /// The child lives but was not ready in time.
    #[error("{name}: no {what} within {seconds:.1} s (last answer: {reason}); {log}")]
    NotReady {
        name: String,
        what: String,
        seconds: f64,
        /// Of the last probe.
        reason: String,
        log: Box<LogEnd>,
    },
    #[error("{name}: cannot send {signal} to process group {pid}: {source}")]
    Signal {
        name: String,
        /// Its process id, which is also its group's.
        pid: i32,
        signal: &'static str,
        source: Errno,
    },
    /// No guard could be started, so a child might be left behind; nothing is started then.
    #[error("cannot start the shell that guards the children: {0}")]
    Guard(std::io::Error),
    #[error("cannot find a free port on 127.0.0.1: {0}")]
    Port(std::io::Error),
}

impl ProcessError {
    /// Whether the child ended because another process took the port that it was given (see [`free_port`]).
    pub fn lost_its_port(&self) -> bool {
        matches!(self, Self::EndedEarly { log, .. } if log.tail.to_lowercase().contains("address already in use"))
    }
}

/// The end of a child's log, as an error shows it.
#[derive(Debug)]
pub struct LogEnd {
    pub file: PathBuf,
    pub tail: String,
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the end of its log {}:\n{}", self.file.display(), self.tail)
    }
}

/// A process to start. Its environment is empty at first.
#[derive(Debug, Clone)]
pub struct Launch {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    host_name: Option<String>,
}

/// Sets the host name of its own UTS namespace, then becomes the program. The process ID stays the same.
const WITH_HOST_NAME: &str = "printf %s \"$0\" > /proc/sys/kernel/hostname && exec \"$@\"";

/// The arguments of `unshare` that give a program a host name of its own; `None` where the kernel allows none.
fn uts_namespace() -> Option<&'static [&'static str]> {
    static ARGUMENTS: OnceLock<Option<&[&str]>> = OnceLock::new();
    let works = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command
            .args(arguments)
            .args(["sh", "-c", WITH_HOST_NAME, "test", "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    *ARGUMENTS.get_or_init(|| {
        let ways: [&[&str]; 2] = [&["--uts"], &["--uts", "--user", "--map-root-user"]];
        ways.into_iter().find(|arguments| works(arguments))
    })
}

impl Launch {
    /// `name` is unique in the run and names the log file; `program` is a path, not looked up in PATH.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            directory: None,
            host_name: None,
        }
    }

    #[must_use]
    pub fn arguments<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Runs the program with this host name, as a container does. Without a UTS namespace it keeps the machine's.
    #[must_use]
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.host_name = Some(name.into());
        self
    }

    fn command(&self) -> Command {
        // A program that is missing must fail to start under its own name.
        let can_start = self.program.components().count() == 1 || self.program.is_file();
        let namespace = self.host_name.as_ref().zip(uts_namespace()).filter(|_| can_start);
        let Some((name, unshare)) = namespace else {
            return Command::new(&self.program);
        };
        let mut command = Command::new("unshare");
        command
            .args(unshare)
            .args(["sh", "-c", WITH_HOST_NAME, name])
            .arg(&self.program);
        command
    }

    /// Sets the working directory; without it, the run's own.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }
}

/// How a child ended.
#[derive(Debug, Clone)]
pub struct Exit {
    /// When its end was seen (the kernel's notification, within about a millisecond of the end).
    pub at: Timestamp,
    /// Its status; `None` when the operating system would not tell.
    pub status: Option<ExitStatus>,
}

impl Exit {
    fn describe(&self) -> String {
        self.status
            .map_or_else(|| "an unknown status".to_owned(), |status| status.to_string())
    }
}

/// A running child. Dropping it kills the whole process group at once.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: i32,
    log: PathBuf,
    started: Timestamp,
    exit: watch::Receiver<Option<Exit>>,
}

impl Process {
    /// Starts `launch`; its output goes to `folder`/NAME.log, appended if the file exists (a restart keeps the log).
    ///
    /// # Errors
    /// [`ProcessError::Start`] or [`ProcessError::Guard`].
    pub fn start(launch: &Launch, folder: &Path) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Start {
            name: launch.name.clone(),
            program: launch.program.display().to_string(),
            source,
        };
        let log = folder.join(format!("{}.log", launch.name));
        let output = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let mut command = launch.command();
        command.args(&launch.arguments).env_clear().envs(&launch.environment);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        command.process_group(0).kill_on_drop(true);
        if let Some(directory) = &launch.directory {
            command.current_dir(directory);
        }

        guard::ready().map_err(ProcessError::Guard)?;

        let mut child = command.spawn().map_err(failed)?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .ok_or_else(|| failed(Errno::ESRCH.into()))?;
        guard::add(pid).map_err(ProcessError::Guard)?;

        let (sender, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            sender.send_replace(Some(Exit {
                at: Timestamp::now(),
                status,
            }));
            guard::remove(pid);
        });

        Ok(Self {
            name: launch.name.clone(),
            pid,
            log,
            started: Timestamp::now(),
            exit,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, which is also its process group's.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn started(&self) -> Timestamp {
        self.started
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// How it ended, or `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// # Errors
    /// [`ProcessError::Ended`] when it has ended.
    pub fn ensure_running(&self) -> Result<(), ProcessError> {
        self.exit().map_or(Ok(()), |exit| {
            Err(ProcessError::Ended {
                name: self.name.clone(),
                status: exit.describe(),
                log: self.log_end(),
            })
        })
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.map(|seen| seen.clone()) {
            Ok(Some(exit)) => exit,
            // The waiting task is gone with its runtime, which killed the child.
            Ok(None) | Err(_) => Exit {
                at: Timestamp::now(),
                status: None,
            },
        }
    }

    /// Polls `probe` until it answers `Ok`; `Err` carries why not yet. `what` completes "no … within 5 s".
    ///
    /// # Errors
    /// [`ProcessError::EndedEarly`] as soon as the child ends, [`ProcessError::NotReady`] after `within`.
    pub async fn ready<F, Answer>(&self, what: &str, within: Duration, mut probe: F) -> Result<(), ProcessError>
    where
        F: FnMut() -> Answer,
        Answer: Future<Output = Result<(), String>>,
    {
        let deadline = Instant::now() + within;
        let mut reason = "none".to_owned();
        loop {
            if let Some(exit) = self.exit() {
                return Err(ProcessError::EndedEarly {
                    name: self.name.clone(),
                    what: what.to_owned(),
                    status: exit.describe(),
                    log: self.log_end(),
                });
            }

            match tokio::time::timeout_at(deadline, probe()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(not_yet)) => reason = not_yet,
                Err(_) => {}
            }

            if Instant::now() >= deadline {
                return Err(ProcessError::NotReady {
                    name: self.name.clone(),
                    what: what.to_owned(),
                    seconds: within.as_secs_f64(),
                    reason,
                    log: self.log_end(),
                });
            }

            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    /// Asks it to end (SIGTERM), and kills it when it has not within `grace`. Returns how it ended; a child that was
    /// killed says so in its status. A paused child is continued first, else it could not obey.
    ///
    /// # Errors
    /// [`ProcessError::Signal`].
    pub async fn stop(&self, grace: Duration) -> Result<Exit, ProcessError> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)?;
        match tokio::time::timeout(grace, self.ended()).await {
            Ok(exit) => Ok(exit),
            Err(_) => self.kill_now().await,
        }
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// [`ProcessError::Signal`].
    pub async fn kill_now(&self) -> Result<Exit, ProcessError> {
        self.signal(Signal::SIGKILL)?;
        Ok(self.ended().await)
    }

    /// Freezes it (SIGSTOP), as a long pause of its machine would, and returns when every thread has stopped. The call
    /// alone only makes the signal pending: on a busy machine a thread may run on for tens of milliseconds.
    ///
    /// # Errors
    /// [`ProcessError::Signal`]; [`ProcessError::NotReady`] for a thread that still runs after 10 s.
    pub async fn pause(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGSTOP)?;
        let stopped = async || {
            let states = self.running_threads();
            if states.contains(&UNINTERRUPTIBLE) {
                self.stop_again().await.map_err(|error| error.to_string())?;
            }
            match states.len() {
                0 => Ok(()),
                count => Err(format!("{count} still run: {states:?}")),
            }
        };
        self.ready("a stop of all its threads", PAUSE_LIMIT, stopped).await
    }

    /// A process that started a child by vfork(2) does not stop before the child's exec. If the signal stopped the child
    /// first, both have to go on for a moment.
    async fn stop_again(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGCONT)?;
        tokio::time::sleep(EXEC).await;
        self.signal(Signal::SIGSTOP)
    }

    /// The state letters of proc(5) of the threads that are not stopped.
    fn running_threads(&self) -> Vec<char> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let stats = tasks
            .into_iter()
            .flatten()
            .flatten()
            .map(|task| task.path().join("stat"));
        let stats = stats.filter_map(|path| std::fs::read_to_string(path).ok());
        let states = stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next());
        states.filter(|state| !matches!(state, 'T' | 't' | 'Z' | 'X')).collect()
    }

    /// Lets a paused child go on (SIGCONT).
    ///
    /// # Errors
    /// [`ProcessError::Signal`].
    pub fn resume(&self) -> Result<(), ProcessError> {
        self.signal(Signal::SIGCONT)
    }

    /// Sends nothing to a child whose end is known: its process id may be someone else's by now.
    fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        if self.exit().is_some() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(source) => Err(ProcessError::Signal {
                name: self.name.clone(),
                pid: self.pid,
                signal: signal.as_str(),
                source,
            }),
        }
    }

    fn log_end(&self) -> Box<LogEnd> {
        Box::new(LogEnd {
            file: self.log.clone(),
            tail: self.log_tail(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.signal(Signal::SIGKILL) {
            tracing::warn!(%error, "a child may be left behind");
        }
    }
}
