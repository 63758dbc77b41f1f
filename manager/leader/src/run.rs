//! Runs leader election: lease C with its controllers, lease M with the migrated controllers, and the steward.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::Client;
use outrigger_evidence::controller_manager::Locks;
use outrigger_evidence::facts::{OwnSettings, Reading};
use outrigger_evidence::latch::{self, Stored};
use outrigger_serving::Tasks;
use outrigger_shared::controller::Controller;
use outrigger_shared::event::About;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::{CloudProviderMigration, DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::elector::{AnnotationChange, Elector, Gate, Held, SlowPath, Timing};
use crate::lease::{KubeLease, Leases, View};
use crate::permit::{Fence, Permit};
use crate::readers::{self, Listing, Own};
use crate::status::{self, CountNodes, DryRun, Reporter};
use crate::steward::{self, Config, Controls, Reports, Sources};
use crate::tenure::{Ended, Start, Tenure};

/// Called when this process acquires a lease (with its permit) and when it no longer holds it (`None`).
pub type Observer = Arc<dyn Fn(&str, Option<Permit>) + Send + Sync>;

/// Takes the Events about leases: the Lease and the message.
pub type Elections = Arc<dyn Fn(&About, &str) + Send + Sync>;

/// The messages of client-go's elector, after the identity
/// (<https://github.com/kubernetes/client-go/blob/v0.34.0/tools/leaderelection/leaderelection.go>).
const BECAME_LEADER: &str = "became leader";
const STOPPED_LEADING: &str = "stopped leading";
/// The loss of lease C also ends what runs under M. The process waits this long for that reason before it names another one;
/// its permits are void by then.
const NOTICED: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub enum Mode {
    /// Leader migration is off: every controller runs under the main lease.
    Single,
    /// Kubernetes' leader migration: compete for the migration lease while this process holds the main lease.
    Upstream {
        lease: String,
    },
    Guarded(Box<Guard>),
}

#[derive(Clone)]
pub struct Guard {
    pub lease: String,
    pub migration: String,
    /// The cluster's ID in AWS tags.
    pub cluster_id: String,
    /// The API server that holds the object and the hosted control plane.
    pub management: Client,
    pub cluster: Client,
    pub nodes: CountNodes,
    /// Of the controllers under the migration lease, while this process holds the main lease.
    pub dry_run: watch::Receiver<DryRun>,
    /// The controllers that this manager runs under the migration lease.
    pub controllers: Vec<Controller>,
    pub node_ipam: Placement,
    /// Takes metrics and Events of the migration, while this process holds the main lease.
    pub reporter: Reporter,
}

pub struct Setup {
    /// A client used for leases alone.
    pub leases: Client,
    /// The namespace of all three leases.
    pub namespace: String,
    pub main_lease: String,
    /// One identity for both leases: host name, underscore, random UUID.
    pub identity: String,
    pub timing: Timing,
    pub mode: Mode,
    pub start_main: Start,
    /// Starts the controllers under lease M; not called in [`Mode::Single`].
    pub start_migrated: Start,
    pub observer: Observer,
    pub elections: Elections,
    pub slow_path: SlowPath,
}

impl Setup {
    fn election(&self, lease: &About, message: &str) {
        (self.elections)(lease, &format!("{} {message}", self.identity));
    }
}

/// The end of the task that leads under lease M.
fn of_migrated(ended: Result<Result<(), Ended>, JoinError>) -> Ended {
    match ended {
        Ok(Ok(())) => Ended::Controllers {
            lease: "migration".into(),
            cause: "the migration loop returned".into(),
        },
        Ok(Err(ended)) => ended,
        Err(panic) => Ended::Task(panic),
    }
}

/// Writes into the status that nobody observes the cluster, while this process waits for lease C.
fn report_not_led(
    setup: &Setup,
    evidence: &Evidence,
    view: &watch::Receiver<View>,
    problems: [watch::Receiver<Option<String>>; 2],
) -> impl Future<Output = Infallible> + use<> {
    let lease = status::MainLease {
        name: format!("{}/{}", setup.namespace, setup.main_lease),
        view: view.clone(),
        duration: setup.timing.lease_duration,
    };
    status::report_not_led(evidence.guard.clone(), evidence.object.stored.clone(), lease, problems)
}

/// Leads until `shutdown`, then stops the controllers in order and releases both leases.
///
/// # Errors
/// [`Ended`] when a lease was lost, or controllers or a task ended. The process must then exit without waiting for anything:
/// a lease that it still has expires.
pub async fn run(setup: Setup, shutdown: CancellationToken) -> Result<(), Ended> {
    let setup = Arc::new(setup);
    let (tasks, mut tasks_ended) = Tasks::new();
    let _stop_tasks = tasks.stop().clone().drop_guard();
    let (mut elector, view) = elector(&setup, &setup.main_lease, &tasks);
    let watched = MigrationLease::watch(&setup, &view, &tasks);
    let evidence = watched.as_ref().and_then(|watched| watched.evidence.as_ref());
    let (mut gate, newer) = gate_of_latch(view.clone(), &tasks);
    let reports = evidence.map(|evidence| report_not_led(&setup, evidence, &view, [newer, elector.problem()]));
    let reports = OptionFuture::from(reports);

    tracing::info!(
        lease = setup.main_lease,
        identity = setup.identity,
        "competing for the main lease"
    );

    let acquired = tokio::select! {
        held = elector.acquire(&mut gate, &shutdown) => held,
        Some(never) = reports => match never {},
        Some(ended) = tasks_ended.recv() => return Err(ended.into()),
    };
    let Some(held) = acquired else {
        return Ok(());
    };

    let (latch, lease) = (inherited_latch(&mut elector, &held), about(&held));
    let (annotation_changes, annotation_changes_rx) = mpsc::channel(4);
    let mut main = Tenure::begin(
        &setup.main_lease,
        elector,
        held,
        annotation_changes_rx,
        None,
        &setup.start_main,
    );
    (setup.observer)(&setup.main_lease, Some(main.permit.clone()));
    setup.election(&lease, BECAME_LEADER);

    let stop = CancellationToken::new();
    let mut migrated = tokio::spawn(lead_migrated(
        Arc::clone(&setup),
        watched,
        MainLease {
            latch,
            view,
            annotation_changes,
            permit: main.permit.clone(),
        },
        stop.clone(),
        tasks.clone(),
    ));

    let ended = tokio::select! {
        () = shutdown.cancelled() => None,
        ended = main.broken() => Some(ended),
        Some(ended) = tasks_ended.recv() => Some(ended.into()),
        ended = &mut migrated => Some(timeout(NOTICED, main.broken()).await.unwrap_or_else(|_| of_migrated(ended))),
    };
    if let Some(ended) = ended {
        setup.election(&lease, STOPPED_LEADING);
        return Err(ended);
    }

    tracing::info!("shutting down: stopping controllers, then releasing leases");
    stop.cancel();
    migrated.await??;
    main.end().await?;
    (setup.observer)(&setup.main_lease, None);
    setup.election(&lease, STOPPED_LEADING);

    Ok(())
}

fn about(held: &Held) -> About {
    let metadata = &held.lease.metadata;
    About {
        api_version: "coordination.k8s.io/v1".into(),
        kind: "Lease".into(),
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

fn elector(setup: &Setup, lease: &str, tasks: &Tasks) -> (Elector<KubeLease>, watch::Receiver<View>) {
    let object = KubeLease::new(setup.leases.clone(), &setup.namespace, lease);
    let (view, watching) = object.watch(setup.timing.lease_duration, tasks.stop().clone());
    tasks.spawn("watch of a lease", watching);
    (
        Elector::new(object, lease, &setup.identity, setup.timing, view.clone())
            .with_slow_path(Arc::clone(&setup.slow_path)),
        view,
    )
}

/// Lease C is left to a newer program while it has a latch of that program: this one could not follow it. With the reason.
pub(crate) fn gate_of_latch(
    mut view: watch::Receiver<View>,
    tasks: &Tasks,
) -> (watch::Receiver<Gate>, watch::Receiver<Option<String>>) {
    let ((gate, gate_rx), (newer, newer_rx)) = (watch::channel(Gate::Closed), watch::channel(None));
    let stop = tasks.stop().clone();
    tasks.spawn("latch of the main lease", async move {
        loop {
            let stored = view.borrow_and_update().lease.as_ref().map(latch::of_lease);
            let why = match stored {
                Some(Stored::Newer(why)) => Some(why),
                _ => None,
            };
            if let Some(why) = why.as_ref().filter(|_| newer.borrow().is_none()) {
                tracing::error!(why, "leaving the main lease to a newer manager");
            }
            let is_read = view.borrow().synced || view.borrow().is_failing();
            let is_open = is_read && why.is_none();
            gate.send_replace(if is_open { Gate::Open } else { Gate::Closed });
            newer.send_replace(why);
            if !matches!(stop.run_until_cancelled(view.changed()).await, Some(Ok(()))) {
                return;
            }
        }
    });

    (gate_rx, newer_rx)
}

/// The latch that lease C carries. Should another process edit or remove it, the next renewal restores it.
pub(crate) fn inherited_latch<L: Leases>(elector: &mut Elector<L>, held: &Held) -> Stored {
    let latch = latch::of_lease(&held.lease);
    if matches!(latch, Stored::Latch(_)) {
        elector.adopt_annotation(held, latch::ANNOTATION);
    }
    latch
}

/// Lease M with its watches, which run from the start of the process on. So a process that acquires C has observed M for
/// just as long and does not have to wait for M to expire after C.
struct MigrationLease {
    lease: String,
    elector: Elector<KubeLease>,
    view: watch::Receiver<View>,
    evidence: Option<Evidence>,
}

struct Evidence {
    guard: Guard,
    own: Own,
    object: readers::Migration,
    listing: watch::Receiver<Listing>,
    main: watch::Receiver<View>,
}

impl MigrationLease {
    /// `None` if leader migration is off.
    fn watch(setup: &Arc<Setup>, main: &watch::Receiver<View>, tasks: &Tasks) -> Option<Self> {
        let (lease, evidence) = match &setup.mode {
            Mode::Single => return None,
            Mode::Upstream { lease } => (lease, None),
            Mode::Guarded(guard) => (&guard.lease, Some(Evidence::watch(setup, guard, tasks))),
        };
        let (elector, view) = elector(setup, lease, tasks);

        Some(Self {
            lease: lease.clone(),
            elector: elector.with_signers(main.clone()),
            view,
            evidence,
        })
    }
}

impl Evidence {
    fn watch(setup: &Arc<Setup>, guard: &Guard, tasks: &Tasks) -> Self {
        let own = Own {
            cluster_id: guard.cluster_id.clone(),
            namespace: setup.namespace.clone(),
            lease: guard.lease.clone(),
            main_lease: setup.main_lease.clone(),
        };
        let object = readers::follow_own_migration(guard.management.clone(), &guard.migration, &own, tasks);

        let locks = Locks {
            namespace: setup.namespace.clone(),
            main: DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned(),
            migration: guard.lease.clone(),
        };
        let main = follow_main_lease(setup, object.agreed.clone(), tasks);

        Self {
            guard: guard.clone(),
            own,
            listing: readers::follow_controller_managers(
                guard.management.clone(),
                guard.cluster.clone(),
                locks,
                object.agreed.clone(),
                main.clone(),
                tasks,
            ),
            main,
            object,
        }
    }
}

struct MainLease {
    latch: Stored,
    view: watch::Receiver<View>,
    annotation_changes: mpsc::Sender<AnnotationChange>,
    permit: Permit,
}

/// Lease M as its elector and its holder in this process see it.
struct MigrationLeaseState {
    gate: watch::Sender<Gate>,
    fence: watch::Sender<Fence>,
    view: watch::Receiver<View>,
    holding: watch::Receiver<Option<Instant>>,
    problem: watch::Receiver<Option<String>>,
}

/// Runs lease M and its guard. Returns when `stop` is cancelled and M is released.
async fn lead_migrated(
    setup: Arc<Setup>,
    watched: Option<MigrationLease>,
    inherited: MainLease,
    stop: CancellationToken,
    tasks: Tasks,
) -> Result<(), Ended> {
    let Some(MigrationLease {
        lease,
        elector,
        view,
        evidence,
    }) = watched
    else {
        stop.cancelled().await;
        return Ok(());
    };

    let lease_problem = elector.problem();
    let (holding, holding_rx) = watch::channel(None);
    let (gate, gate_rx) = watch::channel(if evidence.is_none() { Gate::Open } else { Gate::Closed });
    let (fence, fence_rx) = watch::channel(Fence::OPEN);
    let leading = hold_when_open(&setup, &lease, elector, (gate_rx, fence_rx), holding, stop);
    let Some(evidence) = evidence else {
        // Nothing guards the lease: the gate is always open, and lease C has no latch.
        let ended = leading.await;
        drop((gate, fence));
        return ended;
    };

    let own = MigrationLeaseState {
        gate,
        fence,
        view,
        holding: holding_rx,
        problem: lease_problem,
    };
    let mut steward = guard(&setup, evidence, inherited, own, &tasks);
    tokio::select! {
        ended = leading => ended,
        // Without the steward, nothing opens or closes the gate.
        ended = &mut steward => ended.map_err(Ended::Task).and(Err(no_guard(&lease))),
    }
}

fn guard(
    setup: &Setup,
    evidence: Evidence,
    inherited: MainLease,
    own: MigrationLeaseState,
    tasks: &Tasks,
) -> JoinHandle<()> {
    let Evidence { guard, object, .. } = evidence;
    let sources = Sources {
        spec: readers::follow_spec(object.agreed, tasks),
        listing: evidence.listing,
        main: evidence.main,
        migration: own.view,
        own_main: inherited.view,
        holding: own.holding,
    };
    let controls = Controls {
        annotation_changes: inherited.annotation_changes,
        gate: own.gate,
        fence: own.fence,
    };
    let config = Config {
        identity: setup.identity.clone(),
        lease_duration: setup.timing.lease_duration,
        own: OwnSettings {
            routes: guard.controllers.contains(&Controller::Route),
            node_ipam: guard.node_ipam,
            renew_deadline: setup.timing.renew_deadline,
        },
        latch: inherited.latch,
    };
    let status_writer = status::StatusWriter {
        guard,
        own: evidence.own,
        permit: inherited.permit,
        lease_problem: own.problem,
    };

    let (newest, newest_rx) = watch::channel(None);
    let (all, all_rx) = mpsc::unbounded_channel();
    let stop = tasks.stop().clone();
    tasks.spawn(
        "status",
        status_writer.run(object.stored, (newest_rx, all_rx), stop.clone()),
    );

    tokio::spawn(steward::run(config, sources, controls, Reports { newest, all }, stop))
}

fn no_guard(lease: &str) -> Ended {
    Ended::Controllers {
        lease: lease.to_owned(),
        cause: "the guard of the lease ended".into(),
    }
}

/// Acquires lease M while the gate is open, and releases it in order when the gate closes.
async fn hold_when_open<L: Leases + Sync + 'static>(
    setup: &Setup,
    lease: &str,
    mut elector: Elector<L>,
    (mut gate, fence): (watch::Receiver<Gate>, watch::Receiver<Fence>),
    holding: watch::Sender<Option<Instant>>,
    stop: CancellationToken,
) -> Result<(), Ended> {
    loop {
        let Some(held) = elector.acquire(&mut gate, &stop).await else {
            return Ok(());
        };
        if *gate.borrow() != Gate::Open {
            // The gate closed during the request. No controller has been started, so none has to be joined.
            let (grantor, _) = Permit::pair();
            if let Err(error) = elector.release(held, &grantor).await {
                tracing::warn!(lease, %error, "could not release the lease; it will expire");
            }
            continue;
        }

        let object = about(&held);
        let (_no_annotation_changes, annotation_changes) = mpsc::channel(1);
        let fence = Some(fence.clone());
        let mut tenure = Tenure::begin(lease, elector, held, annotation_changes, fence, &setup.start_migrated);
        (setup.observer)(lease, Some(tenure.permit.clone()));
        setup.election(&object, BECAME_LEADER);
        holding.send_replace(Some(Instant::now()));

        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            ended = tenure.broken() => Some(ended),
            closed = gate.wait_for(|gate| *gate != Gate::Open) => match closed {
                Ok(_) => None,
                Err(_) => Some(no_guard(lease)),
            },
        };
        if let Some(ended) = ended {
            setup.election(&object, STOPPED_LEADING);
            return Err(ended);
        }

        elector = tenure.end().await?;
        (setup.observer)(lease, None);
        setup.election(&object, STOPPED_LEADING);
        holding.send_replace(None);
    }
}

/// Watches lease K under the name in the migration object, and follows a change of that name.
fn follow_main_lease(
    setup: &Arc<Setup>,
    mut object: watch::Receiver<Reading<CloudProviderMigration>>,
    tasks: &Tasks,
) -> watch::Receiver<View> {
    let (tx, rx) = watch::channel(View::default());
    let (setup, watches) = (Arc::clone(setup), tasks.stop().clone());
    tasks.spawn("watch of the old manager's lease", async move {
        while !watches.is_cancelled() {
            let named = object.borrow_and_update().known().cloned();
            let name = named.map_or_else(
                || DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned(),
                |object| object.spec.kube_controller_manager_lease,
            );
            let lease = KubeLease::new(setup.leases.clone(), &setup.namespace, &name);
            let (mut view, watching) = lease.watch(setup.timing.lease_duration, watches.clone());
            let mut watching = std::pin::pin!(watching);
            // The state of the lease with the former name is void.
            tx.send_replace(View::default());
            loop {
                tokio::select! {
                    () = &mut watching => return,
                    Ok(()) = object.changed() => match &*object.borrow_and_update() {
                        // Without the object, the last name stays.
                        Reading::Known(object) if object.spec.kube_controller_manager_lease != name => break,
                        _ => {}
                    },
                    Ok(()) = view.changed() => drop(tx.send_replace(view.borrow_and_update().clone())),
                    else => return,
                }
            }
        }
    });

    rx
}
