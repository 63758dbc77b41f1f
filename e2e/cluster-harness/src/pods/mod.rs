//! A node that runs Pods as plain local processes.
//!
//! ```text
//! watch Pods ─▶ no node: bind ─▶ bound to us: worker ─▶ plan (pure) ─▶ container: start, probe, restart, stop
//!                                     │                                      │
//!                                     └── status (pure) ◀── states ◀─────────┘──▶ spans
//! ```
//!
//! A process gets exactly the command that the API server stores, so what a webhook put there is what runs. There are
//! no images and no mounts: a table maps an image to a binary, and only hostPath volumes at their own path are taken.
//! A Pod that cannot run waits, with a message that says so. Liveness and startup probes, resources and
//! security contexts have no effect.

mod api;
mod container;
mod images;
mod plan;
mod processes;
mod readiness;
mod span;
mod status;
mod watching;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::images::{Image, ImageTable};
pub use self::span::{Exit, ProcessSpan};
use crate::kubelets::{Kubelet, KubeletError, NodeSpec};
use crate::process::{Process, ProcessError};

/// Told of every process before it starts: its access key ID and its name.
pub type OnAccessKey = Arc<dyn Fn(&str, &str) + Send + Sync>;

#[derive(Clone)]
pub struct RunnerConfig {
    /// The name of the Node that the runner creates and keeps Ready.
    pub node: String,
    /// The namespaces whose Pods it binds and runs.
    pub namespaces: Vec<String>,
    pub images: ImageTable,
    /// An existing folder for the processes' logs, PROCESS.log each.
    pub folder: PathBuf,
    /// So that the AWS proxy knows its callers.
    pub on_access_key: OnAccessKey,
}

/// The running node. Dropping it kills every process at once; [`PodRunner::shutdown`] lets them end.
pub struct PodRunner {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    shutdown: watch::Sender<Option<Duration>>,
    node: Kubelet,
}

struct Shared {
    config: RunnerConfig,
    processes: processes::Processes,
    /// UIDs of the Pods seen, by namespace and name.
    names: Mutex<BTreeMap<(String, String), Vec<String>>>,
}

impl Shared {
    /// Counts this Pod among those of its name, from 1.
    fn occurrence(&self, pod: &Pod) -> usize {
        let key = (
            pod.metadata.namespace.clone().unwrap_or_default(),
            pod.metadata.name.clone().unwrap_or_default(),
        );
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let uids = names.entry(key).or_default();
        let index = uids.iter().position(|seen| *seen == uid).unwrap_or_else(|| {
            uids.push(uid);
            uids.len() - 1
        });

        index + 1
    }
}

impl PodRunner {
    /// Creates the Node and starts to bind and run Pods.
    ///
    /// # Errors
    /// When no client can be made from `cluster`, or the Node cannot be created.
    pub async fn start(cluster: &kube::Config, config: RunnerConfig) -> Result<Self, KubeletError> {
        let client = crate::kubelets::client(cluster, None)?;
        let node = Kubelet::start(cluster, NodeSpec::plain(&config.node)).await?;
        let shared = Arc::new(Shared {
            config,
            processes: processes::Processes::default(),
            names: Mutex::default(),
        });
        let shutdown = watch::channel(None).0;
        let mut tasks = JoinSet::new();

        for namespace in &shared.config.namespaces {
            let api = kube::Api::namespaced(client.clone(), namespace);
            tasks.spawn(watching::run(Arc::clone(&shared), api, shutdown.subscribe()));
        }

        Ok(Self {
            shared,
            tasks,
            shutdown,
            node,
        })
    }

    /// Every process that runs or ran, in the order of the starts.
    pub fn spans(&self) -> Vec<ProcessSpan> {
        self.shared.processes.spans()
    }

    /// The argument lists of a Pod's latest processes, one per container: what really runs.
    pub fn argv(&self, pod: &str) -> Vec<Vec<String>> {
        let mut latest: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for span in self.spans().into_iter().filter(|span| span.pod == pod) {
            let container = span.process.split('#').next().unwrap_or_default().to_owned();
            latest.insert(container, span.argv);
        }
        latest.into_values().collect()
    }

    pub fn processes(&self, pod: &str) -> Vec<Arc<Process>> {
        self.shared.processes.running(pod)
    }

    /// Kills (SIGKILL) the processes of a Pod and waits for their ends. The Pod's restart policy applies.
    ///
    /// # Errors
    /// When a signal cannot be sent.
    pub async fn kill(&self, pod: &str) -> Result<(), ProcessError> {
        for process in self.processes(pod) {
            process.kill_now().await?;
        }
        Ok(())
    }

    /// Ends every process (SIGTERM, and SIGKILL after `grace`) without telling the API server, and returns when all
    /// have ended. The spans stay readable from the returned list.
    pub async fn shutdown(mut self, grace: Duration) -> Vec<ProcessSpan> {
        self.shutdown.send_replace(Some(grace));
        while let Some(joined) = self.tasks.join_next().await {
            if let Err(error) = joined {
                tracing::error!(%error, "a task of the pod runner failed");
            }
        }

        self.node.stop();
        self.spans()
    }
}
