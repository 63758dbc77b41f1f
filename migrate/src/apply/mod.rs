//! `outrigger plan`, `outrigger apply` and `outrigger rollback`: the steps of a migration.
//!
//! ```text
//! facts ─▶ steps (pure) ─▶ text, JSON                                        plan
//! loop { facts ─▶ steps ─▶ the first that is not done ─▶ write, or wait }    apply, rollback
//! ```
//!
//! The commands decide nothing that manager or webhook decide: a phase only permits, and the manager's conditions say when
//! it is reached. There is no lock and no record of what was done: a phase is written only if it is still the one that was
//! read (`write.rs`).

pub mod checks;
pub mod commands;
pub mod error;
pub mod steps;
mod text;
mod walk;
mod write;

use std::io::Write;

use outrigger_shared::migration::Phase;

use crate::args::{ApplyArgs, CheckOutput, ClusterArgs, PlanArgs, RollbackArgs};
use crate::check;
use crate::explain::printable;
use crate::facts::ClusterFacts;
use crate::{End, Failure};

use checks::Checks;
use error::Error;
use steps::{Asked, Direction, Plan};
use walk::Walk;

/// The plan itself shows what a person has to do.
const WAITS_FOR_A_PERSON: &str = "OUT202";

/// `outrigger plan`.
///
/// # Errors
/// When the cluster or the file cannot be read, or stdout fails.
pub fn plan(args: &PlanArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let facts = check::given(args.facts.as_deref(), &args.cluster)?;
    let asked = asked(args.name.clone(), &args.cluster);
    checks::can_be_planned(&facts, &asked)?;
    let mut plan = Plan::forward(&facts, &asked, args.to)?;
    if plan.phase > args.to {
        let (to, phase) = (args.to, plan.phase);
        return Err(Error::Behind { to, phase }.into());
    }
    // One phase at a time.
    let next = goal(&facts, &asked, None)?.min(args.to);
    plan.command = Plan::forward(&facts, &asked, next)?.command;
    match args.output {
        CheckOutput::Text => {
            text::table(&plan, out)?;
            text::next(&plan, out)?;
        }
        CheckOutput::Json => check::write_json(out, &plan)?,
    }

    let checks = Checks::of(&facts, &asked, plan.next_phase(), &[WAITS_FOR_A_PERSON.to_owned()]);
    if plan.next().is_none() || plan.alarm.is_none() && checks.pass() {
        return Ok(End::Success);
    }
    for line in checks.lines() {
        writeln!(err, "{}", printable(&line))?;
    }
    Ok(End::Refused)
}

/// `outrigger apply`.
///
/// # Errors
/// When the cluster cannot be read, the API server refuses a write, or stdout fails.
pub fn apply(args: &ApplyArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let is_not_clean = |code: &String| code.eq_ignore_ascii_case(checks::NOT_CLEAN);
    let asked = Asked {
        accepts_changes: args.accept.iter().any(is_not_clean),
        ..asked(args.name.clone(), &args.walk.cluster)
    };
    let goal = |facts: &ClusterFacts| goal(facts, &asked, args.to);
    Walk::begin(&args.walk, &args.accept, asked.clone(), Direction::Forward)?.run(goal, out, err)
}

/// The phase to reach: the one that was asked for, else the present one if it is not reached, else the next one.
fn goal(facts: &ClusterFacts, asked: &Asked, to: Option<Phase>) -> Result<Phase, Failure> {
    let phase = Plan::forward(facts, asked, Phase::InTree)?.phase;
    let is_reached = Plan::forward(facts, asked, phase)?.next().is_none();
    let next = Phase::ALL.into_iter().find(|next| *next > phase && is_reached);
    let to = to.unwrap_or_else(|| next.unwrap_or(phase));
    if to < phase {
        return Err(Error::Behind { to, phase }.into());
    }
    Ok(to)
}

/// `outrigger rollback`.
///
/// # Errors
/// As [`apply`].
pub fn rollback(args: &RollbackArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let asked = asked(args.name.clone(), &args.walk.cluster);
    let goal = |facts: &ClusterFacts| {
        let previous = steps::previous(facts, &asked)?;
        let to = args.to.or(previous).ok_or(Error::NothingBefore)?;
        let phase = Plan::back(facts, &asked, to)?.phase;
        match (to > phase, to.may_become(phase)) {
            (true, _) => Err(Error::Ahead { to, phase }.into()),
            (false, false) => Err(Error::TooFar { to, phase }.into()),
            (false, true) => Ok(to),
        }
    };
    Walk::begin(&args.walk, &[], asked.clone(), Direction::Back)?.run(goal, out, err)
}

fn asked(name: Option<String>, cluster: &ClusterArgs) -> Asked {
    let kubeconfig = cluster.kubeconfig.as_ref().map(|file| file.display().to_string());
    Asked {
        name,
        cluster: commands::cluster_flags(kubeconfig.as_deref(), cluster.context.as_deref()),
        accepts_changes: false,
    }
}
