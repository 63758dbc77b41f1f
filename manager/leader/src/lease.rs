//! Requests for Leases: get, create, update and watch.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::observation::Observation;
use crate::record::Record;

/// Why a request for a Lease did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease was changed by another writer")]
    Conflict,
    #[error("{verb} of lease {namespace}/{name} is forbidden: {message}; grant it in a Role of that namespace")]
    Forbidden {
        /// get, create or update.
        verb: &'static str,
        /// The lease's namespace.
        namespace: String,
        /// The lease's name.
        name: String,
        /// The API server's message.
        message: String,
    },
    #[error("no answer from the API server within {0:?}")]
    TimedOut(Duration),
    #[error("request for the lease failed: {0}")]
    Request(#[source] Box<kube::Error>),
}

/// The requests of an elector. A trait, so that tests can run the elector on a paused clock.
pub trait Leases: Send {
    /// Reads the Lease; `None` when there is none.
    fn get(&self) -> impl Future<Output = Result<Option<DynamicObject>, LeaseError>> + Send;
    fn create(&self, lease: DynamicObject) -> impl Future<Output = Result<DynamicObject, LeaseError>> + Send;
    /// Replaces it; the object carries the resourceVersion that it was read at.
    fn replace(&self, lease: DynamicObject) -> impl Future<Output = Result<DynamicObject, LeaseError>> + Send;
    /// An object of the right name to create.
    fn new_object(&self) -> DynamicObject;
}

/// One named Lease, reached through a client of its own: the controllers' traffic must not starve its renewal.
#[derive(Clone)]
pub struct KubeLease {
    api: Api<DynamicObject>,
    name: String,
    namespace: String,
    request_timeout: Duration,
}

impl KubeLease {
    /// The Lease `namespace`/`name`; every request ends after `request_timeout`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, request_timeout: Duration) -> Self {
        let resource = ApiResource::erase::<Lease>(&());
        let api = Api::namespaced_with(client, namespace, &resource);
        Self {
            api,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            request_timeout,
        }
    }

    /// The lease's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn bounded<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = Result<T, kube::Error>> + Send,
    ) -> Result<T, LeaseError> {
        let answer = timeout(self.request_timeout, request).await;
        answer
            .map_err(|_| LeaseError::TimedOut(self.request_timeout))?
            .map_err(|error| match error {
                kube::Error::Api(status) if status.code == 409 => LeaseError::Conflict,
                kube::Error::Api(status) if status.code == 403 => LeaseError::Forbidden {
                    verb,
                    namespace: self.namespace.clone(),
                    name: self.name.clone(),
                    message: status.message.clone(),
                },
                other => LeaseError::Request(Box::new(other)),
            })
    }

    /// Watches the Lease until `stop`. The receiver always has the newest view.
    #[must_use]
    pub fn watch(&self, stop: CancellationToken) -> watch::Receiver<View> {
        let (tx, rx) = watch::channel(View::default());
        let mut events = watcher::watch_object(self.api.clone(), &self.name)
            .default_backoff()
            .boxed();
        let name = self.name.clone();

        tokio::spawn(async move {
            while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
                tx.send_modify(|view| view.update(&name, event, Instant::now()));
            }
        });

        rx
    }
}

impl Leases for KubeLease {
    async fn get(&self) -> Result<Option<DynamicObject>, LeaseError> {
        self.bounded("get", self.api.get_opt(&self.name)).await
    }

    async fn create(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        self.bounded("create", self.api.create(&PostParams::default(), &lease))
            .await
    }

    async fn replace(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        self.bounded("update", self.api.replace(&self.name, &PostParams::default(), &lease))
            .await
    }

    fn new_object(&self) -> DynamicObject {
        DynamicObject::new(&self.name, &ApiResource::erase::<Lease>(&())).within(&self.namespace)
    }
}

/// The state of the watch of a Lease.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The watch has completed its first list.
    pub synced: bool,
    /// The watch fails at present; the object may be outdated.
    pub failing: bool,
    /// The newest object; `None` when there is no such Lease.
    pub lease: Option<DynamicObject>,
    /// The newest record.
    pub observation: Option<Observation>,
}

impl View {
    fn update(&mut self, name: &str, event: Result<Option<DynamicObject>, watcher::Error>, now: Instant) {
        match event {
            Ok(Some(lease)) => {
                if self.failing {
                    tracing::info!(lease = name, "the watch of the lease recovered");
                }
                self.see(lease, now);
            }
            Ok(None) => {
                *self = Self {
                    synced: true,
                    ..Self::default()
                }
            }
            Err(error) => {
                if !self.failing {
                    tracing::warn!(lease = name, %error, "the watch of the lease fails; asking from time to time");
                }
                self.failing = true;
            }
        }
    }

    /// Takes in an object that was read or written.
    pub fn see(&mut self, lease: DynamicObject, now: Instant) {
        let written = self.lease.as_ref().is_none_or(|old| version(&lease) > version(old));
        Observation::update(&mut self.observation, Record::of(&lease), written, now);
        self.lease = Some(lease);
        self.synced = true;
        self.failing = false;
    }

    /// The present holder, if it has written the record under our own eyes and has renewed it in time since.
    #[must_use]
    pub fn live_holder(&self, now: Instant) -> Option<&str> {
        let seen = self.observation.as_ref()?;
        (seen.live && seen.is_held(now)).then_some(seen.record.holder.as_str())
    }

    /// The holder that the record names, alive or not; `None` for a free lease.
    #[must_use]
    pub fn named_holder(&self) -> Option<&str> {
        let seen = self.observation.as_ref()?;
        (!seen.record.is_free()).then_some(seen.record.holder.as_str())
    }
}

/// Orders two states of one Lease. resourceVersions of one object grow; one that cannot be read counts as oldest, so
/// that it never ends or starts a leadership by itself.
pub(crate) fn version(lease: &DynamicObject) -> u64 {
    lease
        .metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
