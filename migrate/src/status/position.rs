//! The position of a migration, from the facts. Pure.

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp};
use outrigger_shared::controller::Controller;
use outrigger_shared::migration::{CloudProviderMigrationStatus, MissingFact, Phase, condition};
use serde::Serialize;

use super::error::Error;
use crate::explain::printable;
use crate::facts::{API_VERSION, Acts, ClusterFacts, Component, Migration};

/// The status is written at least once a minute.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(3);

/// The width of the first column.
const COLUMN: usize = 12;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    migration: String,
    phase: Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The process that runs the service controller, with its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    ready: String,
    /// The facts that prevent the state of the phase.
    waits_for: Vec<MissingFact>,
    /// The next steps; empty if nothing is to be done.
    now: Vec<String>,
    control_plane: Vec<String>,
    leases: Vec<String>,
    nodes: String,
    /// Times in which nobody ran the shared controllers.
    without_owner: Vec<Gap>,
    way_back: String,
    observed: String,
    #[serde(skip)]
    reached: Vec<String>,
    #[serde(skip)]
    is_stalled: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gap {
    phase: Phase,
    from: Timestamp,
    milliseconds: i128,
    /// It has not ended.
    lasts: bool,
}

/// Whether a condition is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Reached,
    Waiting,
    /// A person has to act first.
    Stalled,
}

pub(crate) fn named<'a>(facts: &'a ClusterFacts, name: Option<&str>) -> Result<&'a Migration, Error> {
    let all = facts.migrations.get().map_err(|why| Error::NotRead(why.reason))?;
    let names = || all.iter().map(|migration| migration.name.clone()).collect::<Vec<_>>();
    match (name, all.as_slice()) {
        (Some(name), all) => {
            all.iter()
                .find(|migration| migration.name == name)
                .ok_or_else(|| Error::NoSuchMigration {
                    name: name.to_owned(),
                    known: names(),
                })
        }
        (None, [only]) => Ok(only),
        (None, []) => Err(Error::NotInstalled),
        (None, _) => Err(Error::Several(names())),
    }
}

impl Position {
    /// The position of the migration with this name, or of the only one.
    ///
    /// # Errors
    /// When there is none, or several without a name.
    pub fn of(facts: &ClusterFacts, name: Option<&str>) -> Result<Self, Error> {
        let migration = named(facts, name)?;
        let nothing = CloudProviderMigrationStatus::default();
        let status = migration.status.as_ref().unwrap_or(&nothing);
        let is_current = is_current(facts, migration, status);
        let waits_for = if is_current { status.missing.clone() } else { Vec::new() };

        Ok(Self {
            api_version: API_VERSION,
            kind: "MigrationStatus",
            context: facts.context.clone(),
            migration: migration.name.clone(),
            phase: migration.phase,
            since: since(migration.phase, status),
            owner: if is_current { owner(status) } else { None },
            ready: message(status, condition::READY, is_current),
            now: now(facts, migration, status, &waits_for, is_current),
            waits_for,
            control_plane: here(migration, || control_plane(facts)),
            leases: here(migration, || leases(facts)),
            nodes: here(migration, || vec![nodes(facts, status)]).concat(),
            without_owner: gaps(status, facts.at),
            way_back: message(status, condition::ROLLBACK_POSSIBLE, is_current),
            observed: observed(facts, status),
            reached: status
                .conditions
                .iter()
                .filter(|condition| is_current && condition.status == "True")
                .map(|condition| condition.type_.clone())
                .collect(),
            is_stalled: is_current && status.is_true(condition::STALLED),
        })
    }

    pub fn progress(&self, condition: &str) -> Progress {
        match self.reached.iter().any(|reached| reached == condition) {
            true => Progress::Reached,
            false if self.is_stalled => Progress::Stalled,
            false => Progress::Waiting,
        }
    }

    /// One line that changes only with the position.
    pub fn line(&self) -> String {
        let waits = self
            .waits_for
            .first()
            .map(|missing| format!("; waits for: {}", missing.observation));
        let owner = self.owner.as_deref().unwrap_or("nobody known");
        let line = format!(
            "{} {}, owner {owner}{}",
            self.migration,
            self.phase,
            waits.unwrap_or_default()
        );
        printable(&line)
    }

    /// # Errors
    /// When `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = self.context.as_ref().unwrap_or(&self.migration);
        let since = self
            .since
            .map(|since| format!(" since {}", since.strftime("%Y-%m-%d %H:%M:%S UTC")));
        let path = Phase::ALL.map(|phase| match phase.cmp(&self.phase) {
            std::cmp::Ordering::Less => format!("{phase} √"),
            std::cmp::Ordering::Equal => format!("[{phase}]"),
            std::cmp::Ordering::Greater => phase.to_string(),
        });
        writeln!(out, "{}: {}{}", printable(name), self.phase, since.unwrap_or_default())?;
        writeln!(out, "{}\n", path.join(" ── "))?;

        let mut line = |name: &str, text: &str| writeln!(out, "{name:<COLUMN$}{}", printable(text));
        line("owner", self.owner.as_deref().unwrap_or("of load balancers: not known"))?;
        line("ready", &self.ready)?;
        for missing in &self.waits_for {
            line("waits for", &missing.observation)?;
            line("", &format!("so: {}", missing.consequence))?;
        }
        for (at, step) in self.now.iter().enumerate() {
            line(if at == 0 { "now" } else { "" }, step)?;
        }
        for (name, texts) in [("control", &self.control_plane), ("leases", &self.leases)] {
            for (at, text) in texts.iter().enumerate() {
                line(if at == 0 { name } else { "" }, text)?;
            }
        }
        line("nodes", &self.nodes)?;
        for (at, gap) in self.without_owner.iter().enumerate() {
            line(if at == 0 { "no owner" } else { "" }, &gap.to_string())?;
        }
        line("way back", &self.way_back)?;
        line("observed", &self.observed)
    }
}

impl std::fmt::Display for Gap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, tenths) = (self.milliseconds / 1000, self.milliseconds % 1000 / 100);
        let lasts = if self.lasts { ", and lasts" } else { "" };
        let from = self.from.strftime("%Y-%m-%d %H:%M:%S UTC");
        write!(formatter, "{seconds}.{tenths} s in {}, from {from}{lasts}", self.phase)
    }
}

/// Whether the status is of this spec and of now: an old one says nothing.
pub(crate) fn is_current(facts: &ClusterFacts, migration: &Migration, status: &CloudProviderMigrationStatus) -> bool {
    let is_young = status
        .observed_by
        .as_ref()
        .is_some_and(|observer| is_young(facts, observer.time.0));
    is_young && (migration.generation.is_none() || status.observed_generation == migration.generation)
}

/// A time in the future is of a wrong clock.
fn is_young(facts: &ClusterFacts, time: Timestamp) -> bool {
    let age = facts.at.duration_since(time);
    age <= MAX_AGE && age >= -MAX_AGE
}

/// When the migration entered its phase, as far as the history goes back.
fn since(phase: Phase, status: &CloudProviderMigrationStatus) -> Option<Timestamp> {
    let of_phase = status.history.iter().rev().take_while(|entry| entry.phase == phase);
    of_phase.last().map(|entry| entry.time.0)
}

fn owner(status: &CloudProviderMigrationStatus) -> Option<String> {
    let name = Controller::Service.canonical_name();
    let row = status.controllers.iter().find(|row| row.name == name)?;
    let owner = row.owner?;
    let holder = row.holder.as_ref().map(|holder| format!(" ({holder})"));
    Some(format!("{owner}{}", holder.unwrap_or_default()))
}

fn message(status: &CloudProviderMigrationStatus, type_: &str, is_current: bool) -> String {
    match status.conditions.iter().find(|condition| condition.type_ == type_) {
        Some(row) if is_current => format!("{}: {}", row.status, row.message),
        _ => "not known".to_owned(),
    }
}

fn observed(facts: &ClusterFacts, status: &CloudProviderMigrationStatus) -> String {
    let Some(observer) = &status.observed_by else {
        return "never: no manager has written the status".to_owned();
    };
    let seconds = facts.at.duration_since(observer.time.0).as_secs();
    format!("{} s ago by {}", seconds.max(0), observer.identity)
}

/// The next steps of a person.
fn now(
    facts: &ClusterFacts,
    migration: &Migration,
    status: &CloudProviderMigrationStatus,
    waits_for: &[MissingFact],
    is_current: bool,
) -> Vec<String> {
    let name = &migration.name;
    if !is_current {
        let age = status
            .observed_by
            .as_ref()
            .map(|observer| facts.at.duration_since(observer.time.0));
        return match age {
            Some(age) if age <= MAX_AGE => vec!["nothing: the manager has not observed this spec yet".to_owned()],
            _ => vec!["outrigger check: no manager observes the migration".to_owned()],
        };
    }

    let fixes: Vec<String> = waits_for
        .iter()
        .filter(|missing| !missing.fix.is_empty())
        .map(|missing| missing.fix.clone())
        .collect();
    if !waits_for.is_empty() {
        return if fixes.is_empty() {
            vec!["wait: it goes on by itself".to_owned()]
        } else {
            fixes
        };
    }
    if !status.is_true(condition::READY) {
        return vec![format!("kubectl describe cloudprovidermigration {name}")];
    }

    let next = Phase::ALL.into_iter().find(|phase| *phase > migration.phase);
    match next {
        Some(next) => {
            let mut steps = vec![format!("outrigger apply {name} --to={next}")];
            if matches!(next, Phase::Prepare | Phase::Migrate) {
                let pause = if next == Phase::Prepare { 17 } else { 15 };
                steps.push(format!(
                    "it names the machines; after the last one, no process reconciles load balancers for about {pause} s"
                ));
            }
            steps
        }
        None => vec!["nothing: the migration is complete (docs/operations/finish.md)".to_owned()],
    }
}

/// Facts of this cluster, if the migration is about it.
fn here(migration: &Migration, of_cluster: impl Fn() -> Vec<String>) -> Vec<String> {
    match migration.is_elsewhere() {
        true => vec!["in another cluster".to_owned()],
        false => of_cluster(),
    }
}

fn control_plane(facts: &ClusterFacts) -> Vec<String> {
    let components = match facts.components.get() {
        Ok(components) => components,
        Err(why) => return vec![format!("not read: {}", why.reason)],
    };
    let form = |component: &Component| {
        let judged = component.judgement.as_ref()?;
        let acts = match judged.acts {
            _ if component.unreadable.is_some() => "cannot be read",
            Acts::Never => "external",
            Acts::WithMigrationLease => "in-tree with leader migration",
            Acts::WhileLeader => "in-tree",
            Acts::Always => "in-tree, and elects no leader by the lease",
            Acts::Unknown => "not known",
        };
        let node = component.node.as_deref().unwrap_or(&component.object);
        Some(format!("{node}: kube-controller-manager {acts}"))
    };

    components.iter().filter_map(form).collect()
}

fn leases(facts: &ClusterFacts) -> Vec<String> {
    let leases = match facts.leases.get() {
        Ok(leases) => leases,
        Err(why) => return vec![format!("not read: {}", why.reason)],
    };
    let line = |lease: &crate::facts::Lease| {
        let age = lease.renewed.map(|renewed| facts.at.duration_since(renewed).as_secs());
        let age = age.map(|age| format!(", renewed {} s ago", age.max(0)));
        let holder = if lease.holder.is_empty() {
            "nobody"
        } else {
            &lease.holder
        };
        format!("{}: {holder}{}", lease.name, age.unwrap_or_default())
    };

    leases.iter().map(line).collect()
}

fn nodes(facts: &ClusterFacts, status: &CloudProviderMigrationStatus) -> String {
    let nodes = match facts.nodes.get() {
        Ok(nodes) => nodes,
        Err(why) => return format!("not read: {}", why.reason),
    };
    let count = |is: fn(&crate::facts::Node) -> bool| nodes.iter().filter(|node| is(node)).count();
    let external = status
        .nodes
        .map_or_else(|| "not known".to_owned(), |counts| counts.migrated.to_string());
    format!(
        "{}; external kubelet {external}, uninitialized {}, not Ready {}",
        nodes.len(),
        count(|node| node.is_uninitialized),
        count(|node| !node.is_ready),
    )
}

/// The times between entries of the history in which no process ran the shared controllers. One before the first owner is
/// none: nobody had recorded who ran them.
fn gaps(status: &CloudProviderMigrationStatus, now: Timestamp) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let (mut open, mut was_owned) = (None::<(Phase, Timestamp)>, false);
    for entry in &status.history {
        match (entry.owner.is_some(), open) {
            (true, Some((phase, from))) => {
                gaps.push(gap(phase, from, entry.time.0, false));
                open = None;
            }
            (false, None) if was_owned => open = Some((entry.phase, entry.time.0)),
            _ => {}
        }
        was_owned |= entry.owner.is_some();
    }
    gaps.extend(open.map(|(phase, from)| gap(phase, from, now, true)));

    gaps
}

fn gap(phase: Phase, from: Timestamp, to: Timestamp, lasts: bool) -> Gap {
    Gap {
        phase,
        from,
        milliseconds: to.duration_since(from).as_millis(),
        lasts,
    }
}
