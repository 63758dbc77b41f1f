//! Reads the evidence: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only trigger the next list. So a missed event delays the state by
//! seconds and never makes it wrong.

mod migration;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll, StreamExt, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::core::{DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_api_client::pages;
use outrigger_evidence::controller_manager::{Locks, ObjectKind, controller_manager_of, why_not_of_control_plane};
use outrigger_evidence::facts::{ControllerManager, ControllerManagers, Reading};
use outrigger_serving::Tasks;
use outrigger_shared::annotations;
use outrigger_shared::migration::{CloudProviderMigration, Profile, Selected, Target};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::lease::View;

pub use migration::{Migration, Own, follow_migration, follow_own_migration, follow_spec};

/// The period of lists without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long events are collected before the next pass.
const SETTLE: Duration = Duration::from_millis(250);
/// Objects of one page of a list.
const PAGE: u32 = 100;
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
/// observed. By `locks` they elect their leader; a new holder of lease K (`main`) causes another list at once.
pub fn follow_controller_managers(
    management: Client,
    cluster: Client,
    locks: Locks,
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    mut main: watch::Receiver<View>,
    tasks: &Tasks,
) -> watch::Receiver<Listing> {
    let (tx, rx) = watch::channel(Listing::default());
    let mut lister = Lister {
        management,
        cluster,
        locks,
    };
    let stop = tasks.stop().clone();
    tasks.spawn("list of the kube-controller-managers", async move {
        let mut wake = Wake::default();
        let mut targets = None;
        let mut places = Listing::default();
        while !stop.is_cancelled() {
            let object = migration.borrow_and_update().clone();
            let holder = main.borrow_and_update().named_holder().map(str::to_owned);
            if let Reading::Known(object) = &object {
                targets = Some(object.spec.targets.clone());
                lister.locks.main.clone_from(&object.spec.kube_controller_manager_lease);
            }

            match (&targets, object) {
                (Some(targets), _) => {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = lister.pass(&mut places, targets, &tx) => {}
                        // Its lists would be too old.
                        () = other_holder(&mut main, holder.as_deref()) => continue,
                    }
                    wake.watch(&lister, &places.places);
                }
                (None, Reading::Unreadable(why)) => {
                    let problem = format!("the object that names them is unreadable: {why}");
                    send_new(&tx, Listing::unreadable(problem));
                }
                (None, _) => {}
            }

            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = migration.changed() => {}
                () = other_holder(&mut main, holder.as_deref()) => {}
                () = wake.next(), if !places.is_new => wake.settle().await,
                () = sleep(LIST_AGAIN), if !places.is_new => {}
                () = async {}, if places.is_new => {}
            }
        }
    });

    rx
}

/// Waits until the lease has another holder; for ever if its watch has ended.
async fn other_holder(lease: &mut watch::Receiver<View>, holder: Option<&str>) {
    loop {
        if lease.borrow_and_update().named_holder() != holder {
            return;
        }
        if lease.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// All lists of kube-controller-managers, each with its time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The first pass over all places has ended.
    read: bool,
    places: Vec<Place>,
    /// The reason for which places cannot be found, and when the last search for them began.
    not_found: Option<String>,
    found: Option<Instant>,
    /// The last search found others: they are listed next.
    is_new: bool,
}

/// A namespace with the selector of its kube-controller-managers, and the last list of each kind in it.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    location: Location,
    namespace: String,
    lists: [List; ObjectKind::ALL.len()],
}

/// The last list of one kind in one place, and why it cannot be listed now.
#[derive(Debug, Clone, Default, PartialEq)]
struct List {
    answer: Judged,
    /// When the request of `answer` began.
    listed: Option<Instant>,
    /// When the last request began that has ended.
    tried: Option<Instant>,
    problem: Option<String>,
}

impl Listing {
    fn unreadable(problem: String) -> Self {
        Self {
            read: true,
            not_found: Some(problem),
            ..Self::default()
        }
    }

    /// The kube-controller-managers, for a holder of lease K that was first observed at `holder_since`. Only lists that
    /// began later are current.
    pub fn as_of(&self, holder_since: Option<Instant>) -> ControllerManagers {
        let is_later = |at: Option<Instant>| at.is_some_and(|at| holder_since.is_none_or(|since| at >= since));
        let of_list = |list: &List| {
            let current = list.problem.is_none() && is_later(list.listed);
            let seen = list.answer.seen.iter().cloned();
            seen.map(|seen| ControllerManager { current, ..seen })
                .collect::<Vec<_>>()
        };
        let mut seen: Vec<ControllerManager> = self.lists().flat_map(|(_, list)| of_list(list)).collect();
        // One object may be in two places.
        seen.sort_by(|a, b| (&a.object, b.current).cmp(&(&b.object, a.current)));
        seen.dedup_by(|a, b| a.object == b.object);

        let problems = self
            .lists()
            .filter_map(|(place, list)| Some((place, list.problem.as_ref()?)));
        let mut unreadable: Vec<String> = problems
            .map(|(place, why)| format!("Namespace {place}: {why}"))
            .collect();
        // An API server that does not answer has the same problem for each kind.
        unreadable.dedup();
        unreadable.extend(self.not_found.clone());
        let mut ignored: Vec<String> = self
            .lists()
            .flat_map(|(_, list)| list.answer.ignored.values().cloned())
            .collect();
        ignored.sort();
        ignored.dedup();

        ControllerManagers {
            read: self.read,
            seen,
            unreadable,
            ignored,
            current: self.lists().all(|(_, list)| is_later(list.tried))
                && (is_later(self.found) || self.not_found.is_some()),
        }
    }

    /// Each list with its namespace.
    fn lists(&self) -> impl Iterator<Item = (&str, &List)> {
        let places = self.places.iter();
        places.flat_map(|place| place.lists.iter().map(move |list| (place.namespace.as_str(), list)))
    }

    /// Takes in a search for places. Places that stay keep their lists.
    fn find(&mut self, began: Instant, answer: Result<Vec<Place>, ReadError>) {
        self.found = Some(began);
        self.is_new = false;
        let problem = answer.as_ref().err().map(ToString::to_string);
        note_problem(&mut self.not_found, problem, "list the Namespaces of spec.targets");
        let Ok(found) = answer else {
            return;
        };

        let same = |left: &Place, right: &Place| left.namespace == right.namespace && left.location == right.location;
        self.is_new = found
            .iter()
            .any(|place| !self.places.iter().any(|old| same(old, place)));
        let kept = found.into_iter().map(|place| {
            let old = self.places.iter().find(|old| same(old, &place)).cloned();
            old.unwrap_or(place)
        });
        self.places = kept.collect();
    }

    fn are_all_tried(&self) -> bool {
        self.lists().all(|(_, list)| list.tried.is_some())
    }

    fn take(&mut self, (place, kind): (usize, usize), began: Instant, answer: Answer) {
        let Some(place) = self.places.get_mut(place) else {
            return;
        };
        let list = &mut place.lists[kind];
        list.tried = Some(began);
        let request = format!("list {:?}s in Namespace {}", ObjectKind::ALL[kind], place.namespace);
        let problem = answer.as_ref().err().map(ToString::to_string);
        note_problem(&mut list.problem, problem, &request);
        // A list that fails keeps the last one. An old bad fact outweighs a new failure to read.
        if let Ok(answer) = answer {
            (list.answer, list.listed) = (answer, Some(began));
        }
    }
}

/// Sends a value that differs from the last one. Returns whether it does.
pub(crate) fn send_new<T: PartialEq>(tx: &watch::Sender<T>, value: T) -> bool {
    tx.send_if_modified(|old| {
        let is_new = *old != value;
        *old = value;
        is_new
    })
}

/// Keeps the reason why a request fails, and logs when it begins, changes or ends.
pub(crate) fn note_problem(problem: &mut Option<String>, new: Option<String>, request: &str) {
    match (&problem, &new) {
        (old, Some(error)) if old.as_ref() != Some(error) => tracing::warn!(error, "cannot {request}; retrying"),
        (Some(_), None) => tracing::info!("can {request} again"),
        _ => {}
    }
    *problem = new;
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
    locks: Locks,
}

/// The content of one list.
#[derive(Debug, Clone, Default, PartialEq)]
struct Judged {
    seen: Vec<ControllerManager>,
    /// By Node, a mirror Pod that is not believed, with the reason. Only one, because its kubelet decides how many there are.
    ignored: BTreeMap<String, String>,
}

impl Judged {
    /// Takes in the kube-controller-managers of a page. `ignored`: why the mirror Pods of a Node are not believed.
    fn take(
        &mut self,
        kind: ObjectKind,
        page: &[DynamicObject],
        ignored: &BTreeMap<String, Option<String>>,
        (listed, locks): (&Selector, &Locks),
    ) {
        for object in page {
            let Some(seen) = controller_manager_of(kind, object, listed, locks) else {
                continue;
            };
            let node = mirror_node(kind, object);
            match node.and_then(|node| Some((node, ignored.get(node)?.as_ref()?))) {
                Some((node, why)) => {
                    let texts = self.ignored.entry(node.to_owned());
                    texts.or_insert_with(|| format!("{}: {why}", seen.object));
                }
                None => self.seen.push(seen),
            }
        }
    }
}

type Answer = Result<Judged, ReadError>;

impl Lister {
    fn client(&self, location: &Location) -> &Client {
        match location.target {
            Some(_) => &self.management,
            None => &self.cluster,
        }
    }

    /// Searches for the places, and lists every kind in those that are known. Each answer is sent when it comes: one that
    /// is refused or slow delays and hides no other one.
    async fn pass(&self, places: &mut Listing, targets: &[Target], tx: &watch::Sender<Listing>) {
        let mut requests: Vec<((usize, usize), BoxFuture<'static, Answer>)> = Vec::new();
        for (index, place) in places.places.iter().enumerate() {
            for (kind, of_kind) in ObjectKind::ALL.into_iter().enumerate() {
                requests.push(((index, kind), self.list(place, of_kind).boxed()));
            }
        }
        gather(places, requests, self.find(targets), tx).await;
    }

    async fn find(&self, targets: &[Target]) -> Result<Vec<Place>, ReadError> {
        let mut places = Vec::new();
        for location in locations(targets)? {
            for namespace in namespaces_of(self.client(&location), &location).await? {
                places.push(Place {
                    location: location.clone(),
                    lists: <[List; 4]>::default(),
                    namespace,
                });
            }
        }

        Ok(places)
    }

    fn list(&self, place: &Place, kind: ObjectKind) -> impl Future<Output = Answer> + Send + use<> {
        let client = self.client(&place.location).clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &place.namespace, &kind.resource());
        let (objects, locks) = (place.location.objects.clone(), self.locks.clone());

        async move {
            let parameters = ListParams::default().labels_from(&objects).limit(PAGE);
            let mut pages = std::pin::pin!(pages(api, parameters));
            let (mut judged, mut ignored) = (Judged::default(), BTreeMap::new());
            while let Some(page) = pages.try_next().await? {
                for node in mirror_nodes(kind, &page) {
                    if !ignored.contains_key(node) {
                        ignored.insert(node.to_owned(), why_ignored(&client, node).await?);
                    }
                }
                judged.take(kind, &page, &ignored, (&objects, &locks));
            }
            Ok(judged)
        }
    }
}

/// The Nodes whose mirror Pods are among the objects. Each is asked for once, however many Pods its kubelet creates.
fn mirror_nodes(kind: ObjectKind, objects: &[DynamicObject]) -> BTreeSet<&str> {
    objects.iter().filter_map(|object| mirror_node(kind, object)).collect()
}

/// The Node of a mirror Pod; `None` for another object.
fn mirror_node(kind: ObjectKind, object: &DynamicObject) -> Option<&str> {
    let is_mirror = kind == ObjectKind::Pod && object.annotations().contains_key(annotations::MIRROR_POD);
    is_mirror.then(|| object.data["spec"]["nodeName"].as_str().unwrap_or_default())
}

/// Takes in the answers of these lists, and then of the search for places.
async fn gather(
    places: &mut Listing,
    requests: Vec<((usize, usize), BoxFuture<'static, Answer>)>,
    search: impl Future<Output = Result<Vec<Place>, ReadError>>,
    tx: &watch::Sender<Listing>,
) {
    let began = Instant::now();
    let limited = |(list, answer)| async move { (list, in_time(answer).await) }.boxed();
    let requests: Vec<BoxFuture<'static, ((usize, usize), Answer)>> = requests.into_iter().map(limited).collect();
    let mut answers = std::pin::pin!(stream::iter(requests).buffer_unordered(CONCURRENT));
    let mut search = std::pin::pin!(in_time(search));
    let mut found = None;

    loop {
        tokio::select! {
            answer = &mut search, if found.is_none() => found = Some(answer),
            Some((list, answer)) = answers.next() => {
                places.take(list, began, answer);
                places.read = places.read || places.are_all_tried();
                tx.send_replace(places.clone());
            }
            else => break,
        }
    }
    if let Some(answer) = found {
        places.find(began, answer);
    }
    places.read = places.read || !places.is_new && places.are_all_tried();
    tx.send_replace(places.clone());
}

/// Why the mirror Pods of a Node are not believed.
async fn why_ignored(client: &Client, name: &str) -> Result<Option<String>, ReadError> {
    let node = match name {
        "" => None,
        // The manager may list Nodes. A right to get them would be one more.
        name => {
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            let nodes = Api::<Node>::all(client.clone()).list_metadata(&named).await?;
            nodes.items.into_iter().next()
        }
    };
    Ok(why_not_of_control_plane(name, node.as_ref().map(ResourceExt::labels)))
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

    let selected = |namespace: &&Namespace| {
        target.selects_namespace(&namespace.name_any(), Some(namespace.labels()), None) == Selected::Yes
    };
    let all = Api::<Namespace>::all(client.clone());
    let mut pages = std::pin::pin!(pages(all, ListParams::default().limit(PAGE)));
    let mut names = Vec::new();
    while let Some(page) = pages.try_next().await? {
        names.extend(page.iter().filter(selected).map(ResourceExt::name_any));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::core::ApiResource;

    use super::*;

    use outrigger_evidence::controller_manager::CONTROL_PLANE;
    use outrigger_evidence::record::Record;
    use outrigger_evidence::samples::{EXTERNAL, UNGUARDED, kcm};

    const SECOND: Duration = Duration::from_secs(1);

    fn place(namespace: &str) -> Place {
        Place {
            location: locations(&[]).unwrap().remove(0),
            namespace: namespace.into(),
            lists: Default::default(),
        }
    }

    /// A place in which all lists began now, and the first one has this.
    fn place_with(namespace: &str, judged: Judged, problem: Option<&str>) -> Place {
        let now = Some(Instant::now());
        let mut place = place(namespace);
        for list in &mut place.lists {
            (list.tried, list.listed) = (now, now);
        }
        place.lists[0].answer = judged;
        place.lists[0].problem = problem.map(str::to_owned);
        place
    }

    fn listing(places: Vec<Place>) -> Listing {
        Listing {
            read: true,
            places,
            found: Some(Instant::now()),
            ..Listing::default()
        }
    }

    impl Listing {
        /// A list of one kind that begins now and has `all`. `problems`: why other lists fail.
        pub(crate) fn of(all: Vec<ControllerManager>, problems: &[&str]) -> Self {
            let seen = |seen| Judged {
                seen,
                ignored: BTreeMap::new(),
            };
            let failed = problems
                .iter()
                .map(|problem| place_with("tenant", seen(Vec::new()), Some(problem)));
            listing(failed.chain([place_with("tenant", seen(all), None)]).collect())
        }
    }

    fn places(namespaces: &[&str]) -> Listing {
        Listing {
            places: namespaces.iter().map(|namespace| place(namespace)).collect(),
            ..Listing::default()
        }
    }

    fn listed(objects: &[&str]) -> Answer {
        let seen = |object: &&str| ControllerManager {
            object: (*object).to_owned(),
            ..kcm(UNGUARDED)
        };
        Ok(Judged {
            seen: objects.iter().map(seen).collect(),
            ignored: BTreeMap::new(),
        })
    }

    /// One pass in which this answers each request, and the search finds the places again.
    async fn pass<F>(places: &mut Listing, tx: &watch::Sender<Listing>, answer: impl Fn(ObjectKind) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let found = places.places.iter().map(|old| place(&old.namespace)).collect();
        let mut requests = Vec::new();
        for index in 0..places.places.len() {
            for (kind, of_kind) in ObjectKind::ALL.into_iter().enumerate() {
                requests.push(((index, kind), answer(of_kind).boxed()));
            }
        }
        gather(places, requests, async { Ok(found) }, tx).await;
    }

    fn objects(all: &ControllerManagers) -> Vec<(&str, bool)> {
        all.seen
            .iter()
            .map(|seen| (seen.object.as_str(), seen.current))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_refused_or_slow_hides_and_delays_no_other_one_and_keeps_its_last_list() {
        let (tx, rx) = watch::channel(Listing::default());
        let mut places = places(&["kube-system"]);
        let name = |kind: ObjectKind| format!("{kind:?} tenant/kcm");
        pass(&mut places, &tx, |kind| async move { listed(&[&name(kind)]) }).await;
        let all = rx.borrow().as_of(Some(Instant::now()));
        assert!(all.read && all.current && all.unreadable.is_empty());
        assert_eq!(all.seen.len(), 4);

        tokio::time::advance(SECOND).await;
        let start = Instant::now();
        let passing = tokio::spawn(async move {
            pass(&mut places, &tx, |kind| async move {
                match kind {
                    ObjectKind::Pod => listed(&["Pod tenant/kcm", "Pod tenant/new"]),
                    ObjectKind::Deployment => Err(ReadError::TimedOut(READ_TIMEOUT)),
                    ObjectKind::StatefulSet => std::future::pending().await,
                    ObjectKind::DaemonSet => {
                        sleep(READ_TIMEOUT / 2).await;
                        listed(&[])
                    }
                }
            })
            .await;
        });
        let as_of = |since| rx.borrow().as_of(since);
        sleep(SECOND).await;
        let all = as_of(Some(start));
        assert!(all.read && !all.current);
        assert_eq!(
            objects(&all),
            [
                ("DaemonSet tenant/kcm", false),
                ("Deployment tenant/kcm", false),
                ("Pod tenant/kcm", true),
                ("Pod tenant/new", true),
                ("StatefulSet tenant/kcm", false)
            ],
            "the Pods are known at once"
        );

        passing.await.unwrap();
        assert_eq!(start.elapsed(), READ_TIMEOUT);
        let all = as_of(Some(start));
        assert!(all.current, "each list has ended, or failed");
        assert_eq!(
            objects(&all),
            [
                ("Deployment tenant/kcm", false),
                ("Pod tenant/kcm", true),
                ("Pod tenant/new", true),
                ("StatefulSet tenant/kcm", false)
            ]
        );
        assert_eq!(all.unreadable, ["Namespace kube-system: no answer within 10s"]);
        let later = as_of(Some(start + SECOND));
        assert!(
            !later.current && later.seen.iter().all(|seen| !seen.current),
            "another process holds lease K"
        );
        assert!(
            as_of(None).seen[1].current && !as_of(None).seen[0].current,
            "nobody holds it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_current_for_a_holder_that_was_observed_before_its_request_began() {
        let (tx, rx) = watch::channel(Listing::default());
        let mut places = places(&["kube-system"]);
        let start = Instant::now();
        pass(&mut places, &tx, |_| async {
            sleep(SECOND * 2).await;
            listed(&["Pod tenant/kcm"])
        })
        .await;
        for (since, is_current) in [
            (None, true),
            (Some(start), true),
            (Some(start + Duration::from_millis(1)), false),
            (Some(Instant::now()), false),
        ] {
            let all = rx.borrow().as_of(since);
            assert_eq!(
                (all.current, all.seen[0].current),
                (is_current, is_current),
                "{since:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_that_fails_keeps_the_places_and_is_a_problem() {
        let (tx, rx) = watch::channel(Listing::default());
        let mut places = places(&["kube-system"]);
        let pod = || ((0, 0), async { listed(&["Pod tenant/kcm"]) }.boxed());
        let fails = async { Err(ReadError::TimedOut(READ_TIMEOUT)) };
        gather(&mut places, vec![pod()], fails, &tx).await;
        let all = rx.borrow().as_of(None);
        assert_eq!(objects(&all), [("Pod tenant/kcm", true)]);
        assert_eq!(all.unreadable, ["no answer within 10s"]);
        assert!(!all.read, "three kinds were not asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_stay_keep_their_lists_and_new_ones_are_listed_before_all_are_read() {
        let (tx, rx) = watch::channel(Listing::default());
        let mut places = places(&["a", "gone"]);
        pass(&mut places, &tx, |_| async { listed(&["Pod a/kcm"]) }).await;
        assert!(!places.is_new && rx.borrow().as_of(None).read);

        places.find(Instant::now(), Ok(vec![place("a"), place("new")]));
        assert!(places.is_new);
        let namespaces: Vec<&str> = places.places.iter().map(|place| place.namespace.as_str()).collect();
        assert_eq!(namespaces, ["a", "new"]);
        let listing = places.clone().as_of(None);
        assert_eq!(objects(&listing), [("Pod a/kcm", true)]);
        assert!(!listing.current, "the new one was not listed");

        pass(&mut places, &tx, |_| async { listed(&[]) }).await;
        let all = rx.borrow().as_of(None);
        assert!(!places.is_new && all.read && all.current && all.seen.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_current_only_after_another_search_for_places() {
        let now = Instant::now();
        let mut listing = Listing::of(vec![kcm(EXTERNAL)], &[]);
        let since = Some(now + SECOND);
        for list in &mut listing.places[0].lists {
            (list.listed, list.tried) = (since, since);
        }
        let all = listing.as_of(since);
        assert!(!all.current && all.seen[0].current, "a new place may have the holder");
        listing.found = since;
        assert!(listing.as_of(since).current);

        let unreadable = Listing::unreadable("forbidden".into()).as_of(since);
        assert!(unreadable.read && unreadable.current, "no list can be awaited");
        assert_eq!(unreadable.unreadable, ["forbidden"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_in_two_places_counts_by_its_current_list() {
        let of_list = |form, problem: Option<&str>| {
            let judged = Judged {
                seen: vec![kcm(form)],
                ignored: [("worker".into(), "Pod x".into())].into(),
            };
            place_with("kube-system", judged, problem)
        };
        let (old, new) = (of_list(UNGUARDED, Some("forbidden")), of_list(EXTERNAL, None));
        for places in [[old.clone(), new.clone()], [new, old]] {
            let listing = listing(places.to_vec());
            let all = listing.as_of(None);
            assert_eq!(all.seen, [kcm(EXTERNAL)]);
            assert_eq!(all.ignored, ["Pod x"]);
            assert_eq!(all.unreadable, ["Namespace kube-system: forbidden"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_holder_of_the_main_lease_causes_another_list() {
        let (main, mut rx) = watch::channel(View::default());
        let renew = |holder: &str, second: i64| {
            let mut lease = DynamicObject::new("k", &ApiResource::erase::<Lease>(&()));
            let at = Timestamp::from_second(second).unwrap();
            Record::created_by(holder, SECOND * 15, at).write_to(&mut lease);
            lease.metadata.resource_version = Some(second.to_string());
            main.send_modify(|view| view.see(lease, Instant::now()));
        };
        renew("a", 1);
        assert!(timeout(SECOND, other_holder(&mut rx, None)).await.is_ok());
        renew("a", 2);
        assert!(
            timeout(SECOND, other_holder(&mut rx, Some("a"))).await.is_err(),
            "a renewal"
        );
        renew("b", 3);
        assert!(timeout(SECOND, other_holder(&mut rx, Some("a"))).await.is_ok());
        main.send_modify(|view| view.see_none(Instant::now()));
        assert!(timeout(SECOND, other_holder(&mut rx, Some("b"))).await.is_ok());
    }

    #[test]
    fn a_mirror_pod_is_believed_on_a_node_with_a_role_that_its_kubelet_cannot_set() {
        let labels = |key: &str| [(key.to_owned(), String::new())].into();
        for label in CONTROL_PLANE {
            assert_eq!(why_not_of_control_plane("a", Some(&labels(label))), None);
        }
        for of_worker in [
            None,
            Some(&BTreeMap::new()),
            Some(&labels("node.kubernetes.io/control-plane")),
        ] {
            let why = why_not_of_control_plane("a", of_worker).unwrap();
            assert!(why.starts_with(r#"it is a mirror Pod of Node "a""#), "{why}");
            assert!(
                why.ends_with("kubectl label node a node-role.kubernetes.io/control-plane="),
                "{why}"
            );
        }
    }

    #[tokio::test]
    async fn only_the_node_of_a_mirror_pod_is_asked_for() {
        let uri = "http://127.0.0.1:1".parse().unwrap();
        let client = Client::try_from(kube::Config::new(uri)).unwrap();
        let mut pod = DynamicObject::new("kcm", &ObjectKind::Pod.resource());
        pod.data = serde_json::json!({"spec": {}});
        let why = async |kind, pod: &DynamicObject| match mirror_node(kind, pod) {
            Some(node) => why_ignored(&client, node).await,
            None => Ok(None),
        };
        let ignored = async |kind, pod: &DynamicObject| why(kind, pod).await.unwrap();
        assert_eq!(
            ignored(ObjectKind::Pod, &pod).await,
            None,
            "the webhook sees each Pod that is no mirror Pod"
        );

        pod.annotations_mut()
            .insert(annotations::MIRROR_POD.into(), "hash".into());
        assert!(ignored(ObjectKind::Pod, &pod).await.is_some(), "it has no Node");
        assert_eq!(ignored(ObjectKind::Deployment, &pod).await, None);
        pod.data["spec"]["nodeName"] = "a".into();
        let unknown = why(ObjectKind::Pod, &pod).await;
        assert!(
            matches!(unknown, Err(ReadError::Request(_))),
            "a Node that cannot be read is a problem of the list"
        );
    }

    /// A worker's kubelet may create any number of mirror Pods.
    #[test]
    fn many_mirror_pods_of_one_node_cost_one_request_and_one_text() {
        let pod = |index: usize, node: &str| {
            let mut pod =
                DynamicObject::new(&format!("kcm-{index}"), &ObjectKind::Pod.resource()).within("kube-system");
            pod.annotations_mut()
                .insert(annotations::MIRROR_POD.into(), "hash".into());
            let container = serde_json::json!({"name": "kube-controller-manager",
                "image": "kube-controller-manager:v1.26.13", "command": ["kube-controller-manager", "--cloud-provider=aws"]});
            pod.data = serde_json::json!({"spec": {"nodeName": node, "containers": [container]}});
            pod
        };
        let mut pods: Vec<DynamicObject> = (0..1000).map(|index| pod(index, "worker")).collect();
        pods.push(pod(1000, "control-plane"));
        assert_eq!(mirror_nodes(ObjectKind::Pod, &pods), ["control-plane", "worker"].into());

        let whys = [
            ("worker".to_owned(), why_not_of_control_plane("worker", None)),
            ("control-plane".to_owned(), None),
        ];
        let locks = Locks {
            namespace: "kube-system".into(),
            main: "kube-controller-manager".into(),
            migration: "m".into(),
        };
        let (whys, mut judged) = (whys.into(), Judged::default());
        for page in pods.chunks(400) {
            judged.take(ObjectKind::Pod, page, &whys, (&Selector::default(), &locks));
        }
        assert_eq!(judged.ignored.len(), 1, "{:?}", judged.ignored);
        assert!(
            judged.ignored["worker"].starts_with("Pod kube-system/kcm-0: "),
            "{:?}",
            judged.ignored
        );
        let seen: Vec<&str> = judged.seen.iter().map(|seen| seen.object.as_str()).collect();
        assert_eq!(seen, ["Pod kube-system/kcm-1000"]);
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
    fn the_objects_at_the_start_wake_the_reader_once() {
        use watcher::Event;
        let events = [Event::Init, Event::InitApply(1), Event::InitApply(2), Event::InitDone];
        assert_eq!(events.into_iter().filter_map(is_change).count(), 1);
    }
}
