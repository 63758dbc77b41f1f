//! May this manager compete for the migration lease, keep it, or must it give it up? Pure.
//!
//! Three leases: **K**, the old kube-controller-manager's main lease; **C**, ours; **M**, the migration lease. The one
//! way to overlap is that we hold M while an in-tree kube-controller-manager without leader migration runs under K. Every
//! rule here exists to exclude that, and to end it at once should it appear.

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::migration::Phase;

use crate::evidence::{self, Facts, Sight};
use crate::latch::Latch;

/// How long M stays free in a step back, so that an old manager, which polls, can take it.
pub const YIELD: Duration = Duration::from_secs(10);

/// What the gate needs of the `CloudProviderMigration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The object's UID.
    pub uid: String,
    /// The phase that the operator set.
    pub phase: Phase,
    /// The operator stops all old managers first.
    pub downtime: bool,
}

/// All that the gate is judged by.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The migration object.
    pub wish: Sight<Wish>,
    /// The latch as lease C has it.
    pub latch: Option<Latch>,
    /// Old managers, lease holders, checks.
    pub facts: Facts,
    /// M was free, or its record unchanged, for a full lease duration under our own eyes.
    pub migration_lease_idle: bool,
    /// This process holds M now.
    pub holding: bool,
    /// Another than this process holds M and renews it.
    pub held_by_other: bool,
    /// K has changed its holder since the last ruling.
    pub main_holder_changed: bool,
}

/// What to do about M.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stance {
    /// Compete for it, or keep it.
    Compete,
    /// The step back: let [`YIELD`] pass since it was last given up, or since the start, then take it if nobody has.
    CompeteAfterYield,
    /// Do not compete. Says what is missing and what to do.
    Leave(String),
    /// Stop and join the migrated controllers, then release it. Says why.
    GiveUp(String),
    /// As `GiveUp`, because an unguarded kube-controller-manager runs: an alarm.
    Alarm(String),
}

/// The gate's ruling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// What lease C shall say. The ruling's stance assumes what C says now: a new latch is stored first.
    pub latch: Option<Latch>,
    /// What to do about M.
    pub stance: Stance,
    /// The phase that is followed: the object's, or the last one known.
    pub phase: Option<Phase>,
    /// Things the operator should know.
    pub warnings: Vec<String>,
}

/// Judges by what is seen now.
#[must_use]
pub fn rule(seen: &Seen) -> Ruling {
    let (wish, mut warnings) = followed(seen);
    let latch = latch_that_binds(seen);
    if let Some(object) = unguarded(seen) {
        let why = format!("{object} runs in-tree without leader migration");
        let stance = if seen.holding {
            Stance::Alarm(why)
        } else {
            Stance::Leave(format!("{why}: roll it in phase Prepare"))
        };
        return Ruling {
            latch: None,
            stance,
            phase: wish.map(|w| w.phase),
            warnings,
        };
    }
    let Some(wish) = wish else {
        let stance = match seen.holding {
            true => Stance::Compete,
            false => Stance::Leave("the CloudProviderMigration cannot be read and nothing is latched: waiting".into()),
        };
        return Ruling {
            latch: seen.latch.clone(),
            stance,
            phase: None,
            warnings,
        };
    };
    let (latch, stance) = match wish.phase {
        Phase::InTree => (
            None,
            Stance::Leave("phase InTree: the migration lease is the old manager's".into()),
        ),
        Phase::Prepare => prepare(seen, &wish, latch, &mut warnings),
        Phase::Migrate | Phase::Complete => migrate(seen, &wish, latch, &mut warnings),
    };
    Ruling {
        latch,
        stance,
        phase: Some(wish.phase),
        warnings,
    }
}

/// The latch, if it is for the object that is there now. An object that was deleted and made again starts from nothing,
/// unless this process holds M: what it once saw holds as long as the lease does, and goes on under the new UID.
fn latch_that_binds(seen: &Seen) -> Option<Latch> {
    let latch = seen.latch.clone()?;
    match seen.wish.known() {
        Some(wish) if wish.uid != latch.uid => seen.holding.then(|| Latch {
            uid: wish.uid.clone(),
            ..latch
        }),
        _ => Some(latch),
    }
}

/// The wish that is followed: what the object says, unless it cannot be read, jumps, or comes too early.
///
/// A jump forward is ignored. A jump backward is not: it asks for less, and it is what a manager finds that was away
/// while the operator went back step by step. To stay in Migrate then would be to own beside an old manager that has its
/// original form again.
fn followed(seen: &Seen) -> (Option<Wish>, Vec<String>) {
    let latch = latch_that_binds(seen);
    let Some(wish) = seen.wish.known() else {
        let wish = latch.map(|latch| Wish {
            uid: latch.uid,
            phase: latch.phase,
            downtime: false,
        });
        return (
            wish,
            vec!["the CloudProviderMigration cannot be read: following what is latched".into()],
        );
    };
    let mut wish = wish.clone();
    let mut warnings = Vec::new();
    if let Some(last) = latch.map(|latch| latch.phase)
        && wish.phase > last
        && !last.may_become(wish.phase)
    {
        warnings.push(format!(
            "phase {last} to {} is more than one step: staying in {last}; set spec.phase back, then go step by step",
            wish.phase
        ));
        wish.phase = last;
    }
    if wish.phase == Phase::InTree && seen.holding {
        warnings.push(
            "phase InTree is not accepted while this manager holds the migration lease: acting as in Prepare".into(),
        );
        wish.phase = Phase::Prepare;
    }
    (Some(wish), warnings)
}

/// An old manager that would own its controllers without M. One that runs is always meant; the template of one that
/// does not run yet only while we do not hold M, for it is a reason to stay away, not one to leave.
fn unguarded(seen: &Seen) -> Option<&str> {
    let all = seen.facts.controller_managers.known()?;
    all.iter()
        .find(|kcm| kcm.is_unguarded() && (kcm.running || !seen.holding))
        .map(|kcm| kcm.object.as_str())
}

fn prepare(seen: &Seen, wish: &Wish, latch: Option<Latch>, warnings: &mut Vec<String>) -> (Option<Latch>, Stance) {
    let idle = Stance::Leave("phase Prepare: the migration lease is the old manager's".into());
    let Some(latch) = latch else {
        let stance = if seen.holding {
            Stance::GiveUp("phase Prepare, and nothing is latched".into())
        } else {
            idle
        };
        return (gathered(seen, wish, warnings).ok(), stance);
    };
    let stepped_back = latch.phase != Phase::Prepare;
    let next = Latch {
        phase: Phase::Prepare,
        ..latch
    };
    if !next.held_migration_lease {
        return (
            Some(next),
            if seen.holding {
                Stance::GiveUp("phase Prepare".into())
            } else {
                idle
            },
        );
    }
    if seen.held_by_other {
        return (
            Some(Latch {
                held_migration_lease: false,
                ..next
            }),
            idle,
        );
    }
    let stance = match (seen.holding, stepped_back || seen.main_holder_changed) {
        (true, true) => Stance::GiveUp("stepping back: offering the migration lease to the old manager".into()),
        _ => Stance::CompeteAfterYield,
    };
    (Some(next), stance)
}

fn migrate(seen: &Seen, wish: &Wish, latch: Option<Latch>, warnings: &mut Vec<String>) -> (Option<Latch>, Stance) {
    if let Some(latch) = latch {
        let held = latch.held_migration_lease || seen.holding;
        return (
            Some(Latch {
                phase: wish.phase,
                held_migration_lease: held,
                ..latch
            }),
            Stance::Compete,
        );
    }
    if seen.holding {
        return (None, Stance::Compete);
    }
    if wish.downtime || wish.phase == Phase::Complete {
        return (None, without_latch(seen, wish));
    }
    match gathered(seen, wish, warnings) {
        Ok(latch) => (
            Some(latch),
            Stance::Leave("the evidence is complete: writing the latch first".into()),
        ),
        Err(missing) => (None, Stance::Leave(missing)),
    }
}

/// The latch that complete evidence gives, or what is missing.
fn gathered(seen: &Seen, wish: &Wish, warnings: &mut Vec<String>) -> Result<Latch, String> {
    let verdict = evidence::judge(&seen.facts);
    if verdict.is_complete() {
        warnings.extend(verdict.warnings);
        Ok(Latch {
            uid: wish.uid.clone(),
            phase: wish.phase,
            held_migration_lease: false,
        })
    } else {
        Err(verdict.missing.join("; "))
    }
}

/// The way with downtime, and of an object that starts at Complete: the old managers must be external already.
fn without_latch(seen: &Seen, wish: &Wish) -> Stance {
    let all = seen.facts.controller_managers.known().map_or(&[][..], Vec::as_slice);
    let in_tree = all
        .iter()
        .find(|kcm| !matches!(kcm.form, Form::External { .. } | Form::NoProvider));
    if let Some(kcm) = in_tree {
        return Stance::Leave(format!(
            "{} is not external yet: without a latch every old manager must be",
            kcm.object
        ));
    }
    if all.is_empty() && seen.facts.attested_phase != Some(wish.phase) {
        return Stance::Leave(format!(
            "no kube-controller-manager can be read: state in spec.attestedPhase: {:?} that none is in-tree any more",
            wish.phase
        ));
    }
    if !seen.migration_lease_idle {
        return Stance::Leave("the migration lease was renewed within its duration: somebody holds it".into());
    }
    Stance::Compete
}

#[cfg(test)]
mod tests;
