//! The candidates and their flags.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::cloud::{CLUSTER, Cloud};
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
    #[must_use]
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
    /// Starts a candidate; its log goes to `folder`.
    pub fn start(&self, candidate: Candidate, cloud: &Cloud, kubeconfig: &Path, folder: &Path) -> Result<Process> {
        self.start_with(candidate, cloud, kubeconfig, folder, &[], &TUNING)
    }

    /// As [`Programs::start`], with additional flags, and with `tuning` for the tuned incumbent.
    pub fn start_with(
        &self,
        candidate: Candidate,
        cloud: &Cloud,
        kubeconfig: &Path,
        folder: &Path,
        flags: &[&str],
        tuning: &[&str],
    ) -> Result<Process> {
        let program = match candidate {
            Candidate::Outrigger => &self.ours,
            Candidate::Incumbent | Candidate::Tuned => &self.incumbent,
        };
        let mut launch = Launch::new(candidate.file(), program)
            .arguments(manager_flags(&cloud.config, kubeconfig))
            .arguments([format!("--cluster-name={CLUSTER}")])
            .arguments(flags.iter().copied());
        if candidate == Candidate::Tuned {
            launch = launch.arguments(tuning.iter().copied());
        }

        for (name, value) in cloud.caller(candidate.name()).environment(cloud.proxy.url()) {
            launch = launch.environment(name, value);
        }

        Ok(Process::start(&launch, folder)?)
    }
}
