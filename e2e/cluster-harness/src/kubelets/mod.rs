//! Plays kubelets: registers Nodes as an in-tree or an external kubelet does, renews their leases and posts Ready.
//!
//! Without heartbeats the node lifecycle controller marks a Node NotReady after 40 s, and the old provider takes it
//! out of its load balancers. [`Kubelet::stop`] lets just that happen.

mod node;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;

use self::node::{Identity, LEASE_NAMESPACE, micro_time};
pub use self::node::{Instance, NodeSpec, VERSION};

/// After a heartbeat that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Registrations at the same time.
const AT_ONCE: usize = 16;

/// Why a kubelet did not start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    #[error("no client for {server}: {source}; check the kubeconfig's certificates")]
    Client { server: String, source: Box<kube::Error> },
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        path: PathBuf,
        source: kube::config::KubeconfigError,
    },
    /// A name that cannot stand in a header.
    #[error("{value:?} is no valid user name or user agent: use printable ASCII")]
    Header { value: String },
    #[error("ClusterRoleBinding harness:nodes: {source}; the cluster's configuration must be an administrator's")]
    Access { source: Box<kube::Error> },
    #[error("Node {node} could not be registered: {source}")]
    Register { node: String, source: Box<kube::Error> },
}

/// A kubelet that plays. Dropping it stops it.
#[derive(Debug)]
pub struct Kubelet {
    name: String,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Registers the Node (one that exists already is taken as it is) and starts its heartbeats.
    ///
    /// # Errors
    /// When no client can be made, or the API server refuses the Node.
    pub async fn start(cluster: &kube::Config, spec: NodeSpec) -> Result<Self, KubeletError> {
        let node_user = (spec.identity == Identity::Node).then_some(spec.name());
        let client = client(cluster, node_user)?;
        let node = register(&client, &spec).await?;
        let name = spec.name().to_owned();

        Ok(Self {
            name,
            task: tokio::spawn(beat(client, spec, node)),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends the heartbeats. The Node stays, and turns NotReady once its lease is 40 s old.
    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Registers Nodes that have no heartbeat: the node lifecycle controller needs a long grace period for them.
///
/// # Errors
/// When no client can be made, or the API server refuses a Node.
pub async fn register_all(cluster: &kube::Config, specs: &[NodeSpec]) -> Result<(), KubeletError> {
    let client = client(cluster, None)?;
    let registered = stream::iter(specs).map(|spec| register(&client, spec));
    registered
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await
}

/// The configuration that a kubeconfig file describes.
///
/// # Errors
/// When the file cannot be read or is no kubeconfig.
pub async fn config(kubeconfig: &Path) -> Result<kube::Config, KubeletError> {
    let failed = |source| KubeletError::Kubeconfig {
        path: kubeconfig.to_owned(),
        source,
    };
    let file = kube::config::Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let options = kube::config::KubeConfigOptions::default();

    kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(failed)
}

/// A client with the user agent of a kubelet, as `system:node:NAME` for a node's name.
pub(crate) fn client(cluster: &kube::Config, node: Option<&str>) -> Result<Client, KubeletError> {
    let mut headers = vec![(
        http::header::USER_AGENT,
        format!("kubelet/{VERSION} (linux/amd64) kubernetes/harness"),
    )];
    if let Some(node) = node {
        headers.push((
            HeaderName::from_static("impersonate-user"),
            format!("system:node:{node}"),
        ));
        headers.push((HeaderName::from_static("impersonate-group"), "system:nodes".into()));
    }

    client_with(cluster, headers)
}

/// A client that sends these headers with every request.
///
/// # Errors
/// When kube cannot build the client.
pub fn client_with(cluster: &kube::Config, headers: Vec<(HeaderName, String)>) -> Result<Client, KubeletError> {
    let mut config = cluster.clone();
    for (name, value) in headers {
        let parsed = HeaderValue::from_str(&value).map_err(|_| KubeletError::Header { value })?;
        config.headers.retain(|(present, _)| *present != name);
        config.headers.push((name, parsed));
    }

    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| KubeletError::Client {
        server,
        source: Box::new(source),
    })
}

/// Lets the group `system:nodes` do what kubelets do, on an API server without the Node authorizer. Once per cluster.
///
/// # Errors
/// When the binding is refused.
pub async fn let_nodes_in(cluster: &kube::Config) -> Result<(), KubeletError> {
    let failed = |source| KubeletError::Access {
        source: Box::new(source),
    };
    let binding = json!({
        "metadata": {"name": "harness:nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    let binding = serde_json::from_value(binding).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let bindings = Api::<ClusterRoleBinding>::all(client(cluster, None)?);

    match bindings.create(&PostParams::default(), &binding).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).map_err(failed),
    }
}

async fn register(client: &Client, spec: &NodeSpec) -> Result<Node, KubeletError> {
    let failed = |source| KubeletError::Register {
        node: spec.name().to_owned(),
        source: Box::new(source),
    };
    let api = Api::<Node>::all(client.clone());
    let object = serde_json::from_value(spec.object(Timestamp::now()))
        .map_err(|error| failed(kube::Error::SerdeError(error)))?;

    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(spec.name()).await.map_err(failed),
        created => created.map_err(failed),
    }
}

async fn beat(client: Client, spec: NodeSpec, node: Node) {
    let nodes = Api::<Node>::all(client.clone());
    let leases = Api::<Lease>::namespaced(client, LEASE_NAMESPACE);
    let owner = node.metadata.uid.unwrap_or_default();
    let ready_since = Timestamp::now();

    loop {
        let beaten = async {
            renew(&leases, &spec, &owner).await?;
            let heartbeat = Patch::Strategic(spec.heartbeat(ready_since, Timestamp::now()));
            nodes
                .patch_status(spec.name(), &PatchParams::default(), &heartbeat)
                .await
        };
        let pause = match beaten.await {
            Ok(_) => spec.every,
            Err(error) => {
                tracing::warn!(node = spec.name(), %error, "a heartbeat failed");
                RETRY.min(spec.every)
            }
        };

        tokio::time::sleep(pause).await;
    }
}

async fn renew(leases: &Api<Lease>, spec: &NodeSpec, owner: &str) -> Result<(), kube::Error> {
    let now = Timestamp::now();
    let renewal = json!({"spec": {"renewTime": micro_time(now)}});
    match leases
        .patch(spec.name(), &PatchParams::default(), &Patch::Merge(renewal))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = serde_json::from_value(spec.lease(owner, now)).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}
