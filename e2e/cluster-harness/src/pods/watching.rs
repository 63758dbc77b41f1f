//! Watches the Pods of one namespace: binds those without a node, and keeps a worker for each that is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use super::api;
use super::worker::{self, Update};

/// After a watch has failed.
const PAUSE: Duration = Duration::from_millis(200);

struct Pods {
    shared: Arc<Shared>,
    api: Api<Pod>,
    /// By UID: a later Pod of the same name is another one.
    workers: BTreeMap<String, watch::Sender<Update>>,
    binding: BTreeSet<String>,
    /// UIDs told by the list that is under way.
    listed: BTreeSet<String>,
    tasks: JoinSet<()>,
}

/// Until `shutdown`; then until every process has ended.
pub(super) async fn run(shared: Arc<Shared>, api: Api<Pod>, mut shutdown: watch::Receiver<Option<Duration>>) {
    let mut stream = std::pin::pin!(watcher(api.clone(), watcher::Config::default()));
    let mut pods = Pods {
        shared,
        api,
        workers: BTreeMap::new(),
        binding: BTreeSet::new(),
        listed: BTreeSet::new(),
        tasks: JoinSet::new(),
    };

    let grace = loop {
        let event = tokio::select! {
            grace = ended(&mut shutdown) => break grace,
            event = stream.try_next() => event,
        };
        match event {
            Ok(Some(event)) => pods.on(event),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the watch of the Pods failed and is set up again");
                tokio::time::sleep(PAUSE).await;
            }
        }

        pods.sweep();
    };

    for worker in pods.workers.values() {
        worker.send_replace(Update::Shutdown(grace));
    }

    // Bindings that are still under way are no longer needed.
    while !pods.workers.is_empty() && pods.tasks.join_next().await.is_some() {
        pods.sweep();
    }
}

async fn ended(shutdown: &mut watch::Receiver<Option<Duration>>) -> Duration {
    // An error means that the runner is gone, which aborts this task as well.
    shutdown
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|grace| *grace)
        .unwrap_or_default()
}

impl Pods {
    fn on(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(pod.metadata.uid.clone());
                self.apply(pod);
            }
            Event::InitDone => {
                for (uid, worker) in &self.workers {
                    if !self.listed.contains(uid) {
                        worker.send_replace(Update::Gone);
                    }
                }
            }
            Event::Apply(pod) => self.apply(pod),
            Event::Delete(pod) => {
                let worker = pod.metadata.uid.as_ref().and_then(|uid| self.workers.get(uid));
                if let Some(worker) = worker {
                    worker.send_replace(Update::Gone);
                }
            }
        }
    }

    fn apply(&mut self, pod: Pod) {
        let (Some(uid), Some(spec)) = (pod.metadata.uid.clone(), &pod.spec) else {
            return;
        };
        match spec.node_name.as_deref().filter(|node| !node.is_empty()) {
            None => self.bind(uid, pod),
            Some(node) if node == self.shared.config.node => self.work(uid, Arc::new(pod)),
            Some(_) => {}
        }
    }

    fn bind(&mut self, uid: String, pod: Pod) {
        let gated = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some());
        if gated || pod.metadata.deletion_timestamp.is_some() || !self.binding.insert(uid) {
            return;
        }

        let (shared, api) = (Arc::clone(&self.shared), self.api.clone());
        self.tasks
            .spawn(async move { api::bind(&api, &pod, &shared.config.node).await });
    }

    fn work(&mut self, uid: String, pod: Arc<Pod>) {
        if let Some(worker) = self.workers.get(&uid) {
            worker.send_replace(Update::Present(pod));
            return;
        }

        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return;
        }

        let (sender, receiver) = watch::channel(Update::Present(Arc::clone(&pod)));
        self.workers.insert(uid, sender);
        self.tasks
            .spawn(worker::run(Arc::clone(&self.shared), self.api.clone(), pod, receiver));
    }

    /// Forgets the workers that have finished.
    fn sweep(&mut self) {
        while let Some(joined) = self.tasks.try_join_next() {
            if let Err(error) = joined {
                tracing::error!(%error, "the task of a Pod failed");
            }
        }
        self.workers.retain(|_, worker| !worker.is_closed());
    }
}
