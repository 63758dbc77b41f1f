//! The candidates, their flags, and the end of their work.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::cloud::{CLUSTER, Cloud};
use super::cluster::Cluster;
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_environment::manager_flags;

/// A manager with its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// Ours, with its defaults.
    Outrigger,
    /// The incumbent with its defaults: one worker, 20 requests a second to the API server.
    Incumbent,
    /// The incumbent with a hundred workers and an unreachable limit of requests.
    Tuned,
}

/// Flags of the tuned incumbent: the limit is the API server, not the client.
pub const TUNING: [&str; 5] = [
    "--concurrent-node-syncs=100",
    "--concurrent-node-status-updates=100",
    "--concurrent-node-lifecycle-syncs=100",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
];

impl Candidate {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Outrigger, Self::Incumbent, Self::Tuned];

    /// Its name in tables and for its access key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outrigger => "Outrigger",
            Self::Incumbent => "incumbent",
            Self::Tuned => "incumbent, tuned",
        }
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Outrigger => "outrigger-manager",
            Self::Incumbent => "incumbent",
            Self::Tuned => "incumbent-tuned",
        }
    }
}

/// Paths of the programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `outrigger-manager`.
    pub ours: PathBuf,
    /// `aws-cloud-controller-manager`.
    pub incumbent: PathBuf,
}

impl Programs {
    /// Starts a candidate with additional flags, and with `tuning` for the tuned incumbent. Its log goes to the folder of
    /// the cluster.
    pub fn start(
        &self,
        candidate: Candidate,
        cloud: &Cloud,
        cluster: &Cluster,
        flags: &[&str],
        tuning: &[&str],
    ) -> Result<Process> {
        let program = match candidate {
            Candidate::Outrigger => &self.ours,
            Candidate::Incumbent | Candidate::Tuned => &self.incumbent,
        };
        let mut launch = Launch::new(candidate.file(), program)
            .arguments(manager_flags(&cloud.config, &cluster.kubeconfig))
            .arguments([format!("--cluster-name={CLUSTER}")])
            .arguments(flags.iter().copied());
        if candidate == Candidate::Tuned {
            launch = launch.arguments(tuning.iter().copied());
        }

        for (name, value) in cloud.caller(candidate.name()).environment(cloud.proxy.url()) {
            launch = launch.environment(name, value);
        }

        Ok(Process::start(&launch, &cluster.folder)?)
    }
}

/// Waits until `count` is at least `least` and has not grown for `quiet`; `false` after `within`.
///
/// # Errors
/// When the process has ended, and those of `count`.
pub async fn until_idle(
    process: &Process,
    least: usize,
    quiet: Duration,
    within: Duration,
    count: impl AsyncFn() -> Result<usize>,
) -> Result<bool> {
    let begin = Instant::now();
    let (mut last, mut since) = (count().await?, begin);
    while begin.elapsed() < within {
        sleep(quiet / 4).await;
        process.ensure_running()?;

        let now = count().await?;
        if now != last {
            (last, since) = (now, Instant::now());
        } else if now >= least && since.elapsed() >= quiet {
            return Ok(true);
        }
    }

    Ok(false)
}
