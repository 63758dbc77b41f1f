//! Reads the evidence: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only trigger the next list. So a missed event delays the state by
//! seconds and never makes it wrong.

mod controller_manager;
mod migration;

use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::migration::{CloudProviderMigration, Profile, Selected, Target};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::evidence::{ControllerManager, ControllerManagers, Reading};

use controller_manager::controller_manager_of;
pub use migration::{Migration, Own, follow_migration, follow_own_migration, follow_spec};

/// The period of lists without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long events are collected before the next pass.
const SETTLE: Duration = Duration::from_millis(250);
/// Lists at the same time: one hosted control plane has four.
const CONCURRENT: usize = 16;

#[derive(Debug, Clone, PartialEq)]
struct Location {
    /// The target of a hosted control plane; `None` for the cluster itself.
    target: Option<Target>,
    objects: Selector,
}

/// Follows every kube-controller-manager that can be read: in the hosted control planes that the migration's targets
/// name, else the mirror Pods in the cluster's own kube-system. After the object is deleted, its last targets are still
/// observed. `lease` is the migration lease's name.
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
        let mut places = Vec::new();
        while !stop.is_cancelled() {
            let object = migration.borrow_and_update().clone();
            if let Reading::Known(object) = &object {
                targets = Some(object.spec.targets.clone());
            }

            let reading = match (&targets, object) {
                (Some(targets), _) => {
                    let problems = lister.update(&mut places, targets).await;
                    wake.watch(&lister, &places);
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
                send_new(&tx, reading);
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

/// Sends a value that differs from the last one. Returns whether it does.
pub(crate) fn send_new<T: PartialEq>(tx: &watch::Sender<T>, value: T) -> bool {
    tx.send_if_modified(|old| {
        let is_new = *old != value;
        *old = value;
        is_new
    })
}

/// A namespace with the selector of its kube-controller-managers, and the last list of each kind in it.
struct Place {
    location: Location,
    namespace: String,
    lists: [LastList; Kind::ALL.len()],
}

/// The kinds of objects that have the command line of a kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    Deployment,
    StatefulSet,
    DaemonSet,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Pod, Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    fn resource(self) -> ApiResource {
        match self {
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        }
    }
}

/// The result of the last complete list of one kind, and why it cannot be listed now.
#[derive(Debug, Clone, Default, PartialEq)]
struct LastList {
    seen: Vec<ControllerManager>,
    problem: Option<String>,
}

fn all_of(places: &[Place], mut unreadable: Vec<String>) -> ControllerManagers {
    let lists = places.iter().flat_map(|place| &place.lists);
    let mut seen: Vec<ControllerManager> = lists.flat_map(|list| list.seen.clone()).collect();
    seen.sort_by(|a, b| a.object.cmp(&b.object));
    seen.dedup_by(|a, b| a.object == b.object);

    for place in places {
        let problems = place.lists.iter().filter_map(|list| list.problem.as_ref());
        let mut problems: Vec<String> = problems
            .map(|why| format!("Namespace {}: {why}", place.namespace))
            .collect();
        // An API server that does not answer has the same problem for each kind.
        problems.dedup();
        unreadable.append(&mut problems);
    }

    ControllerManagers {
        read: true,
        seen,
        unreadable,
    }
}

#[derive(Default)]
struct Wake {
    locations: Vec<(String, Selector)>,
    events: SelectAll<BoxStream<'static, ()>>,
}

impl Wake {
    fn watch(&mut self, lister: &Lister, places: &[Place]) {
        let locations = || places.iter().map(|place| (&place.namespace, &place.location.objects));
        if locations().eq(self.locations.iter().map(|(name, objects)| (name, objects))) {
            return;
        }

        self.locations = locations()
            .map(|(name, objects)| (name.clone(), objects.clone()))
            .collect();
        self.events = SelectAll::new();
        for place in places {
            let client = lister.client(&place.location).clone();
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, &place.namespace);
            let config = watcher::Config::default().labels_from(&place.location.objects);
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

struct Lister {
    management: Client,
    cluster: Client,
    /// The migration lease's name, which a configuration file must have.
    lease: String,
}

impl Lister {
    fn client(&self, location: &Location) -> &Client {
        match location.target {
            Some(_) => &self.management,
            None => &self.cluster,
        }
    }

    /// Lists every kind in every place. Returns what keeps places from being found.
    async fn update(&self, places: &mut Vec<Place>, targets: &[Target]) -> Vec<String> {
        let problems = match in_time(self.find(targets)).await {
            Ok(found) => {
                let old = std::mem::replace(places, found);
                for place in places.iter_mut() {
                    let is_same = |old: &&Place| {
                        old.namespace == place.namespace && old.location.objects == place.location.objects
                    };
                    if let Some(old) = old.iter().find(is_same) {
                        place.lists.clone_from(&old.lists);
                    }
                }
                Vec::new()
            }
            Err(error) => vec![error.to_string()],
        };
        let answers = list_all(places, |place, kind| self.list(place, kind)).await;
        update(places, answers);

        problems
    }

    async fn find(&self, targets: &[Target]) -> Result<Vec<Place>, ReadError> {
        let mut places = Vec::new();
        for location in locations(targets)? {
            for namespace in namespaces_of(self.client(&location), &location).await? {
                places.push(Place {
                    location: location.clone(),
                    namespace,
                    lists: Default::default(),
                });
            }
        }

        Ok(places)
    }

    fn list(&self, place: &Place, kind: Kind) -> impl Future<Output = Answer> + Send + use<> {
        let client = self.client(&place.location).clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &place.namespace, &kind.resource());
        let (objects, lease) = (place.location.objects.clone(), self.lease.clone());

        async move {
            let list = api.list(&ListParams::default().labels_from(&objects)).await?;
            let found = list.items.iter();
            Ok(found
                .filter_map(|object| controller_manager_of(kind, object, &objects, &lease))
                .collect())
        }
    }
}

type Answer = Result<Vec<ControllerManager>, ReadError>;

/// The answers for each kind in each place, in this order. The lists run at the same time, each with its own limit: one
/// that is refused or slow delays and hides no other one.
async fn list_all<F>(places: &[Place], list: impl Fn(&Place, Kind) -> F) -> Vec<Answer>
where
    F: Future<Output = Answer>,
{
    let mut requests = Vec::new();
    for place in places {
        requests.extend(Kind::ALL.map(|kind| in_time(list(place, kind))));
    }

    stream::iter(requests).buffered(CONCURRENT).collect().await
}

fn update(places: &mut [Place], answers: Vec<Answer>) {
    let lists = places.iter_mut().flat_map(|place| &mut place.lists);
    for (list, answer) in lists.zip(answers) {
        // A list that fails keeps the last one. An old bad fact outweighs a new failure to read.
        match answer {
            Ok(seen) => *list = LastList { seen, problem: None },
            Err(error) => list.problem = Some(error.to_string()),
        }
    }
}

async fn in_time<T>(read: impl Future<Output = Result<T, ReadError>>) -> Result<T, ReadError> {
    let answer = timeout(READ_TIMEOUT, read).await;
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
    let mut hosted = targets
        .iter()
        .filter(|target| target.profile == Profile::HostedControlPlane)
        .peekable();
    if hosted.peek().is_none() {
        // kubeadm and RKE2 use the first label, kOps and most self-hosted control planes the second.
        let of_label = |key| Location {
            target: None,
            objects: [(key, "kube-controller-manager")].into_iter().collect(),
        };
        return Ok(["component", "k8s-app"].map(of_label).to_vec());
    }

    let locations = hosted.filter(|target| !target.selects_nothing()).map(|target| {
        let objects = target.object_selector.clone();
        Ok(Location {
            target: Some(target.clone()),
            objects: objects.map_or(Ok(Selector::default()), Selector::try_from)?,
        })
    });
    locations.collect()
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
    use crate::evidence::tests::{UNGUARDED, kcm};

    fn place() -> Place {
        Place {
            location: locations(&[]).unwrap().remove(0),
            namespace: "kube-system".into(),
            lists: Default::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_refused_or_slow_hides_no_other_one_and_keeps_its_last_list() {
        let of_kind = |kind: Kind| ControllerManager {
            object: format!("{kind:?} tenant/kcm"),
            ..kcm(UNGUARDED)
        };
        let mut places = vec![place()];
        let answers = list_all(&places, |_, kind| async move { Ok(vec![of_kind(kind)]) }).await;
        update(&mut places, answers);
        assert_eq!(all_of(&places, Vec::new()).seen.len(), 4);

        let answers = list_all(&places, |_, kind| async move {
            match kind {
                Kind::Pod => Ok(vec![of_kind(kind), kcm(UNGUARDED)]),
                Kind::Deployment => Err(ReadError::TimedOut(READ_TIMEOUT)),
                Kind::StatefulSet => std::future::pending().await,
                Kind::DaemonSet => {
                    sleep(READ_TIMEOUT / 2).await;
                    Ok(Vec::new())
                }
            }
        });
        let start = Instant::now();
        let answers = answers.await;
        update(&mut places, answers);
        assert_eq!(start.elapsed(), READ_TIMEOUT);

        let all = all_of(&places, Vec::new());
        let objects: Vec<&str> = all.seen.iter().map(|seen| seen.object.as_str()).collect();
        assert_eq!(
            objects,
            [
                "Deployment tenant/kcm",
                "Pod tenant/kcm",
                "Pod tenant/kcm-0",
                "StatefulSet tenant/kcm"
            ]
        );
        assert_eq!(all.unreadable, ["Namespace kube-system: no answer within 10s"]);
    }

    #[test]
    fn only_a_new_value_is_sent() {
        let (tx, mut rx) = watch::channel(1);
        for (value, is_new) in [(1, false), (2, true), (2, false)] {
            assert_eq!(send_new(&tx, value), is_new);
            assert_eq!(rx.has_changed().unwrap(), is_new);
            assert_eq!(*rx.borrow_and_update(), value);
        }
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
    fn what_is_there_at_the_start_wakes_the_reader_once() {
        use watcher::Event;
        let events = [Event::Init, Event::InitApply(1), Event::InitApply(2), Event::InitDone];
        assert_eq!(events.into_iter().filter_map(is_change).count(), 1);
    }
}
