//! The reconcile loop of the migration lease: observes, decides, closes the permit, stores the latch, and opens or closes
//! the gate.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use outrigger_evidence::facts::{
    self, ControllerManagers, Facts, Kind, LeaseFacts, MainHolder, OwnSettings, Proven, Reading,
};
use outrigger_evidence::gate::{self, Decision, Inputs, LatchChange, LeaseAction, MigrationSpec, YIELD};
use outrigger_evidence::latch::{self, Latch, Stored};
use outrigger_evidence::why::Why;
use outrigger_shared::backoff::doubled;
use outrigger_shared::migration::{Attestation, Phase};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::elector::{AnnotationChange, Gate};
use crate::lease::{View, version};
use crate::permit::Fence;
use crate::readers::Listing;

/// How long M is kept in a step back before it is offered again, at first. The time doubles with each offer.
const FIRST_BACKOFF: Duration = Duration::from_secs(120);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1920);
/// How many processes that were judged are remembered.
const JUDGED: usize = 16;
/// Time between two passes without a change.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a write in flight may last after the permit was closed for another holder of K. A kube-controller-manager that
/// has just acquired K reads its objects before it calls AWS: 1.1 s were measured with 1.26.13 and three Services.
const IN_FLIGHT: Duration = Duration::from_secs(1);

/// The inputs of the steward. A task of its own keeps each part current.
pub struct Sources {
    pub spec: watch::Receiver<Reading<MigrationSpec>>,
    pub listing: watch::Receiver<Listing>,
    /// The old manager's main lease.
    pub main: watch::Receiver<View>,
    /// The migration lease.
    pub migration: watch::Receiver<View>,
    /// C, which has the latch.
    pub own_main: watch::Receiver<View>,
    /// When this process acquired M, while it holds it.
    pub holding: watch::Receiver<Option<Instant>>,
}

pub struct Config {
    pub identity: String,
    /// The full lease duration that M must have been idle for.
    pub lease_duration: Duration,
    pub own: OwnSettings,
    /// The latch that lease C had when it was acquired.
    pub latch: Stored,
}

/// The outputs of the steward.
pub struct Controls {
    pub annotation_changes: mpsc::Sender<AnnotationChange>,
    pub gate: watch::Sender<Gate>,
    /// Of the permit of M.
    pub fence: watch::Sender<Fence>,
}

/// The last time that M was given up for the old manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    at: Instant,
    /// By this machine's clock, for the status.
    pub time: Timestamp,
    /// How often M was offered to the processes of this host in this step back.
    pub count: u32,
}

/// The earlier passes, as far as the decision depends on them.
#[derive(Default)]
struct Past {
    /// The offers of this step back, by the host of the holder of K: each restart of a process has another identity.
    offers: BTreeMap<String, Offer>,
    last_offer: Option<Offer>,
    proven: Vec<Proven>,
    /// The identities that this process judged itself. The others are of the latch.
    judged: Vec<String>,
    phase: Option<Phase>,
    led_before: Option<String>,
}

impl Past {
    fn note_proven(&mut self, proven: &Proven) {
        Proven::remember(&mut self.proven, proven);
        if !self.judged.contains(&proven.identity) {
            self.judged.insert(0, proven.identity.clone());
            self.judged.truncate(JUDGED);
        }
    }

    /// Each user that may write lease C can write a latch while no manager holds it. So a command line that can be read
    /// counts more than the latch.
    fn forget_contradicted(&mut self, all: &ControllerManagers) {
        let acts_without_m = |identity: &str| {
            let mut listed = all.seen.iter().filter(|seen| seen.is_holder(identity));
            listed.any(|seen| matches!(seen.kind(), Kind::Unguarded | Kind::Unlocked))
        };
        let judged = &self.judged;
        self.proven
            .retain(|proven| judged.contains(&proven.identity) || !acts_without_m(&proven.identity));
    }

    /// Notes who led when a phase begins that this process saw begin.
    fn observe(&mut self, spec: &Reading<MigrationSpec>, main: &View, latch: Option<&Latch>, now: Instant) {
        let Some(spec) = spec.known() else { return };
        let last = self.phase.replace(spec.phase);
        if last != Some(spec.phase) && spec.phase != Phase::Prepare {
            self.offers.clear();
        }

        let run = |phase: Phase| phase.min(Phase::Migrate);
        match last {
            Some(last) if run(last) != run(spec.phase) => {
                let holder = main.holder(now).map(str::to_owned);
                let is_proven = |holder: &String| self.proven.iter().any(|proven| proven.identity == *holder);
                self.led_before = holder.filter(|holder| !is_proven(holder));
            }
            Some(_) => {}
            None => {
                let latch = latch.filter(|latch| latch.uid == spec.uid && run(latch.phase) == run(spec.phase));
                self.led_before = latch.and_then(|latch| latch.led_before.clone());
            }
        }
    }

    fn offer_of(&self, main: &View, now: Instant) -> Option<Offer> {
        self.offers.get(facts::host_of(main.holder(now)?)).copied()
    }

    fn note_offer(&mut self, main: &View) {
        let now = Instant::now();
        let count = self.offer_of(main, now).map_or(0, |offer| offer.count);
        let offer = Offer {
            at: now,
            time: Timestamp::now(),
            count: count + 1,
        };
        self.last_offer = Some(offer);
        let host = main.holder(now).map(facts::host_of).unwrap_or_default();
        self.offers.insert(host.to_owned(), offer);
    }
}

#[derive(Debug, Clone)]
pub struct Report {
    pub decision: Decision,
    pub inputs: Inputs,
    pub offer: Option<Offer>,
    pub holders: Holders,
}

impl Report {
    /// Each source was read at least once.
    pub fn was_read(&self) -> bool {
        let why = self.decision.action.why();
        self.inputs.spec != Reading::Pending && !matches!(why, Some(Why::NotReadYet(_)))
    }
}

pub struct Reports {
    pub newest: watch::Sender<Option<Report>>,
    /// Each one. Before the latch is stored, one more: M may be released before the request ends.
    pub all: mpsc::UnboundedSender<Report>,
}

impl Reports {
    fn send(&self, report: Report, is_stored: bool) {
        // Its receiver ends with the process.
        let _ = self.all.send(report.clone());
        if is_stored {
            self.newest.send_replace(Some(report));
        }
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
            migration: holder,
        }
    }
}

/// The latch that this process inherited or stored, and the one that is being stored.
struct Latching {
    current: Stored,
    /// The resource version of lease C at the last write of this process.
    version: u64,
    /// The text that a new latch replaces.
    damaged: Option<String>,
    pending: Option<(Stored, oneshot::Receiver<Box<DynamicObject>>)>,
}

impl Latching {
    fn new(stored: Stored) -> Self {
        let mut this = Self {
            current: Stored::Absent,
            version: 0,
            damaged: None,
            pending: None,
        };
        this.inherit(stored);
        this
    }

    /// A damaged latch says nothing.
    fn inherit(&mut self, stored: Stored) {
        self.current = match stored {
            Stored::Damaged(text) => {
                if self.damaged.as_ref() != Some(&text) {
                    tracing::error!(text, "the latch is damaged; gathering the evidence again");
                }
                self.damaged = Some(text);
                Stored::Absent
            }
            other => other,
        };
    }

    /// Takes in the Lease, unless this process has a latch of its own: the elector restores that one.
    fn observe(&mut self, lease: &View) {
        let newer = lease.lease.as_ref().filter(|lease| version(lease) > self.version);
        if let (Stored::Absent, None, Some(lease)) = (&self.current, &self.pending, newer) {
            self.inherit(latch::of_lease(lease));
        }
    }

    /// Begins to store a change, if it is not being stored. `None` when this process has lost lease C.
    async fn begin(&mut self, changes: &mpsc::Sender<AnnotationChange>, change: &LatchChange) -> Option<()> {
        let new = match change {
            LatchChange::Keep => return Some(()),
            LatchChange::Store(latch) => Stored::Latch(latch.clone()),
            LatchChange::Remove => Stored::Absent,
        };
        if self.pending.is_some() {
            return Some(());
        }

        let (stored, done) = oneshot::channel();
        let text = match &new {
            Stored::Latch(latch) => Some(latch.to_text()),
            _ => None,
        };
        let damaged = self
            .damaged
            .take()
            .map(|text| (latch::DAMAGED_ANNOTATION.to_owned(), Some(text)));
        let latch = (latch::ANNOTATION.to_owned(), text);
        let change = AnnotationChange {
            values: damaged.into_iter().chain([latch]).collect(),
            stored,
        };
        changes.send(change).await.ok()?;
        self.pending = Some((new, done));

        Some(())
    }

    /// Waits until the change is stored; for ever if none is being stored. False when this process has lost lease C.
    async fn stored(&mut self) -> bool {
        let Some((_, done)) = &mut self.pending else {
            return std::future::pending().await;
        };
        let stored = done.await.ok();
        if let (Some((new, _)), Some(lease)) = (self.pending.take(), &stored) {
            (self.current, self.version) = (new, version(lease));
        }
        stored.is_some()
    }
}

/// Decides until `stop`. Returns earlier when a source has ended, since a decision from an outdated source is unsafe.
pub async fn run(config: Config, mut sources: Sources, controls: Controls, reports: Reports, stop: CancellationToken) {
    let mut latching = Latching::new(config.latch.clone());
    let (mut past, mut last_logged) = (Past::default(), None);

    while !stop.is_cancelled() {
        latching.observe(&sources.own_main.borrow_and_update());
        if let Stored::Newer(why) = &latching.current {
            tracing::error!(why, "leaving the leases to a newer manager");
            return;
        }

        let inputs = observe(&config, &mut sources, &latching.current, &mut past);
        let decision = gate::decide(&inputs);
        if let MainHolder::Proven(proven) = inputs.facts.main_holder() {
            past.note_proven(&proven);
        }
        log_changes(&decision, &mut last_logged);

        // Close at once. Open only after the latch that the decision depends on is stored.
        let is_stored = decision.latch == LatchChange::Keep;
        set_fence(&controls.fence, fence(&inputs, &decision, &sources.main.borrow()));
        let gate = next_gate(&decision, is_stored || *controls.gate.borrow() == Gate::Open);
        controls
            .gate
            .send_if_modified(|was| std::mem::replace(was, gate) != gate);

        let report = Report {
            decision: decision.clone(),
            inputs,
            offer: past.last_offer,
            holders: Holders::of(&config, &sources, Instant::now()),
        };
        let is_holding = report.inputs.holding;
        reports.send(report, is_stored);
        if latching
            .begin(&controls.annotation_changes, &decision.latch)
            .await
            .is_none()
        {
            return;
        }

        if is_holding && gate == Gate::Closed {
            // Another task stops the controllers and releases the lease. Decide again only after that.
            let released = sources.holding.wait_for(Option::is_none);
            if !matches!(stop.run_until_cancelled(released).await, Some(Ok(_))) {
                return;
            }
            if matches!(decision.action, LeaseAction::Release(Why::Offering(_))) {
                past.note_offer(&sources.main.borrow());
            }
            continue;
        }

        let goes_on = tokio::select! {
            stored = latching.stored() => stored,
            goes_on = wait(&mut sources, &config, past.last_offer, &stop) => goes_on,
        };
        if !goes_on {
            return;
        }
    }
}

/// `may_open`: the latch that the decision depends on is stored, or M was competed for before.
fn next_gate(decision: &Decision, may_open: bool) -> Gate {
    match decision.action {
        LeaseAction::Compete | LeaseAction::Pause(_) if may_open => Gate::Open,
        _ => Gate::Closed,
    }
}

/// The fence of the permit of M. Where a process may acquire K and act without M, the permit also ends one renew deadline
/// after the last renewal of K that was observed: no process acquires K before its lease duration is over.
fn fence(inputs: &Inputs, decision: &Decision, main: &View) -> Fence {
    let now = Instant::now();
    let is_open = matches!(
        decision.action,
        LeaseAction::Compete | LeaseAction::Release(Why::Offering(_))
    );
    if !is_open {
        return Fence {
            is_open,
            ends: Some(now + IN_FLIGHT),
        };
    }

    let renewed = || {
        let seen = main.observation.as_ref().or(main.last_holder.as_ref());
        seen.map_or(now, |seen| seen.since + inputs.facts.own.renew_deadline)
    };
    Fence {
        is_open,
        ends: inputs.facts.possible_taker().map(|_| renewed()),
    }
}

/// A fence that is closed, or stays so, keeps an earlier end: one that has ended must not permit again.
fn set_fence(fence: &watch::Sender<Fence>, new: Fence) {
    fence.send_if_modified(|was| {
        let earlier = was.ends.into_iter().chain(new.ends).min();
        let ends = if new.is_open { new.ends } else { earlier };
        let new = Fence { ends, ..new };
        std::mem::replace(was, new) != new
    });
}

/// How long M is kept after it was acquired again, before the next offer to the same host.
fn backoff(offer: &Offer) -> Duration {
    doubled(FIRST_BACKOFF, LONGEST_BACKOFF, offer.count.saturating_sub(1))
}

/// When M may be acquired again after it was offered: it was free and had no new candidate for [`YIELD`]. None while it
/// is held. A record that expired instead of being released is free for a new holder of K only one lease duration after it
/// first observed that record.
fn yield_ends(
    main: &View,
    migration: &View,
    offer: Option<Offer>,
    lease_duration: Duration,
    now: Instant,
) -> Option<Instant> {
    let free = migration.free_since(now)?;
    let observes = match migration.named_holder() {
        Some(_) => lease_duration,
        None => Duration::ZERO,
    };
    let candidate = main.holder_since().map(|since| since + observes);
    let since = [Some(free), candidate, offer.map(|offer| offer.at)];
    since.into_iter().flatten().max().map(|since| since + YIELD)
}

/// Whether this process acquired M after the last offer. The watch may show that before the answer to the request, so
/// before the lease counts as held: the gate that was open for it stays open.
fn is_own_acquisition(migration: &View, identity: &str, offer: Option<Offer>, now: Instant) -> bool {
    let is_own = migration.live_holder(now) == Some(identity);
    is_own && migration.holder_since() > offer.map(|offer| offer.at)
}

fn observe(config: &Config, sources: &mut Sources, latch: &Stored, past: &mut Past) -> Inputs {
    let now = Instant::now();
    let main = sources.main.borrow_and_update().clone();
    let migration = sources.migration.borrow_and_update().clone();
    let listing = sources.listing.borrow_and_update().clone();
    let spec = sources.spec.borrow_and_update().clone();
    let held_since = *sources.holding.borrow_and_update();

    let latched = match latch {
        Stored::Latch(latch) => Some(latch),
        _ => None,
    };
    for proven in latched.into_iter().flat_map(|latch| latch.proven.iter().rev()) {
        Proven::remember(&mut past.proven, proven);
    }
    let controller_managers = listing.as_of(main.holder_since());
    past.forget_contradicted(&controller_managers);
    past.observe(&spec, &main, latched, now);

    let offer_due = |held_since: Instant| {
        let last = past.offer_of(&main, now);
        last.is_none_or(|offer| now >= held_since.max(offer.at) + backoff(&offer))
    };
    Inputs {
        latch: latch.clone(),
        identity: config.identity.clone(),
        holding: held_since.is_some(),
        offer_due: held_since.is_some_and(offer_due),
        yielded: is_own_acquisition(&migration, &config.identity, past.last_offer, now)
            || yield_ends(&main, &migration, past.last_offer, config.lease_duration, now).is_some_and(|end| now >= end),
        facts: Facts {
            proven: Proven::counting(&past.proven, spec.known().map(|spec| spec.phase)),
            controller_managers,
            main: lease_facts(&main, config, now),
            migration: lease_facts(&migration, config, now),
            attestation: spec.known().and_then(|spec| attestation(spec, latched)).cloned(),
            led_before: past.led_before.clone(),
            own: config.own,
        },
        spec,
    }
}

/// The attestation, if it was made in this run of the phase.
fn attestation<'a>(spec: &'a MigrationSpec, latch: Option<&Latch>) -> Option<&'a Attestation> {
    let attestation = spec.attestation()?;
    let of_run = |latch: &&Latch| latch.uid == spec.uid && facts::is_attested_for(attestation, latch.phase);
    let was_seen = spec.seen_unattested || latch.filter(of_run).is_some_and(|latch| latch.seen_unattested);
    was_seen.then_some(attestation)
}

fn lease_facts(view: &View, config: &Config, now: Instant) -> LeaseFacts {
    LeaseFacts {
        read: view.synced || view.is_failing(),
        live_holder: view.live_holder(now).map(str::to_owned),
        holder: view.holder(now).map(str::to_owned),
        former_holders: view.former_holders(now),
        named_holder: view.named_holder().map(str::to_owned),
        duration: view.named_duration(),
        idle: view.was_idle_for(config.lease_duration, now),
        is_new: view.has_new_holder(),
        is_coordinated: view.is_coordinated(),
        failure: view.failure.clone(),
    }
}

fn log_changes(decision: &Decision, last: &mut Option<(LeaseAction, Vec<String>)>) {
    let texts = |decision: &Decision| {
        let texts = decision.warnings.iter().map(|warning| warning.message(decision.phase));
        texts.collect::<Vec<_>>()
    };
    let (action, warnings) = last.take().map_or((None, Vec::new()), |(s, w)| (Some(s), w));
    if action.as_ref() != Some(&decision.action) {
        let why = decision.action.why().map(Why::message).unwrap_or_default();
        match &decision.action {
            LeaseAction::Alarm(_) => tracing::error!(why, "ALARM: releasing the migration lease at once"),
            LeaseAction::Release(_) => tracing::warn!(why, "releasing the migration lease"),
            LeaseAction::Pause(_) => tracing::warn!(why, "keeping the migration lease and writing nothing"),
            LeaseAction::StandBy(_) => tracing::info!(why, "not competing for the migration lease"),
            LeaseAction::Compete => tracing::info!("may compete for the migration lease"),
            LeaseAction::Yield(_) => {
                tracing::info!("offering the migration lease to the old manager; acquiring it again if it stays free");
            }
        }
    }

    let new = texts(decision);
    for warning in new.iter().filter(|warning| !warnings.contains(warning)) {
        tracing::warn!("{warning}");
    }

    *last = Some((decision.action.clone(), new));
}

/// Waits for a change of a source, or for the next instant at which time alone changes the decision. False when a source
/// has ended.
async fn wait(sources: &mut Sources, config: &Config, offer: Option<Offer>, stop: &CancellationToken) -> bool {
    let now = Instant::now();
    let expiry = |view: &View| {
        let seen = view.observation.as_ref();
        let unsigned = view.frees_at();
        [
            seen.map(|seen| seen.expires()),
            seen.map(|seen| seen.since + config.lease_duration),
            unsigned,
            view.former
                .iter()
                .map(|former| former.expires())
                .filter(|at| *at > now)
                .min(),
        ]
    };
    let instants = {
        let (main, migration) = (sources.main.borrow(), sources.migration.borrow());
        let yielded = yield_ends(&main, &migration, offer, config.lease_duration, now);
        [expiry(&main), expiry(&migration), [yielded; 4]]
    };
    let next = instants.into_iter().flatten().flatten().filter(|at| *at > now).min();
    // A pass every few seconds in any case: it is cheap, and a lost wake-up does no harm.
    let next = next.unwrap_or(now + PERIOD).min(now + PERIOD);

    tokio::select! {
        () = stop.cancelled() => true,
        () = sleep_until(next) => true,
        change = sources.spec.changed() => change.is_ok(),
        change = sources.listing.changed() => change.is_ok(),
        change = sources.main.changed() => change.is_ok(),
        change = sources.migration.changed() => change.is_ok(),
        change = sources.own_main.changed() => change.is_ok(),
        change = sources.holding.changed() => change.is_ok(),
    }
}

#[cfg(test)]
mod tests;
