//! The loop of `outrigger apply` and `outrigger rollback`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use outrigger_shared::annotations;
use outrigger_shared::migration::Phase;
use tokio::runtime::Runtime;

use super::checks::{Checks, can_be_planned};
use super::error::Error;
use super::steps::{Action, Asked, Direction, Plan, Step, Who};
use super::text;
use super::write::Writer;
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

/// A write that the webhook has to act on is repeated so often: the webhook may not have run at the first time.
const REPEAT: Duration = Duration::from_secs(30);

pub struct Walk<'a> {
    args: &'a WalkArgs,
    /// Codes of checks whose errors do not matter.
    accept: &'a [String],
    asked: Asked,
    direction: Direction,
    runtime: Runtime,
    reader: Reader,
    writer: Writer,
}

/// The lines that this run has printed and its writes, so that it does each once. The steps do not depend on it.
struct Said {
    done: BTreeSet<String>,
    /// The step at hand, since when, and what was printed about it.
    now: String,
    began: Instant,
    waits: String,
    has_commands: bool,
    failed: String,
    write_failed: String,
    /// The phase of the last read.
    phase: Phase,
    confirmed: Option<Phase>,
    written: BTreeMap<String, Instant>,
}

impl Said {
    fn of(plan: &Plan) -> Self {
        let done = plan.steps.iter().filter(|step| step.is_done);
        Self {
            done: done.map(|step| step.id.clone()).collect(),
            now: String::new(),
            began: Instant::now(),
            waits: String::new(),
            has_commands: false,
            failed: String::new(),
            write_failed: String::new(),
            phase: plan.phase,
            confirmed: None,
            written: BTreeMap::new(),
        }
    }

    fn begins(&mut self, step: &Step) {
        if self.now != step.id {
            (self.now, self.began) = (step.id.clone(), Instant::now());
            (self.waits, self.has_commands) = (String::new(), false);
        }
    }

    /// The commands of a person, and what manager and webhook wait for: lines for each change.
    fn waits_for(
        &mut self,
        step: &Step,
        plan: &Plan,
        go_on: &str,
        at: Timestamp,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut facts = Vec::new();
        for fact in &plan.waits_for {
            text::missing(&mut facts, "waits for: ", fact)?;
        }
        let facts = String::from_utf8_lossy(&facts);
        let waits = format!("{:?} {}{facts}", step.action, step.state);
        if waits == self.waits {
            return Ok(());
        }

        let is_persons = step.action == Action::Person;
        text::line(out, at, if is_persons { "you" } else { "waiting" }, step)?;
        if !self.has_commands {
            text::commands(step, out)?;
            if is_persons {
                let command = printable(go_on);
                writeln!(out, "    # this command goes on by itself; after Ctrl-C: {command}")?;
            }
        }
        write!(out, "{facts}")?;
        out.flush()?;
        (self.waits, self.has_commands) = (waits, true);

        Ok(())
    }

    fn failed(&mut self, reason: String, err: &mut dyn Write) -> io::Result<()> {
        if reason != self.failed {
            writeln!(err, "{}", printable(&reason))?;
            self.failed = reason;
        }
        Ok(())
    }

    fn write_failed(&mut self, reason: String, err: &mut dyn Write) -> io::Result<()> {
        if reason != self.write_failed {
            writeln!(err, "{}; it is tried again", printable(&reason))?;
            self.write_failed = reason;
        }
        Ok(())
    }
}

impl<'a> Walk<'a> {
    pub fn begin(
        args: &'a WalkArgs,
        accept: &'a [String],
        asked: Asked,
        direction: Direction,
    ) -> Result<Self, Failure> {
        rules::known("accept", accept)?;
        let runtime = check::runtime()?;
        let access = check::access(&args.cluster, args.cluster.context.clone(), Kubelets::All);
        let reader = check::connect(&runtime, &access)?;
        let writer = Writer {
            client: reader.client(),
            timeout: access.timeout,
        };

        Ok(Self {
            args,
            accept,
            asked,
            direction,
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
        goal: impl Fn(&ClusterFacts) -> Result<Phase, Failure>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<End, Failure> {
        let facts = self.read(Sections::All)?;
        can_be_planned(&facts, &self.asked)?;
        let to = goal(&facts)?;
        let mut plan = self.plan(&facts, to)?;
        text::table(&plan, out)?;
        if plan.next().is_none() {
            text::next(&plan, out)?;
            return Ok(End::Success);
        }
        if self.args.dry_run {
            text::next(&plan, out)?;
            return self.dry_run(&facts, &plan, err);
        }

        let (mut said, mut at) = (Said::of(&plan), facts.at);
        loop {
            if let Some(end) = self.step(&plan, &mut said, at, out, err)? {
                return Ok(end);
            }
            std::thread::sleep(PERIOD);
            (at, plan) = self.again(to, &mut said, err)?;
        }
    }

    /// Does the first step that is not done, or waits for it. The end, if there is one.
    fn step(
        &self,
        plan: &Plan,
        said: &mut Said,
        at: Timestamp,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Option<End>, Failure> {
        for step in plan.steps.iter().filter(|step| step.is_done) {
            if said.done.insert(step.id.clone()) {
                text::line(out, at, "done", step)?;
            }
        }
        if self.moves_against(plan.phase, said.phase) {
            let page = "docs/operations/gitops.md";
            writeln!(
                err,
                "the phase was {}, and is {} now: another person or program goes the other way ({page}); nothing more is written",
                said.phase, plan.phase
            )?;
            return Ok(Some(End::Refused));
        }
        said.phase = plan.phase;

        let Some(step) = plan.next() else {
            let name = printable(migration(plan));
            writeln!(out, "\n{name}: {} is reached\nnext: {}", plan.to, text::after(plan))?;
            return Ok(Some(End::Success));
        };
        said.begins(step);
        if let Some(alarm) = &plan.alarm
            && self.direction == Direction::Forward
            && step.who != Who::You
        {
            text::missing(err, "alarm: ", alarm)?;
            return Ok(Some(End::Refused));
        }

        let end = match step.action {
            Action::SetPhase(next) => self.set_phase(next, plan, said, out, err)?,
            Action::ApplyKubeadmConfig(phase) if is_due(said, step) => {
                let written = self.writer.apply_kubeadm_config(migration(plan), phase, false);
                if self.written(written, said, err)? {
                    said.written.insert(step.id.clone(), Instant::now());
                }
                None
            }
            Action::ApplyKubeadmConfig(_) | Action::Person | Action::Wait => None,
        };
        if end.is_some() {
            return Ok(end);
        }

        if !matches!(step.action, Action::SetPhase(_)) {
            said.waits_for(step, plan, &self.go_on(plan), at, out)?;
        }
        Ok(self.is_over(step, plan, said.began, err)?)
    }

    /// The command that goes on.
    fn go_on(&self, plan: &Plan) -> String {
        let accepted = self.accept.iter().map(|code| format!(" --accept={code}"));
        format!("{}{}", plan.command, accepted.collect::<String>())
    }

    fn moves_against(&self, now: Phase, before: Phase) -> bool {
        match self.direction {
            Direction::Forward => now < before,
            Direction::Back => now > before,
        }
    }

    fn plan(&self, facts: &ClusterFacts, to: Phase) -> Result<Plan, Failure> {
        Ok(match self.direction {
            Direction::Forward => Plan::forward(facts, &self.asked, to)?,
            Direction::Back => Plan::back(facts, &self.asked, to)?,
        })
    }

    fn read(&self, sections: Sections) -> Result<ClusterFacts, check::error::Error> {
        Ok(self.runtime.block_on(self.reader.read(sections))?)
    }

    fn dry_run(&self, facts: &ClusterFacts, plan: &Plan, err: &mut dyn Write) -> Result<End, Failure> {
        let begins = plan
            .next()
            .is_some_and(|step| matches!(step.action, Action::SetPhase(_)));
        let lines = if begins {
            self.in_the_way(facts, plan)
        } else {
            Vec::new()
        };
        for line in &lines {
            writeln!(err, "{}", printable(line))?;
        }
        Ok(if lines.is_empty() { End::Success } else { End::Refused })
    }

    /// Why no phase may begin now.
    fn in_the_way(&self, facts: &ClusterFacts, plan: &Plan) -> Vec<String> {
        match self.direction {
            Direction::Back => plan.no_way_back.iter().cloned().collect(),
            Direction::Forward => {
                let checks = Checks::of(facts, &self.asked, plan.next_phase(), self.accept);
                if checks.pass() { Vec::new() } else { checks.lines() }
            }
        }
    }

    /// Writes the phase, unless something is wrong before it. The facts are read again before each write.
    fn set_phase(
        &self,
        next: Phase,
        plan: &Plan,
        said: &mut Said,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Option<End>, Failure> {
        let facts = match self.read(Sections::All) {
            Ok(facts) => facts,
            Err(error) => {
                said.failed(error.to_string(), err)?;
                return Ok(None);
            }
        };
        let plan = self.plan(&facts, plan.to)?;
        if plan.next().map(|step| step.action) != Some(Action::SetPhase(next))
            || self.direction == Direction::Forward && plan.alarm.is_some()
        {
            return Ok(None);
        }
        let lines = self.in_the_way(&facts, &plan);
        if !lines.is_empty() {
            writeln!(err, "phase {next} was not set:")?;
            for line in lines {
                writeln!(err, "    {}", printable(&line))?;
            }
            return Ok(Some(End::Refused));
        }
        if !self.args.yes && said.confirmed != Some(next) {
            return self.confirm(next, &facts, &plan, said, out, err);
        }

        // It would be refused after the phase is written.
        let has_config = plan
            .steps
            .iter()
            .any(|step| step.action == Action::ApplyKubeadmConfig(next));
        if has_config
            && !self.written(
                self.writer.apply_kubeadm_config(migration(&plan), next, true),
                said,
                err,
            )?
        {
            return Ok(None);
        }
        if self.written(self.writer.set_phase(migration(&plan), plan.phase, next), said, err)? {
            said.phase = next;
        }
        Ok(None)
    }

    /// Whether a write was done. One without an answer is tried again, as its step is not done then.
    fn written(
        &self,
        write: impl Future<Output = Result<bool, Error>>,
        said: &mut Said,
        err: &mut dyn Write,
    ) -> Result<bool, Failure> {
        match self.runtime.block_on(write) {
            Ok(written) => Ok(written),
            Err(error @ Error::Unanswered { .. }) => {
                said.write_failed(error.to_string(), err)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says what will be written and what follows, and asks.
    fn confirm(
        &self,
        next: Phase,
        facts: &ClusterFacts,
        plan: &Plan,
        said: &mut Said,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Option<End>, Failure> {
        self.summary(next, facts, plan, out)?;
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            writeln!(
                err,
                "stdin is not a terminal: add --yes to write without a question. Nothing was written"
            )?;
            return Ok(Some(End::NotYet));
        }

        write!(err, "Set phase {next}? [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        stdin.lock().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            (said.confirmed, said.began) = (Some(next), Instant::now());
            return Ok(None);
        }
        writeln!(err, "nothing was written")?;
        Ok(Some(End::NotYet))
    }

    fn summary(&self, next: Phase, facts: &ClusterFacts, plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
        let name = printable(migration(plan));
        let context = plan.context.as_deref().map(printable).unwrap_or_default();
        let version = facts.version.known().map_or("not known", String::as_str);
        let after = plan
            .steps
            .iter()
            .skip_while(|step| step.action != Action::SetPhase(next))
            .skip(1);
        let after: Vec<&Step> = after
            .take_while(|step| !matches!(step.action, Action::SetPhase(_)))
            .collect();

        writeln!(
            out,
            "cluster    {context}, {}, Kubernetes {}",
            self.reader.server(),
            printable(version)
        )?;
        writeln!(out, "migration  {name}: {} → {next}", plan.phase)?;
        writeln!(out, "writes     spec.phase of the CloudProviderMigration {name}")?;
        if after
            .iter()
            .any(|step| matches!(step.action, Action::ApplyKubeadmConfig(_)))
        {
            writeln!(
                out,
                "           the annotation {} of the ConfigMap kubeadm-config",
                annotations::APPLY
            )?;
        }
        for step in after.iter().filter(|step| step.action == Action::Person) {
            writeln!(out, "then you   {}", printable(&step.state))?;
            if let Some(effect) = step.effect {
                writeln!(out, "           {effect}")?;
            }
        }
        if self.direction == Direction::Forward {
            let cluster = printable(&self.asked.cluster);
            writeln!(out, "way back   outrigger rollback {name} --to={}{cluster}", plan.phase)?;
        }
        out.flush()
    }

    /// Whether a step takes too long.
    fn is_over(&self, step: &Step, plan: &Plan, began: Instant, err: &mut dyn Write) -> io::Result<Option<End>> {
        let most = match (step.action, self.args.wait) {
            (Action::Person, Some(seconds)) => Some(seconds),
            (Action::Person, None) => (!io::stdin().is_terminal()).then_some(0),
            _ => Some(self.args.timeout),
        };
        let Some(most) = most.filter(|most| began.elapsed() >= Duration::from_secs(*most)) else {
            return Ok(None);
        };

        let (id, command) = (&step.id, printable(&self.go_on(plan)));
        match step.action {
            Action::Person => writeln!(err, "you have to do {id}; then go on with: {command}")?,
            _ => writeln!(err, "{id} was not reached in {most} s; go on with: {command}")?,
        }
        Ok(Some(End::NotYet))
    }

    /// Reads again, until the API server answers.
    fn again(&self, to: Phase, said: &mut Said, err: &mut dyn Write) -> Result<(Timestamp, Plan), Failure> {
        let began = Instant::now();
        loop {
            let planned = self.read(Sections::Steps).map_err(Failure::from);
            let planned = planned.and_then(|facts| Ok((facts.at, self.plan(&facts, to)?)));
            let reason = match planned {
                Ok(planned) => {
                    said.failed.clear();
                    return Ok(planned);
                }
                Err(failure) => failure.to_string(),
            };
            if began.elapsed() > UNREACHABLE {
                let seconds = UNREACHABLE.as_secs();
                return Err(Error::Unreachable { seconds, reason }.into());
            }
            said.failed(reason, err)?;
            std::thread::sleep(PERIOD);
        }
    }
}

/// Whether a write that the webhook acts on is to be sent now.
fn is_due(said: &Said, step: &Step) -> bool {
    said.written.get(&step.id).is_none_or(|at| at.elapsed() >= REPEAT)
}

/// A step that writes has one.
fn migration(plan: &Plan) -> &str {
    plan.migration.as_deref().unwrap_or_default()
}
