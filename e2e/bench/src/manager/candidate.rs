//! The candidates, and how each is started.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::cloud::{CLUSTER, Cloud};
use outrigger_cluster_harness::process::{Launch, Process};

/// A manager with its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// Ours, with its defaults.
    Outrigger,
    /// The incumbent with its defaults: one worker, 20 requests a second to the API server.
    Incumbent,
    /// The incumbent with a hundred workers and no limit that it could reach.
    Tuned,
}

/// What is set on a tuned incumbent. The API server is the limit then, not the client.
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

/// Where the two programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `outrigger-manager`.
    pub ours: PathBuf,
    /// `aws-cloud-controller-manager`.
    pub incumbent: PathBuf,
}

impl Programs {
    /// Starts a candidate on a cluster; its log goes to `folder`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self, candidate: Candidate, cloud: &Cloud, kubeconfig: &Path, folder: &Path) -> Result<Process> {
        let program = match candidate {
            Candidate::Outrigger => &self.ours,
            Candidate::Incumbent | Candidate::Tuned => &self.incumbent,
        };
        let mut launch = Launch::new(candidate.file(), program).arguments(arguments(&cloud.config, kubeconfig));
        if candidate == Candidate::Tuned {
            launch = launch.arguments(TUNING);
        }
        for (name, value) in cloud.caller(candidate.name()).environment(cloud.proxy.url()) {
            launch = launch.environment(name, value);
        }
        Ok(Process::start(&launch, folder)?)
    }
}

/// The flags of all. No HTTPS port, since nobody asks there; no routes, since the instances' network has none.
fn arguments(cloud_config: &Path, kubeconfig: &Path) -> [String; 8] {
    let kubeconfig = kubeconfig.display();
    [
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", cloud_config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--cluster-name={CLUSTER}"),
        "--configure-cloud-routes=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}
