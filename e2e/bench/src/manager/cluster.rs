//! One cluster for one scenario: a fresh etcd and kube-apiserver with Nodes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;

use super::arrivals::get;
use super::node::Seen;
use super::requests::Requests;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};

/// Requests of the harness that are under way at once when it makes Nodes or changes many.
const AT_ONCE: usize = 32;

/// A cluster. Dropping it ends its processes.
pub struct Cluster {
    /// An administrator: the harness.
    pub admin: Client,
    /// How a candidate reaches it.
    pub kubeconfig: PathBuf,
    pub folder: PathBuf,
    _server: ApiServer,
    _etcd: Etcd,
}

impl Cluster {
    /// The components that it needs.
    pub const TOOLS: [Tool; 2] = [Tool::Etcd, Tool::ApiServer136];

    /// Starts both in `folder`. The API server has its defaults; only its audit log is off, which here would cost each
    /// request more than the rest of it.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn build(tools: &Tools, folder: &Path, range: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;

        let etcd = Etcd::start(tools, folder).await?;
        let mut options = ApiServerOptions::new("bench", Version::V1_36, range);
        options.extra_arguments = ["--audit-policy-file=", "--audit-log-path="].map(str::to_owned).into();

        let server = ApiServer::start(tools, folder, &etcd, &options).await?;
        Ok(Self {
            admin: server.client(&User::admin(), "outrigger-bench").await?,
            // Rights are proved elsewhere, and cost the same for all.
            kubeconfig: server.kubeconfig(&User::admin())?,
            folder: folder.to_owned(),
            _server: server,
            _etcd: etcd,
        })
    }

    /// Creates Nodes.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn create(&self, nodes: impl Iterator<Item = Value>) -> Result<()> {
        let requests = nodes.map(|node| {
            let request = Request::post("/api/v1/nodes").header("content-type", "application/json");
            request.body(node.to_string().into_bytes()).context("a Node")
        });
        self.send_all(requests).await
    }

    /// Sends requests, some at once.
    ///
    /// # Errors
    /// The first that fails.
    pub async fn send_all(&self, requests: impl Iterator<Item = Result<Request<Vec<u8>>>>) -> Result<()> {
        stream::iter(requests.map(|request| async {
            self.admin.request_text(request?).await?;
            anyhow::Ok(())
        }))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
        Ok(())
    }

    /// Checks that each instance has a Node, and that each Node is as it must be in the end.
    ///
    /// # Errors
    /// When a Node is missing or wrong; names the first.
    pub async fn verify(&self, instances: &[Instance]) -> Result<()> {
        #[derive(Debug, Clone, serde::Deserialize)]
        struct List {
            items: Vec<Seen>,
        }

        let list: List = self.admin.request(get("/api/v1/nodes")?).await?;
        ensure!(
            list.items.len() == instances.len(),
            "{} Nodes of {} are there",
            list.items.len(),
            instances.len()
        );

        let nodes: std::collections::BTreeMap<_, _> = list
            .items
            .iter()
            .map(|node| (node.metadata.name.as_str(), node))
            .collect();

        for instance in instances {
            let name = instance.private_dns_name.as_str();
            let node = nodes.get(name).with_context(|| format!("Node {name} is missing"))?;
            if let Some(fault) = node.fault(instance) {
                anyhow::bail!("Node {name}: {fault}");
            }
        }

        Ok(())
    }

    /// What the API server has answered so far.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn requests(&self) -> Result<Requests> {
        Requests::so_far(&self.admin).await
    }
}

/// A PATCH of a Node or, with `/status`, of its status.
///
/// # Errors
/// When the name does not make a path.
pub fn patch(name: &str, part: &str, media: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/nodes/{name}{part}"));
    let request = request
        .header("content-type", media)
        .body(body.to_string().into_bytes());
    request.with_context(|| format!("a patch of {name}"))
}
