//! How each candidate is started: with its service controller alone, so that nothing else calls AWS.

use anyhow::Result;

use super::environment::Environment;
use crate::manager::candidate::{Candidate, Programs};
use outrigger_cluster_harness::process::Process;

/// What is set on a tuned incumbent.
pub const TUNING: [&str; 3] = [
    "--concurrent-service-syncs=10",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
];

/// Starts a candidate; its log goes to the environment's folder.
///
/// # Errors
/// When it does not start.
pub fn start(programs: &Programs, candidate: Candidate, environment: &Environment) -> Result<Process> {
    programs.start_with(
        candidate,
        &environment.cloud,
        &environment.cluster.kubeconfig,
        &environment.cluster.folder,
        &["--controllers=service"],
        &TUNING,
    )
}
