//! Steady state: all Nodes are initialized and their kubelets send heartbeats; then many leave at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::arrivals::{Arrivals, Wanted};
use super::candidate::{Candidate, Programs, TUNING, until_idle};
use super::cloud::{Cloud, Machines};
use super::cluster::{Cluster, NODES, Requests, patch};
use super::node;
use super::result::{Steady, Subject, Work};
use crate::usage::Usage;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::process::Process;

/// Between two posts of an unchanged Node's status by its kubelet
/// (<https://kubernetes.io/docs/concepts/architecture/nodes/#heartbeats>). Leases are not simulated, because no manager
/// reads them.
const HEARTBEAT: Duration = Duration::from_secs(300);
const MERGE: &str = "application/strategic-merge-patch+json";
const SETTLE: Duration = Duration::from_secs(120);
/// The longest wait for the deletion of Nodes.
const LEAVING: Duration = Duration::from_secs(240);
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A manager has settled after this time without a call to AWS.
    pub quiet: Duration,
    /// Time of the measurement with heartbeats only.
    pub window: Duration,
    /// Nodes that leave afterwards.
    pub leaving: usize,
}

/// Measures both with one process.
///
/// # Errors
/// When the manager ends, or a server refuses.
pub async fn measure(
    cluster: &Cluster,
    cloud: &Cloud,
    machines: &Machines,
    programs: &Programs,
    candidate: Candidate,
    options: Options,
) -> Result<(Steady, Work)> {
    let heartbeats = Heartbeats::start(&cluster.admin, &machines.instances);
    let mark = cloud.proxy.mark();
    let begin = Instant::now();
    let process = programs.start(candidate, cloud, cluster, &[], &TUNING)?;
    // A manager that has not called yet is still starting, however long that takes on a busy machine.
    let calls = async || Ok(cloud.calls(mark, candidate.name()).total());
    let settled = until_idle(&process, 1, options.quiet, SETTLE, calls).await?;
    let (settled_after, start) = (begin.elapsed(), cloud.calls(mark, candidate.name()));

    let (mark, usage, requests) = (cloud.proxy.mark(), Usage::of(process.pid())?, cluster.requests().await?);
    let sent = heartbeats.sent();
    let since = Instant::now();
    sleep(options.window).await;
    process.ensure_running()?;

    let later = Usage::of(process.pid())?;
    let sent = heartbeats.sent() - sent;
    let mut asked = cluster.requests().await?.since(&requests).counted();
    subtract_own(&mut asked, sent);

    let steady = Steady {
        candidate,
        nodes: machines.instances.len(),
        settled_after,
        settled,
        start,
        window: since.elapsed(),
        aws: cloud.calls(mark, candidate.name()),
        requests: asked,
        processor: later.processor.saturating_sub(usage.processor),
        usage: later,
        heartbeats: sent,
    };

    drop(heartbeats);

    let left = leave(cluster, cloud, machines, candidate, &process, options.leaving).await?;
    process.stop(GRACE).await?;

    Ok((steady, left))
}

/// Terminates the instances of the first Nodes and makes their kubelets silent, as the scale-in of a group does.
async fn leave(
    cluster: &Cluster,
    cloud: &Cloud,
    machines: &Machines,
    candidate: Candidate,
    process: &Process,
    count: usize,
) -> Result<Work> {
    let leaving = machines.instances.get(..count);
    let leaving = leaving.context("fewer Nodes than are to leave")?;
    let fleet = machines.fleet.as_ref().context("the Nodes that leave are of a fleet")?;
    let mut deleted = Arrivals::watch(&cluster.admin, Wanted::Deleted).await?;
    let (mark, before, usage) = (cloud.proxy.mark(), cluster.requests().await?, Usage::of(process.pid())?);
    fleet.terminate(leaving.iter().map(|instance| instance.id.as_str()));

    let begin = Instant::now();
    let silent = leaving.iter().map(|instance| heartbeat(instance, "Unknown"));
    cluster.send_all(silent).await?;
    deleted.reach(count, begin + LEAVING).await?;
    process.ensure_running()?;

    let later = Usage::of(process.pid())?;
    let mut requests = cluster.requests().await?.since(&before).counted();
    subtract_own(&mut requests, count as u64);
    requests.0.retain(|_, count| *count > 0);

    let span = deleted.span();
    Ok(Work {
        by: Subject::Manager(candidate),
        nodes: count,
        done: deleted.count(),
        limited: false,
        first: span.map_or(LEAVING, |(first, _)| first - begin),
        last: span.map_or(LEAVING, |(_, last)| last - begin),
        aws: cloud.calls(mark, candidate.name()),
        requests,
        usage: Some(Usage {
            processor: later.processor.saturating_sub(usage.processor),
            ..later
        }),
    })
}

/// Without the heartbeats of the harness.
fn subtract_own(requests: &mut Requests, heartbeats: u64) {
    if let Some(count) = requests.0.get_mut("PATCH nodes/status") {
        *count = count.saturating_sub(heartbeats);
    }
}

fn heartbeat(instance: &Instance, ready: &str) -> Result<Request<Vec<u8>>> {
    let body = node::heartbeat(Timestamp::now(), ready);
    patch(&format!("{NODES}/{}/status", instance.private_dns_name), MERGE, &body)
}

/// Kubelets' heartbeats, evenly spread. Dropping it ends them.
struct Heartbeats {
    sent: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Heartbeats {
    fn start(client: &Client, instances: &[Instance]) -> Self {
        let (client, instances) = (client.clone(), instances.to_vec());
        let sent = Arc::<AtomicU64>::default();
        let count = Arc::clone(&sent);
        let between = HEARTBEAT / u32::try_from(instances.len().max(1)).unwrap_or(u32::MAX);
        let task = tokio::spawn(async move {
            let mut ticks = interval(between);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for instance in instances.iter().cycle() {
                ticks.tick().await;
                let Ok(request) = heartbeat(instance, "True") else {
                    return;
                };

                match client.request_text(request).await {
                    Ok(_) => _ = count.fetch_add(1, Ordering::Relaxed),
                    Err(error) => tracing::warn!(%error, "a heartbeat failed"),
                }
            }
        });

        Self { sent, task }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.task.abort();
    }
}
