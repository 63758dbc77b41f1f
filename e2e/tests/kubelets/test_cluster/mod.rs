//! The section of `docs/try.md` about a test cluster, as a new user follows it: the program of `make nodes`, each command of the
//! console blocks, and the end.

mod idle_connections;
mod nodes;
mod remains;
mod standby;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use nix::sys::signal::Signal;
use outrigger_cluster_harness::{kubelets, repository};
use outrigger_e2e::page::{Page, commands};
use outrigger_e2e::test_nodes::COMMANDS;
use outrigger_machines::{Host, is_gone, left_out};

use self::nodes::{ARGUMENT, Machine, Nodes, User};

const SECTION: &str = "Install it on a test cluster";

/// The commands of the section after `make nodes`, one text for each block.
fn blocks() -> Result<[String; 2]> {
    let page = Page::read("docs/try.md")?;
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
fn every_block_of_the_page_is_known() {
    blocks().unwrap();
    let makefile = fs::read_to_string(repository::root().join("Makefile")).unwrap();
    assert!(
        makefile.contains(&format!("/outrigger-nodes {ARGUMENT} ")),
        "{makefile}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_install_and_uninstall_the_chart() -> Result<()> {
    let blocks = blocks()?;
    if left_out()? {
        return Ok(());
    }
    let before = Host::now()?;
    let clone = tempfile::tempdir()?;
    symlink(repository::root().join("charts"), clone.path().join("charts"))?;
    let mut nodes = Nodes::start(clone.path())?;
    nodes.prints("until you press Ctrl-C")?;
    let run = fs::read_link(clone.path().join("target/nodes/logs"))?;

    let user = User::new(clone.path(), &blocks[0])?;
    let result = follow(&user, &run, &blocks).await;
    if result.is_err() {
        user.print_state();
    }
    result?;

    let status = nodes.end(Signal::SIGTERM)?;
    ensure!(status.success(), "{status}");
    nothing_is_left(&run, clone.path(), &before)
}

/// Runs both blocks. Between them, the installation is under idle connections and loses its leading manager.
async fn follow(user: &User, run: &Path, [install, uninstall]: &[String; 2]) -> Result<()> {
    let config = kubelets::config(&user.kubeconfig()).await?;
    let client = Client::try_from(config)?;
    let machine = Machine::only(&client, run).await?;
    let before = remains::before_install(&client, &machine.node).await?;

    all_pods_are_ready(&user.shell(install)?)?;
    let status = user.run("helm -n outrigger-system status outrigger")?;
    ensure!(status.contains("STATUS: deployed"), "{status}");
    let lease = "kubectl -n kube-system get lease cloud-controller-manager -o jsonpath='{.spec.holderIdentity}'";
    user.repeat(lease, |holder| holder.starts_with(&machine.node))?;

    idle_connections::probes_succeed(&client, &machine).await?;
    standby::takes_over(user, &client, &machine).await?;

    user.run(uninstall)?;
    remains::after_uninstall(&client, &before).await
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
