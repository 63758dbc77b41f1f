//! Reads the evidence: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only trigger the next list. So a missed event delays the state by
//! seconds and never makes it wrong.

mod controller_manager;
mod migration;

use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::migration::{CloudProviderMigration, Profile, Selected, Target};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::evidence::{ControllerManager, ControllerManagers, Reading};

use controller_manager::controller_manager_of;
pub use migration::{Own, follow_migration, follow_spec};

/// The period of lists without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// Time limit of all lists of one pass together.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long events are collected before the next pass.
const SETTLE: Duration = Duration::from_millis(250);

/// Where to list kube-controller-managers.
#[derive(Debug, Clone, PartialEq)]
struct Location {
    /// The target of a hosted control plane; `None` for the cluster itself.
    target: Option<Target>,
    objects: Selector,
}

/// Follows every kube-controller-manager that can be read: in the hosted control planes that the migration's targets
/// name, else the mirror Pods in the cluster's own kube-system. After the object is deleted, its last targets are still
/// observed. `lease` is the migration lease's name.
#[must_use]
pub fn follow_controller_managers(
    management: Client,
    cluster: Client,
    lease: &str,
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<ControllerManagers> {
    let (tx, rx) = watch::channel(ControllerManagers::default());
    let lister = Lister {
        management,
        cluster,
        lease: lease.to_owned(),
    };
    tokio::spawn(async move {
        let mut wake = Wake::default();
        let mut targets = None;
        let mut places = Places::new();
        while !stop.is_cancelled() {
            let object = migration.borrow_and_update().clone();
            if let Reading::Known(object) = &object {
                targets = Some(object.spec.targets.clone());
            }

            let reading = match (&targets, object) {
                (Some(targets), _) => {
                    let problems = lister.update(&mut places, targets).await;
                    wake.watch(&places);
                    Some(all_of(&places, problems))
                }
                (None, Reading::Unreadable(why)) => Some(ControllerManagers {
                    read: true,
                    seen: Vec::new(),
                    unreadable: vec![format!("the object that names them is unreadable: {why}")],
                }),
                (None, _) => None,
            };
            if let Some(reading) = reading {
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

/// A namespace with the selector of its kube-controller-managers, and what its last list had.
struct Place {
    client: Client,
    namespace: String,
    objects: Selector,
    seen: Vec<ControllerManager>,
    /// Why it cannot be listed now.
    problem: Option<String>,
}

type Places = Vec<Place>;

fn all_of(places: &Places, mut unreadable: Vec<String>) -> ControllerManagers {
    let mut seen: Vec<ControllerManager> = places.iter().flat_map(|place| place.seen.clone()).collect();
    seen.sort_by(|a, b| a.object.cmp(&b.object));
    seen.dedup_by(|a, b| a.object == b.object);

    let problems = places.iter().filter_map(|place| Some((place, place.problem.as_ref()?)));
    unreadable.extend(problems.map(|(place, why)| format!("Namespace {}: {why}", place.namespace)));

    ControllerManagers {
        read: true,
        seen,
        unreadable,
    }
}

/// Watches of Pods that trigger the next pass.
#[derive(Default)]
struct Wake {
    locations: Vec<(String, Selector)>,
    events: SelectAll<BoxStream<'static, ()>>,
}

impl Wake {
    fn watch(&mut self, places: &Places) {
        let locations = || places.iter().map(|place| (&place.namespace, &place.objects));
        if locations().eq(self.locations.iter().map(|(name, objects)| (name, objects))) {
            return;
        }

        self.locations = locations()
            .map(|(name, objects)| (name.clone(), objects.clone()))
            .collect();
        self.events = SelectAll::new();
        for place in places {
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(place.client.clone(), &place.namespace);
            let config = watcher::Config::default().labels_from(&place.objects);
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

/// Lists kube-controller-managers.
struct Lister {
    management: Client,
    cluster: Client,
    /// The migration lease's name, which a configuration file must have.
    lease: String,
}

impl Lister {
    /// Lists every place. Returns what keeps places from being found; a place that cannot be listed keeps what its last
    /// list had, and the reason.
    async fn update(&self, places: &mut Places, targets: &[Target]) -> Vec<String> {
        let deadline = Instant::now() + READ_TIMEOUT;
        let found = in_time(deadline, self.find(targets)).await;
        let problems = match found {
            Ok(found) => {
                let old = std::mem::replace(places, found);
                for place in places.iter_mut() {
                    let same = |old: &&Place| old.namespace == place.namespace && old.objects == place.objects;
                    place.seen = old.iter().find(same).map_or(Vec::new(), |old| old.seen.clone());
                }
                Vec::new()
            }
            Err(error) => vec![error.to_string()],
        };

        for place in places {
            match in_time(deadline, self.list(place)).await {
                Ok(seen) => (place.seen, place.problem) = (seen, None),
                Err(error) => place.problem = Some(error.to_string()),
            }
        }

        problems
    }

    async fn find(&self, targets: &[Target]) -> Result<Places, ReadError> {
        let mut places = Places::new();
        for location in locations(targets)? {
            let client = match location.target {
                Some(_) => &self.management,
                None => &self.cluster,
            };
            for namespace in namespaces_of(client, &location).await? {
                places.push(Place {
                    client: client.clone(),
                    namespace,
                    objects: location.objects.clone(),
                    seen: Vec::new(),
                    problem: None,
                });
            }
        }

        Ok(places)
    }

    async fn list(&self, place: &Place) -> Result<Vec<ControllerManager>, ReadError> {
        let mut seen = Vec::new();
        let kinds = [
            ("Pod", ApiResource::erase::<Pod>(&())),
            ("Deployment", ApiResource::erase::<Deployment>(&())),
            ("StatefulSet", ApiResource::erase::<StatefulSet>(&())),
            ("DaemonSet", ApiResource::erase::<DaemonSet>(&())),
        ];

        for (kind, resource) in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.namespace, &resource);
            let list = api.list(&ListParams::default().labels_from(&place.objects)).await?;
            let found = list.items.iter();
            seen.extend(found.filter_map(|object| controller_manager_of(kind, object, &self.lease)));
        }

        Ok(seen)
    }
}

async fn in_time<T>(deadline: Instant, read: impl Future<Output = Result<T, ReadError>>) -> Result<T, ReadError> {
    let answer = timeout_at(deadline, read).await;
    answer.unwrap_or(Err(ReadError::TimedOut(READ_TIMEOUT)))
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_there_at_the_start_wakes_the_reader_once() {
        use watcher::Event;
        let events = [Event::Init, Event::InitApply(1), Event::InitApply(2), Event::InitDone];
        assert_eq!(events.into_iter().filter_map(is_change).count(), 1);
    }
}
