//! The cluster of one scenario: etcd and kube-apiserver with Nodes, and requests to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::Value;

use super::node::Seen;
use super::requests::Requests;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};

pub const NODES: &str = "/api/v1/nodes";
/// Requests under way at once when the harness creates or changes objects.
const AT_ONCE: usize = 32;

/// A cluster. Dropping it ends its processes.
pub struct Cluster {
    /// The harness.
    pub admin: Client,
    /// For candidates.
    pub kubeconfig: PathBuf,
    pub folder: PathBuf,
    _server: ApiServer,
    _etcd: Etcd,
}

impl Cluster {
    /// The components that it needs.
    pub const TOOLS: [Tool; 2] = [Tool::Etcd, Tool::ApiServer136];

    /// Starts both in `folder`. The API server has its defaults, but no audit log: that would cost each request more
    /// than everything else.
    pub async fn build(tools: &Tools, folder: &Path, range: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;

        let etcd = Etcd::start(tools, folder).await?;
        let mut options = ApiServerOptions::new("bench", Version::V1_36, range);
        options.extra_arguments = ["--audit-policy-file=", "--audit-log-path="].map(str::to_owned).into();

        let server = ApiServer::start(tools, folder, &etcd, &options).await?;
        Ok(Self {
            admin: server.client(&User::admin(), "outrigger-bench").await?,
            // Rights are tested elsewhere, and cost the same for all candidates.
            kubeconfig: server.kubeconfig(&User::admin())?,
            folder: folder.to_owned(),
            _server: server,
            _etcd: etcd,
        })
    }

    pub async fn create(&self, nodes: impl Iterator<Item = Value>) -> Result<()> {
        self.send_all(nodes.map(|node| post(NODES, &node))).await
    }

    /// Sends requests, some at once.
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

    /// # Errors
    /// When a Node is missing or wrong; names the first.
    pub async fn verify(&self, instances: &[Instance]) -> Result<()> {
        #[derive(Debug, Clone, serde::Deserialize)]
        struct List {
            items: Vec<Seen>,
        }

        let list: List = self.admin.request(get(NODES)?).await?;
        ensure!(
            list.items.len() == instances.len(),
            "{} Nodes of {} are there",
            list.items.len(),
            instances.len()
        );

        let nodes: BTreeMap<_, _> = list
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

    pub async fn requests(&self) -> Result<Requests> {
        Requests::so_far(&self.admin).await
    }
}

pub fn get(path: &str) -> Result<Request<Vec<u8>>> {
    Request::get(path).body(Vec::new()).with_context(|| path.to_owned())
}

pub fn post(path: &str, object: &Value) -> Result<Request<Vec<u8>>> {
    with_body(Request::post(path), "application/json", object)
}

pub fn patch(path: &str, media: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    with_body(Request::patch(path), media, body)
}

fn with_body(request: http::request::Builder, media: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    let request = request.header("content-type", media);
    request
        .body(body.to_string().into_bytes())
        .context("a request to the API server")
}
