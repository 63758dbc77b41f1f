//! A cluster and a simulated account, with a few Nodes that are initialized.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::manager::arrivals::get;
use crate::manager::cloud::Cloud;
use crate::manager::cluster::Cluster;
use crate::manager::cold::alive;
use crate::manager::node;
use outrigger_aws_sim::{Answer, Call, is_write};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::Tools;

/// Nodes of the cluster.
pub const NODES: usize = 5;
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// How often the harness looks.
const STEP: Duration = Duration::from_millis(250);

/// Which kind of load balancer a Service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A classic one.
    Classic,
    /// A network load balancer.
    Network,
}

impl Kind {
    /// Its name in tables and in the names of Services.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Network => "network",
        }
    }
}

/// What a manager asked AWS in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// How often each action was called.
    pub by_action: std::collections::BTreeMap<String, usize>,
    /// Calls that change something.
    pub writes: usize,
    pub reads: usize,
    /// Calls that AWS refused for their rate.
    pub throttled: usize,
}

impl Asked {
    /// Counts these calls.
    #[must_use]
    pub fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut asked = Self::default();
        for call in calls {
            *asked.by_action.entry(call.action.clone()).or_default() += 1;
            if is_write(&call.action) {
                asked.writes += 1;
            } else {
                asked.reads += 1;
            }

            let refused = call
                .outcome
                .as_ref()
                .is_some_and(|outcome| outcome.answer == Answer::Throttle);
            asked.throttled += usize::from(refused);
        }

        asked
    }
}

/// A Service as the harness sees it.
#[derive(Debug, Clone, Deserialize)]
struct Seen {
    #[serde(default)]
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SeenSpec {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SeenStatus {
    #[serde(rename = "loadBalancer", default)]
    load_balancer: SeenBalancer,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SeenBalancer {
    #[serde(default)]
    ingress: Vec<Value>,
}

/// The environment of one scenario. Dropping it ends its processes.
pub struct Environment {
    /// The simulated account.
    pub cloud: Cloud,
    /// The cluster.
    pub cluster: Cluster,
}

impl Environment {
    /// Starts everything in `folder`; `more` is added to the cloud config.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn build(tools: &Tools, folder: &Path, range: &str, more: &str) -> Result<Self> {
        let mut cloud = Cloud::start_with(tools, folder, more).await?;
        let cluster = Cluster::build(tools, folder, range).await?;
        let machines = cloud.machines(NODES).await?;
        cluster.create(machines.instances.iter().map(node::initialized)).await?;
        Ok(Self { cloud, cluster })
    }

    /// Creates Services, numbered from 0.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn create(&self, kind: Kind, count: usize) -> Result<()> {
        let requests = (0..count).map(|number| {
            let request = Request::post(SERVICES).header("content-type", "application/json");
            let body = service(kind, &format!("{}-{number}", kind.name()));
            request.body(body.to_string().into_bytes()).context("a Service")
        });
        self.cluster.send_all(requests).await
    }

    /// Changes an annotation of a Service that no manager knows.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn poke(&self, name: &str, value: usize) -> Result<()> {
        let body = json!({"metadata": {"annotations": {"example.com/poke": value.to_string()}}});
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{SERVICES}/{name}"))
            .header("content-type", "application/merge-patch+json")
            .body(body.to_string().into_bytes())?;

        self.cluster.admin.request_text(request).await?;
        Ok(())
    }

    /// How many Services have an address.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn addressed(&self) -> Result<usize> {
        #[derive(Debug, Clone, Deserialize)]
        struct List {
            items: Vec<Seen>,
        }

        let list: List = self.cluster.admin.request(get(SERVICES)?).await?;
        let done = |service: &&Seen| !service.status.load_balancer.ingress.is_empty();
        let wanted = list.items.iter().filter(|service| service.spec.kind == "LoadBalancer");

        Ok(wanted.filter(done).count())
    }

    /// Waits until so many Services have an address.
    ///
    /// # Errors
    /// When the manager has ended, or the time is over; names how many have one.
    pub async fn all_addressed(&self, count: usize, process: &Process, deadline: Instant) -> Result<()> {
        loop {
            let done = self.addressed().await?;
            if done == count {
                return Ok(());
            }

            alive(process)?;
            ensure!(
                Instant::now() < deadline,
                "{done} of {count} Services have an address:\n{}",
                process.log_tail()
            );
            sleep(STEP).await;
        }
    }

    /// Waits until the manager has called AWS no more for `quiet`, after at least `least` calls since `mark`.
    ///
    /// # Errors
    /// When the manager has ended, or the time is over.
    pub async fn quiet(
        &self,
        mark: u64,
        least: usize,
        quiet: Duration,
        process: &Process,
        patience: Duration,
    ) -> Result<Vec<Call>> {
        let deadline = Instant::now() + patience;
        let (mut count, mut since) = (0, Instant::now());
        loop {
            let calls = self.cloud.proxy.calls_since(mark);
            if calls.len() != count {
                (count, since) = (calls.len(), Instant::now());
            }

            if count >= least && since.elapsed() >= quiet {
                return Ok(calls);
            }

            alive(process)?;
            ensure!(
                Instant::now() < deadline,
                "no quiet after {count} calls in {} s:\n{}",
                patience.as_secs(),
                process.log_tail()
            );
            sleep(STEP).await;
        }
    }

    /// Takes away all Leases, so that whoever starts next need not wait for one that its holder has left.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn free_leases(&self) -> Result<()> {
        let request = Request::delete(LEASES).body(Vec::new())?;
        self.cluster.admin.request_text(request).await?;
        Ok(())
    }
}

fn service(kind: Kind, name: &str) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": {}},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        },
    });

    if kind == Kind::Network {
        service["metadata"]["annotations"] = json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"});
    }

    service
}
