//! How each contender is started: with its service controller alone, so that nothing else calls AWS.

use std::path::PathBuf;

use anyhow::Result;

use super::environment::Field;
use crate::manager::candidate::{Contender, Programs};
use crate::manager::cloud::CLUSTER;
use outrigger_cluster_harness::process::{Launch, Process};

/// What is set on a tuned incumbent.
pub const TUNING: [&str; 3] = [
    "--concurrent-service-syncs=10",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
];

/// Starts a contender; its log goes to the field's folder.
///
/// # Errors
/// When it does not start.
pub fn start(programs: &Programs, contender: Contender, field: &Field) -> Result<Process> {
    let (name, program): (&str, &PathBuf) = match contender {
        Contender::Outrigger => ("outrigger-manager", &programs.ours),
        Contender::Incumbent => ("incumbent", &programs.incumbent),
        Contender::Tuned => ("incumbent-tuned", &programs.incumbent),
    };
    let mut launch = Launch::new(name, program).arguments(arguments(field));
    if contender == Contender::Tuned {
        launch = launch.arguments(TUNING);
    }
    for (name, value) in field
        .cloud
        .caller(contender.name())
        .environment(field.cloud.proxy.url())
    {
        launch = launch.environment(name, value);
    }
    Ok(Process::start(&launch, &field.ground.folder)?)
}

fn arguments(field: &Field) -> [String; 9] {
    let kubeconfig = field.ground.kubeconfig.display();
    [
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", field.cloud.config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--cluster-name={CLUSTER}"),
        "--controllers=service".to_owned(),
        "--configure-cloud-routes=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}
