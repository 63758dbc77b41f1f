//! A tenure: a held lease, renewed in a task of its own, and the controllers that run under it.

use std::time::Duration;

use outrigger_serving::TaskEnded;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::elector::{AnnotationChange, Elector, Held, Lost, Timing};
use crate::lease::{LeaseError, Leases};
use crate::not_leader::NotLeader;
use crate::permit::{Fence, Grantor, Permit};

pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// Starts a set of controllers. The future completes only after the last write in flight has ended. It may be dropped
/// while no write is in flight.
pub type Start = Box<
    dyn Fn(Permit, CancellationToken) -> futures::future::BoxFuture<'static, Result<(), ControllerError>> + Send + Sync,
>;

/// How long controllers may still read after the stop. A reconciliation reads AWS at the rate of its budget, which can take
/// longer than a termination may.
const READS: Duration = Duration::from_millis(250);

/// Why leadership ended unexpectedly. The process must exit.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("leader election lost for lease {lease}: {cause}")]
    Lost { lease: String, cause: Lost },
    #[error("the controllers under lease {lease} ended: {cause}")]
    Controllers { lease: String, cause: ControllerError },
    /// The controllers did not stop: a write hangs. The lease is not released.
    #[error(
        "the controllers under lease {lease} did not stop within {after:?}; the lease expires instead of being released, so that none of their writes overlaps with another holder's"
    )]
    Stuck { lease: String, after: Duration },
    #[error("a task ended abnormally: {0}")]
    Task(#[from] JoinError),
    #[error(transparent)]
    Background(#[from] TaskEnded),
}

type Renewing<L> = (Elector<L>, Held, Grantor, Result<(), Lost>);

pub struct Tenure<L> {
    lease: String,
    renewing: JoinHandle<Renewing<L>>,
    stop_renewing: CancellationToken,
    controllers: JoinHandle<Result<(), ControllerError>>,
    stop_controllers: CancellationToken,
    grantor: Grantor,
    timing: Timing,
    pub permit: Permit,
}

impl<L: Leases + Sync + 'static> Tenure<L> {
    pub fn begin(
        lease: &str,
        elector: Elector<L>,
        held: Held,
        annotation_changes: mpsc::Receiver<AnnotationChange>,
        fence: Option<watch::Receiver<Fence>>,
        start: &Start,
    ) -> Self {
        let (grantor, permit) = Permit::pair();
        let permit = match fence {
            Some(fence) => permit.within(fence),
            None => permit,
        };
        elector.grant(&held, &grantor);

        let (stop_renewing, stop_controllers) = (CancellationToken::new(), CancellationToken::new());
        tracing::info!(lease, "holding the lease; starting its controllers");

        Self {
            lease: lease.to_owned(),
            timing: elector.timing(),
            renewing: tokio::spawn(renew(
                elector,
                held,
                grantor.clone(),
                annotation_changes,
                stop_renewing.clone(),
            )),
            grantor,
            controllers: tokio::spawn(start(permit.clone(), stop_controllers.clone())),
            stop_renewing,
            stop_controllers,
            permit,
        }
    }

    /// Waits until the lease is lost or the controllers end. Neither is expected. Cancel safe.
    pub async fn broken(&mut self) -> Ended {
        tokio::select! {
            renewed = &mut self.renewing => renewed.map_or_else(Ended::Task, |renewed| self.lost(renewed)),
            ended = &mut self.controllers => match ended {
                Ok(ended) => {
                    let cause = ended.err().unwrap_or_else(|| "they returned before they were stopped".into());
                    Ended::Controllers { lease: self.lease.clone(), cause }
                }
                Err(error) => Ended::Task(error),
            },
        }
    }

    /// Ends in order: lets no further write begin, stops and joins the controllers, then releases the lease. Controllers
    /// that still read are ended after the last write. If a write's outcome is unknown, the lease is left to expire, since
    /// that write may still be in flight.
    ///
    /// # Errors
    /// [`Ended`] when the lease was lost meanwhile, a task panicked, or a write did not end within the renew deadline.
    pub async fn end(mut self) -> Result<Elector<L>, Ended> {
        self.grantor.close();
        self.stop_controllers.cancel();
        let only_reads = async {
            sleep(READS).await;
            self.grantor.without_writes().await;
        };

        tokio::select! {
            ended = &mut self.controllers => self.log_failure(ended?),
            () = only_reads => self.controllers.abort(),
            renewed = &mut self.renewing => return Err(self.lost(renewed?)),
            () = sleep(self.timing.renew_deadline) => {
                self.grantor.revoke();
                return Err(Ended::Stuck { lease: self.lease, after: self.timing.renew_deadline });
            }
        }

        self.stop_renewing.cancel();

        let (elector, held, grantor, result) = (&mut self.renewing).await?;
        if let Err(cause) = result {
            let lease = self.lease;
            return Err(Ended::Lost { lease, cause });
        }

        self.release(&elector, held, &grantor).await;

        Ok(elector)
    }

    async fn release(&self, elector: &Elector<L>, held: Held, grantor: &Grantor) {
        let lease = &self.lease;
        if grantor.unanswered_within(self.timing.lease_duration) {
            grantor.revoke();
            tracing::warn!(
                lease,
                "a write was not answered and may still be in flight; leaving the lease to expire"
            );
            return;
        }

        match elector.release(held, grantor).await {
            Ok(()) => tracing::info!(lease, "released the lease"),
            Err(LeaseError::Conflict) => {
                tracing::warn!(lease, "the lease was changed by another process; not released")
            }
            Err(error) => tracing::warn!(lease, %error, "could not release the lease; it will expire"),
        }
    }

    /// Logs why the controllers failed. [`NotLeader`] is expected: a controller was about to write when it was stopped.
    fn log_failure(&self, ended: Result<(), ControllerError>) {
        let Err(error) = ended else { return };
        let mut cause = Some(&*error as &(dyn std::error::Error + 'static));
        while let Some(current) = cause {
            if current.is::<NotLeader>() {
                return;
            }
            cause = current.source();
        }

        tracing::error!(lease = self.lease, %error, "a controller failed while it was stopping");
    }

    fn lost(&self, (_, _, _, result): Renewing<L>) -> Ended {
        Ended::Lost {
            lease: self.lease.clone(),
            cause: result.err().unwrap_or(Lost::Deadline),
        }
    }
}

async fn renew<L: Leases>(
    mut elector: Elector<L>,
    mut held: Held,
    grantor: Grantor,
    mut annotation_changes: mpsc::Receiver<AnnotationChange>,
    stop: CancellationToken,
) -> Renewing<L> {
    let result = elector.hold(&mut held, &grantor, &mut annotation_changes, &stop).await;
    (elector, held, grantor, result)
}

#[cfg(test)]
mod tests;
