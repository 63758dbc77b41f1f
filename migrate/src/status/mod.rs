//! `outrigger status`: where a migration is, what it waits for, and what to do next.
//!
//! ```text
//! facts ─▶ position (pure) ─▶ text, JSON
//! ```

pub mod error;
pub mod position;

use std::io::Write;
use std::time::{Duration, Instant};

use outrigger_shared::migration::condition;

use crate::args::{CheckOutput, StatusArgs};
use crate::check;
use crate::explain::printable;
use crate::facts::ClusterFacts;
use crate::facts::collect::{Access, Kubelets, Sections};
use crate::{End, Failure};

use error::Error;
use position::{Position, Progress};

/// Between two reads of `--wait-for` and `--watch`.
const PERIOD: Duration = Duration::from_secs(2);

/// # Errors
/// When the cluster cannot be read, has no such migration, or stdout fails.
pub fn run(args: &StatusArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let access = check::access(&args.cluster, args.cluster.context.clone(), Kubelets::None);
    if let Some(file) = &args.facts {
        return show(args, &check::read(file)?, out);
    }
    if args.wait_for.is_some() || args.watch {
        return follow(args, &access, out, err);
    }

    let runtime = check::runtime()?;
    let reader = check::connect(&runtime, &access)?;
    let facts = runtime.block_on(reader.read(Sections::Position));
    show(args, &facts.map_err(check::error::Error::from)?, out)
}

fn show(args: &StatusArgs, facts: &ClusterFacts, out: &mut dyn Write) -> Result<End, Failure> {
    let position = Position::of(facts, args.name.as_deref())?;
    match args.output {
        CheckOutput::Text => position.write_text(out)?,
        CheckOutput::Json => check::write_json(out, &position)?,
    }

    Ok(End::Success)
}

/// Prints a line for each change, until the condition is True or the time is over. A failed read is a line on stderr, as API
/// servers restart during a migration.
fn follow(args: &StatusArgs, access: &Access, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    if let Some(unknown) = args.wait_for.as_ref().filter(|name| !is_condition(name)) {
        return Err(Error::NoSuchCondition { name: unknown.clone() }.into());
    }

    let end = Instant::now() + Duration::from_secs(args.timeout);
    let runtime = check::runtime()?;
    let reader = check::connect(&runtime, access)?;
    let (mut last, mut failed) = (String::new(), String::new());
    loop {
        let position = runtime.block_on(reader.read(Sections::PositionAgain));
        let position = position.map_err(|error| error.to_string()).and_then(|facts| {
            let position = Position::of(&facts, args.name.as_deref());
            position
                .map(|position| (facts.at, position))
                .map_err(|error| error.to_string())
        });
        match position {
            Ok((at, position)) => {
                failed.clear();
                let line = position.line();
                if line != last {
                    match args.output {
                        CheckOutput::Text => writeln!(out, "{} {line}", at.strftime("%H:%M:%S"))?,
                        CheckOutput::Json => writeln!(out, "{}", serde_json::to_string(&position)?)?,
                    }
                    last = line;
                }
                match args.wait_for.as_deref().map(|condition| position.progress(condition)) {
                    Some(Progress::Reached) => return Ok(End::Success),
                    Some(Progress::Stalled) => {
                        // With the Nodes.
                        let whole = runtime.block_on(reader.read(Sections::Position)).ok();
                        let whole = whole.and_then(|facts| Position::of(&facts, args.name.as_deref()).ok());
                        whole.unwrap_or(position).write_text(err)?;
                        return Ok(End::Refused);
                    }
                    Some(Progress::Waiting) | None => {}
                }
            }
            Err(error) => {
                if error != failed {
                    writeln!(err, "{}", printable(&error))?;
                    failed = error;
                }
            }
        }

        if args.wait_for.is_some() && Instant::now() + PERIOD > end {
            writeln!(err, "not reached in {} s: {last}", args.timeout)?;
            return Ok(End::NotYet);
        }
        std::thread::sleep(PERIOD);
    }
}

fn is_condition(name: &str) -> bool {
    condition::ALL.contains(&name) || condition::OF_WEBHOOK.contains(&name)
}
