//! Acquires, holds and releases one lease.
//!
//! Compatible with client-go's elector, but stricter: it waits with a watch and a timer at expiry, the renew deadline
//! counts from the start of the last successful renewal, and a record of another holder revokes the permit at once.

mod attempts;
mod holding;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use outrigger_evidence::record::{self, Record};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub use attempts::Began;

use attempts::Attempts;

use crate::lease::{Deletion, LeaseError, Leases, RELEASED, View, version};
use crate::permit::Grantor;
use crate::readers::send_new;
use crate::suspend_clock;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

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
    /// Time limit of a request while the API server answers in time. It is at most the retry period, so that a request
    /// that hangs does not cost the lease.
    fn request_timeout(&self) -> Duration {
        self.slow_request_timeout().min(self.retry_period.max(SHORTEST_TIMEOUT))
    }

    /// Time limit of a request after one that took too long, as in
    /// <https://github.com/kubernetes/client-go/blob/v0.34.0/tools/leaderelection/resourcelock/interface.go>.
    fn slow_request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(SHORTEST_TIMEOUT)
    }
}

/// A held lease: the object as last written, and when that write began.
#[derive(Debug, Clone)]
pub struct Held {
    pub lease: DynamicObject,
    /// When the last successful renewal began.
    pub renewed: Began,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("another holder has the lease: {0}")]
    Taken(String),
    #[error("the lease could not be renewed within the renew deadline")]
    Deadline,
}

/// A change of the held Lease's annotations; answered once it is stored.
#[derive(Debug)]
pub struct AnnotationChange {
    /// The new values; `None` removes the annotation.
    pub values: Vec<(String, Option<String>)>,
    /// Completed when the API server has stored it, with the Lease as it was stored.
    pub stored: oneshot::Sender<Box<DynamicObject>>,
}

/// How far [`Elector::acquire`] may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It writes nothing.
    Closed,
    /// It acquires the lease.
    Open,
}

pub struct Elector<L> {
    leases: L,
    name: String,
    identity: String,
    timing: Timing,
    view: watch::Receiver<View>,
    /// The annotations that this process writes, removes or has adopted. Others stay unchanged.
    own_annotations: BTreeMap<String, Option<String>>,
    attempts: Attempts,
    /// Whether the last take had no answer, so that the Lease must be read before the next.
    unanswered: bool,
    /// Whether the last write took longer than [`Timing::request_timeout`].
    slow: bool,
    slow_path: SlowPath,
    /// The main lease, where this is the migration lease: only a process that has held it signs a release.
    signers: Option<watch::Receiver<View>>,
    /// Why the last attempt to acquire the lease failed.
    problem: watch::Sender<Option<String>>,
}

/// Called with the lease's name for each renewal that had a conflict and read the Lease first.
pub type SlowPath = Arc<dyn Fn(&str) + Send + Sync>;

enum Wake {
    Observe,
    Get,
}

#[derive(Debug)]
enum Next {
    Write(Box<Write>),
    /// For this time, or for a change.
    Wait(Option<Instant>),
    Get,
}

/// A write that takes or renews the lease.
#[derive(Debug)]
struct Write {
    lease: DynamicObject,
    /// The Lease does not exist, so the write creates it.
    create: bool,
}

impl Write {
    fn create(lease: DynamicObject) -> Self {
        Self { lease, create: true }
    }

    fn replace(lease: DynamicObject) -> Self {
        Self { lease, create: false }
    }
}

impl<L: Leases> Elector<L> {
    pub fn new(leases: L, name: &str, identity: &str, timing: Timing, view: watch::Receiver<View>) -> Self {
        Self {
            leases,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            view,
            own_annotations: BTreeMap::new(),
            attempts: Attempts::default(),
            unanswered: false,
            slow: false,
            slow_path: Arc::new(|_| {}),
            signers: None,
            problem: watch::Sender::new(None),
        }
    }

    #[must_use]
    pub fn with_slow_path(mut self, slow_path: SlowPath) -> Self {
        self.slow_path = slow_path;
        self
    }

    #[must_use]
    pub fn with_signers(mut self, main_lease: watch::Receiver<View>) -> Self {
        self.signers = Some(main_lease);
        self
    }

    /// Whether the process is one of our managers, as far as it holds this lease.
    fn is_ours(&self, identity: &str) -> bool {
        let signers = self.signers.as_ref();
        identity == self.identity || signers.is_none_or(|main| main.borrow().was_named(identity))
    }

    /// Why the last attempt to acquire the lease failed; none since it succeeded.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    /// Counts an annotation that `held` has as one of this process: the next renewal restores it, should another process
    /// edit or remove it.
    pub fn adopt_annotation(&mut self, held: &Held, key: &str) {
        let all = held.lease.metadata.annotations.as_ref();
        if let Some(value) = all.and_then(|all| all.get(key)) {
            self.own_annotations.insert(key.to_owned(), Some(value.clone()));
        }
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Waits until this process holds the lease. Competes only while `gate` is open. The gate may close during the last
    /// request, so check it again before using the lease. `None` after `stop`: the last request has then ended, and if it
    /// took the lease, the lease was released.
    pub async fn acquire(&mut self, gate: &mut watch::Receiver<Gate>, stop: &CancellationToken) -> Option<Held> {
        self.attempts.settle();
        let held = self.compete(gate, stop).await;
        if stop.is_cancelled() {
            if let Err(error) = self.release_attempts().await {
                tracing::warn!(lease = self.name, %error, "could not release the lease; it will expire");
            }
            return None;
        }

        held
    }

    async fn compete(&mut self, gate: &mut watch::Receiver<Gate>, stop: &CancellationToken) -> Option<Held> {
        let mut fetched: Option<View> = None;
        loop {
            let may_write = gate.wait_for(|gate| *gate != Gate::Closed);
            if stop.run_until_cancelled(may_write).await?.is_err() {
                // The steward has ended, so the process is ending: never compete again.
                stop.cancelled().await;
                return None;
            }

            match self.attempt(&mut fetched, gate, stop).await {
                Ok(held) => {
                    self.note_problem(None);
                    if held.is_some() {
                        return held;
                    }
                }
                Err(error) => {
                    self.note_problem(Some(&error));

                    tokio::select! {
                        () = stop.cancelled() => return None,
                        held = self.confirmation() => {
                            self.note_problem(None);
                            return Some(held);
                        }
                        () = tokio::time::sleep(self.timing.retry_period) => {}
                    }
                }
            }
        }
    }

    fn note_problem(&self, error: Option<&LeaseError>) {
        let problem = error.map(ToString::to_string);
        let is_new = send_new(&self.problem, problem.clone());

        if let (true, Some(error)) = (is_new, problem) {
            tracing::error!(lease = self.name, error, "cannot compete for the lease; retrying");
        }
    }

    /// One attempt: waits, reads the Lease, or writes it to acquire it.
    async fn attempt(
        &mut self,
        fetched: &mut Option<View>,
        gate: &mut watch::Receiver<Gate>,
        stop: &CancellationToken,
    ) -> Result<Option<Held>, LeaseError> {
        if *gate.borrow() == Gate::Closed {
            return Ok(None);
        }

        let seen = self.newest(fetched.as_ref());
        if let Some(held) = self.confirmed(&seen) {
            return Ok(Some(held));
        }
        if self.unanswered {
            return self.fetch(fetched).await.map(|()| None);
        }

        let write = match self.next(&seen, Instant::now()) {
            Next::Wait(until) => {
                return match stop.run_until_cancelled(self.wait(until, gate)).await {
                    None | Some(Wake::Observe) => Ok(None),
                    Some(Wake::Get) => self.fetch(fetched).await.map(|()| None),
                };
            }
            Next::Get => return self.fetch(fetched).await.map(|()| None),
            Next::Write(write) => *write,
        };

        match self.take(write).await.map(Some) {
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
            answer => answer,
        }
    }

    /// The newer of the watched view and the one fetched while the watch failed or lagged behind.
    fn newest(&self, fetched: Option<&View>) -> View {
        let watched = self.view.borrow().clone();
        match fetched {
            Some(view) if !watched.synced || watched.is_failing() || newer(view, &watched) => view.clone(),
            Some(view) => watched.with_earlier_observation(view),
            None => watched,
        }
    }

    /// The lease, if one of our writes of which no answer came took it, and its renew deadline has not passed.
    fn confirmed(&self, seen: &View) -> Option<Held> {
        let lease = seen.lease.as_ref()?;
        let renewed = self.attempts.began(&Record::of(lease), &self.identity)?;
        (renewed.at + self.timing.renew_deadline > Instant::now()).then(|| Held {
            lease: lease.clone(),
            renewed,
        })
    }

    /// Waits until the watch shows that a write without an answer took the lease.
    async fn confirmation(&self) -> Held {
        let mut view = self.view.clone();
        loop {
            let held = self.confirmed(&view.borrow_and_update());
            if let Some(held) = held {
                return held;
            }
            changed(&mut view).await;
        }
    }

    fn next(&self, seen: &View, now: Instant) -> Next {
        if !seen.synced || (seen.is_failing() && seen.lease.is_none()) {
            return Next::Get;
        }

        let last = seen.last_holder.as_ref().map(|last| &last.record);
        let named = seen.observation.as_ref().map(|seen| &seen.record);
        // A record that only names this process was edited by hand: its last holder may be alive. A take that was
        // confirmed too late must not keep the others away: they may have a better connection.
        let is_own = |record: &Record| self.attempts.has_settled(record, &self.identity);
        let own = named.filter(|record| !record.is_free()).or(last).is_some_and(is_own);
        match seen.frees_after(|holder| self.is_ours(holder)) {
            Some(at) if at > now && !own => return Next::Wait(Some(at)),
            _ => {}
        }

        Next::Write(Box::new(match (&seen.lease, &seen.deletion) {
            (Some(lease), _) => Write::replace(lease.clone()),
            (None, Some(Deletion { last: Some(last), .. })) => Write::create(self.new_like(last)),
            (None, _) => Write::create(self.leases.new_object()),
        }))
    }

    /// Waits for the expiry, for a change of the view, or until the gate closes. While the watch fails, also for the next
    /// read.
    async fn wait(&mut self, expiry: Option<Instant>, gate: &mut watch::Receiver<Gate>) -> Wake {
        let again = Instant::now() + self.timing.retry_period;
        let ask = self.view.borrow().is_failing() && expiry.is_none_or(|expiry| again < expiry);
        let until = if ask { Some(again) } else { expiry };
        tokio::select! {
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                if ask { Wake::Get } else { Wake::Observe }
            }
            () = changed(&mut self.view) => Wake::Observe,
            _ = gate.wait_for(|gate| *gate == Gate::Closed) => Wake::Observe,
        }
    }

    async fn fetch(&mut self, fetched: &mut Option<View>) -> Result<(), LeaseError> {
        let began = Instant::now();
        let answer = limited(self.request_limit(), self.leases.get()).await;

        let mut view = self.newest(fetched.as_ref());
        match answer? {
            Some(lease) => view.see(lease, Instant::now()),
            None => view.see_none(Instant::now()),
        }

        // The answer is a state of this time or later.
        view.updated = Some(began);
        *fetched = Some(view);
        self.unanswered = false;

        Ok(())
    }

    async fn take(&mut self, write: Write) -> Result<Held, LeaseError> {
        let (write, renewed) = self.stamped(write);
        let answer = tokio::select! {
            biased;
            answer = limited(self.request_limit(), self.send(write)) => answer,
            held = self.confirmation() => return Ok(held),
        };
        self.note_speed(renewed.at);
        self.unanswered = matches!(answer, Err(LeaseError::TimedOut(_) | LeaseError::Request(_)));

        answer.map(|lease| Held { lease, renewed })
    }

    /// The write with the record that takes or renews the lease now, and the time of its start.
    fn stamped(&mut self, mut write: Write) -> (Write, Began) {
        let now = record::micros(Timestamp::now());
        let renewed = Began {
            at: Instant::now(),
            suspended: suspend_clock::total(),
        };
        self.attempts.begin(now, renewed);

        let (identity, duration) = (self.identity.as_str(), self.timing.lease_duration);
        let record = if write.create {
            Record::created_by(identity, duration, now)
        } else {
            Record::of(&write.lease).held_by(identity, duration, now)
        };

        record.write_to(&mut write.lease);
        for (key, value) in &self.own_annotations {
            let all = write.lease.metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => drop(all.insert(key.clone(), value.clone())),
                None => drop(all.remove(key)),
            }
        }

        (write, renewed)
    }

    async fn send(&self, write: Write) -> Result<DynamicObject, LeaseError> {
        if write.create {
            self.leases.create(write.lease).await
        } else {
            self.leases.replace(write.lease).await
        }
    }

    /// A Lease to create with the annotations and labels of `last`, which was deleted.
    fn new_like(&self, last: &DynamicObject) -> DynamicObject {
        let mut lease = self.leases.new_object();
        lease.metadata.annotations.clone_from(&last.metadata.annotations);
        lease.metadata.labels.clone_from(&last.metadata.labels);
        lease
    }

    fn request_limit(&self) -> Duration {
        if self.slow {
            self.timing.slow_request_timeout()
        } else {
            self.timing.request_timeout()
        }
    }

    /// Notes how long the write took that began at `began`. Reads are faster than writes, for example while the disk of
    /// etcd is slow.
    fn note_speed(&mut self, began: Instant) {
        self.slow = began.elapsed() >= self.timing.request_timeout();
    }

    pub fn grant(&self, held: &Held, grantor: &Grantor) {
        let deadline = held.renewed.at + self.timing.renew_deadline;
        grantor.extend_since(deadline, held.renewed.suspended);
    }

    /// Releases the lease. Call it only after every write under it has ended.
    ///
    /// # Errors
    /// When the write failed. The lease then expires.
    pub async fn release(&self, held: Held, grantor: &Grantor) -> Result<(), LeaseError> {
        grantor.revoke();
        match self.write_emptied(held.lease).await {
            // Another process wrote, for example, an annotation. Release the lease unless it has another holder.
            Err(LeaseError::Conflict) => match self.read().await? {
                Some(lease) if Record::of(&lease).holder == self.identity => self.write_emptied(lease).await,
                _ => Err(LeaseError::Conflict),
            },
            answer => answer,
        }
    }

    /// Releases the lease if a write of [`Self::acquire`] took it. No controller has written under it.
    async fn release_attempts(&self) -> Result<(), LeaseError> {
        if self.attempts.is_empty() {
            return Ok(());
        }

        match self.read().await? {
            Some(lease) if self.attempts.began(&Record::of(&lease), &self.identity).is_some() => {
                self.write_emptied(lease).await
            }
            _ => Ok(()),
        }
    }

    async fn read(&self) -> Result<Option<DynamicObject>, LeaseError> {
        limited(self.timing.slow_request_timeout(), self.leases.get()).await
    }

    async fn write_emptied(&self, lease: DynamicObject) -> Result<(), LeaseError> {
        let write = self.leases.replace(emptied(lease));
        limited(self.timing.slow_request_timeout(), write).await.map(drop)
    }
}

/// The Lease without a holder, and signed: every write under it has ended.
fn emptied(mut lease: DynamicObject) -> DynamicObject {
    let record = Record::of(&lease).released(Timestamp::now());
    record.write_to(&mut lease);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.extend(record.signature().map(|signature| (RELEASED.to_owned(), signature)));
    lease
}

/// Waits for a change; for ever if the watch has ended.
async fn changed(view: &mut watch::Receiver<View>) {
    if view.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn limited<T>(limit: Duration, request: impl Future<Output = Result<T, LeaseError>>) -> Result<T, LeaseError> {
    timeout(limit, request)
        .await
        .unwrap_or(Err(LeaseError::TimedOut(limit)))
}

/// Whether `left` is a newer state of the Lease than `right`. An absent Lease has no version: then the time decides.
fn newer(left: &View, right: &View) -> bool {
    match (&left.lease, &right.lease) {
        (Some(left), Some(right)) => version(left) > version(right),
        _ => left.updated > right.updated,
    }
}

#[cfg(test)]
pub(crate) mod tests;
