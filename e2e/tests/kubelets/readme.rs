//! The README's section about a test cluster, as a new user follows it: the program of `make nodes`, each command of the
//! console blocks, and the end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outrigger_cluster_harness::repository;
use outrigger_e2e::page::{Page, commands};
use outrigger_e2e::test_nodes::COMMANDS;
use outrigger_machines::{Host, is_gone, left_out};

const SECTION: &str = "Install it on a test cluster";
/// As the recipe of `make nodes` starts the program.
const ARGUMENT: &str = "--folder=target/nodes";
/// Beside other work on two cores.
const START: Duration = Duration::from_secs(900);
const END: Duration = Duration::from_secs(120);

/// The commands of the section after `make nodes`, one text for each block.
fn blocks() -> Result<[String; 2]> {
    let page = Page::read("README.md")?;
    let found = page.fenced("console").filter(|block| block.heading == SECTION);
    let found: Vec<String> = found.map(|block| block.text).collect();
    let [start, install, uninstall] = found.as_slice() else {
        bail!("{SECTION} has other blocks than this test knows: {found:#?}");
    };
    ensure!(
        start.starts_with("$ make nodes") && start.lines().count() == 1,
        "the first block is {start}"
    );
    ensure!(
        [install, uninstall] == [COMMANDS[0], COMMANDS[1]],
        "`make nodes` prints other commands than {install}{uninstall}"
    );
    Ok([commands(install)?.join("\n"), commands(uninstall)?.join("\n")])
}

#[test]
fn every_block_of_the_readme_is_known() {
    blocks().unwrap();
    let makefile = fs::read_to_string(repository::root().join("Makefile")).unwrap();
    assert!(
        makefile.contains(&format!("/outrigger-nodes {ARGUMENT} ")),
        "{makefile}"
    );
}

#[test]
fn the_commands_of_the_readme_install_and_uninstall_the_chart() -> Result<()> {
    let [install, uninstall] = blocks()?;
    if left_out()? {
        return Ok(());
    }
    let before = Host::now()?;
    let clone = tempfile::tempdir()?;
    symlink(repository::root().join("charts"), clone.path().join("charts"))?;
    let mut nodes = Nodes::start(clone.path())?;
    nodes.prints("until you press Ctrl-C")?;
    let run = fs::read_link(clone.path().join("target/nodes/logs"))?;

    let printed = shell(clone.path(), &install)?;
    all_pods_are_ready(&printed)?;
    // The user's shell keeps what the first line of the block exports.
    let export = install.lines().next().context("an empty block")?;
    let status = shell(
        clone.path(),
        &format!("{export}\nhelm -n outrigger-system status outrigger"),
    )?;
    ensure!(status.contains("STATUS: deployed"), "{status}");
    let lease = "kubectl -n kube-system get lease cloud-controller-manager -o jsonpath='{.spec.holderIdentity}'";
    repeat(clone.path(), &format!("{export}\n{lease}"), |holder| {
        holder.starts_with("ip-")
    })?;

    shell(clone.path(), &format!("{export}\n{uninstall}"))?;
    let pods = format!("{export}\nkubectl get pods -A");
    repeat(clone.path(), &pods, |pods| !pods.contains("outrigger"))?;

    let status = nodes.end(Signal::SIGTERM)?;
    ensure!(status.success(), "{status}");
    nothing_is_left(&run, clone.path(), &before)
}

#[test]
fn ctrl_c_during_the_start_leaves_nothing() -> Result<()> {
    if left_out()? {
        return Ok(());
    }
    let before = Host::now()?;
    let clone = tempfile::tempdir()?;
    let mut nodes = Nodes::start(clone.path())?;
    let line = nodes.prints("logs: ")?;
    let (_, run) = line.split_once("logs: ").context("no folder")?;
    ensure!(Path::new(run).is_dir(), "{run} is no folder");
    ensure!(clone.path().join("target/nodes").is_dir(), "no folder target/nodes");

    let status = nodes.end(Signal::SIGINT)?;
    ensure!(status.success(), "{status}");
    nothing_is_left(Path::new(run), clone.path(), &before)
}

#[test]
fn an_option_that_the_program_does_not_know_is_refused_by_name() {
    for (arguments, reason) in [
        (vec![], "usage: outrigger-nodes"),
        (vec!["--fast"], "--fast: usage: outrigger-nodes"),
        (vec![ARGUMENT, "--machines=4"], "--machines=4: it has to be 1 to 3"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger-nodes"));
        let output = command.args(&arguments).current_dir(folder.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(reason), "{errors}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?}");
    }
}

/// The program, as the recipe of `make nodes` starts it. Dropping it ends it.
struct Nodes {
    child: Child,
    lines: Receiver<String>,
}

impl Nodes {
    fn start(clone: &Path) -> Result<Self> {
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
    fn prints(&self, text: &str) -> Result<String> {
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

    fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
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

/// Runs lines in one shell of a user, and returns what they printed.
fn shell(clone: &Path, lines: &str) -> Result<String> {
    println!("{lines}");
    let output = Command::new("timeout")
        .args([&START.as_secs().to_string(), "bash", "-euo", "pipefail", "-c", lines])
        .current_dir(clone)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", clone)
        .stdin(Stdio::null())
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{lines}: {}: {printed}{errors}", output.status);
    println!("{printed}{errors}");
    Ok(printed)
}

/// Repeats lines until they print what is wanted.
fn repeat(clone: &Path, lines: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let printed = shell(clone, lines).unwrap_or_else(|error| format!("{error:#}"));
        if wanted(&printed) {
            return Ok(());
        }
        ensure!(begun.elapsed() < START, "{lines}: {printed}");
        sleep(Duration::from_secs(1));
    }
}

/// The list of `kubectl get pods -A` at the end of the block.
fn all_pods_are_ready(printed: &str) -> Result<()> {
    let (_, list) = printed.split_once("\nNAMESPACE ").context("no list of Pods")?;
    let mut of_outrigger = 0;
    for line in list.lines().skip(1) {
        let [_, name, ready, status, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("not a Pod: {line}");
        };
        let is_ready = ready.split_once('/').is_some_and(|(ready, all)| ready == all);
        ensure!(is_ready && status == "Running", "{line}");
        of_outrigger += u8::from(name.starts_with("outrigger-"));
    }
    // Two of the webhook, and the manager on the only Node.
    ensure!(of_outrigger == 3, "{of_outrigger} Pods of the chart: {list}");
    Ok(())
}

fn nothing_is_left(run: &Path, clone: &Path, before: &Host) -> Result<()> {
    let cgroup = run.file_name().context("a folder without a name")?;
    is_gone(&cgroup.to_string_lossy(), run)?;
    ensure!(!clone.join("target/nodes").exists(), "the folder target/nodes is left");
    let after = Host::now()?;
    ensure!(after == *before, "the host changed: {after:?}, before: {before:?}");
    Ok(())
}
