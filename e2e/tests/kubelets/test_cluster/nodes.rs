//! The program of `make nodes`, and the shell of its user.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outrigger_machines::kubeadm::ready_nodes;
use outrigger_machines::processes_below_cgroup;

/// As the recipe of `make nodes` starts the program.
pub const ARGUMENT: &str = "--folder=target/nodes";
/// Beside other work on two cores.
const START: Duration = Duration::from_secs(900);
const END: Duration = Duration::from_secs(120);

/// The program, as the recipe of `make nodes` starts it. Dropping it ends it.
pub struct Nodes {
    child: Child,
    lines: Receiver<String>,
}

impl Nodes {
    pub fn start(clone: &Path) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger-nodes"));
        command.arg(ARGUMENT).current_dir(clone);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (sender, lines) = channel();
        spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("{line}");
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits for a line with `text`.
    pub fn prints(&self, text: &str) -> Result<String> {
        let limit = Instant::now() + START;
        loop {
            let rest = limit.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(rest);
            let line = line.with_context(|| format!("outrigger-nodes prints no line with {text:?}"))?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    pub fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        kill(Pid::from_raw(self.child.id().try_into()?), signal)?;
        let begun = Instant::now();
        while begun.elapsed() < END {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            sleep(Duration::from_millis(100));
        }
        bail!("outrigger-nodes still runs {END:?} after {signal}")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        if let Err(error) = self.end(Signal::SIGTERM) {
            eprintln!("{error:#}");
            let _ = self.child.kill();
        }
    }
}

/// The user of the cluster, in the folder of a clone.
pub struct User {
    clone: PathBuf,
    /// The line that selects the cluster's programs and kubeconfig. The user's shell keeps what it exports.
    export: String,
}

impl User {
    /// `install` is the block of the page, which begins with the exports.
    pub fn new(clone: &Path, install: &str) -> Result<Self> {
        let export = install.lines().next().context("an empty block")?;
        ensure!(export.starts_with("export "), "the block begins with {export}");
        Ok(Self {
            clone: clone.to_owned(),
            export: export.to_owned(),
        })
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.clone.join("target/nodes/kubeconfig")
    }

    /// Runs lines in one shell, and returns what they printed.
    pub fn shell(&self, lines: &str) -> Result<String> {
        println!("{lines}");
        let output = Command::new("timeout")
            .args([&START.as_secs().to_string(), "bash", "-euo", "pipefail", "-c", lines])
            .current_dir(&self.clone)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &self.clone)
            .stdin(Stdio::null())
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{lines}: {}: {printed}{errors}", output.status);
        println!("{printed}{errors}");
        Ok(printed)
    }

    /// Runs lines after the exports.
    pub fn run(&self, lines: &str) -> Result<String> {
        self.shell(&format!("{}\n{lines}", self.export))
    }

    /// Repeats lines until they print what is wanted.
    pub fn repeat(&self, lines: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let printed = self.run(lines).unwrap_or_else(|error| format!("{error:#}"));
            if wanted(&printed) {
                return Ok(());
            }
            ensure!(begun.elapsed() < START, "{lines}: {printed}");
            sleep(Duration::from_secs(1));
        }
    }

    /// For a failed test: its cluster is gone with it.
    pub fn print_state(&self) {
        for line in [
            "kubectl get pods -A -o wide",
            "kubectl get events -A",
            "kubectl -n kube-system logs -l app.kubernetes.io/name=outrigger-manager --tail=50",
            "kubectl -n outrigger-system logs -l app.kubernetes.io/name=outrigger-webhook --tail=50",
        ] {
            if let Err(error) = self.run(line) {
                println!("{error:#}");
            }
        }
    }
}

/// The only machine of the cluster.
pub struct Machine {
    pub node: String,
    pub cgroup: String,
}

impl Machine {
    /// `run` is the folder of its run.
    pub async fn only(client: &Client, run: &Path) -> Result<Self> {
        let nodes = ready_nodes(client).await?;
        let [node] = nodes.as_slice() else {
            bail!("not one Node, but {nodes:?}");
        };
        let run = run.file_name().context("a folder without a name")?;
        Ok(Self {
            node: node.clone(),
            cgroup: format!("{}/machine1", run.display()),
        })
    }

    /// Its network, which is also that of Pods with `hostNetwork`.
    pub fn network(&self) -> Result<File> {
        let system = format!("{}/system", self.cgroup);
        let processes = processes_below_cgroup(&system)?;
        let first = processes
            .first()
            .with_context(|| format!("no process below {system}"))?;
        Ok(File::open(format!("/proc/{first}/ns/net"))?)
    }
}
