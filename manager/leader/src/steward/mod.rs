//! The reconcile loop of the migration lease: observes, decides, stores the latch, and opens or closes the gate.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::elector::AnnotationChange;
use crate::evidence::{ControllerManager, Facts, Reading, SoftChecks};
use crate::gate::{self, Decision, Inputs, LeaseAction, MigrationSpec, YIELD};
use crate::latch::{self, Latch};
use crate::lease::View;
use outrigger_shared::migration::Phase;

/// The inputs of the steward. A task of its own keeps each part current.
pub struct Sources {
    /// The migration object's spec, with `spec.attestedPhase`.
    pub spec: watch::Receiver<Reading<(MigrationSpec, Option<Phase>)>>,
    /// Every old manager that can be read.
    pub controller_managers: watch::Receiver<Reading<Vec<ControllerManager>>>,
    pub main: watch::Receiver<View>,
    pub migration: watch::Receiver<View>,
    /// Whether this process holds M.
    pub holding: watch::Receiver<bool>,
}

pub struct Config {
    /// This process's identity on the leases.
    pub identity: String,
    /// The full lease duration that M must have been idle for.
    pub lease_duration: Duration,
    /// The latch that lease C carried when it was taken.
    pub latch: Option<Latch>,
}

/// The result of each pass of the steward.
#[derive(Debug, Clone)]
pub struct Report {
    pub decision: Decision,
    /// The latch as stored.
    pub latch: Option<Latch>,
    pub inputs: Inputs,
}

/// Decides until `stop`. Returns earlier when a source has ended, since a decision from an outdated source is unsafe.
pub async fn run(
    config: Config,
    mut sources: Sources,
    annotation_changes: mpsc::Sender<AnnotationChange>,
    gate: watch::Sender<bool>,
    reports: watch::Sender<Option<Report>>,
    stop: CancellationToken,
) {
    let mut latch = config.latch.clone();
    let mut last_main_holder = None;
    let mut yield_until = Instant::now() + YIELD;
    let mut last_logged = None;

    while !stop.is_cancelled() {
        let inputs = observe(&config, &mut sources, latch.clone(), &mut last_main_holder);
        let decision = gate::decide(&inputs);
        log_changes(&decision, &mut last_logged);
        if inputs.main_holder_changed && !inputs.holding {
            // The new holder of K gets the time to acquire M, too.
            yield_until = Instant::now() + YIELD;
        }

        let open = match decision.action {
            LeaseAction::Compete => true,
            LeaseAction::CompeteAfterYield => inputs.holding || Instant::now() >= yield_until,
            LeaseAction::StandBy(_) | LeaseAction::Release(_) | LeaseAction::Alarm(_) => false,
        };
        // Close at once. Open only after the latch that the decision depends on is stored.
        let set_gate = |open: bool| gate.send_if_modified(|was| std::mem::replace(was, open) != open);
        if !open {
            set_gate(false);
        }

        let stored_now = decision.latch != latch;
        if stored_now && !store(&annotation_changes, decision.latch.as_ref()).await {
            return;
        }

        if open {
            set_gate(true);
        }

        latch.clone_from(&decision.latch);
        reports.send_replace(Some(Report {
            decision: decision.clone(),
            latch: latch.clone(),
            inputs: inputs.clone(),
        }));

        if inputs.holding && !open {
            // Another task stops the controllers and releases the lease. Decide again only after that.
            let released = sources.holding.wait_for(|holding| !holding);
            if stop.run_until_cancelled(released).await.is_none() {
                return;
            }
            yield_until = Instant::now() + YIELD;
            continue;
        }
        if !stored_now && !wait(&mut sources, yield_until, &config, &stop).await {
            return;
        }
    }
}

fn observe(
    config: &Config,
    sources: &mut Sources,
    latch: Option<Latch>,
    last_main_holder: &mut Option<String>,
) -> Inputs {
    let now = Instant::now();
    let (spec, attested) = match &*sources.spec.borrow_and_update() {
        Reading::Known((spec, attested)) => (Reading::Known(spec.clone()), *attested),
        Reading::Unreadable(why) => (Reading::Unreadable(why.clone()), None),
    };
    let main = sources.main.borrow_and_update();
    let main_holder = main.live_holder(now).map(str::to_owned);
    // By name, whether live or not: the first holder that is observed may have just died.
    let main_holder_changed = match (main.named_holder(), last_main_holder.as_deref()) {
        (Some(new), Some(old)) => new != old,
        _ => false,
    };

    if let Some(named) = main.named_holder() {
        *last_main_holder = Some(named.to_owned());
    }

    drop(main);

    let migration = sources.migration.borrow_and_update();
    let migration_holder = migration.live_holder(now).map(str::to_owned);
    let idle = migration.was_idle_for(config.lease_duration, now);

    Inputs {
        spec,
        latch,
        migration_lease_idle: idle,
        holding: *sources.holding.borrow_and_update(),
        held_by_other: migration_holder
            .as_ref()
            .is_some_and(|holder| *holder != config.identity),
        main_holder_changed,
        facts: Facts {
            controller_managers: sources.controller_managers.borrow_and_update().clone(),
            main_holder,
            migration_holder,
            attested_phase: attested,
            checks: SoftChecks::not_built(),
        },
    }
}

/// Logs a decision if it differs from the last one.
fn log_changes(decision: &Decision, last: &mut Option<(LeaseAction, Vec<String>)>) {
    let (action, warnings) = last.take().map_or((None, Vec::new()), |(s, w)| (Some(s), w));
    if action.as_ref() != Some(&decision.action) {
        match &decision.action {
            LeaseAction::Alarm(why) => tracing::error!(why, "ALARM: releasing the migration lease at once"),
            LeaseAction::Release(why) => tracing::warn!(why, "releasing the migration lease"),
            LeaseAction::StandBy(why) => tracing::info!(why, "not competing for the migration lease"),
            LeaseAction::Compete => tracing::info!("may compete for the migration lease"),
            LeaseAction::CompeteAfterYield => {
                tracing::info!("offering the migration lease to the old manager; acquiring it again if it stays free");
            }
        }
    }

    for warning in decision.warnings.iter().filter(|warning| !warnings.contains(warning)) {
        tracing::warn!("{warning}");
    }

    *last = Some((decision.action.clone(), decision.warnings.clone()));
}

/// Stores the latch on lease C and waits until the API server has it. False when this process lost lease C.
async fn store(annotation_changes: &mpsc::Sender<AnnotationChange>, latch: Option<&Latch>) -> bool {
    let (stored, done) = oneshot::channel();
    let note = AnnotationChange {
        key: latch::ANNOTATION.to_owned(),
        value: latch.map(Latch::to_text),
        stored,
    };
    annotation_changes.send(note).await.is_ok() && done.await.is_ok()
}

/// Waits for a change of a source, or for the next instant at which time alone changes the decision. False when a source
/// has ended.
async fn wait(sources: &mut Sources, yield_until: Instant, config: &Config, stop: &CancellationToken) -> bool {
    let now = Instant::now();
    let expiry = |view: &watch::Receiver<View>| {
        view.borrow()
            .observation
            .as_ref()
            .map(|seen| [seen.expires(), seen.since + config.lease_duration])
    };
    let instants = [
        expiry(&sources.main),
        expiry(&sources.migration),
        Some([yield_until; 2]),
    ];
    let next = instants.into_iter().flatten().flatten().filter(|at| *at > now).min();
    // Observe every few seconds in any case: it is cheap, and a lost wake-up does no harm.
    let next = next
        .unwrap_or(now + Duration::from_secs(5))
        .min(now + Duration::from_secs(5));

    tokio::select! {
        () = stop.cancelled() => true,
        () = sleep_until(next) => true,
        change = sources.spec.changed() => change.is_ok(),
        change = sources.controller_managers.changed() => change.is_ok(),
        change = sources.main.changed() => change.is_ok(),
        change = sources.migration.changed() => change.is_ok(),
        change = sources.holding.changed() => change.is_ok(),
    }
}

#[cfg(test)]
mod tests;
