//! A cluster and a simulated account, with a few initialized Nodes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::manager::candidate::until_idle;
use crate::manager::cloud::Cloud;
use crate::manager::cluster::{Cluster, get, patch, post};
use crate::manager::node;
use outrigger_aws_sim::Call;
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::Tools;

const NODES: usize = 5;
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Between two lists of the Services.
const STEP: Duration = Duration::from_millis(250);

/// The kind of load balancer of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Classic,
    Network,
}

impl Kind {
    /// Its name in tables and in the names of Services.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Network => "network",
        }
    }
}

/// The environment of one scenario. Dropping it ends its processes.
pub struct Environment {
    pub cloud: Cloud,
    pub cluster: Cluster,
}

impl Environment {
    /// Starts everything in `folder`; `more` is added to the cloud config.
    pub async fn build(tools: &Tools, folder: &Path, range: &str, more: &str) -> Result<Self> {
        let mut cloud = Cloud::start(tools, folder, more).await?;
        let cluster = Cluster::build(tools, folder, range).await?;
        let machines = cloud.machines(NODES).await?;
        cluster.create(machines.instances.iter().map(node::initialized)).await?;
        Ok(Self { cloud, cluster })
    }

    /// Adds a Node with a new instance.
    pub async fn add_node(&mut self) -> Result<()> {
        let machines = self.cloud.machine().await?;
        self.cluster
            .create(machines.instances.iter().map(node::initialized))
            .await
    }

    /// Creates Services, numbered from 0.
    pub async fn create(&self, kind: Kind, count: usize) -> Result<()> {
        let services = (0..count).map(|number| service(kind, &format!("{}-{number}", kind.name())));
        let requests = services.map(|service| post(SERVICES, &service));
        self.cluster.send_all(requests).await
    }

    /// Changes an annotation that no manager knows.
    pub async fn touch(&self, name: &str, value: usize) -> Result<()> {
        let body = json!({"metadata": {"annotations": {"example.com/touched": value.to_string()}}});
        let request = patch(&format!("{SERVICES}/{name}"), "application/merge-patch+json", &body)?;
        self.cluster.admin.request_text(request).await?;
        Ok(())
    }

    /// The number of Services with an address.
    pub async fn addressed(&self) -> Result<usize> {
        let list: Value = self.cluster.admin.request(get(SERVICES)?).await?;
        let services = list["items"].as_array().context("a list of Services")?;
        let has_address = |service: &&Value| !service["status"]["loadBalancer"]["ingress"].is_null();
        Ok(services.iter().filter(has_address).count())
    }

    /// Waits until so many Services have an address.
    ///
    /// # Errors
    /// When the manager has ended, or the time is over; names how many have one.
    pub async fn all_addressed(&self, count: usize, process: &Process, within: Duration) -> Result<()> {
        let probe = || async {
            match self.addressed().await {
                Ok(done) if done == count => Ok(()),
                Ok(done) => {
                    sleep(STEP).await;
                    Err(format!("{done} of {count} have one"))
                }
                Err(error) => Err(format!("{error:#}")),
            }
        };
        Ok(process.ready("address of every Service", within, probe).await?)
    }

    /// Waits until the manager has made no call that `counts` for `quiet`, after at least `least` of them since `mark`; all
    /// calls.
    ///
    /// # Errors
    /// When the manager has ended, or the time is over.
    pub async fn quiet(
        &self,
        (mark, counts): (u64, fn(&Call) -> bool),
        least: usize,
        quiet: Duration,
        process: &Process,
        within: Duration,
    ) -> Result<Vec<Call>> {
        let counted = async || {
            let calls = self.cloud.proxy.calls_since(mark);
            Ok(calls.iter().filter(|call| counts(call)).count())
        };
        let idle = until_idle(process, least, quiet, within, counted).await?;
        let calls = self.cloud.proxy.calls_since(mark);
        let (count, seconds) = (calls.len(), within.as_secs());
        let log = process.log_tail();
        ensure!(idle, "no quiet after {count} calls in {seconds} s:\n{log}");
        Ok(calls)
    }

    /// A process that has ended keeps its Lease for a while, and the next one would wait for it.
    pub async fn delete_leases(&self) -> Result<()> {
        let request = Request::delete(LEASES).body(Vec::new())?;
        self.cluster.admin.request_text(request).await?;
        Ok(())
    }
}

fn service(kind: Kind, name: &str) -> Value {
    let annotations = match kind {
        Kind::Classic => json!({}),
        Kind::Network => json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}),
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    })
}
