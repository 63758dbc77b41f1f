//! Renewing a held lease.

use std::pin::pin;

use kube::core::DynamicObject;
use outrigger_evidence::record::Record;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{AnnotationChange, Elector, Held, Lost, Write, changed, limited};
use crate::lease::{LeaseError, Leases, View, version};
use crate::permit::Grantor;

/// How often one renewal reads the Lease and writes again after a conflict.
const ROUNDS: u32 = 3;

/// A change of the Lease, as the watch or a read shows it to the holder.
#[derive(Debug)]
pub(super) enum News {
    /// Nothing newer than the last write, or only a change of another field.
    None,
    /// A renewal without an answer was stored.
    Renewed(Box<Held>),
    /// The Lease was deleted or its holder was emptied. The present holder writes it again, as client-go's elector does.
    Write,
    Taken(String),
}

/// Why a renewal ended without an answer that it succeeded.
enum Interruption {
    Failed(LeaseError),
    Lost(Lost),
    /// The watch or a read shows that an earlier write was stored.
    Renewed(Box<Held>),
}

impl<L: Leases> Elector<L> {
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
        let result = self.keep(held, grantor, annotation_changes, stop).await;
        if result.is_err() {
            grantor.revoke();
        }

        result
    }

    async fn keep(
        &mut self,
        held: &mut Held,
        grantor: &Grantor,
        annotation_changes: &mut mpsc::Receiver<AnnotationChange>,
        stop: &CancellationToken,
    ) -> Result<(), Lost> {
        let mut waiting: Vec<oneshot::Sender<Box<DynamicObject>>> = Vec::new();
        let mut attempt = held.renewed.at;
        self.attempts.settle();
        loop {
            let deadline = held.renewed.at + self.timing.renew_deadline;
            self.grant(held, grantor);
            if self.own_annotations_are_in(&held.lease) {
                for stored in waiting.drain(..) {
                    let _ = stored.send(Box::new(held.lease.clone()));
                }
            }

            let due = (attempt + self.timing.retry_period).min(deadline);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(change) = annotation_changes.recv() => {
                    self.own_annotations.extend(change.values);
                    waiting.push(change.stored);
                }
                () = changed(&mut self.view) => {
                    let view = self.view.borrow_and_update().clone();
                    match self.news(&view, held) {
                        News::None => continue,
                        News::Renewed(renewed) => { *held = *renewed; continue }
                        News::Write => {}
                        News::Taken(holder) => return Err(Lost::Taken(holder)),
                    }
                }
                () = sleep_until(due) => {}
            }

            attempt = Instant::now();
            if attempt >= deadline {
                return Err(Lost::Deadline);
            }

            match self.renew(held, deadline).await {
                Ok(renewed) => *held = renewed,
                Err(Interruption::Renewed(renewed)) => *held = *renewed,
                Err(Interruption::Failed(error)) => {
                    tracing::warn!(lease = self.name, %error, "failed to renew the lease; retrying until the renew deadline");
                }
                Err(Interruption::Lost(lost)) => return Err(lost),
            }
        }
    }

    fn own_annotations_are_in(&self, lease: &DynamicObject) -> bool {
        let stored = |key| lease.metadata.annotations.as_ref().and_then(|all| all.get(key));
        self.own_annotations
            .iter()
            .all(|(key, value)| stored(key) == value.as_ref())
    }

    /// Decides what a state of the watch means.
    pub(super) fn news(&self, view: &View, held: &Held) -> News {
        match (&view.lease, &view.deletion) {
            (Some(lease), _) if version(lease) > version(&held.lease) => self.meaning(lease),
            // The watch may lag behind. Then this was the state before the last write.
            (None, Some(deletion)) if deletion.since >= held.renewed.at => News::Write,
            _ => News::None,
        }
    }

    /// Decides what a Lease means that is newer than the last write.
    fn meaning(&self, lease: &DynamicObject) -> News {
        let record = Record::of(lease);
        match self.attempts.began(&record, &self.identity) {
            Some(renewed) => News::Renewed(Box::new(Held {
                lease: lease.clone(),
                renewed,
            })),
            None if record.is_free() => News::Write,
            None if record.holder == self.identity => News::None,
            None => News::Taken(record.holder),
        }
    }

    /// Writes the Lease. After a conflict, reads it and decides again.
    async fn renew(&mut self, held: &Held, deadline: Instant) -> Result<Held, Interruption> {
        let mut write = Write::replace(held.lease.clone());
        for _ in 0..ROUNDS {
            let (stamped, renewed) = self.stamped(write);
            let answer = self.watched(held, deadline, self.send(stamped)).await;
            self.note_speed(renewed.at);
            match answer {
                Ok(lease) => {
                    self.attempts.settle();
                    return Ok(Held { lease, renewed });
                }
                Err(Interruption::Failed(LeaseError::Conflict)) => {}
                Err(other) => return Err(other),
            }

            (self.slow_path)(&self.name);
            write = match self.watched(held, deadline, self.leases.get()).await? {
                None => Write::create(self.new_like(&held.lease)),
                Some(lease) => match self.meaning(&lease) {
                    News::Renewed(renewed) => return Err(Interruption::Renewed(renewed)),
                    News::Taken(holder) => return Err(Interruption::Lost(Lost::Taken(holder))),
                    News::None | News::Write => Write::replace(lease),
                },
            };
        }

        Err(Interruption::Failed(LeaseError::Conflict))
    }

    /// The answer to a request, unless the watch decides earlier.
    async fn watched<T>(
        &self,
        held: &Held,
        deadline: Instant,
        request: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, Interruption> {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = self.request_limit().min(left);
        let mut view = self.view.clone();
        let mut answer = pin!(limited(limit, request));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map_err(Interruption::Failed),
                () = changed(&mut view) => {
                    let seen = view.borrow_and_update().clone();
                    match self.news(&seen, held) {
                        News::Renewed(renewed) => return Err(Interruption::Renewed(renewed)),
                        News::Taken(holder) => return Err(Interruption::Lost(Lost::Taken(holder))),
                        // The request finds that by itself.
                        News::None | News::Write => {}
                    }
                }
            }
        }
    }
}
