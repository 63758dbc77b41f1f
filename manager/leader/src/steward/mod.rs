//! The loop that looks at the world, rules, stores the latch, and opens or closes the gate before lease M.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::elector::Annotate;
use crate::evidence::{Facts, SeenControllerManager, Sight, SoftChecks};
use crate::gate::{self, Ruling, Seen, Stance, Wish, YIELD};
use crate::latch::{self, Latch};
use crate::lease::View;
use outrigger_shared::migration::Phase;

/// What the steward reads; every part is kept current by a task of its own.
pub struct Sources {
    /// The migration object, with the operator's word.
    pub wish: watch::Receiver<Sight<(Wish, Option<Phase>)>>,
    /// Every old manager that can be read.
    pub controller_managers: watch::Receiver<Sight<Vec<SeenControllerManager>>>,
    /// Lease K.
    pub main: watch::Receiver<View>,
    /// Lease M.
    pub migration: watch::Receiver<View>,
    /// Whether this process holds M.
    pub holding: watch::Receiver<bool>,
}

/// What the steward is told once.
pub struct Terms {
    /// This process's identity on the leases.
    pub identity: String,
    /// The full lease duration that M must have been idle for.
    pub lease_duration: Duration,
    /// The latch that lease C carried when it was taken.
    pub latch: Option<Latch>,
}

/// What the steward says after each look.
#[derive(Debug, Clone)]
pub struct Report {
    /// The ruling.
    pub ruling: Ruling,
    /// The latch as stored.
    pub latch: Option<Latch>,
    /// What it was judged by.
    pub seen: Seen,
}

/// Rules until `stop`. Returns earlier when a source has ended: to go on without it would be to rule by what was true
/// once.
pub async fn run(
    terms: Terms,
    mut sources: Sources,
    notes: mpsc::Sender<Annotate>,
    gate: watch::Sender<bool>,
    reports: watch::Sender<Option<Report>>,
    stop: CancellationToken,
) {
    let mut latch = terms.latch.clone();
    let mut last_main_holder = None;
    let mut yield_until = Instant::now() + YIELD;
    let mut last_said = None;
    while !stop.is_cancelled() {
        let seen = look(&terms, &mut sources, latch.clone(), &mut last_main_holder);
        let ruling = gate::rule(&seen);
        say(&ruling, &mut last_said);
        if seen.main_holder_changed && !seen.holding {
            // The new one gets its time to take M, too.
            yield_until = Instant::now() + YIELD;
        }
        let open = match ruling.stance {
            Stance::Compete => true,
            Stance::CompeteAfterYield => seen.holding || Instant::now() >= yield_until,
            Stance::Leave(_) | Stance::GiveUp(_) | Stance::Alarm(_) => false,
        };
        // Closing never waits for anything; opening waits until what it rests on is stored.
        let turn = |open: bool| gate.send_if_modified(|was| std::mem::replace(was, open) != open);
        if !open {
            turn(false);
        }
        let stored_now = ruling.latch != latch;
        if stored_now && !store(&notes, ruling.latch.as_ref()).await {
            return;
        }
        if open {
            turn(true);
        }
        latch.clone_from(&ruling.latch);
        reports.send_replace(Some(Report {
            ruling: ruling.clone(),
            latch: latch.clone(),
            seen: seen.clone(),
        }));
        if seen.holding && !open {
            // The lease is given up by another task, in order. Nothing is ruled anew before that has happened.
            let given_up = sources.holding.wait_for(|holding| !holding);
            if stop.run_until_cancelled(given_up).await.is_none() {
                return;
            }
            yield_until = Instant::now() + YIELD;
            continue;
        }
        if !stored_now && !wait(&mut sources, yield_until, &terms, &stop).await {
            return;
        }
    }
}

fn look(terms: &Terms, sources: &mut Sources, latch: Option<Latch>, last_main_holder: &mut Option<String>) -> Seen {
    let now = Instant::now();
    let (wish, attested) = match &*sources.wish.borrow_and_update() {
        Sight::Known((wish, attested)) => (Sight::Known(wish.clone()), *attested),
        Sight::Blind(why) => (Sight::Blind(why.clone()), None),
    };
    let main = sources.main.borrow_and_update();
    let main_holder = main.live_holder(now).map(str::to_owned);
    // By name, alive or not: the first holder that is seen may be one that has just died.
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
    let idle = migration.synced
        && !migration.failing
        && migration
            .observation
            .as_ref()
            .is_none_or(|seen| seen.was_idle_for(terms.lease_duration, now));
    Seen {
        wish,
        latch,
        migration_lease_idle: idle,
        holding: *sources.holding.borrow_and_update(),
        held_by_other: migration_holder
            .as_ref()
            .is_some_and(|holder| *holder != terms.identity),
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

/// Logs a ruling when it says something else than the last.
fn say(ruling: &Ruling, last: &mut Option<(Stance, Vec<String>)>) {
    let (stance, warnings) = last.take().map_or((None, Vec::new()), |(s, w)| (Some(s), w));
    if stance.as_ref() != Some(&ruling.stance) {
        match &ruling.stance {
            Stance::Alarm(why) => tracing::error!(why, "ALARM: giving up the migration lease at once"),
            Stance::GiveUp(why) => tracing::warn!(why, "giving up the migration lease"),
            Stance::Leave(why) => tracing::info!(why, "not competing for the migration lease"),
            Stance::Compete => tracing::info!("may compete for the migration lease"),
            Stance::CompeteAfterYield => {
                tracing::info!("yielding the migration lease; taking it back if nobody does");
            }
        }
    }
    for warning in ruling.warnings.iter().filter(|warning| !warnings.contains(warning)) {
        tracing::warn!("{warning}");
    }
    *last = Some((ruling.stance.clone(), ruling.warnings.clone()));
}

/// Stores the latch on lease C and waits until the API server has it. False when lease C is gone.
async fn store(notes: &mpsc::Sender<Annotate>, latch: Option<&Latch>) -> bool {
    let (stored, done) = oneshot::channel();
    let note = Annotate {
        key: latch::ANNOTATION.to_owned(),
        value: latch.map(Latch::to_text),
        stored,
    };
    notes.send(note).await.is_ok() && done.await.is_ok()
}

/// Waits for a change of anything, or for the next instant at which time alone changes the answer. False when a source
/// has ended.
async fn wait(sources: &mut Sources, yield_until: Instant, terms: &Terms, stop: &CancellationToken) -> bool {
    let now = Instant::now();
    let expiry = |view: &watch::Receiver<View>| {
        view.borrow()
            .observation
            .as_ref()
            .map(|seen| [seen.expires(), seen.since + terms.lease_duration])
    };
    let instants = [
        expiry(&sources.main),
        expiry(&sources.migration),
        Some([yield_until; 2]),
    ];
    let next = instants.into_iter().flatten().flatten().filter(|at| *at > now).min();
    // A quiet world is looked at every few seconds all the same: the cost is nothing, and no lost wake-up can matter.
    let next = next
        .unwrap_or(now + Duration::from_secs(5))
        .min(now + Duration::from_secs(5));
    tokio::select! {
        () = stop.cancelled() => true,
        () = sleep_until(next) => true,
        change = sources.wish.changed() => change.is_ok(),
        change = sources.controller_managers.changed() => change.is_ok(),
        change = sources.main.changed() => change.is_ok(),
        change = sources.migration.changed() => change.is_ok(),
        change = sources.holding.changed() => change.is_ok(),
    }
}

#[cfg(test)]
mod tests;
