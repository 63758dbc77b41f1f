//! The reconcile loop of the migration lease: observes, decides, stores the latch, and opens or closes the gate.

use std::time::Duration;

use jiff::Timestamp;
use outrigger_shared::backoff::doubled;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::elector::{AnnotationChange, Gate};
use crate::evidence::{ControllerManagers, Facts, LeaseFacts, OwnSettings, Reading};
use crate::gate::{self, Decision, Inputs, LatchChange, LeaseAction, MigrationSpec, YIELD};
use crate::latch::{self, Latch, Stored};
use crate::lease::View;
use crate::service_watch::Observed;

/// How long M is kept in a step back before it is offered again, at first. The time doubles with each offer.
const FIRST_BACKOFF: Duration = Duration::from_secs(120);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1920);
/// Time between two passes without a change.
const PERIOD: Duration = Duration::from_secs(5);

/// The inputs of the steward. A task of its own keeps each part current.
pub struct Sources {
    pub spec: watch::Receiver<Reading<MigrationSpec>>,
    pub controller_managers: watch::Receiver<ControllerManagers>,
    pub main: watch::Receiver<View>,
    pub migration: watch::Receiver<View>,
    pub holding: watch::Receiver<Option<Acquired>>,
    /// The newest write of a kube-controller-manager to a Service's status.
    pub service_writes: watch::Receiver<Observed>,
}

/// The acquisition of M by this process.
#[derive(Debug, Clone, Copy)]
pub struct Acquired {
    pub at: Instant,
    /// By the API server's clock; `None` where it records no field managers.
    pub stored_at: Option<Timestamp>,
}

pub struct Config {
    pub identity: String,
    /// The full lease duration that M must have been idle for.
    pub lease_duration: Duration,
    pub own: OwnSettings,
    /// The latch that lease C carried when it was taken.
    pub latch: Stored,
}

/// The last time that M was given up for the old manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    at: Instant,
    /// By this machine's clock, for the status.
    pub time: Timestamp,
    /// How often M was offered since the last change of the main lease's holder.
    pub count: u32,
}

/// The earlier passes, as far as the decision depends on them.
#[derive(Default)]
struct Past {
    offer: Option<Offer>,
    /// When the object became unreadable; none while it can be read.
    unreadable_since: Option<Instant>,
}

impl Past {
    fn observe(&mut self, spec: &Reading<MigrationSpec>, now: Instant) {
        self.unreadable_since = match spec {
            Reading::Unreadable(_) => self.unreadable_since.or(Some(now)),
            Reading::Pending | Reading::Known(_) => None,
        };
    }

    fn has_new_main_holder(&self, main: &View, held_since: Instant, now: Instant) -> bool {
        let is_new = |since: Instant| match self.unreadable_since {
            None => since > held_since,
            Some(unreadable) => since > held_since.max(unreadable) && now >= since + gate::UNREADABLE,
        };
        main.holder_since().is_some_and(is_new)
    }
}

#[derive(Debug, Clone)]
pub struct Report {
    pub decision: Decision,
    pub latch: Stored,
    pub inputs: Inputs,
    pub offer: Option<Offer>,
    pub holders: Holders,
}

impl Report {
    /// Each source was read at least once.
    pub fn was_read(&self) -> bool {
        let why = self.decision.action.why();
        self.inputs.spec != Reading::Pending && why.is_none_or(|why| why.reason != gate::reason::NOT_READ_YET)
    }
}

pub struct Reports {
    pub newest: watch::Sender<Option<Report>>,
    /// Each one. Before the latch is stored, one more: M may be released before the request ends.
    pub all: mpsc::UnboundedSender<Report>,
}

impl Reports {
    fn send(&self, report: Report) {
        // Its receiver ends with the process.
        let _ = self.all.send(report.clone());
        self.newest.send_replace(Some(report));
    }
}

/// The leases K and M by their watches, for the status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// The holder of M, until its record expires.
    pub migration: Option<String>,
    /// Both leases are watched, and each named holder has renewed its lease under our eyes. A record that was found at the start may be a dead
    /// process's.
    pub known: bool,
    pub is_main_unreadable: bool,
    pub is_migration_unreadable: bool,
}

impl Holders {
    fn of(config: &Config, sources: &Sources, now: Instant) -> Self {
        let (main, migration) = (sources.main.borrow(), sources.migration.borrow());
        let held = |view: &View| view.observation.clone().filter(|seen| seen.is_held(now));
        let is_known = |view: &View| view.synced && !view.is_failing() && held(view).is_none_or(|seen| seen.live);
        let holder = held(&migration).map(|seen| seen.record.holder);
        let holding = sources.holding.borrow().is_some();

        Self {
            // The watch shows our own release a moment after it.
            known: is_known(&main) && is_known(&migration) && (holding || holder.as_ref() != Some(&config.identity)),
            is_main_unreadable: main.is_failing(),
            is_migration_unreadable: migration.is_failing(),
            migration: holder,
        }
    }
}

/// Decides until `stop`. Returns earlier when a source has ended, since a decision from an outdated source is unsafe.
pub async fn run(
    config: Config,
    mut sources: Sources,
    annotation_changes: mpsc::Sender<AnnotationChange>,
    gate: watch::Sender<Gate>,
    reports: Reports,
    stop: CancellationToken,
) {
    let mut latch = config.latch.clone();
    let mut past = Past::default();
    let (mut last_logged, mut former_write) = (None, None);

    while !stop.is_cancelled() {
        let mut inputs = observe(&config, &mut sources, &latch, &mut past);
        former_write = newest_former_write(&sources).max(former_write);
        inputs.acquired = inputs.acquired.map(|at| at.max(former_write.unwrap_or(at)));

        let decision = gate::decide(&inputs);
        log_changes(&decision, &mut last_logged);

        let new_gate = match decision.action {
            LeaseAction::Compete => Gate::Open,
            LeaseAction::Yield(_) => Gate::EmptyExpired,
            LeaseAction::StandBy(_) | LeaseAction::Release(_) | LeaseAction::Alarm(_) => Gate::Closed,
        };
        let open = new_gate == Gate::Open;
        // Close at once. Open only after the latch that the decision depends on is stored.
        let set_gate = |new: Gate| gate.send_if_modified(|was| std::mem::replace(was, new) != new);
        if !open {
            set_gate(Gate::Closed);
        }

        let mut report = Report {
            decision: decision.clone(),
            latch: latch.clone(),
            inputs: inputs.clone(),
            offer: past.offer,
            holders: Holders::of(&config, &sources, Instant::now()),
        };
        if decision.latch != LatchChange::Keep {
            let _ = reports.all.send(report.clone());
            let Some(stored) = store(&annotation_changes, &decision.latch).await else {
                return;
            };
            latch = stored;
            report.latch = latch.clone();
        }

        set_gate(new_gate);
        reports.send(report);

        if inputs.holding && !open {
            // Another task stops the controllers and releases the lease. Decide again only after that.
            let released = sources.holding.wait_for(Option::is_none);
            if !matches!(stop.run_until_cancelled(released).await, Some(Ok(_))) {
                return;
            }
            if decision
                .action
                .why()
                .is_some_and(|why| why.reason == gate::reason::STEPPING_BACK)
            {
                past.offer = Some(Offer {
                    at: Instant::now(),
                    time: Timestamp::now(),
                    count: offers_before(past.offer, inputs.main_holder_changed) + 1,
                });
            }
            continue;
        }
        if decision.latch == LatchChange::Keep && !wait(&mut sources, &config, past.offer, &stop).await {
            return;
        }
    }
}

/// The newest write of an old manager, if this process observed it before it acquired M.
fn newest_former_write(sources: &Sources) -> Option<Timestamp> {
    let acquired = sources.holding.borrow().map(|acquired| acquired.at);
    let services = sources.service_writes.borrow();
    let newest = services.newest.as_ref();
    let former = newest.filter(|(_, at)| acquired.is_none_or(|acquired| *at < acquired));
    former.map(|(write, _)| write.time)
}

/// A new holder of K is offered M without the backoff of the previous holder.
fn offers_before(offer: Option<Offer>, main_holder_changed: bool) -> u32 {
    offer.filter(|_| !main_holder_changed).map_or(0, |offer| offer.count)
}

/// How long M is kept after it was acquired again, before the next offer.
fn backoff(offer: Option<Offer>) -> Duration {
    let further = offer.map_or(0, |offer| offer.count.saturating_sub(1));
    doubled(FIRST_BACKOFF, LONGEST_BACKOFF, further)
}

/// When M may be acquired again after it was offered: it was free and had no new candidate for [`YIELD`]. None while it
/// is held.
fn yield_ends(main: &View, migration: &View, offer: Option<Offer>, now: Instant) -> Option<Instant> {
    let since = [
        migration.free_since(now),
        main.holder_since(),
        offer.map(|offer| offer.at),
    ];
    since[0]?;
    since.into_iter().flatten().max().map(|since| since + YIELD)
}

/// Whether this process acquired M after the last offer. The watch may show that before the answer to the request, so
/// before the lease counts as held: the gate that was open for it stays open.
fn is_own_acquisition(migration: &View, identity: &str, offer: Option<Offer>, now: Instant) -> bool {
    let is_own = migration.live_holder(now) == Some(identity);
    is_own && migration.holder_since() > offer.map(|offer| offer.at)
}

fn observe(config: &Config, sources: &mut Sources, latch: &Stored, past: &mut Past) -> Inputs {
    let (now, offer) = (Instant::now(), past.offer);
    let main = sources.main.borrow_and_update().clone();
    let migration = sources.migration.borrow_and_update().clone();
    let controller_managers = sources.controller_managers.borrow_and_update().clone();
    let spec = sources.spec.borrow_and_update().clone();
    let acquired = *sources.holding.borrow_and_update();
    let held_since = acquired.map(|acquired| acquired.at);
    past.observe(&spec, now);
    let services = sources.service_writes.borrow_and_update().clone();
    let is_recent = |at: Instant| now < at + gate::QUIET;

    Inputs {
        latch: latch.clone(),
        identity: config.identity.clone(),
        holding: held_since.is_some(),
        acquired: acquired.and_then(|acquired| acquired.stored_at),
        service_write: services.newest.filter(|(_, at)| is_recent(*at)).map(|(write, _)| write),
        services_read: services.read,
        main_holder_changed: held_since.is_some_and(|held_since| past.has_new_main_holder(&main, held_since, now)),
        offer_again: held_since.is_some_and(|since| now >= since + backoff(offer)),
        yielded: is_own_acquisition(&migration, &config.identity, offer, now)
            || yield_ends(&main, &migration, offer, now).is_some_and(|end| now >= end),
        facts: Facts {
            controller_managers,
            attested_phase: spec.known().and_then(|spec| spec.attested_phase),
            main: lease_facts(&main, config, now),
            migration: lease_facts(&migration, config, now),
            own: config.own,
        },
        spec,
    }
}

fn lease_facts(view: &View, config: &Config, now: Instant) -> LeaseFacts {
    LeaseFacts {
        read: view.synced || view.is_failing(),
        live_holder: view.live_holder(now).map(str::to_owned),
        named_holder: view.named_holder().map(str::to_owned),
        duration: view
            .named_holder()
            .and(view.observation.as_ref())
            .map(|seen| seen.record.duration),
        idle: view.was_idle_for(config.lease_duration, now),
        failure: view.failure.clone(),
    }
}

fn log_changes(decision: &Decision, last: &mut Option<(LeaseAction, Vec<String>)>) {
    let (action, warnings) = last.take().map_or((None, Vec::new()), |(s, w)| (Some(s), w));
    if action.as_ref() != Some(&decision.action) {
        match &decision.action {
            LeaseAction::Alarm(why) => {
                tracing::error!(why = why.message, "ALARM: releasing the migration lease at once");
            }
            LeaseAction::Release(why) => tracing::warn!(why = why.message, "releasing the migration lease"),
            LeaseAction::StandBy(why) => tracing::info!(why = why.message, "not competing for the migration lease"),
            LeaseAction::Compete => tracing::info!("may compete for the migration lease"),
            LeaseAction::Yield(_) => {
                tracing::info!("offering the migration lease to the old manager; acquiring it again if it stays free");
            }
        }
    }

    for warning in decision.warnings.iter().filter(|warning| !warnings.contains(warning)) {
        tracing::warn!("{warning}");
    }

    *last = Some((decision.action.clone(), decision.warnings.clone()));
}

/// Stores the latch on lease C and waits until the API server has it. None when this process lost lease C.
async fn store(annotation_changes: &mpsc::Sender<AnnotationChange>, change: &LatchChange) -> Option<Stored> {
    let latch = match change {
        LatchChange::Store(latch) => Some(latch),
        LatchChange::Keep | LatchChange::Remove => None,
    };
    let (stored, done) = oneshot::channel();
    let change = AnnotationChange {
        key: latch::ANNOTATION.to_owned(),
        value: latch.map(Latch::to_text),
        stored,
    };

    annotation_changes.send(change).await.ok()?;
    done.await.ok()?;

    Some(latch.map_or(Stored::Absent, |latch| Stored::Latch(latch.clone())))
}

/// Waits for a change of a source, or for the next instant at which time alone changes the decision. False when a source
/// has ended.
async fn wait(sources: &mut Sources, config: &Config, offer: Option<Offer>, stop: &CancellationToken) -> bool {
    let now = Instant::now();
    let expiry = |view: &View| {
        let seen = view.observation.as_ref();
        seen.map(|seen| [seen.expires(), seen.since + config.lease_duration])
    };
    let instants = {
        let (main, migration) = (sources.main.borrow(), sources.migration.borrow());
        let yielded = yield_ends(&main, &migration, offer, now);
        [expiry(&main), expiry(&migration), yielded.map(|end| [end; 2])]
    };
    let next = instants.into_iter().flatten().flatten().filter(|at| *at > now).min();
    // A pass every few seconds in any case: it is cheap, and a lost wake-up does no harm.
    let next = next.unwrap_or(now + PERIOD).min(now + PERIOD);

    tokio::select! {
        () = stop.cancelled() => true,
        () = sleep_until(next) => true,
        change = sources.spec.changed() => change.is_ok(),
        change = sources.controller_managers.changed() => change.is_ok(),
        change = sources.main.changed() => change.is_ok(),
        change = sources.migration.changed() => change.is_ok(),
        change = sources.holding.changed() => change.is_ok(),
        change = sources.service_writes.changed() => change.is_ok(),
    }
}

#[cfg(test)]
mod tests;
