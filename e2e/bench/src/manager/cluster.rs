//! The cluster of one scenario: etcd and kube-apiserver with Nodes, requests to it, and its own counts of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::Value;

use super::node::Seen;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};

const COUNTER: &str = "apiserver_request_total{";
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
        let (found, wanted) = (list.items.len(), instances.len());
        ensure!(found == wanted, "{found} Nodes of {wanted} are there");

        let nodes = list.items.iter();
        let nodes: BTreeMap<_, _> = nodes.map(|node| (node.metadata.name.as_str(), node)).collect();

        for instance in instances {
            let name = instance.private_dns_name.as_str();
            let node = nodes.get(name).with_context(|| format!("Node {name} is missing"))?;
            if let Some(fault) = node.fault(instance) {
                anyhow::bail!("Node {name}: {fault}");
            }
        }

        Ok(())
    }

    /// All requests since the API server's start. Watches count when they end.
    pub async fn requests(&self) -> Result<Requests> {
        let metrics = self.admin.request_text(get("/metrics")?).await;
        Ok(Requests::parse(&metrics.context("the API server's metrics")?))
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
    let request = request
        .header("content-type", media)
        .body(body.to_string().into_bytes());
    request.context("a request to the API server")
}

/// Requests by verb and resource, such as `PATCH nodes/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<String, u64>);

impl Requests {
    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::<String, u64>::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
            let Some((labels, value)) = line.rsplit_once("} ") else {
                continue;
            };

            let of = |name: &str| {
                let labels = labels.split(',').filter_map(|label| label.split_once('='));
                let mut found = labels.filter(|(key, _)| *key == name);
                found.next().map_or("", |(_, value)| value.trim_matches('"'))
            };
            let (verb, resource, subresource) = (of("verb"), of("resource"), of("subresource"));
            // Requests of the API server to itself, and probes.
            if resource.is_empty() {
                continue;
            }

            let what = match subresource {
                "" => format!("{verb} {resource}"),
                subresource => format!("{verb} {resource}/{subresource}"),
            };
            // A counter is written as an integer, or with an exponent from a million on.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of requests"
            )]
            let count = value.trim().parse::<f64>().unwrap_or_default() as u64;

            *counts.entry(what).or_default() += count;
        }

        Self(counts)
    }

    pub fn since(&self, earlier: &Self) -> Self {
        let later = self.0.iter().map(|(what, count)| {
            let before = earlier.0.get(what).copied().unwrap_or_default();
            (what.clone(), count.saturating_sub(before))
        });
        Self(later.filter(|(_, count)| *count > 0).collect())
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Requests about Nodes and Events.
    pub fn counted(&self) -> Self {
        let counted = |what: &str| {
            let resource = what.split([' ', '/']).nth(1).unwrap_or_default();
            ["nodes", "events"].contains(&resource)
        };
        let mut requests = self.0.clone();
        requests.retain(|what, _| counted(what));
        Self(requests)
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    #[test]
    fn codes_are_added_up_and_differences_are_of_one_kind_each() {
        let text = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"200\",component=\"apiserver\",resource=\"nodes\",scope=\"resource\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 3\n\
            apiserver_request_total{code=\"409\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 1\n\
            apiserver_request_total{code=\"201\",resource=\"events\",subresource=\"\",verb=\"POST\"} 1.2e+06\n\
            apiserver_request_total{code=\"200\",resource=\"namespaces\",subresource=\"\",verb=\"LIST\"} 7\n\
            apiserver_request_total{code=\"200\",resource=\"\",subresource=\"/readyz\",verb=\"GET\"} 9\n\
            apiserver_request_terminations_total{code=\"500\",resource=\"nodes\",verb=\"GET\"} 1\n";
        let requests = Requests::parse(text);
        assert_eq!(requests.of("PATCH nodes/status"), 4);
        assert_eq!(requests.of("POST events"), 1_200_000);
        assert_eq!(requests.counted().total(), 1_200_004);
        let later = Requests([("PATCH nodes/status".to_owned(), 10)].into());
        assert_eq!(later.since(&requests).0, [("PATCH nodes/status".to_owned(), 6)].into());
    }
}
