//! Decides whether this manager may compete for the migration lease, may keep it, or must release it. Pure.
//!
//! There are three leases: **K**, the main lease of the old kube-controller-manager; **C**, the main lease of this
//! manager; **M**, the migration lease. Two managers own the same controllers only if this process holds M while an
//! in-tree kube-controller-manager without leader migration runs under K. Every rule here prevents that, or ends it at
//! once.

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::migration::Phase;

use crate::evidence::{self, Facts, Reading};
use crate::latch::Latch;

/// How long M stays free after a rollback step, so that an old manager, which polls, can acquire it.
pub const YIELD: Duration = Duration::from_secs(10);

/// The fields of the `CloudProviderMigration` that the gate reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationSpec {
    /// The object's UID.
    pub uid: String,
    /// The phase that the operator set.
    pub phase: Phase,
    /// The operator stops all old managers first.
    pub downtime: bool,
}

/// Everything that the decision depends on.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The migration object.
    pub spec: Reading<MigrationSpec>,
    /// The latch as lease C has it.
    pub latch: Option<Latch>,
    /// Old managers, lease holders, checks.
    pub facts: Facts,
    /// This process saw M free, or its record unchanged, for a full lease duration.
    pub migration_lease_idle: bool,
    /// This process holds M now.
    pub holding: bool,
    /// Another process holds M and renews it.
    pub held_by_other: bool,
    /// The holder of K has changed since the last decision.
    pub main_holder_changed: bool,
}

/// The next action on lease M.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAction {
    /// Compete for it, or keep it.
    Compete,
    /// Rollback step: wait for [`YIELD`] since the last release or since the start, then acquire M if it is free.
    CompeteAfterYield,
    /// Do not compete. Contains what is missing and what to do.
    StandBy(String),
    /// Stop and join the migrated controllers, then release M. Contains the reason.
    Release(String),
    /// Like `Release`, because a kube-controller-manager without leader migration runs.
    Alarm(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The latch to store on lease C. The action assumes the latch that C has now: a new latch is stored first.
    pub latch: Option<Latch>,
    pub action: LeaseAction,
    /// The effective phase: that of the object, or the last known one.
    pub phase: Option<Phase>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// Decides from the current inputs.
#[must_use]
pub fn decide(inputs: &Inputs) -> Decision {
    let (spec, mut warnings) = followed(inputs);
    let latch = latch_that_binds(inputs);
    if let Some(object) = unguarded(inputs) {
        let why = format!("{object} runs in-tree without leader migration");
        let action = if inputs.holding {
            LeaseAction::Alarm(why)
        } else {
            LeaseAction::StandBy(format!("{why}: roll it in phase Prepare"))
        };

        return Decision {
            latch: None,
            action,
            phase: spec.map(|w| w.phase),
            warnings,
        };
    }
    let Some(spec) = spec else {
        let action = match inputs.holding {
            true => LeaseAction::Compete,
            false => {
                LeaseAction::StandBy("the CloudProviderMigration cannot be read and there is no latch: waiting".into())
            }
        };
        return Decision {
            latch: inputs.latch.clone(),
            action,
            phase: None,
            warnings,
        };
    };

    let (latch, action) = match spec.phase {
        Phase::InTree => (
            None,
            LeaseAction::StandBy("phase InTree: the migration lease belongs to the old manager".into()),
        ),
        Phase::Prepare => prepare(inputs, &spec, latch, &mut warnings),
        Phase::Migrate | Phase::Complete => migrate(inputs, &spec, latch, &mut warnings),
    };

    Decision {
        latch,
        action,
        phase: Some(spec.phase),
        warnings,
    }
}

/// The latch, if it belongs to the current object. An object that was deleted and created again starts without a latch,
/// unless this process holds M: then the latch stays valid and gets the new UID.
fn latch_that_binds(inputs: &Inputs) -> Option<Latch> {
    let latch = inputs.latch.clone()?;
    match inputs.spec.known() {
        Some(spec) if spec.uid != latch.uid => inputs.holding.then(|| Latch {
            uid: spec.uid.clone(),
            ..latch
        }),
        _ => Some(latch),
    }
}

/// The effective spec: that of the object, unless it cannot be read, skips a phase, or requests InTree too early.
///
/// Skipping a phase forward is ignored. Skipping one backward is followed: a manager that was down while the operator
/// went back step by step sees it that way. If it stayed in Migrate, it would own controllers beside an old manager that
/// has its original flags again.
fn followed(inputs: &Inputs) -> (Option<MigrationSpec>, Vec<String>) {
    let latch = latch_that_binds(inputs);
    let Some(spec) = inputs.spec.known() else {
        let spec = latch.map(|latch| MigrationSpec {
            uid: latch.uid,
            phase: latch.phase,
            downtime: false,
        });
        return (
            spec,
            vec!["the CloudProviderMigration cannot be read: following the phase of the latch".into()],
        );
    };

    let mut spec = spec.clone();
    let mut warnings = Vec::new();
    if let Some(last) = latch.map(|latch| latch.phase)
        && spec.phase > last
        && !last.may_become(spec.phase)
    {
        warnings.push(format!(
            "phase {last} to {} is more than one step: staying in {last}; set spec.phase back, then go step by step",
            spec.phase
        ));
        spec.phase = last;
    }

    if spec.phase == Phase::InTree && inputs.holding {
        warnings.push(
            "phase InTree is not accepted while this manager holds the migration lease: acting as in Prepare".into(),
        );
        spec.phase = Phase::Prepare;
    }

    (Some(spec), warnings)
}

/// An old manager that owns its controllers without M. One that runs always counts. The template of one that does not
/// run yet counts only while this process does not hold M: it is a reason not to acquire M, not one to release it.
fn unguarded(inputs: &Inputs) -> Option<&str> {
    let all = inputs.facts.controller_managers.known()?;
    all.iter()
        .find(|kcm| kcm.is_unguarded() && (kcm.running || !inputs.holding))
        .map(|kcm| kcm.object.as_str())
}

fn prepare(
    inputs: &Inputs,
    spec: &MigrationSpec,
    latch: Option<Latch>,
    warnings: &mut Vec<String>,
) -> (Option<Latch>, LeaseAction) {
    let idle = LeaseAction::StandBy("phase Prepare: the migration lease belongs to the old manager".into());
    let Some(latch) = latch else {
        let action = if inputs.holding {
            LeaseAction::Release("phase Prepare, and there is no latch".into())
        } else {
            idle
        };
        return (gathered(inputs, spec, warnings).ok(), action);
    };

    let stepped_back = latch.phase != Phase::Prepare;
    let next = Latch {
        phase: Phase::Prepare,
        ..latch
    };
    if !next.held_migration_lease {
        return (
            Some(next),
            if inputs.holding {
                LeaseAction::Release("phase Prepare".into())
            } else {
                idle
            },
        );
    }
    if inputs.held_by_other {
        return (
            Some(Latch {
                held_migration_lease: false,
                ..next
            }),
            idle,
        );
    }

    let action = match (inputs.holding, stepped_back || inputs.main_holder_changed) {
        (true, true) => LeaseAction::Release("rollback: offering the migration lease to the old manager".into()),
        _ => LeaseAction::CompeteAfterYield,
    };
    (Some(next), action)
}

fn migrate(
    inputs: &Inputs,
    spec: &MigrationSpec,
    latch: Option<Latch>,
    warnings: &mut Vec<String>,
) -> (Option<Latch>, LeaseAction) {
    if let Some(latch) = latch {
        let held = latch.held_migration_lease || inputs.holding;
        return (
            Some(Latch {
                phase: spec.phase,
                held_migration_lease: held,
                ..latch
            }),
            LeaseAction::Compete,
        );
    }
    if inputs.holding {
        return (None, LeaseAction::Compete);
    }
    if spec.downtime || spec.phase == Phase::Complete {
        return (None, without_latch(inputs, spec));
    }

    match gathered(inputs, spec, warnings) {
        Ok(latch) => (
            Some(latch),
            LeaseAction::StandBy("the evidence is complete: writing the latch first".into()),
        ),
        Err(missing) => (None, LeaseAction::StandBy(missing)),
    }
}

/// The latch, if the evidence is complete; otherwise what is missing.
fn gathered(inputs: &Inputs, spec: &MigrationSpec, warnings: &mut Vec<String>) -> Result<Latch, String> {
    let assessment = evidence::assess(&inputs.facts);
    if assessment.is_complete() {
        warnings.extend(assessment.warnings);
        Ok(Latch {
            uid: spec.uid.clone(),
            phase: spec.phase,
            held_migration_lease: false,
        })
    } else {
        Err(assessment.missing.join("; "))
    }
}

/// For a migration with downtime and for an object that starts at Complete: the old managers must be external already.
fn without_latch(inputs: &Inputs, spec: &MigrationSpec) -> LeaseAction {
    let all = inputs.facts.controller_managers.known().map_or(&[][..], Vec::as_slice);
    let in_tree = all
        .iter()
        .find(|kcm| !matches!(kcm.form, Form::External { .. } | Form::NoProvider));
    if let Some(kcm) = in_tree {
        return LeaseAction::StandBy(format!(
            "{} is not external yet: without a latch every old manager must be external",
            kcm.object
        ));
    }
    if all.is_empty() && inputs.facts.attested_phase != Some(spec.phase) {
        return LeaseAction::StandBy(format!(
            "no kube-controller-manager can be read: state in spec.attestedPhase: {:?} that none is in-tree any more",
            spec.phase
        ));
    }
    if !inputs.migration_lease_idle {
        return LeaseAction::StandBy(
            "the migration lease was renewed within its duration: another process holds it".into(),
        );
    }

    LeaseAction::Compete
}

#[cfg(test)]
mod tests;
