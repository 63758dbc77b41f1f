//! Watches objects of one type and keeps an index of them, across failures.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use outrigger_serving::Tasks;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, WatchedType};

/// The API server ended the watch, or lists more objects than the selector can have.
const ENDED: &str = "the watch ended";
/// Characters of an error that are logged: a tenant chooses the text.
const SHOWN: usize = 1024;
/// Doubles after each failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Short, because a phase change is not seen until then; a list of a few objects is cheap.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// An index that a watch fills.
pub trait Index<K>: Send + Sync + 'static {
    fn replace(&self, objects: Vec<K>);
    fn apply(&self, object: K);
    fn delete(&self, object: &K);
    /// The API server does not serve this type.
    fn absent(&self);
    /// The watch broke; the index may be out of date.
    fn broken(&self, _error: &str) {}
}

pub struct WatchTask<K, I> {
    pub api: Api<K>,
    pub config: Config,
    /// Objects that the selector can have at most. A tenant's API server may send more, without an end.
    pub most: usize,
    pub index: Arc<I>,
    /// Name in metrics and logs.
    pub watched: WatchedType,
    /// The cluster's name in logs.
    pub cluster: String,
    pub metrics: Arc<Metrics>,
}

/// One object: with this selector a role that names it is enough.
pub fn only(name: &str) -> Config {
    Config::default().fields(&format!("metadata.name={name}"))
}

impl<K, I> WatchTask<K, I>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    I: Index<K>,
{
    /// Watches until the tasks are stopped.
    pub fn spawn(self, tasks: &Tasks) {
        tasks.spawn(self.watched.as_str(), self.run(tasks.stop().clone()));
    }

    /// Watches until `stop`. A failure is logged when it begins or changes its class, and its end once.
    pub async fn run(self, stop: CancellationToken) {
        // After a failure the watch starts again with a list. The list shows that it works, even if no object changes
        // for weeks.
        let mut failure: Option<Failure> = None;
        let mut backoff = FIRST_BACKOFF;
        loop {
            let events = watcher(self.api.clone(), self.config.clone());
            let Some(error) = stop
                .run_until_cancelled(self.feed(events, &mut failure, &mut backoff))
                .await
            else {
                return;
            };

            self.failed(&error, &mut failure);
            if stop.run_until_cancelled(tokio::time::sleep(backoff)).await.is_none() {
                return;
            }

            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn feed(
        &self,
        events: impl Stream<Item = Result<Event<K>, Error>>,
        failure: &mut Option<Failure>,
        backoff: &mut Duration,
    ) -> Option<Error> {
        let mut events = std::pin::pin!(events);
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Err(error) => return Some(error),
                Ok(Event::Init) => listed.clear(),
                // It does not know the selector, or never ends.
                Ok(Event::InitApply(_)) if listed.len() == self.most => return None,
                Ok(Event::InitApply(object)) => listed.push(object),
                Ok(Event::InitDone) => {
                    self.index.replace(std::mem::take(&mut listed));
                    self.works(failure);
                    *backoff = FIRST_BACKOFF;
                }
                Ok(Event::Apply(object)) => self.index.apply(object),
                Ok(Event::Delete(object)) => self.index.delete(&object),
            }
        }

        None
    }

    fn works(&self, failure: &mut Option<Failure>) {
        self.metrics.watch(self.watched, true);
        if failure.take().is_some() {
            tracing::info!(watch = self.watched.as_str(), cluster = self.cluster, "watch recovered");
        }
    }

    fn failed(&self, error: &Option<Error>, failure: &mut Option<Failure>) {
        self.metrics.watch(self.watched, false);

        let now = error.as_ref().map_or(Failure::Other, Failure::of);
        let error = error.as_ref().map(text);
        if now == Failure::NotServed {
            self.index.absent()
        } else {
            self.index.broken(error.as_deref().unwrap_or(ENDED))
        }

        if *failure == Some(now) {
            return;
        }

        *failure = Some(now);

        let (watch, cluster) = (self.watched.as_str(), &self.cluster);
        match now {
            Failure::NotServed => tracing::warn!(watch, cluster, error, "type not served; is the CRD applied?"),
            Failure::Forbidden => {
                tracing::error!(watch, cluster, error, "watch forbidden; is the ClusterRole bound?")
            }
            Failure::Other => tracing::error!(watch, cluster, error, "watch failed; retrying"),
        }
    }
}

/// The error with its causes: that of kube alone does not say why a connection failed.
fn text(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut parts: Vec<String> = Vec::new();
    for part in causes.map(ToString::to_string) {
        // Most kinds repeat their cause.
        if !parts.iter().any(|shown| shown.contains(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ").chars().take(SHOWN).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    NotServed,
    Forbidden,
    Other,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let status = match error {
            Error::InitialListFailed(kube::Error::Api(status))
            | Error::WatchStartFailed(kube::Error::Api(status))
            | Error::WatchFailed(kube::Error::Api(status)) => status,
            Error::WatchError(status) => status,
            _ => return Self::Other,
        };
        match status.code {
            404 => Self::NotServed,
            401 | 403 => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone)]
enum Seen<K> {
    /// With the error of the watch.
    Unknown(Option<String>),
    Absent,
    Present(Arc<K>),
}

/// The newest version of one watched object.
pub struct Latest<K> {
    seen: Mutex<Seen<K>>,
    changed: Arc<Notify>,
}

impl<K> Latest<K> {
    pub fn new(changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::new(Seen::Unknown(None)),
            changed: Arc::clone(changed),
        })
    }

    /// The object, or `Some(None)` if it does not exist; `None` while the watch does not work.
    pub fn get(&self) -> Option<Option<Arc<K>>> {
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Seen::Unknown(_) => None,
            Seen::Absent => Some(None),
            Seen::Present(object) => Some(Some(Arc::clone(object))),
        }
    }

    /// The error because of which the watch does not work.
    pub fn error(&self) -> Option<String> {
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Seen::Unknown(error) => error.clone(),
            Seen::Absent | Seen::Present(_) => None,
        }
    }

    fn set(&self, seen: Seen<K>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        self.changed.notify_one();
    }
}

impl<K: Send + Sync + 'static> Index<K> for Latest<K> {
    fn replace(&self, objects: Vec<K>) {
        // The watch selects one name.
        let first = objects.into_iter().next();
        self.set(first.map_or(Seen::Absent, |object| Seen::Present(Arc::new(object))));
    }

    fn apply(&self, object: K) {
        self.set(Seen::Present(Arc::new(object)));
    }

    fn delete(&self, _: &K) {
        self.set(Seen::Absent);
    }

    fn absent(&self) {
        // Every API server has these types; a 404 comes from a proxy in between.
        self.set(Seen::Unknown(Some("the type is not served".to_owned())));
    }

    fn broken(&self, error: &str) {
        self.set(Seen::Unknown(Some(error.to_owned())));
    }
}
