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
use super::candidate::{Candidate, Programs};
use super::cloud::{Cloud, Machines};
use super::cluster::{Cluster, patch};
use super::cold::alive;
use super::node;
use super::result::{Steady, Who, Work};
use crate::usage::Usage;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::process::Process;

/// How often a kubelet posts the status of a Node that does not change. Leases are renewed every 10 s in a cluster; no
/// manager reads them, so they are not played: 5,000 Nodes would be 500 writes a second.
const HEARTBEAT: Duration = Duration::from_secs(300);
const MERGE: &str = "application/strategic-merge-patch+json";
/// The longest wait for that.
const SETTLE: Duration = Duration::from_secs(120);
/// How long Nodes that left may take to be deleted.
const LEAVING: Duration = Duration::from_secs(240);
const GRACE: Duration = Duration::from_secs(10);

/// What is to be measured.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A manager that calls AWS no more for so long has settled.
    pub quiet: Duration,
    /// How long nothing but heartbeats happens.
    pub window: Duration,
    /// How many Nodes leave afterwards.
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
    let process = programs.start(candidate, cloud, &cluster.kubeconfig, &cluster.folder)?;
    let settled = settle(cloud, &process, candidate, mark, options.quiet).await?;
    let (settled_after, start) = (begin.elapsed(), cloud.calls(mark, candidate.name()));

    let (mark, usage, requests) = (cloud.proxy.mark(), Usage::of(process.pid())?, cluster.requests().await?);
    let sent = heartbeats.sent();
    let since = Instant::now();
    sleep(options.window).await;
    alive(&process)?;

    let later = Usage::of(process.pid())?;
    let sent = heartbeats.sent() - sent;
    let mut asked = cluster.requests().await?.since(&requests).counted();

    if let Some(count) = asked.0.get_mut("PATCH nodes/status") {
        *count = count.saturating_sub(sent);
    }

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

/// Whether the manager has come to rest: it has called AWS since `begin`, and calls it no more. One that has not called
/// yet is still starting, however long that takes on a busy machine.
async fn settle(cloud: &Cloud, process: &Process, candidate: Candidate, begin: u64, quiet: Duration) -> Result<bool> {
    let deadline = Instant::now() + SETTLE;
    while Instant::now() < deadline {
        let mark = cloud.proxy.mark();
        sleep(quiet).await;
        alive(process)?;
        let calls = |since| cloud.calls(since, candidate.name()).total();
        if calls(mark) == 0 && calls(begin) > 0 {
            return Ok(true);
        }
    }

    Ok(false)
}

/// The instances of the first Nodes are terminated and their kubelets are silent, as when a whole group is scaled in.
async fn leave(
    cluster: &Cluster,
    cloud: &Cloud,
    machines: &Machines,
    candidate: Candidate,
    process: &Process,
    count: usize,
) -> Result<Work> {
    let going = machines
        .instances
        .get(..count)
        .context("fewer Nodes than are to leave")?;
    let fleet = machines.fleet.as_ref().context("the Nodes that leave are of a fleet")?;
    let mut gone = Arrivals::watch(&cluster.admin, Wanted::Gone).await?;
    let (mark, before, usage) = (cloud.proxy.mark(), cluster.requests().await?, Usage::of(process.pid())?);
    fleet.terminate(going.iter().map(|instance| instance.id.as_str()));

    let begin = Instant::now();
    let silent = going.iter().map(|instance| heartbeat(instance, "Unknown"));
    cluster.send_all(silent).await?;
    gone.reach(count, begin + LEAVING).await?;
    alive(process)?;

    let later = Usage::of(process.pid())?;
    let mut requests = cluster.requests().await?.since(&before).counted();
    if let Some(own) = requests.0.get_mut("PATCH nodes/status") {
        *own = own.saturating_sub(count as u64);
    }

    requests.0.retain(|_, count| *count > 0);

    let span = gone.span();
    Ok(Work {
        who: Who::Manager(candidate),
        nodes: count,
        done: gone.count(),
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

fn heartbeat(instance: &Instance, ready: &str) -> Result<Request<Vec<u8>>> {
    let body = node::heartbeat(Timestamp::now(), ready);
    patch(&instance.private_dns_name, "/status", MERGE, &body)
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
        let pause = HEARTBEAT / u32::try_from(instances.len().max(1)).unwrap_or(u32::MAX);
        let task = tokio::spawn(async move {
            let mut ticks = interval(pause);
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
