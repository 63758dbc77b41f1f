//! Labels of namespaces, for a target's `namespaceSelector`: a review has only the namespace's name.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::{Api, ResourceExt};
use tokio::time::{Instant, timeout};

use super::watch::Index;

/// How long the result of a read is kept, also when there is no such namespace. The watch delivers a new namespace earlier.
const KEPT: Duration = Duration::from_secs(5);

/// Reads per second. Forged reviews can name any namespace.
const RATE: usize = 20;

/// Timeout for reading a namespace that is not in the index. Well below the timeout of the registration.
const ASK: Duration = Duration::from_millis(800);

pub type Labels = Arc<BTreeMap<String, String>>;

/// A read that several callers wait for.
type Read = Shared<BoxFuture<'static, Option<Labels>>>;

pub struct Namespaces {
    labels: RwLock<Option<HashMap<String, Labels>>>,
    api: Option<Api<PartialObjectMeta<Namespace>>>,
    reads: Mutex<Reads>,
}

/// The reads of the last seconds, and those that are under way: one for each name.
#[derive(Default)]
struct Reads {
    results: HashMap<String, (Instant, Read)>,
    /// Start of the second in which `begun` counts.
    second: Option<Instant>,
    begun: usize,
}

impl Reads {
    /// Whether one more read is within the rate.
    fn is_allowed(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|second| now >= second + Duration::from_secs(1)) {
            (self.second, self.begun) = (Some(now), 0);
        }
        self.begun += 1;
        self.begun <= RATE
    }
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces")
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

impl Namespaces {
    /// An empty index; `api` reads namespaces that it does not have yet.
    pub fn new(api: Option<Api<PartialObjectMeta<Namespace>>>) -> Arc<Self> {
        Arc::new(Self {
            labels: RwLock::new(None),
            api,
            reads: Mutex::default(),
        })
    }

    pub fn listed(&self) -> bool {
        self.read().is_some()
    }

    /// The labels of a namespace; `None` when they cannot be known.
    ///
    /// An object may be created right after its namespace, before the watch has delivered it, so an unknown namespace
    /// is read.
    pub async fn labels(&self, name: &str) -> Option<Labels> {
        if let Some(labels) = self.cached(name) {
            return Some(labels);
        }
        self.read_once(name)?.await
    }

    /// The read of a namespace that is under way or was done just now, or a new one. None above the rate.
    fn read_once(&self, name: &str) -> Option<Read> {
        let (api, now) = (self.api.clone()?, Instant::now());
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.results.retain(|_, (until, _)| *until > now);
        if let Some((_, result)) = reads.results.get(name) {
            return Some(result.clone());
        }
        if !reads.is_allowed(now) {
            return None;
        }

        // A task of its own: the caller may give up while others wait for the same namespace.
        let reading = tokio::spawn(read(api, name.to_owned()));
        let result = async { reading.await.ok().flatten() }.boxed().shared();
        reads.results.insert(name.to_owned(), (now + KEPT, result.clone()));

        Some(result)
    }

    pub fn all(&self) -> BTreeMap<String, Labels> {
        self.read()
            .iter()
            .flatten()
            .map(|(name, labels)| (name.clone(), Arc::clone(labels)))
            .collect()
    }

    pub fn cached(&self, name: &str) -> Option<Labels> {
        self.read().as_ref()?.get(name).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<HashMap<String, Labels>>> {
        self.labels.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Labels>)) {
        let mut labels = self.labels.write().unwrap_or_else(PoisonError::into_inner);
        change(labels.get_or_insert_default());
    }
}

async fn read(api: Api<PartialObjectMeta<Namespace>>, name: String) -> Option<Labels> {
    match timeout(ASK, api.get(&name)).await {
        Ok(Ok(namespace)) => Some(labels(&namespace)),
        Ok(Err(error)) => {
            tracing::warn!(namespace = name, %error, "cannot read labels of namespace");
            None
        }
        Err(_) => {
            tracing::warn!(namespace = name, "timed out reading labels of namespace");
            None
        }
    }
}

impl Index<PartialObjectMeta<Namespace>> for Namespaces {
    fn replace(&self, objects: Vec<PartialObjectMeta<Namespace>>) {
        self.change(|map| {
            *map = objects
                .iter()
                .map(|object| (object.name_any(), labels(object)))
                .collect();
        });
    }

    fn apply(&self, object: PartialObjectMeta<Namespace>) {
        self.change(|map| drop(map.insert(object.name_any(), labels(&object))));
    }

    fn delete(&self, object: &PartialObjectMeta<Namespace>) {
        self.change(|map| drop(map.remove(&object.name_any())));
    }

    fn absent(&self) {
        // Every API server has namespaces; a 404 comes from a proxy in between, so keep the state.
    }
}

fn labels(namespace: &PartialObjectMeta<Namespace>) -> Labels {
    Arc::new(namespace.labels().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use kube::core::ObjectMeta;
    use kube::core::metadata::PartialObjectMetaExt;

    fn namespace(name: &str, label: &str) -> PartialObjectMeta<Namespace> {
        let labels = BTreeMap::from([("cluster".to_owned(), label.to_owned())]);
        ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        }
        .into_response_partial()
    }

    #[tokio::test]
    async fn labels_follow_the_watch_and_are_unknown_otherwise() {
        let namespaces = Namespaces::new(None);
        assert!(!namespaces.listed());
        namespaces.replace(vec![namespace("a", "one"), namespace("b", "two")]);
        assert!(namespaces.listed());
        assert_eq!(namespaces.labels("a").await.unwrap()["cluster"], "one");
        namespaces.apply(namespace("a", "three"));
        namespaces.delete(&namespace("b", ""));
        assert_eq!(namespaces.labels("a").await.unwrap()["cluster"], "three");
        assert_eq!(namespaces.labels("b").await, None);
        namespaces.absent();
        assert!(namespaces.labels("a").await.is_some());
    }

    /// An API server without namespaces that counts what it is asked.
    fn counting() -> (Arc<Namespaces>, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            async {
                // Others ask meanwhile.
                tokio::task::yield_now().await;
                let response = http::Response::builder().status(404);
                response.body(kube::client::Body::from(b"{}".to_vec()))
            }
        });
        let client = kube::Client::new(service, "default");
        (Namespaces::new(Some(Api::all(client))), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_namespace_is_read_once_by_all_who_ask() {
        let (namespaces, asked) = counting();
        for _ in 0..2 {
            let together = (0..50).map(|_| namespaces.labels("none"));
            assert!(futures::future::join_all(together).await.iter().all(Option::is_none));
            assert_eq!(asked.load(Ordering::SeqCst), 1, "the result is kept");
        }

        tokio::time::advance(KEPT).await;
        namespaces.labels("none").await;
        assert_eq!(asked.load(Ordering::SeqCst), 2);

        namespaces.apply(namespace("none", "new"));
        assert!(namespaces.labels("none").await.is_some(), "the watch is newer");
    }

    #[tokio::test(start_paused = true)]
    async fn invented_names_are_read_at_a_limited_rate() {
        let (namespaces, asked) = counting();
        let names: Vec<String> = (0..200).map(|number| format!("ns-{number}")).collect();
        futures::future::join_all(names.iter().map(|name| namespaces.labels(name))).await;
        assert_eq!(asked.load(Ordering::SeqCst), RATE);

        tokio::time::advance(Duration::from_secs(1)).await;
        namespaces.labels("ns-200").await;
        assert_eq!(asked.load(Ordering::SeqCst), RATE + 1);
    }
}
