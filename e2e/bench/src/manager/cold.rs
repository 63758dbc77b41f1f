//! A cold start: all Nodes are there and tainted, then the manager starts. The clock runs from the start of its process
//! until the harness's watch has seen the last Node initialized.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use super::arrivals::{Arrivals, Wanted};
use super::candidate::{Candidate, Programs};
use super::cloud::{Cloud, Machines};
use super::cluster::Cluster;
use super::result::{Who, Work};
use crate::usage::Usage;
use outrigger_cluster_harness::process::Process;

/// How long a manager that stops may take; after that it is killed. Nothing is measured then.
const GRACE: Duration = Duration::from_secs(10);
/// A manager that has sent nothing for so long is done.
const QUIET: Duration = Duration::from_secs(2);
/// The longest wait for that.
const TAIL: Duration = Duration::from_secs(90);

/// Measures one cold start of `candidate` on a cluster whose Nodes all wait.
///
/// # Errors
/// When the manager ends, or a Node is wrong in the end. Nodes that are not initialized in time are no error here.
pub async fn measure(
    cluster: &Cluster,
    cloud: &Cloud,
    machines: &Machines,
    programs: &Programs,
    candidate: Candidate,
    limited: bool,
) -> Result<Work> {
    let nodes = machines.instances.len();
    let mut arrivals = Arrivals::watch(&cluster.admin, Wanted::Initialized).await?;
    let (mark, before) = (cloud.proxy.mark(), cluster.requests().await?);
    cloud.proxy.set_limits(limited);

    let begin = Instant::now();
    let process = programs.start(candidate, cloud, &cluster.kubeconfig, &cluster.folder)?;
    let complete = arrivals.reach(nodes, begin + patience(candidate, nodes)).await?;
    alive(&process)?;
    if complete {
        quiet(cluster, &process).await?;
        cluster.verify(&machines.instances).await?;
    }

    let usage = Usage::of(process.pid())?;
    let requests = cluster.requests().await?.since(&before).counted();
    let aws = cloud.calls(mark, candidate.name());
    cloud.proxy.set_limits(false);
    process.stop(GRACE).await?;

    let (first, last) = arrivals
        .span()
        .with_context(|| format!("{} initialized no Node:\n{}", candidate.name(), process.log_tail()))?;
    Ok(Work {
        who: Who::Manager(candidate),
        nodes,
        done: arrivals.count(),
        limited,
        first: first - begin,
        last: last - begin,
        aws,
        requests,
        usage: Some(usage),
    })
}

/// With its defaults the incumbent takes a fifth of a second for each Node.
fn patience(candidate: Candidate, nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let each = match candidate {
        Candidate::Incumbent => Duration::from_millis(400),
        Candidate::Outrigger | Candidate::Tuned => Duration::from_millis(100),
    };
    Duration::from_secs(60) + each * nodes
}

/// Waits until no requests come any more: Events may follow the Nodes.
async fn quiet(cluster: &Cluster, process: &Process) -> Result<()> {
    let deadline = Instant::now() + TAIL;
    let mut last = cluster.requests().await?.counted();
    while Instant::now() < deadline {
        sleep(QUIET).await;
        alive(process)?;

        let now = cluster.requests().await?.counted();
        // The lists and watches of other clients come and go.
        if now.of("POST events") == last.of("POST events") && now.of("PATCH nodes") == last.of("PATCH nodes") {
            return Ok(());
        }

        last = now;
    }

    Ok(())
}

/// # Errors
/// When the process has ended.
pub fn alive(process: &Process) -> Result<()> {
    ensure!(
        process.exit().is_none(),
        "{} has ended:\n{}",
        process.name(),
        process.log_tail()
    );
    Ok(())
}
