//! Services that are gone without having been let go: someone took the finalizer away by force, or a new Service of the
//! same name has taken their place. What they had at AWS goes all the same, as far as this process remembers them; what
//! it does not remember is found by the sweep.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::annotations::{Annotations, Kind};
use super::error::Error;
use super::patches;
use super::sync::{Next, Reconciler, namespaced_name, uid};
use super::tell::{self, Doing, Failure};
use super::work::has_finalizer;

/// Pause between two searches. A Service must be missing in two of them: one that is just being let go is, for a moment,
/// neither there nor forgotten.
const PERIOD: Duration = Duration::from_secs(10);

/// What was missing at the last search, and what may be tried again when.
#[derive(Debug, Default)]
pub(super) struct Missing {
    seen: BTreeSet<String>,
    not_before: HashMap<String, Instant>,
}

/// Searches until `stop`.
pub(super) async fn watch(reconciler: &Reconciler, services: &Store<Service>, stop: &CancellationToken) {
    let mut missing = Missing::default();
    let exists = |name: &str, of: &str| {
        let Some((namespace, name)) = name.split_once('/') else {
            return true;
        };
        let service = services.get(&ObjectRef::new(name).within(namespace));
        service.is_some_and(|service| uid(&service) == of)
    };
    while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
        reconciler.delete_vanished(&mut missing, exists).await;
    }
}

impl Reconciler {
    /// Deletes what Services had that do not exist, by their names and UIDs, and did not at the last search either. A new
    /// one of the same name may ask for nothing here, and so never come to delete what the earlier one had.
    pub(super) async fn delete_vanished(&self, missing: &mut Missing, exists: impl Fn(&str, &str) -> bool) {
        let now = Instant::now();
        let gone = self
            .memories
            .names()
            .into_iter()
            .filter(|(name, uid)| !exists(name, uid));
        let gone: BTreeSet<String> = gone.map(|(_, uid)| uid).collect();
        missing.not_before.retain(|uid, _| gone.contains(uid));
        for uid in gone.intersection(&missing.seen) {
            if missing.not_before.get(uid).is_some_and(|time| now < *time) {
                continue;
            }
            match self.delete_remains(uid).await {
                Ok(()) => {}
                Err(failure) if matches!(*failure.error, Error::NotLeader(_)) => return,
                Err(_) => {
                    let pause = self.memories.of(uid).retry_after();
                    missing.not_before.insert(uid.clone(), now + pause);
                }
            }
        }
        missing.seen = gone;
    }

    /// Deletes what earlier Services of the same name had, before anything is made for the new one.
    pub(super) async fn delete_earlier(&self, service: &Service) -> Result<(), Failure> {
        for earlier in self.memories.earlier(&namespaced_name(service), uid(service)) {
            self.delete_remains(&earlier).await?;
        }
        Ok(())
    }

    /// A Service that wants nothing. One that wanted a load balancer a moment ago has left one behind, and the finalizer, if
    /// it has got a class meanwhile.
    pub(super) async fn let_go(&self, service: &Service) -> Result<Next, Failure> {
        let memory = self.memories.of(uid(service));
        let before = memory.shape.map(|shape| shape.remains("", "", uid(service)));
        let had_one = before.is_some_and(|before| Annotations::of(&before).kind() != Kind::Elsewhere);
        self.delete_remains(uid(service)).await?;
        if had_one && has_finalizer(service) {
            let release = patches::release(service);
            let released = self.writer.patch(service, "remove the finalizer", release).await;
            released.doing(tell::REMOVE_FINALIZER)?;
        }
        Ok(Next::OnChange)
    }

    async fn delete_remains(&self, uid: &str) -> Result<(), Failure> {
        let memory = self.memories.of(uid);
        if let (Some(shape), Some((namespace, name))) = (memory.shape, memory.name.split_once('/')) {
            let remains = shape.remains(namespace, name, uid);
            match self.delete(&remains).await {
                Ok(false) => {}
                Ok(true) => self.tell_deleted(&remains).await,
                Err(failure) => {
                    let failure = failure.of_remains();
                    self.tell_failure(&remains, &failure).await;
                    return Err(failure);
                }
            }
        }
        self.memories.forget(uid);
        Ok(())
    }
}
