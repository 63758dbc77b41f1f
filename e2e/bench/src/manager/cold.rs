//! A cold start: all Nodes exist and are tainted, then the manager starts. The time is from the start of its process
//! until the harness's watch observes the last Node as initialized.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::arrivals::{Arrivals, Wanted};
use super::candidate::{Candidate, Programs};
use super::cloud::{Cloud, Machines};
use super::cluster::Cluster;
use super::result::{Subject, Work};
use crate::idle::until_idle;
use crate::usage::Usage;

const GRACE: Duration = Duration::from_secs(10);
/// A manager without requests for this time is done.
const QUIET: Duration = Duration::from_secs(2);
const TAIL: Duration = Duration::from_secs(90);

/// Measures one cold start of `candidate`.
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
    process.ensure_running()?;
    if complete {
        // Events follow the Nodes. Lists and watches of other clients are not counted.
        let count = async || {
            let requests = cluster.requests().await?;
            Ok(usize::try_from(
                requests.of("POST events") + requests.of("PATCH nodes"),
            )?)
        };
        until_idle(&process, 1, QUIET, TAIL, count).await?;
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
        by: Subject::Manager(candidate),
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
