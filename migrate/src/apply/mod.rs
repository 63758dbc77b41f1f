//! `outrigger plan`, `outrigger apply` and `outrigger rollback`: the steps of a migration.
//!
//! ```text
//! facts ─▶ steps (pure) ─▶ text, JSON                                        plan
//! loop { facts ─▶ steps ─▶ the first that is not done ─▶ write, or wait }    apply, rollback
//! ```
//!
//! The commands decide nothing that manager or webhook decide: a phase only permits, and the manager's conditions say when
//! it is reached. There is no lock and no record of what was done: each write is conditional on what was read
//! ([`write`]).

pub mod error;
pub mod steps;
mod walk;
mod write;

use std::io::Write;

use outrigger_shared::migration::Phase;

use crate::args::{ApplyArgs, CheckOutput, PlanArgs, RollbackArgs};
use crate::check::report::Report;
use crate::check::{self, rules};
use crate::explain::printable;
use crate::facts::ClusterFacts;
use crate::facts::collect::Kubelets;
use crate::{End, Failure};

use error::Error;
use steps::{Direction, Plan};
use walk::{Goal, Walk};

/// `outrigger plan`.
///
/// # Errors
/// When the cluster or the file cannot be read, or stdout fails.
pub fn plan(args: &PlanArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let facts = match &args.facts {
        Some(file) => check::read(file)?,
        None => check::of_cluster(&check::access(
            &args.cluster,
            args.cluster.context.clone(),
            Kubelets::All,
        ))?,
    };
    let plan = Plan::forward(&facts, args.name.as_deref(), args.to)?;
    if plan.phase > args.to {
        let (to, phase) = (args.to, plan.phase);
        return Err(Error::Behind { to, phase }.into());
    }
    match args.output {
        CheckOutput::Text => plan.write_text(out)?,
        CheckOutput::Json => check::write_json(out, &plan)?,
    }

    Ok(match errors(&facts, &[]) {
        Some(line) if plan.next().is_some() => {
            writeln!(err, "{}\noutrigger check shows the errors", printable(&line))?;
            End::Refused
        }
        _ => End::Success,
    })
}

/// `outrigger apply`.
///
/// # Errors
/// When the cluster cannot be read, the API server refuses a write, or stdout fails.
pub fn apply(args: &ApplyArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let goal = |facts: &ClusterFacts| -> Result<Goal, Failure> {
        let name = args.name.as_deref();
        let phase = Plan::forward(facts, name, Phase::InTree)?.phase;
        let is_reached = Plan::forward(facts, name, phase)?.next().is_none();
        let next = Phase::ALL.into_iter().find(|next| *next > phase && is_reached);
        let to = args.to.unwrap_or_else(|| next.unwrap_or(phase));
        if to < phase {
            return Err(Error::Behind { to, phase }.into());
        }
        Ok(Goal {
            direction: Direction::Forward,
            to,
        })
    };
    Walk::begin(&args.walk, args.name.clone())?.run(goal, out, err)
}

/// `outrigger rollback`.
///
/// # Errors
/// As [`apply`].
pub fn rollback(args: &RollbackArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let goal = |facts: &ClusterFacts| -> Result<Goal, Failure> {
        let phase = Plan::back(facts, args.name.as_deref(), Phase::InTree)?.phase;
        let previous = Phase::ALL.into_iter().rev().find(|previous| *previous < phase);
        let to = args.to.or(previous).ok_or(Error::NothingBefore)?;
        if to > phase {
            return Err(Error::Ahead { to, phase }.into());
        }
        Ok(Goal {
            direction: Direction::Back,
            to,
        })
    };
    Walk::begin(&args.walk, args.name.clone())?.run(goal, out, err)
}

/// The line of `outrigger check` with its codes, if it finds errors other than those of `accepted` checks.
fn errors(facts: &ClusterFacts, accepted: &[String]) -> Option<String> {
    let is_accepted = |code: &str| accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(code));
    let asked: Vec<_> = rules::ALL.iter().filter(|rule| !is_accepted(rule.code)).collect();
    let report = Report::of(facts, &asked);
    (report.errors() > 0).then(|| report.line())
}
