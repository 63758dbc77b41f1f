//! Reads what the evidence is made of: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only say when to list again. So a missed event costs seconds,
//! never correctness.

use std::time::Duration;

use futures::stream::{SelectAll, StreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector, SelectorExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::component::controller_manager_form;
use outrigger_shared::migration::{CloudProviderMigration, Phase, Profile, Target};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::evidence::{SeenControllerManager, Sight};
use crate::gate::Wish;

/// How long a list stands without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);

/// Follows the migration object `name`. Deleted, forbidden and unreachable are all [`Sight::Blind`].
#[must_use]
pub fn follow_migration(
    client: Client,
    name: &str,
    stop: CancellationToken,
) -> watch::Receiver<Sight<CloudProviderMigration>> {
    let (tx, rx) = watch::channel(Sight::Blind("not read yet".into()));
    let api: Api<CloudProviderMigration> = Api::all(client);
    let mut events = watcher::watch_object(api, name).default_backoff().boxed();
    let name = name.to_owned();
    tokio::spawn(async move {
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            let sight = match event {
                Ok(Some(object)) => Sight::Known(object),
                Ok(None) => Sight::Blind(format!("there is no CloudProviderMigration {name}")),
                Err(error) => Sight::Blind(format!("CloudProviderMigration {name} cannot be read: {error}")),
            };
            if let Sight::Blind(why) = &sight {
                tx.send_if_modified(|old| {
                    let news = *old != sight;
                    if news {
                        tracing::error!(why, "flying blind: keeping what is held, following what is latched");
                        *old = sight.clone();
                    }
                    news
                });
            } else {
                tx.send_replace(sight);
            }
        }
    });
    rx
}

/// What the gate needs of the object, kept current.
#[must_use]
pub fn wishes(
    mut migration: watch::Receiver<Sight<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Sight<(Wish, Option<Phase>)>> {
    let (tx, rx) = watch::channel(wish_of(&migration.borrow()));
    tokio::spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(migration.changed()).await {
            let next = wish_of(&migration.borrow());
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

fn wish_of(sight: &Sight<CloudProviderMigration>) -> Sight<(Wish, Option<Phase>)> {
    match sight {
        Sight::Blind(why) => Sight::Blind(why.clone()),
        Sight::Known(object) => {
            let (uid, phase, downtime) = (
                object.uid().unwrap_or_default(),
                object.spec.phase,
                object.spec.downtime,
            );
            Sight::Known((Wish { uid, phase, downtime }, object.spec.attested_phase))
        }
    }
}

/// Where kube-controller-managers are looked for.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    namespaces: Selector,
    objects: Selector,
    hosted: bool,
}

/// Follows every kube-controller-manager that can be read: in the hosted control planes that the migration's targets
/// name, else the mirror Pods in the cluster's own kube-system.
#[must_use]
pub fn follow_controller_managers(
    management: Client,
    cluster: Client,
    mut migration: watch::Receiver<Sight<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Sight<Vec<SeenControllerManager>>> {
    let (tx, rx) = watch::channel(Sight::Blind("not read yet".into()));
    tokio::spawn(async move {
        let mut wake = Wake::default();
        while !stop.is_cancelled() {
            let targets = match &*migration.borrow_and_update() {
                Sight::Known(object) => Some(object.spec.targets.clone()),
                Sight::Blind(_) => None,
            };
            if let Some(targets) = targets {
                let (sight, namespaces) = look(&management, &cluster, &targets).await;
                tx.send_if_modified(|old| {
                    *old != sight && {
                        *old = sight;
                        true
                    }
                });
                wake.watch(namespaces);
            }
            tokio::select! {
                () = stop.cancelled() => {}
                _ = migration.changed() => {}
                () = wake.next() => tokio::time::sleep(Duration::from_millis(50)).await,
                () = tokio::time::sleep(LIST_AGAIN) => {}
            }
        }
    });
    rx
}

/// Watches of Pods, whose only use is to wake the reader.
#[derive(Default)]
struct Wake {
    namespaces: Vec<String>,
    events: SelectAll<futures::stream::BoxStream<'static, ()>>,
}

impl Wake {
    fn watch(&mut self, found: Vec<(Client, String)>) {
        let names: Vec<String> = found.iter().map(|(_, name)| name.clone()).collect();
        if names == self.namespaces {
            return;
        }
        self.namespaces = names;
        self.events = SelectAll::new();
        for (client, namespace) in found {
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, &namespace);
            let events = watcher(pods, watcher::Config::default()).default_backoff();
            self.events
                .push(events.filter_map(|event| async { event.ok().map(drop) }).boxed());
        }
    }

    async fn next(&mut self) {
        if self.events.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

type Found = (Sight<Vec<SeenControllerManager>>, Vec<(Client, String)>);

async fn look(management: &Client, cluster: &Client, targets: &[Target]) -> Found {
    match try_look(management, cluster, targets).await {
        Ok((seen, namespaces)) => (Sight::Known(seen), namespaces),
        Err(error) => (Sight::Blind(error.to_string()), Vec::new()),
    }
}

async fn try_look(
    management: &Client,
    cluster: &Client,
    targets: &[Target],
) -> Result<(Vec<SeenControllerManager>, Vec<(Client, String)>), LookError> {
    let mut seen = Vec::new();
    let mut namespaces = Vec::new();
    for place in places(targets)? {
        let client = if place.hosted { management } else { cluster };
        for namespace in namespaces_of(client, &place).await? {
            seen.extend(list_in(client, &namespace, &place.objects).await?);
            namespaces.push((client.clone(), namespace));
        }
    }
    seen.sort_by(|a, b| a.object.cmp(&b.object));
    seen.dedup_by(|a, b| a.object == b.object);
    Ok((seen, namespaces))
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("a selector of spec.targets is invalid: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
    #[error("{0}")]
    Request(#[from] kube::Error),
}

fn places(targets: &[Target]) -> Result<Vec<Place>, LookError> {
    let mut places = Vec::new();
    for target in targets
        .iter()
        .filter(|target| target.profile == Profile::HostedControlPlane)
    {
        let selector = |labels: &Option<_>| labels.clone().map_or(Ok(Selector::default()), Selector::try_from);
        let empty = |labels: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>| {
            labels
                .as_ref()
                .is_some_and(|l| l.match_labels.is_none() && l.match_expressions.is_none())
        };
        let nothing = target.namespace_selector.is_none() && target.object_selector.is_none();
        if nothing || empty(&target.namespace_selector) || empty(&target.object_selector) {
            continue;
        }
        let (namespaces, objects) = (
            selector(&target.namespace_selector)?,
            selector(&target.object_selector)?,
        );
        places.push(Place {
            namespaces,
            objects,
            hosted: true,
        });
    }
    if !targets
        .iter()
        .any(|target| target.profile == Profile::HostedControlPlane)
    {
        let name = ("kubernetes.io/metadata.name", "kube-system");
        let component = ("component", "kube-controller-manager");
        places.push(Place {
            namespaces: [name].into_iter().collect(),
            objects: [component].into_iter().collect(),
            hosted: false,
        });
    }
    Ok(places)
}

async fn namespaces_of(client: &Client, place: &Place) -> Result<Vec<String>, kube::Error> {
    if !place.hosted {
        return Ok(vec!["kube-system".to_owned()]);
    }
    let found = Api::<Namespace>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await?;
    let empty = std::collections::BTreeMap::new();
    let matching = found
        .items
        .iter()
        .filter(|ns| place.namespaces.matches(ns.metadata.labels.as_ref().unwrap_or(&empty)));
    Ok(matching.map(ResourceExt::name_any).collect())
}

async fn list_in(
    client: &Client,
    namespace: &str,
    objects: &Selector,
) -> Result<Vec<SeenControllerManager>, kube::Error> {
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
        seen.extend(list.items.iter().filter_map(|object| seen_in(kind, object)));
    }
    Ok(seen)
}

/// One object, if it is about a kube-controller-manager that is meant to run.
fn seen_in(kind: &str, object: &DynamicObject) -> Option<SeenControllerManager> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let (pod_spec, running) = if kind == "Pod" {
        let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        (!over).then_some((spec, true))?
    } else {
        let stopped = kind != "DaemonSet" && spec["replicas"].as_i64() == Some(0);
        (!stopped).then_some((&spec["template"]["spec"], false))?
    };
    let form = controller_manager_form(pod_spec)?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some(SeenControllerManager {
        object: format!("{kind} {namespace}/{}", object.name_any()),
        form,
        running,
    })
}

#[cfg(test)]
mod tests {
    use outrigger_shared::component::Form;
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
        assert!(seen_in("Pod", &pod("Succeeded")).is_none());
        let seen = seen_in("Pod", &pod("Pending")).unwrap();
        assert!(seen.running && seen.is_unguarded());
        assert_eq!(seen.object, "Pod tenant/kcm");
        let workload = |replicas: i64| {
            object(
                json!({"spec": {"replicas": replicas, "template": {"spec": container(&["--enable-leader-migration"])}}}),
            )
        };
        assert!(seen_in("Deployment", &workload(0)).is_none());
        let seen = seen_in("Deployment", &workload(1)).unwrap();
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
        assert!(places(&[target(None)]).unwrap().is_empty());
        assert!(places(&[target(Some(Default::default()))]).unwrap().is_empty());
        assert!(!places(&[]).unwrap()[0].hosted);
    }
}
