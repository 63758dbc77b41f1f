//! How each candidate is started: with its service controller alone, so that nothing else calls AWS.

use std::path::PathBuf;

use anyhow::Result;

use super::environment::Environment;
use crate::manager::candidate::{Candidate, Programs};
use crate::manager::cloud::CLUSTER;
use outrigger_cluster_harness::process::{Launch, Process};

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
    let (name, program): (&str, &PathBuf) = match candidate {
        Candidate::Outrigger => ("outrigger-manager", &programs.ours),
        Candidate::Incumbent => ("incumbent", &programs.incumbent),
        Candidate::Tuned => ("incumbent-tuned", &programs.incumbent),
    };
    let mut launch = Launch::new(name, program).arguments(arguments(environment));
    if candidate == Candidate::Tuned {
        launch = launch.arguments(TUNING);
    }
    for (name, value) in environment
        .cloud
        .caller(candidate.name())
        .environment(environment.cloud.proxy.url())
    {
        launch = launch.environment(name, value);
    }
    Ok(Process::start(&launch, &environment.cluster.folder)?)
}

fn arguments(environment: &Environment) -> [String; 9] {
    let kubeconfig = environment.cluster.kubeconfig.display();
    [
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", environment.cloud.config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--cluster-name={CLUSTER}"),
        "--controllers=service".to_owned(),
        "--configure-cloud-routes=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}
