//! Acquires, holds and releases one lease.
//!
//! Compatible with client-go's elector, but stricter: it waits with a watch and a timer at expiry, the renew deadline
//! counts from the start of the last successful renewal, and a record of another holder revokes the permit at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::lease::{LeaseError, Leases, View, version};
use crate::permit::Grantor;
use crate::record::Record;

/// The three times of leader election, the same for every lease of a process.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long candidates wait after the last renewal that they observed. Whole seconds, at least one.
    pub lease_duration: Duration,
    /// The holder stops writing this long after the start of the last successful renewal. Below `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between renewals, and between failed attempts.
    pub retry_period: Duration,
}

impl Timing {
    /// Time-out of one request. It is at most the retry period, so that a request that hangs does not cost the lease.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2)
            .min(self.retry_period)
            .max(Duration::from_millis(500))
    }
}

/// A held lease: the object as last written, and when that write began.
#[derive(Debug, Clone)]
pub struct Held {
    /// The Lease as the API server stored it.
    pub lease: DynamicObject,
    /// When the last successful renewal began.
    pub renewed: Instant,
}

/// Why the lease was lost.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("another holder has the lease: {0}")]
    Taken(String),
    #[error("the lease could not be renewed within the renew deadline")]
    Deadline,
    #[error("the lease object is gone")]
    Gone,
}

/// A change of the held Lease's annotations; answered once it is stored.
#[derive(Debug)]
pub struct AnnotationChange {
    /// The annotation's key.
    pub key: String,
    /// Its value; `None` removes it.
    pub value: Option<String>,
    /// Completed when the API server has stored it.
    pub stored: oneshot::Sender<()>,
}

/// Competes for one lease under one identity.
pub struct Elector<L> {
    leases: L,
    name: String,
    identity: String,
    timing: Timing,
    view: watch::Receiver<View>,
    /// The annotations that this process writes. Others stay unchanged.
    own_annotations: BTreeSet<String>,
    slow_path: SlowPath,
}

/// Called with the lease's name for each renewal that had a conflict and read the Lease first.
pub type SlowPath = Arc<dyn Fn(&str) + Send + Sync>;

enum Wake {
    Observe,
    Get,
}

#[derive(Debug)]
enum Next {
    Create,
    Take(Box<DynamicObject>),
    WaitUntil(Instant),
    Get,
}

impl<L: Leases> Elector<L> {
    /// An elector for the lease that `view` watches.
    pub fn new(leases: L, name: &str, identity: &str, timing: Timing, view: watch::Receiver<View>) -> Self {
        Self {
            leases,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            view,
            own_annotations: BTreeSet::new(),
            slow_path: Arc::new(|_| {}),
        }
    }

    #[must_use]
    pub fn with_slow_path(mut self, slow_path: SlowPath) -> Self {
        self.slow_path = slow_path;
        self
    }

    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Waits until this process holds the lease. Competes only while `gate` is true. The gate may close during the last
    /// request, so check it again before using the lease.
    pub async fn acquire(&mut self, gate: &mut watch::Receiver<bool>) -> Held {
        let mut fetched: Option<View> = None;
        let mut last_error = String::new();
        loop {
            if gate.wait_for(|open| *open).await.is_err() {
                // The steward has ended, so the process is ending: never compete again.
                std::future::pending::<()>().await;
            }
            match self.attempt(&mut fetched, gate).await {
                Ok(Some(held)) => return held,
                Ok(None) => last_error.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if text != last_error {
                        tracing::error!(
                            lease = self.name,
                            error = text,
                            "cannot compete for the lease; trying again"
                        );
                        last_error = text;
                    }

                    tokio::time::sleep(self.timing.retry_period).await;
                }
            }
        }
    }

    /// One attempt: waits, reads the Lease, or writes it to acquire it.
    async fn attempt(
        &mut self,
        fetched: &mut Option<View>,
        gate: &mut watch::Receiver<bool>,
    ) -> Result<Option<Held>, LeaseError> {
        let seen = self.newest(fetched.as_ref());
        let taken = match self.next(&seen, Instant::now()) {
            Next::WaitUntil(expiry) => {
                return match self.wait(expiry, gate).await {
                    Wake::Observe => Ok(None),
                    Wake::Get => self.fetch(fetched).await.map(|()| None),
                };
            }
            Next::Get => return self.fetch(fetched).await.map(|()| None),
            Next::Create => self.take(self.leases.new_object(), true).await,
            Next::Take(lease) => self.take(*lease, false).await,
        };

        match taken {
            // Another process was faster. Read the Lease, since the watch may lag behind. If it has not changed, the
            // conflict has another reason, which an immediate retry would not solve.
            Err(LeaseError::Conflict) => {
                self.fetch(fetched).await?;
                let same = |new: &View| new.lease.as_ref().map(version) == seen.lease.as_ref().map(version);
                match fetched {
                    Some(new) if same(new) => Err(LeaseError::Conflict),
                    _ => Ok(None),
                }
            }
            taken => taken.map(Some),
        }
    }

    /// The newer of the watched view and the one fetched while the watch failed.
    fn newest(&self, fetched: Option<&View>) -> View {
        let watched = self.view.borrow().clone();
        match fetched {
            Some(view) if !watched.synced || watched.failing || newer(view, &watched) => view.clone(),
            _ => watched,
        }
    }

    fn next(&self, seen: &View, now: Instant) -> Next {
        if !seen.synced || (seen.failing && seen.lease.is_none()) {
            return Next::Get;
        }
        match (&seen.lease, &seen.observation) {
            (Some(lease), Some(observed)) => {
                let foreign = observed.record.holder != self.identity;
                if foreign && observed.is_held(now) {
                    Next::WaitUntil(observed.expires())
                } else {
                    Next::Take(Box::new(lease.clone()))
                }
            }
            _ => Next::Create,
        }
    }

    /// Waits for the expiry or for a change of the view. While the watch fails, also for the next read.
    async fn wait(&mut self, expiry: Instant, gate: &mut watch::Receiver<bool>) -> Wake {
        let again = Instant::now() + self.timing.retry_period;
        let ask = self.view.borrow().failing && again < expiry;
        tokio::select! {
            () = sleep_until(if ask { again } else { expiry }) => if ask { Wake::Get } else { Wake::Observe },
            () = changed(&mut self.view) => Wake::Observe,
            _ = gate.wait_for(|open| !open) => Wake::Observe,
        }
    }

    async fn fetch(&self, fetched: &mut Option<View>) -> Result<(), LeaseError> {
        let answer = self.leases.get().await?;
        let view = fetched.get_or_insert_with(View::default);
        match answer {
            Some(lease) => view.see(lease, Instant::now()),
            None => view.see_none(Instant::now()),
        }

        Ok(())
    }

    async fn take(&self, mut lease: DynamicObject, create: bool) -> Result<Held, LeaseError> {
        let (renewed, now) = (Instant::now(), Timestamp::now());
        let duration = self.timing.lease_duration;
        let record = if create {
            Record::created_by(&self.identity, duration, now)
        } else {
            Record::of(&lease).held_by(&self.identity, duration, now)
        };

        record.write_to(&mut lease);

        let stored = if create {
            self.leases.create(lease).await?
        } else {
            self.leases.replace(lease).await?
        };

        Ok(Held { lease: stored, renewed })
    }

    /// Extends `grantor` to the renew deadline that `held` gives.
    pub fn grant(&self, held: &Held, grantor: &Grantor) {
        grantor.extend(held.renewed + self.timing.renew_deadline);
    }

    /// Renews until `stop` or until the lease is lost. Each successful renewal extends `grantor`; a loss revokes it.
    ///
    /// # Errors
    /// [`Lost`], after which the process must end. The permit fences writes that are still in flight.
    pub async fn hold(
        &mut self,
        held: &mut Held,
        grantor: &Grantor,
        annotation_changes: &mut mpsc::Receiver<AnnotationChange>,
        stop: &CancellationToken,
    ) -> Result<(), Lost> {
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        let mut attempt = held.renewed;
        loop {
            let deadline = held.renewed + self.timing.renew_deadline;
            self.grant(held, grantor);

            let due = (attempt + self.timing.retry_period).min(deadline);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(note) = annotation_changes.recv() => {
                    self.own_annotations.insert(note.key.clone());
                    waiting.push(annotate(&mut held.lease, note));
                }
                () = changed(&mut self.view) => match self.taken(held) {
                    Some(holder) => { grantor.revoke(); return Err(Lost::Taken(holder)) }
                    None => continue,
                },
                () = sleep_until(due) => {}
            }

            attempt = Instant::now();
            if attempt >= deadline {
                grantor.revoke();
                return Err(Lost::Deadline);
            }

            match self.renew(held).await {
                Ok(()) => {
                    for stored in waiting.drain(..) {
                        let _ = stored.send(());
                    }
                }
                Err(Renewal::Failed(error)) => {
                    tracing::warn!(lease = self.name, %error, "renewal failed; trying again until the deadline");
                }
                Err(Renewal::Lost(lost)) => {
                    grantor.revoke();
                    return Err(lost);
                }
            }
        }
    }

    /// The other holder, if the watch shows one in an object newer than the last write.
    fn taken(&mut self, held: &Held) -> Option<String> {
        let view = self.view.borrow_and_update();
        let lease = view.lease.as_ref()?;
        let record = Record::of(lease);
        let foreign = record.holder != self.identity;
        (foreign && version(lease) > version(&held.lease)).then_some(record.holder)
    }

    async fn renew(&self, held: &mut Held) -> Result<(), Renewal> {
        match self.take(held.lease.clone(), false).await {
            Ok(next) => {
                *held = next;
                Ok(())
            }
            Err(LeaseError::Conflict) => self.renew_after_conflict(held).await,
            Err(error) => Err(Renewal::Failed(error)),
        }
    }

    /// Another process wrote the Lease. If the holder is still this process, renew the new object.
    async fn renew_after_conflict(&self, held: &mut Held) -> Result<(), Renewal> {
        (self.slow_path)(&self.name);
        let Some(mut lease) = self.leases.get().await.map_err(Renewal::Failed)? else {
            return Err(Renewal::Lost(Lost::Gone));
        };

        let holder = Record::of(&lease).holder;
        if holder != self.identity {
            return Err(Renewal::Lost(Lost::Taken(holder)));
        }

        let ours = held.lease.metadata.annotations.as_ref();
        let all = lease.metadata.annotations.get_or_insert_default();
        for key in &self.own_annotations {
            match ours.and_then(|ours| ours.get(key)) {
                Some(value) => drop(all.insert(key.clone(), value.clone())),
                None => drop(all.remove(key)),
            }
        }

        *held = self.take(lease, false).await.map_err(Renewal::Failed)?;

        Ok(())
    }

    /// Releases the lease. Call it only after every write under it has ended.
    ///
    /// # Errors
    /// When the write failed. The lease then expires.
    pub async fn release(&self, held: Held, grantor: &Grantor) -> Result<(), LeaseError> {
        grantor.revoke();
        match self.leases.replace(emptied(held.lease)).await {
            // Another process wrote, for example, an annotation. Release the lease unless it has another holder.
            Err(LeaseError::Conflict) => match self.leases.get().await? {
                Some(lease) if Record::of(&lease).holder == self.identity => {
                    self.leases.replace(emptied(lease)).await.map(drop)
                }
                _ => Err(LeaseError::Conflict),
            },
            answer => answer.map(drop),
        }
    }
}

fn emptied(mut lease: DynamicObject) -> DynamicObject {
    Record::of(&lease).released(Timestamp::now()).write_to(&mut lease);
    lease
}

/// Waits for a change; for ever if the watch has ended.
async fn changed(view: &mut watch::Receiver<View>) {
    if view.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

enum Renewal {
    Failed(LeaseError),
    Lost(Lost),
}

fn annotate(lease: &mut DynamicObject, note: AnnotationChange) -> oneshot::Sender<()> {
    let all = lease.metadata.annotations.get_or_insert_default();
    match note.value {
        Some(value) => drop(all.insert(note.key, value)),
        None => drop(all.remove(&note.key)),
    }
    note.stored
}

fn newer(left: &View, right: &View) -> bool {
    match (&left.lease, &right.lease) {
        (Some(left), Some(right)) => version(left) > version(right),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
