//! Reads the evidence: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only trigger the next list. So a missed event delays the state by
//! seconds and never makes it wrong.

use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::component::{Form, controller_manager_form};
use outrigger_shared::migration::{CloudProviderMigration, Phase, Profile, Selected, Target};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::evidence::{ControllerManager, Reading};
use crate::gate::MigrationSpec;

/// The period of lists without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// Time limit of all lists of one pass together.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long events are collected before the next pass.
const SETTLE: Duration = Duration::from_millis(250);

/// Follows the migration object `name`. Deleted, forbidden and unreachable are all [`Reading::Unreadable`].
#[must_use]
pub fn follow_migration(
    client: Client,
    name: &str,
    stop: CancellationToken,
) -> watch::Receiver<Reading<CloudProviderMigration>> {
    let (tx, rx) = watch::channel(Reading::Unreadable("not read yet".into()));
    let api: Api<CloudProviderMigration> = Api::all(client);
    let mut events = watcher::watch_object(api, name).default_backoff().boxed();
    let name = name.to_owned();

    tokio::spawn(async move {
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            let reading = match event {
                Ok(Some(object)) => Reading::Known(object),
                Ok(None) => Reading::Unreadable(format!("there is no CloudProviderMigration {name}")),
                Err(error) => Reading::Unreadable(format!("CloudProviderMigration {name} cannot be read: {error}")),
            };
            if let Reading::Unreadable(why) = &reading {
                tx.send_if_modified(|old| {
                    let changed = *old != reading;
                    if changed {
                        tracing::error!(why, "cannot read the CloudProviderMigration; keeping current leases and following the phase of the latch");
                        *old = reading.clone();
                    }
                    changed
                });
            } else {
                tx.send_replace(reading);
            }
        }
    });

    rx
}

/// The part of the object that the gate needs, kept current.
#[must_use]
pub fn follow_spec(
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<(MigrationSpec, Option<Phase>)>> {
    let (tx, rx) = watch::channel(spec_of(&migration.borrow()));
    tokio::spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(migration.changed()).await {
            let next = spec_of(&migration.borrow());
            tx.send_if_modified(|old| {
                *old != next && {
                    *old = next;
                    true
                }
            });
        }
    });

    rx
}

fn spec_of(reading: &Reading<CloudProviderMigration>) -> Reading<(MigrationSpec, Option<Phase>)> {
    match reading {
        Reading::Unreadable(why) => Reading::Unreadable(why.clone()),
        Reading::Known(object) => {
            let (uid, phase, downtime) = (
                object.uid().unwrap_or_default(),
                object.spec.phase,
                object.spec.downtime,
            );
            Reading::Known((MigrationSpec { uid, phase, downtime }, object.spec.attested_phase))
        }
    }
}

/// Where to list kube-controller-managers.
#[derive(Debug, Clone, PartialEq)]
struct Location {
    /// The target of a hosted control plane; `None` for the cluster itself.
    target: Option<Target>,
    objects: Selector,
}

/// Follows every kube-controller-manager that can be read: in the hosted control planes that the migration's targets
/// name, else the mirror Pods in the cluster's own kube-system. After the object is deleted, its last targets are still
/// observed.
#[must_use]
pub fn follow_controller_managers(
    management: Client,
    cluster: Client,
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<Vec<ControllerManager>>> {
    let (tx, rx) = watch::channel(Reading::Unreadable("not read yet".into()));
    tokio::spawn(async move {
        let mut wake = Wake::default();
        let mut targets = None;
        while !stop.is_cancelled() {
            if let Reading::Known(object) = &*migration.borrow_and_update() {
                targets = Some(object.spec.targets.clone());
            }

            if let Some(targets) = &targets {
                let observed = timeout(READ_TIMEOUT, observe(&management, &cluster, targets)).await;
                let reading = match observed.unwrap_or(Err(ReadError::TimedOut(READ_TIMEOUT))) {
                    Ok((seen, watched)) => {
                        wake.watch(watched);
                        Reading::Known(seen)
                    }
                    Err(error) => Reading::Unreadable(error.to_string()),
                };

                tx.send_if_modified(|old| {
                    *old != reading && {
                        *old = reading;
                        true
                    }
                });
            }

            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = migration.changed() => {}
                () = wake.next() => wake.settle().await,
                () = sleep(LIST_AGAIN) => {}
            }
        }
    });

    rx
}

type Watched = Vec<(Client, String, Selector)>;

/// Watches of Pods that trigger the next pass.
#[derive(Default)]
struct Wake {
    locations: Vec<(String, Selector)>,
    events: SelectAll<BoxStream<'static, ()>>,
}

impl Wake {
    fn watch(&mut self, found: Watched) {
        let locations = || found.iter().map(|(_, name, objects)| (name, objects));
        if locations().eq(self.locations.iter().map(|(name, objects)| (name, objects))) {
            return;
        }

        self.locations = locations()
            .map(|(name, objects)| (name.clone(), objects.clone()))
            .collect();
        self.events = SelectAll::new();
        for (client, namespace, objects) in found {
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, &namespace);
            let config = watcher::Config::default().labels_from(&objects);
            let events = watcher(pods, config).default_backoff();
            let changes = events.filter_map(|event| std::future::ready(event.ok().and_then(is_change)));
            self.events.push(changes.boxed());
        }
    }

    async fn next(&mut self) {
        if self.events.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Collects events that follow each other closely, such as those of a rollout, into one pass.
    async fn settle(&mut self) {
        let end = Instant::now() + SETTLE;
        while timeout_at(end, self.next()).await.is_ok() {}
    }
}

/// `Some` for an event after which a list may have another result. The initial Pods were just listed; `InitDone` covers
/// changes since then.
fn is_change<T>(event: watcher::Event<T>) -> Option<()> {
    match event {
        watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone => Some(()),
        watcher::Event::Init | watcher::Event::InitApply(_) => None,
    }
}

async fn observe(
    management: &Client,
    cluster: &Client,
    targets: &[Target],
) -> Result<(Vec<ControllerManager>, Watched), ReadError> {
    let (mut seen, mut watched) = (Vec::new(), Vec::new());
    for location in locations(targets)? {
        let client = if location.target.is_some() { management } else { cluster };
        for namespace in namespaces_of(client, &location).await? {
            seen.extend(list_in(client, &namespace, &location.objects).await?);
            watched.push((client.clone(), namespace, location.objects.clone()));
        }
    }

    seen.sort_by(|a, b| a.object.cmp(&b.object));
    seen.dedup_by(|a, b| a.object == b.object);

    Ok((seen, watched))
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("a selector of spec.targets is invalid: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
    #[error("{0}")]
    Request(#[from] kube::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

fn locations(targets: &[Target]) -> Result<Vec<Location>, ReadError> {
    let mut locations = Vec::new();
    for target in targets
        .iter()
        .filter(|target| target.profile == Profile::HostedControlPlane)
    {
        if target.selects_nothing() {
            continue;
        }

        let objects = target.object_selector.clone();
        locations.push(Location {
            target: Some(target.clone()),
            objects: objects.map_or(Ok(Selector::default()), Selector::try_from)?,
        });
    }

    if !targets
        .iter()
        .any(|target| target.profile == Profile::HostedControlPlane)
    {
        // kubeadm and RKE2 use the first label, kOps and most self-hosted control planes the second.
        for key in ["component", "k8s-app"] {
            locations.push(Location {
                target: None,
                objects: [(key, "kube-controller-manager")].into_iter().collect(),
            });
        }
    }

    Ok(locations)
}

async fn namespaces_of(client: &Client, location: &Location) -> Result<Vec<String>, kube::Error> {
    let Some(target) = &location.target else {
        return Ok(vec!["kube-system".to_owned()]);
    };

    let found = Api::<Namespace>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await?;
    let selected = |namespace: &&PartialObjectMeta<Namespace>| {
        target.selects_namespace(&namespace.name_any(), Some(namespace.labels()), None) == Selected::Yes
    };
    Ok(found.items.iter().filter(selected).map(ResourceExt::name_any).collect())
}

async fn list_in(client: &Client, namespace: &str, objects: &Selector) -> Result<Vec<ControllerManager>, kube::Error> {
    let mut seen = Vec::new();
    let kinds = [
        ("Pod", ApiResource::erase::<Pod>(&())),
        ("Deployment", ApiResource::erase::<Deployment>(&())),
        ("StatefulSet", ApiResource::erase::<StatefulSet>(&())),
        ("DaemonSet", ApiResource::erase::<DaemonSet>(&())),
    ];

    for (kind, resource) in kinds {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let list = api.list(&ListParams::default().labels_from(objects)).await?;
        seen.extend(
            list.items
                .iter()
                .filter_map(|object| controller_manager_of(kind, object)),
        );
    }

    Ok(seen)
}

/// The kube-controller-manager of an object, unless it is scaled to zero or has ended.
fn controller_manager_of(kind: &str, object: &DynamicObject) -> Option<ControllerManager> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let (pod_spec, running) = if kind == "Pod" {
        let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        (!over).then_some((spec, true))?
    } else {
        let stopped = kind != "DaemonSet" && spec["replicas"].as_i64() == Some(0);
        (!stopped).then_some((&spec["template"]["spec"], false))?
    };
    let mut form = controller_manager_form(pod_spec)?;
    // Pods of an older template may still run until the rollout is complete. A template without leader migration blocks
    // in any case.
    let guarded = !matches!(
        form,
        Form::InTree {
            leader_migration: false
        }
    );

    if guarded && !running && !is_rolled_out(kind, object) {
        form = Form::Unreadable {
            reason: "its rollout is not complete, so Pods of an older template may still run".into(),
        };
    }

    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some(ControllerManager {
        object: format!("{kind} {namespace}/{}", object.name_any()),
        form,
        running,
    })
}

/// Whether the workload's status says that every Pod has the current template.
fn is_rolled_out(kind: &str, object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let current = status["observedGeneration"].as_i64() >= object.metadata.generation;
    let (all, updated) = match kind {
        "DaemonSet" => ("desiredNumberScheduled", "updatedNumberScheduled"),
        _ => ("replicas", "updatedReplicas"),
    };
    let wanted = object.data["spec"]["replicas"].as_i64().unwrap_or(1);
    let complete = kind == "DaemonSet" || count(updated) >= wanted;

    current && complete && count(updated) == count(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(data: Value) -> DynamicObject {
        let mut object = DynamicObject::new("kcm", &ApiResource::erase::<Pod>(&())).within("tenant");
        object.data = data;
        object
    }

    fn container(flags: &[&str]) -> Value {
        let mut command = vec!["kube-controller-manager", "--cloud-provider=aws"];
        command.extend(flags);
        json!({"containers": [{"name": "kube-controller-manager", "image": "kube-controller-manager:v1.26.13", "command": command}]})
    }

    #[test]
    fn a_finished_pod_and_a_workload_without_replicas_run_nothing() {
        let pod = |phase: &str| object(json!({"spec": container(&[]), "status": {"phase": phase}}));
        assert!(controller_manager_of("Pod", &pod("Succeeded")).is_none());
        let seen = controller_manager_of("Pod", &pod("Pending")).unwrap();
        assert!(seen.running && seen.is_unguarded());
        assert_eq!(seen.object, "Pod tenant/kcm");
        let workload = |replicas: i64| {
            object(json!({
                "spec": {"replicas": replicas, "template": {"spec": container(&["--enable-leader-migration"])}},
                "status": {"replicas": replicas, "updatedReplicas": replicas},
            }))
        };
        assert!(controller_manager_of("Deployment", &workload(0)).is_none());
        let seen = controller_manager_of("Deployment", &workload(1)).unwrap();
        assert_eq!(
            (seen.running, seen.form),
            (false, Form::InTree { leader_migration: true })
        );
    }

    #[test]
    fn an_empty_selector_of_a_hosted_profile_matches_nothing() {
        let target = |namespaces| Target {
            profile: Profile::HostedControlPlane,
            namespace_selector: namespaces,
            object_selector: None,
        };
        assert!(locations(&[target(None)]).unwrap().is_empty());
        assert!(locations(&[target(Some(Default::default()))]).unwrap().is_empty());
        assert!(locations(&[]).unwrap()[0].target.is_none());
    }

    #[test]
    fn a_template_counts_as_what_runs_only_when_no_older_pod_is_left() {
        let workload = |flags: &[&str], generation: i64, status: Value| {
            let mut workload =
                object(json!({"spec": {"replicas": 2, "template": {"spec": container(flags)}}, "status": status}));
            workload.metadata.generation = Some(generation);
            controller_manager_of("Deployment", &workload).unwrap().form
        };
        let guarded = ["--enable-leader-migration"];
        let status =
            |all: i64, updated: i64| json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated});
        assert_eq!(
            workload(&guarded, 2, status(2, 2)),
            Form::InTree { leader_migration: true }
        );
        for (generation, status) in [(2, status(3, 2)), (2, status(2, 1)), (2, json!({})), (3, status(2, 2))] {
            let form = workload(&guarded, generation, status.clone());
            assert!(matches!(form, Form::Unreadable { .. }), "{generation} {status}");
        }
        let unguarded = workload(&[], 3, json!({}));
        assert_eq!(
            unguarded,
            Form::InTree {
                leader_migration: false
            }
        );
    }

    #[test]
    fn what_is_there_at_the_start_wakes_the_reader_once() {
        use watcher::Event;
        let events = [Event::Init, Event::InitApply(1), Event::InitApply(2), Event::InitDone];
        assert_eq!(events.into_iter().filter_map(is_change).count(), 1);
    }
}
