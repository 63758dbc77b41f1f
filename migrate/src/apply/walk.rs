//! The loop of `outrigger apply` and `outrigger rollback`.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use outrigger_shared::migration::Phase;
use tokio::runtime::Runtime;

use super::error::Error;
use super::errors;
use super::steps::{Action, Direction, Plan, Step};
use super::write::{Writer, Written};
use crate::args::WalkArgs;
use crate::check::{self, rules};
use crate::explain::printable;
use crate::facts::ClusterFacts;
use crate::facts::collect::{Kubelets, Reader, Sections};
use crate::{End, Failure};

/// Between two reads.
const PERIOD: Duration = Duration::from_secs(2);

/// API servers restart during a migration.
const UNREACHABLE: Duration = Duration::from_secs(300);

/// Where a walk ends.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub direction: Direction,
    pub to: Phase,
}

pub struct Walk<'a> {
    args: &'a WalkArgs,
    name: Option<String>,
    runtime: Runtime,
    reader: Reader,
    writer: Writer,
}

/// What the loop has printed and written, so that it does so once.
#[derive(Default)]
struct Said {
    done: BTreeSet<String>,
    now: String,
    waits: String,
    failed: String,
    written: BTreeSet<String>,
}

impl Said {
    /// The commands of a person, and what manager and webhook wait for: a line for each change.
    fn waits_for(&mut self, step: &Step, plan: &Plan, at: Timestamp, out: &mut dyn Write) -> io::Result<()> {
        let facts = plan.waits_for.iter();
        let facts: String = facts
            .map(|fact| format!("    waits for: {}\n", printable(&fact.observation)))
            .collect();
        let waits = format!("{}{facts}", step.place);
        if waits == self.waits {
            return Ok(());
        }

        line(out, at, "…", step)?;
        if self.waits.is_empty() {
            step.write_commands(out)?;
        }
        write!(out, "{facts}")?;
        out.flush()?;
        self.waits = waits;
        Ok(())
    }
}

impl<'a> Walk<'a> {
    pub fn begin(args: &'a WalkArgs, name: Option<String>) -> Result<Self, Failure> {
        rules::known("accept", &args.accept)?;
        let runtime = check::runtime()?;
        let access = check::access(&args.cluster, args.cluster.context.clone(), Kubelets::All);
        let reader = check::connect(&runtime, &access)?;
        let writer = Writer {
            client: reader.client(),
            timeout: access.timeout,
        };

        Ok(Self {
            args,
            name,
            runtime,
            reader,
            writer,
        })
    }

    /// Does the steps up to the goal, which the facts of the beginning decide.
    ///
    /// # Errors
    /// When the cluster cannot be read for [`UNREACHABLE`], the API server refuses a write, or stdout fails.
    pub fn run(
        &self,
        goal: impl Fn(&ClusterFacts) -> Result<Goal, Failure>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<End, Failure> {
        let facts = self.runtime.block_on(self.reader.read(Sections::All));
        let facts = facts.map_err(check::error::Error::from)?;
        let goal = goal(&facts)?;
        let plan = self.plan(&facts, goal)?;
        plan.write_text(out)?;
        if plan.next().is_none() {
            return Ok(End::Success);
        }
        if !self.is_confirmed(&plan, err)? {
            writeln!(err, "nothing was written")?;
            return Ok(End::NotYet);
        }

        let mut said = Said {
            done: plan
                .steps
                .iter()
                .filter(|step| step.is_done)
                .map(|step| step.id.clone())
                .collect(),
            ..Said::default()
        };
        let (mut at, mut plan, mut began) = (facts.at, plan, Instant::now());
        loop {
            for step in plan.steps.iter().filter(|step| step.is_done) {
                if said.done.insert(step.id.clone()) {
                    line(out, at, "√", step)?;
                }
            }
            if let Some(alarm) = &plan.alarm {
                writeln!(err, "alarm: {}", printable(alarm))?;
                return Ok(End::Refused);
            }
            let Some(step) = plan.next().cloned() else {
                return self.end(&plan, out);
            };

            if said.now != step.id {
                (said.now, said.waits, began) = (step.id.clone(), String::new(), Instant::now());
            }
            let end = match step.action {
                Action::SetPhase(to) => self.set_phase(to, &plan, &mut said, err)?,
                Action::ApplyKubeadmConfig(phase) if said.written.insert(step.id.clone()) => {
                    let written = self.writer.apply_kubeadm_config(migration(&plan), phase);
                    self.runtime.block_on(written)?;
                    None
                }
                Action::ApplyKubeadmConfig(_) | Action::Person | Action::Wait => {
                    said.waits_for(&step, &plan, at, out)?;
                    self.is_over(&step, began, err)?
                }
            };
            if let Some(end) = end {
                return Ok(end);
            }

            std::thread::sleep(PERIOD);
            (at, plan) = self.again(goal, &mut said, err)?;
        }
    }

    fn plan(&self, facts: &ClusterFacts, goal: Goal) -> Result<Plan, Failure> {
        let name = self.name.as_deref();
        Ok(match goal.direction {
            Direction::Forward => Plan::forward(facts, name, goal.to)?,
            Direction::Back => Plan::back(facts, name, goal.to)?,
        })
    }

    /// Asks, if there is something to write.
    fn is_confirmed(&self, plan: &Plan, err: &mut dyn Write) -> io::Result<bool> {
        let mut left = plan.steps.iter().filter(|step| !step.is_done);
        let writes = left.any(|step| matches!(step.action, Action::SetPhase(_) | Action::ApplyKubeadmConfig(_)));
        if self.args.yes || !writes {
            return Ok(true);
        }
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            writeln!(err, "stdin is no terminal; add --yes")?;
            return Ok(false);
        }

        write!(
            err,
            "{}: {} → {}. Continue? [y/N] ",
            self.reader.server(),
            plan.phase,
            plan.to
        )?;
        err.flush()?;
        let mut answer = String::new();
        stdin.lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// Writes the phase, unless something is wrong before it.
    fn set_phase(&self, to: Phase, plan: &Plan, said: &mut Said, err: &mut dyn Write) -> Result<Option<End>, Failure> {
        let (name, from) = (migration(plan), plan.phase);
        if said.written.contains(&said.now) {
            let page = "docs/operations/gitops.md";
            writeln!(
                err,
                "the phase was {to}, and is {from} again: something else writes it, see {page}"
            )?;
            return Ok(Some(End::Refused));
        }
        let reason = match plan.direction {
            Direction::Forward => self.errors()?,
            Direction::Back => plan.no_way_back.clone(),
        };
        if let Some(reason) = reason {
            writeln!(err, "{from} → {to} is not begun: {}", printable(&reason))?;
            return Ok(Some(End::Refused));
        }

        match self.runtime.block_on(self.writer.set_phase(name, from, to))? {
            Written::Done => said.written.insert(said.now.clone()),
            Written::Changed => false,
        };
        Ok(None)
    }

    fn errors(&self) -> Result<Option<String>, Failure> {
        let facts = self.runtime.block_on(self.reader.read(Sections::All));
        let facts = facts.map_err(check::error::Error::from)?;
        Ok(errors(&facts, &self.args.accept))
    }

    /// Whether a step takes too long.
    fn is_over(&self, step: &Step, began: Instant, err: &mut dyn Write) -> io::Result<Option<End>> {
        let most = match (step.action, self.args.wait) {
            (Action::Person, Some(seconds)) => Some(seconds),
            (Action::Person, None) => (!io::stdin().is_terminal()).then_some(0),
            _ => Some(self.args.timeout),
        };
        let Some(most) = most.filter(|most| began.elapsed() >= Duration::from_secs(*most)) else {
            return Ok(None);
        };

        match step.action {
            Action::Person => writeln!(err, "{} is yours to do; then run this command again", step.id)?,
            _ => writeln!(
                err,
                "{} was not reached in {most} s; outrigger status says why",
                step.id
            )?,
        }
        Ok(Some(End::NotYet))
    }

    /// Reads again, until the API server answers.
    fn again(&self, goal: Goal, said: &mut Said, err: &mut dyn Write) -> Result<(Timestamp, Plan), Failure> {
        let began = Instant::now();
        loop {
            let failed = match self.runtime.block_on(self.reader.read(Sections::Steps)) {
                Ok(facts) => match self.plan(&facts, goal) {
                    Ok(plan) => {
                        said.failed.clear();
                        return Ok((facts.at, plan));
                    }
                    Err(failure) => failure.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if began.elapsed() > UNREACHABLE {
                let (seconds, reason) = (UNREACHABLE.as_secs(), failed);
                return Err(Error::Unreachable { seconds, reason }.into());
            }
            if failed != said.failed {
                writeln!(err, "{}", printable(&failed))?;
                said.failed = failed;
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn end(&self, plan: &Plan, out: &mut dyn Write) -> Result<End, Failure> {
        let name = printable(migration(plan));
        writeln!(out, "\n{name}: {} is reached\nnext: outrigger status {name}", plan.to)?;
        Ok(End::Success)
    }
}

/// A step that writes has one.
fn migration(plan: &Plan) -> &str {
    plan.migration.as_deref().unwrap_or_default()
}

fn line(out: &mut dyn Write, at: Timestamp, sign: &str, step: &Step) -> io::Result<()> {
    let (at, place, what) = (at.strftime("%H:%M:%S"), printable(&step.place), printable(&step.what));
    writeln!(out, "{at} {sign} {}  {place}: {what}", step.id)?;
    out.flush()
}
