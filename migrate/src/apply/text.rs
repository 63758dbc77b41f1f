//! Plans and steps as text.

use std::io::{self, Write};

use jiff::Timestamp;
use outrigger_shared::migration::{MissingFact, Phase};

use super::steps::{Direction, Plan, Step};
use crate::explain::printable;

/// A table of all steps.
///
/// # Errors
/// When `out` fails.
pub fn table(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let done = plan.steps.iter().filter(|step| step.is_done).count();
    let context = plan.context.as_ref().map(|name| format!("{}, ", printable(name)));
    let migration = plan
        .migration
        .as_ref()
        .map(|name| format!("migration {}: ", printable(name)));
    let (context, migration) = (context.unwrap_or_default(), migration.unwrap_or_default());
    let (from, to, count) = (plan.phase, plan.to, plan.steps.len());
    let way = if from == to {
        format!("phase {to}")
    } else {
        format!("{from} → {to}")
    };
    writeln!(out, "{context}{migration}{way}, {done} of {count} steps done\n")?;
    if let Some(alarm) = &plan.alarm {
        missing(out, "alarm: ", alarm)?;
        writeln!(out)?;
    }

    let ids = plan
        .steps
        .iter()
        .map(|step| step.id.chars().count())
        .max()
        .unwrap_or_default();
    writeln!(out, "      {:ids$}  {:9}  state", "step", "who")?;
    let next = plan.next();
    for step in &plan.steps {
        let is_next = next.is_some_and(|next| next.id == step.id);
        let sign = match (step.is_done, is_next) {
            (true, _) => "done",
            (false, true) => "next",
            (false, false) => "",
        };
        let (who, state) = (step.who.as_str(), printable(&step.state));
        writeln!(out, "{sign:4}  {:ids$}  {who:9}  {state}", step.id)?;
        if let Some(effect) = step.effect.filter(|_| !step.is_done) {
            writeln!(out, "{:ids$}                   {effect}", "")?;
        }
    }
    writeln!(out)
}

/// The commands of the next step, and the one that goes on.
///
/// # Errors
/// When `out` fails.
pub fn next(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let Some(step) = plan.next() else {
        return writeln!(out, "next: {}", after(plan));
    };
    commands(step, out)?;
    match plan.migration {
        Some(_) => writeln!(out, "next: {}", printable(&plan.command)),
        None => writeln!(out, "next: outrigger check shows what is in the way"),
    }
}

/// The next command or page when the plan is done.
pub fn after(plan: &Plan) -> String {
    let finish = "docs/operations/finish.md";
    let next = Phase::ALL.into_iter().find(|phase| *phase > plan.to);
    match (plan.direction, next) {
        (Direction::Forward, None) => finish.to_owned(),
        (Direction::Forward, Some(next)) => {
            let command = plan
                .command
                .replace(&format!("--to={}", plan.to), &format!("--to={next}"));
            printable(&command)
        }
        (Direction::Back, _) if plan.to == Phase::InTree => format!("{finish}, \"Uninstall after a way back\""),
        (Direction::Back, _) => "outrigger status".to_owned(),
    }
}

/// # Errors
/// When `out` fails.
pub fn commands(step: &Step, out: &mut dyn Write) -> io::Result<()> {
    for command in &step.commands {
        writeln!(out, "    {}", printable(command))?;
    }
    Ok(())
}

/// # Errors
/// When `out` fails.
pub fn missing(out: &mut dyn Write, name: &str, fact: &MissingFact) -> io::Result<()> {
    writeln!(out, "    {name}{}", printable(&fact.observation))?;
    writeln!(out, "        so:  {}", printable(&fact.consequence))?;
    if !fact.fix.is_empty() {
        writeln!(out, "        fix: {}", printable(&fact.fix))?;
    }
    Ok(())
}

/// A line about a step, with the time by the API server's clock.
///
/// # Errors
/// When `out` fails.
pub fn line(out: &mut dyn Write, at: Timestamp, word: &str, step: &Step) -> io::Result<()> {
    let (at, state) = (at.strftime("%H:%M:%SZ"), printable(&step.state));
    writeln!(out, "{at} {word:7} {}  {state}", step.id)?;
    out.flush()
}
