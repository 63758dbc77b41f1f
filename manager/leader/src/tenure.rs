//! A lease that is held in a task of its own, and the set of controllers that runs under it.

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::elector::{Annotate, Elector, Held, Lost};
use crate::lease::{LeaseError, Leases};
use crate::permit::{Grantor, Permit};

/// What ends a set of controllers before it was told to stop.
pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// Starts a set of controllers. The future returns only after the last write in flight has ended.
pub type Start = Box<
    dyn Fn(Permit, CancellationToken) -> futures::future::BoxFuture<'static, Result<(), ControllerError>> + Send + Sync,
>;

/// Why leadership ended against the process's will. The process must exit.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A lease was lost.
    #[error("leader election lost for lease {lease}: {cause}")]
    Lost {
        /// The lease's name.
        lease: String,
        /// How.
        cause: Lost,
    },
    /// A set of controllers ended by itself.
    #[error("the controllers under lease {lease} ended: {cause}")]
    Controllers {
        /// The lease's name.
        lease: String,
        /// Why.
        cause: ControllerError,
    },
    /// A task of the process panicked.
    #[error("a task ended abnormally: {0}")]
    Task(#[from] JoinError),
}

type Renewing<L> = (Elector<L>, Held, Grantor, Result<(), Lost>);

/// A held lease, renewed by a task of its own, with its controllers running.
pub struct Tenure<L> {
    lease: String,
    renewing: JoinHandle<Renewing<L>>,
    stop_renewing: CancellationToken,
    controllers: JoinHandle<Result<(), ControllerError>>,
    stop_controllers: CancellationToken,
    /// The right to write under this lease.
    pub permit: Permit,
}

impl<L: Leases + Sync + 'static> Tenure<L> {
    /// Begins: renews `held` from now on and starts the controllers.
    pub fn begin(lease: &str, elector: Elector<L>, held: Held, notes: mpsc::Receiver<Annotate>, start: &Start) -> Self {
        let (grantor, permit) = Permit::pair();
        elector.grant(&held, &grantor);
        let (stop_renewing, stop_controllers) = (CancellationToken::new(), CancellationToken::new());
        tracing::info!(lease, "holding the lease; starting its controllers");
        Self {
            lease: lease.to_owned(),
            renewing: tokio::spawn(renew(elector, held, grantor, notes, stop_renewing.clone())),
            controllers: tokio::spawn(start(permit.clone(), stop_controllers.clone())),
            stop_renewing,
            stop_controllers,
            permit,
        }
    }

    /// Waits until the lease is lost or the controllers end, neither of which should happen. Cancel safe.
    pub async fn broken(&mut self) -> Ended {
        tokio::select! {
            renewed = &mut self.renewing => match renewed {
                Ok((_, _, _, Err(cause))) => Ended::Lost { lease: self.lease.clone(), cause },
                Ok((_, _, _, Ok(()))) => Ended::Lost { lease: self.lease.clone(), cause: Lost::Deadline },
                Err(error) => Ended::Task(error),
            },
            ended = &mut self.controllers => match ended {
                Ok(Err(cause)) => Ended::Controllers { lease: self.lease.clone(), cause },
                Ok(Ok(())) => Ended::Controllers { lease: self.lease.clone(), cause: "they returned without being told to".into() },
                Err(error) => Ended::Task(error),
            },
        }
    }

    /// Ends in order: stops and joins the controllers, then gives the lease back. If the lease is lost or the
    /// controllers do not end in time, it is left to run out.
    ///
    /// # Errors
    /// [`Ended`] when the lease was lost on the way, or a task panicked.
    pub async fn end(mut self) -> Result<Elector<L>, Ended> {
        self.stop_controllers.cancel();
        tokio::select! {
            ended = &mut self.controllers => {
                if let Err(error) = ended? {
                    tracing::error!(lease = self.lease, %error, "a controller failed while it was stopping");
                }
            }
            renewed = &mut self.renewing => return Err(self.lost(renewed?)),
        }
        self.stop_renewing.cancel();
        let (elector, held, grantor, result) = (&mut self.renewing).await?;
        if let Err(cause) = result {
            return Err(Ended::Lost {
                lease: self.lease.clone(),
                cause,
            });
        }
        match elector.release(held, &grantor).await {
            Ok(()) => tracing::info!(lease = self.lease, "released the lease"),
            Err(LeaseError::Conflict) => {
                tracing::warn!(lease = self.lease, "the lease was changed by another; not released")
            }
            Err(error) => tracing::warn!(lease = self.lease, %error, "could not release the lease; it will run out"),
        }
        Ok(elector)
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
    mut notes: mpsc::Receiver<Annotate>,
    stop: CancellationToken,
) -> Renewing<L> {
    let result = elector.hold(&mut held, &grantor, &mut notes, &stop).await;
    (elector, held, grantor, result)
}
