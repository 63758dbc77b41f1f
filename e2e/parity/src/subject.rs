//! The two controller managers: their start, and the time until the comparison.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use outrigger_aws_sim::{Caller, REGION};
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::{Binaries, manager_flags};

use super::aws::{CLUSTER_ID, SUBNET_ID, VPC_ID};
use super::case::{Config, Group};

/// The compared controller manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// aws-cloud-controller-manager v1.37, in the release that docs/compatibility.md names.
    Incumbent,
    Ours,
}

/// `--node-status-update-frequency` of both managers, in seconds.
const ADDRESS_REFRESH: u64 = 10;

/// From the manager's first call to EC2 to the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pub least: Duration,
    /// The comparison does not wait longer, even if the result is not equal.
    pub most: Duration,
}

impl Subject {
    /// Our manager deletes no Node within 60 s of its creation, and needs two observations 10 s apart; the incumbent
    /// deletes at once. The least time includes one refresh of addresses and 4 s for its writes: before the refresh a
    /// Node can be equal to the record and become different with it.
    pub fn patience(self, group: &Group) -> Patience {
        let seconds = |least, most| Patience {
            least: Duration::from_secs(least),
            most: Duration::from_secs(most),
        };
        match (self, group.is_slow()) {
            (Self::Incumbent, true) => seconds(30, 30),
            (Self::Incumbent, false) => seconds(12, 12),
            (Self::Ours, true) => seconds(78, 95),
            (Self::Ours, false) => seconds(ADDRESS_REFRESH + 4, 30),
        }
    }

    pub fn tools(self) -> Vec<Tool> {
        let mut tools = vec![Tool::Etcd, Tool::ApiServer136];
        if self == Self::Incumbent {
            tools.push(Tool::AwsCloudControllerManager);
        }
        tools
    }

    fn program(self, tools: &Tools) -> Result<PathBuf> {
        Ok(match self {
            Self::Incumbent => tools.path(Tool::AwsCloudControllerManager)?.to_owned(),
            Self::Ours => Binaries::one("outrigger-manager")?,
        })
    }

    /// With the flags that both get in every comparison.
    pub(super) fn launch(self, tools: &Tools, folder: &Path, kubeconfig: &Path, cloud_config: &str) -> Result<Launch> {
        let file = folder.join("cloud.conf");
        std::fs::write(&file, cloud_config)?;

        let launch = Launch::new("manager", self.program(tools)?);
        Ok(launch.arguments(manager_flags(&file, kubeconfig)).arguments([
            "--authentication-skip-lookup=true",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=300",
        ]))
    }

    /// Starts it with the node controllers only. Flags and cloud config are the same for both.
    pub fn start(
        self,
        tools: &Tools,
        folder: &Path,
        kubeconfig: &Path,
        endpoint: &str,
        config: &Config,
    ) -> Result<Process> {
        let launch = self.launch(tools, folder, kubeconfig, &render(config))?;
        let mut launch = launch.arguments([
            "--controllers=cloud-node,cloud-node-lifecycle",
            "--concurrent-node-syncs=10",
            "--concurrent-node-lifecycle-syncs=10",
            "--node-monitor-period=2s",
            &format!("--node-status-update-frequency={ADDRESS_REFRESH}s"),
        ]);

        for (name, value) in Caller::new("manager").environment(endpoint) {
            launch = launch.environment(name, value);
        }

        Ok(Process::start(&launch, folder)?)
    }
}

/// A cloud config with which a manager calls neither the instance metadata service nor EC2 about its own machine.
fn render(config: &Config) -> String {
    let mut text = format!(
        "[Global]\nRegion = {REGION}\nVPC = {VPC_ID}\nSubnetID = {SUBNET_ID}\nKubernetesClusterID = {CLUSTER_ID}\n"
    );
    for family in &config.node_ip_families {
        text.push_str(&format!("NodeIPFamilies = {family}\n"));
    }

    if let Some(pattern) = &config.supported_topology_instance_type_pattern {
        let pattern = pattern.replace('\\', "\\\\").replace('"', "\\\"");
        text.push_str(&format!("SupportedTopologyInstanceTypePattern = \"{pattern}\"\n"));
    }

    text
}

#[cfg(test)]
mod tests {
    use super::{Config, render};

    #[test]
    fn lists_repeat_their_key_and_backslashes_are_doubled() {
        let config = Config {
            node_ip_families: vec!["ipv6".into(), "ipv4".into()],
            supported_topology_instance_type_pattern: Some(r"^m5\.".into()),
        };
        let text = render(&config);
        assert!(
            text.ends_with(
                "NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\nSupportedTopologyInstanceTypePattern = \"^m5\\\\.\"\n"
            ),
            "{text}"
        );
    }
}
