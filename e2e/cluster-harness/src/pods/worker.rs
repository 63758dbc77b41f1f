//! One task per Pod: its containers, its status, its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Pod};
use kube::Api;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use super::api;
use super::container::{ProcessIdentity, RestartPolicy, Runner};
use super::plan::{self, Refusal};
use super::status::{ContainerState, StatusWriter};

/// A kubelet's grace period where the Pod names none.
const DEFAULT_GRACE: u64 = 30;
const RETRY: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
pub(super) enum Update {
    /// As the API server has it.
    Present(Arc<Pod>),
    /// The API server has forgotten it.
    Gone,
    /// The runner shuts down: processes end within this time, and nothing is written to the API server.
    Shutdown(Duration),
}

/// Runs a Pod that is bound to the node, until its processes have ended and its deletion is confirmed.
pub(super) async fn run(shared: Arc<Shared>, api: Api<Pod>, pod: Arc<Pod>, mut updates: watch::Receiver<Update>) {
    let (states, stop) = (watch::channel(Vec::new()).0, watch::channel(None).0);
    let mut containers = if pod.metadata.deletion_timestamp.is_none() {
        start(&shared, &pod, &states, &stop)
    } else {
        JoinSet::new()
    };
    let mut status = Posted {
        writer: StatusWriter::new(Timestamp::now()),
        last: Value::Null,
    };
    let mut changes = states.subscribe();
    let (grace, deleted) = loop {
        // Seen before it is read: what changes from here on wakes the loop again.
        let now = changes.borrow_and_update().clone();
        let posted = now.is_empty() || status.post(&api, &pod, &now).await;
        if let Some(end) = end(&updates.borrow_and_update(), &pod) {
            break end;
        }

        tokio::select! {
            // The senders live in this function and in the runner; when the runner is gone this task is aborted.
            _ = changes.changed() => {}
            _ = updates.changed() => {}
            () = tokio::time::sleep(RETRY), if !posted => {}
        }
    };

    stop.send_replace(Some(grace));
    while let Some(joined) = containers.join_next().await {
        if let Err(error) = joined {
            tracing::error!(%error, "a container's task failed");
        }
    }

    if deleted {
        let last = states.borrow().clone();
        if !last.is_empty() && !status.post(&api, &pod, &last).await {
            tracing::warn!(pod = ?pod.metadata.name, "the last status of the Pod was not written");
        }
        api::confirm_deletion(&api, &pod).await;
    }
}

/// How long the processes of a Pod may take to end, and whether it was deleted; `None` while it stays.
fn end(update: &Update, pod: &Pod) -> Option<(Duration, bool)> {
    let grace = |seconds: Option<i64>| {
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Duration::from_secs(seconds.unwrap_or(DEFAULT_GRACE))
    };
    let usual = grace(pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds));
    match update {
        Update::Present(pod) => {
            pod.metadata.deletion_timestamp.as_ref()?;
            Some((grace(pod.metadata.deletion_grace_period_seconds), true))
        }
        Update::Gone => Some((usual, false)),
        Update::Shutdown(grace) => Some((usual.min(*grace), false)),
    }
}

struct Posted {
    writer: StatusWriter,
    last: Value,
}

impl Posted {
    /// Writes the status if it differs from what was written last; false when that failed.
    async fn post(&mut self, api: &Api<Pod>, pod: &Pod, states: &[ContainerState]) -> bool {
        let patch = self.writer.patch(pod, states, Timestamp::now());
        if patch == self.last {
            return true;
        }

        let done = api::post_status(api, pod, &patch).await;
        if done {
            self.last = patch;
        }

        done
    }
}

/// Starts what can be started; what cannot waits with its reason.
fn start(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    states: &watch::Sender<Vec<ContainerState>>,
    stop: &watch::Sender<Option<Duration>>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let Some(spec) = &pod.spec else { return tasks };
    let allowed = plan::check_pod(pod).and_then(|()| prepare_volumes(pod));
    let plans: Vec<_> = spec
        .containers
        .iter()
        .map(|container| {
            allowed
                .clone()
                .and_then(|()| plan::plan(pod, container, &shared.config.images))
        })
        .collect();

    states.send_replace(
        plans
            .iter()
            .map(|plan| {
                plan.as_ref()
                    .map_or_else(ContainerState::refused, |_| ContainerState::creating())
            })
            .collect(),
    );

    for (index, plan) in plans.into_iter().enumerate() {
        let Ok(plan) = plan.inspect_err(|refusal| tracing::warn!(pod = ?pod.metadata.name, %refusal, "not run")) else {
            continue;
        };

        let runner = Runner {
            shared: Arc::clone(shared),
            identity: ProcessIdentity {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                pod: pod.metadata.name.clone().unwrap_or_default(),
                occurrence: shared.occurrence(pod),
                uid: pod.metadata.uid.clone().unwrap_or_default(),
                container: (spec.containers.len() > 1).then(|| plan.container.clone()),
                index,
                restarts: 0,
            },
            plan,
            policy: RestartPolicy::parse(spec.restart_policy.as_deref()),
            index,
            states: states.clone(),
            stop: stop.subscribe(),
        };

        tasks.spawn(runner.run());
    }

    tasks
}

/// Makes and checks host paths as their `type` says.
fn prepare_volumes(pod: &Pod) -> Result<(), Refusal> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        if let Some(source) = &volume.host_path {
            prepare(source).map_err(|problem| {
                Refusal::config(format!("volume {}: hostPath {}: {problem}", volume.name, source.path))
            })?;
        }
    }

    Ok(())
}

fn prepare(source: &HostPathVolumeSource) -> Result<(), String> {
    let path = Path::new(&source.path);
    let made = match source.type_.as_deref() {
        None | Some("") => Ok(()),
        Some("DirectoryOrCreate") => std::fs::create_dir_all(path),
        Some("FileOrCreate") => std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(drop),
        Some("Directory") if path.is_dir() => Ok(()),
        Some("File") if path.is_file() => Ok(()),
        Some(kind @ ("Directory" | "File")) => return Err(format!("is no {kind}")),
        Some(other) => return Err(format!("type {other} is not checked here: use Directory or File")),
    };

    made.map_err(|error| error.to_string())
}
