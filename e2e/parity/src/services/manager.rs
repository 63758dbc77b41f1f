//! The start of both controller managers with the service controller only.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::environment::{CLUSTER_ID, Environment};
use super::names::Names;
use crate::Subject;
use outrigger_aws_sim::{Caller, REGION};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::Tools;

/// The key of the cloud config for the tag that clusters had before Kubernetes 1.6.
pub(super) const LEGACY_TAG_KEY: &str = "KubernetesClusterTag";
/// Its calls have this name in the proxy.
pub(super) const CALLER: &str = "manager";
/// `--cluster-name`. Names of security groups contain it.
pub(super) const CLUSTER_NAME: &str = "parity-name";

/// Flags and cloud config are the same for both, except for flags that only ours has.
pub(super) fn start(
    subject: Subject,
    tools: &Tools,
    folder: &Path,
    kubeconfig: &Path,
    environment: &Environment,
    config: &BTreeMap<String, String>,
) -> Result<Process> {
    let mut config = config.clone();
    if environment.legacy_tags {
        let id = || CLUSTER_ID.to_owned();
        config.entry(LEGACY_TAG_KEY.to_owned()).or_insert_with(id);
    }

    let launch = subject.launch(tools, folder, kubeconfig, &render(&config, &environment.names))?;
    let cluster_name = format!("--cluster-name={CLUSTER_NAME}");
    let mut launch = launch.arguments(["--controllers=service-lb-controller", &cluster_name, "-v=2"]);

    if subject == Subject::Ours {
        // With a smaller share of AWS's budget, the time between its reads would be longer than the wait for the end of
        // a step. The search for orphaned resources starts after minutes, and its reads would count in some step.
        launch = launch.arguments(["--aws-api-budget-share=1", "--load-balancer-sweep=off"]);
    }

    let caller = Caller::new(CALLER);
    environment.proxy.add_caller(&caller);
    for (name, value) in caller.environment(environment.proxy.url()) {
        launch = launch.environment(name, value);
    }

    Ok(Process::start(&launch, folder)?)
}

/// A cloud config with which a manager calls neither the instance metadata service nor EC2 about its own machine.
fn render(config: &BTreeMap<String, String>, names: &Names) -> String {
    let id = |name: &str| names.id(name).unwrap_or_default().to_owned();
    let mut keys = BTreeMap::from([
        ("Region".to_owned(), REGION.to_owned()),
        ("VPC".to_owned(), id("vpc")),
        ("SubnetID".to_owned(), id("subnet-a")),
    ]);

    if !config.contains_key(LEGACY_TAG_KEY) {
        keys.insert("KubernetesClusterID".to_owned(), CLUSTER_ID.to_owned());
    }

    keys.extend(config.iter().map(|(key, value)| (key.clone(), names.resolved(value))));

    let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[Global]\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::names::Names;
    use super::render;

    #[test]
    fn names_are_ids_in_the_cloud_config_and_the_old_tag_replaces_the_new() {
        let mut names = Names::default();
        names.learn("sg-1", "sg:shared");
        let config = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let text = render(&config("ElbSecurityGroup", "<sg:shared>"), &names);
        assert!(
            text.contains("ElbSecurityGroup = sg-1\n") && text.contains("KubernetesClusterID = parity\n"),
            "{text}"
        );
        let text = render(&config("KubernetesClusterTag", "parity"), &names);
        assert!(!text.contains("KubernetesClusterID"), "{text}");
    }
}
