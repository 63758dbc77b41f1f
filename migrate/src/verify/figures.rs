//! The figures of a migration, each from a record that the cluster has. Pure.
//!
//! Nothing is stored before a migration. The status has the history, and the API server says who wrote the address of a
//! Service, when a Node was created, and never lets a provider ID change. A figure without a record says so: it is no 0.

use std::io::{self, Write};

use jiff::Timestamp;
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{HistoryEntry, MAX_HISTORY, Phase, condition};
use serde::Serialize;

use crate::explain::printable;
use crate::facts::{API_VERSION, ClusterFacts, KubeletSource, Migration};
use crate::status::position::{Gap, gaps, is_current};

/// The largest time without an owner that a migration should have, in milliseconds: a lease duration of 15 s and the start of
/// the next process (`docs/proof.md`).
const LONGEST_GAP: i128 = 20_000;

/// Most names of a list of which only some are shown.
const MOST_NAMED: usize = 5;

/// The answer of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    Proven,
    Refuted,
    NotRecorded,
}

impl Answer {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Refuted => "refuted",
            Self::NotRecorded => "not recorded",
        }
    }
}

/// The answer of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The migration is complete, and no figure is refuted. Figures that are not recorded are named.
    Proven,
    Refuted,
    /// No figure is refuted, and the migration goes on.
    NotOver,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    pub name: &'static str,
    pub answer: Answer,
    pub value: String,
    /// The record, or why there is none.
    pub from: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    pub migration: String,
    pub phase: Phase,
    pub at: Timestamp,
    pub verdict: Verdict,
    pub figures: Vec<Figure>,
    pub history: Vec<HistoryEntry>,
    pub without_owner: Vec<Gap>,
}

impl Evidence {
    pub fn of(facts: &ClusterFacts, migration: &Migration) -> Self {
        let records = Records::of(facts, migration);
        let figures = vec![
            records.two_owners(),
            records.no_owner(),
            records.load_balancers(),
            records.nodes(),
            records.kubelets(),
            aws_writes(),
        ];
        let is_refuted = figures.iter().any(|figure| figure.answer == Answer::Refuted);
        let verdict = match (is_refuted, records.is_complete()) {
            (true, _) => Verdict::Refuted,
            (false, true) => Verdict::Proven,
            (false, false) => Verdict::NotOver,
        };

        Self {
            api_version: API_VERSION,
            kind: "MigrationEvidence",
            context: facts.context.clone(),
            migration: migration.name.clone(),
            phase: migration.phase,
            at: facts.at,
            verdict,
            figures,
            history: records.history.to_vec(),
            without_owner: records.gaps,
        }
    }

    /// The verdict in a sentence.
    pub fn summary(&self) -> String {
        let count = |answer: Answer| self.figures.iter().filter(|figure| figure.answer == answer).count();
        let open = match count(Answer::NotRecorded) {
            0 => String::new(),
            1 => ", except for 1 figure that is not recorded".to_owned(),
            open => format!(", except for {open} figures that are not recorded"),
        };
        match self.verdict {
            Verdict::Proven => format!("PROVEN{open}"),
            Verdict::Refuted => format!("REFUTED: {} of {} figures", count(Answer::Refuted), self.figures.len()),
            Verdict::NotOver => format!("NOT OVER: the phase is {}; no figure is refuted{open}", self.phase),
        }
    }

    /// # Errors
    /// When `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = self.context.as_ref().unwrap_or(&self.migration);
        let at = self.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        writeln!(out, "{}: {}, {at}\n", printable(name), self.phase)?;
        for figure in &self.figures {
            let (answer, value) = (figure.answer.as_str(), printable(&figure.value));
            writeln!(out, "{:<16}{answer:<14}{value}", figure.name)?;
            writeln!(out, "{:<30}{}", "", printable(&figure.from))?;
        }
        writeln!(out, "\n{}", self.summary())
    }
}

/// The facts of one migration.
struct Records<'a> {
    facts: &'a ClusterFacts,
    migration: &'a Migration,
    history: &'a [HistoryEntry],
    gaps: Vec<Gap>,
}

impl<'a> Records<'a> {
    fn of(facts: &'a ClusterFacts, migration: &'a Migration) -> Self {
        let history = migration.status.as_ref().map_or(&[][..], |status| &status.history);
        Self {
            facts,
            migration,
            history,
            gaps: gaps(history, facts.at),
        }
    }

    /// The manager says so now, about this spec.
    fn is_complete(&self) -> bool {
        let status = self.migration.status.as_ref();
        status.is_some_and(|status| {
            is_current(self.facts, self.migration, status) && status.is_true(condition::COMPLETED)
        })
    }

    /// Why the history does not show the whole migration.
    fn is_cut(&self) -> Option<String> {
        match self.history.first() {
            None => Some("status.history is empty".to_owned()),
            Some(_) if self.history.len() >= MAX_HISTORY => {
                Some(format!("status.history has only the last {MAX_HISTORY} changes"))
            }
            Some(first) if first.phase != Phase::InTree => {
                Some(format!("status.history begins in phase {}", first.phase))
            }
            Some(_) => None,
        }
    }

    fn of_history(&self) -> String {
        format!("{} entries of status.history", self.history.len())
    }

    /// When the manager took over for the first time.
    fn taken_over(&self) -> Option<Timestamp> {
        let ours = |entry: &&HistoryEntry| entry.owner == Some(Party::CloudControllerManager);
        self.history.iter().find(ours).map(|entry| entry.time.0)
    }

    fn two_owners(&self) -> Figure {
        let alarms = self.history.iter().filter(|entry| entry.alarm);
        let times: Vec<String> = alarms.map(|entry| time(entry.time.0)).collect();
        let (answer, value) = match (times.as_slice(), self.is_cut()) {
            ([], None) => (Answer::Proven, "no alarm: one owner at a time".to_owned()),
            ([], Some(why)) => (Answer::NotRecorded, why),
            (times, _) => (Answer::Refuted, format!("{} alarms: {}", times.len(), some(times))),
        };
        figure("two owners", answer, value, self.of_history())
    }

    fn no_owner(&self) -> Figure {
        let longest = LONGEST_GAP / 1000;
        let texts: Vec<String> = self.gaps.iter().map(Gap::to_string).collect();
        let is_long = self.gaps.iter().any(|gap| gap.milliseconds > LONGEST_GAP || gap.lasts);
        let (answer, value) = match (is_long, self.is_cut()) {
            (true, _) => (Answer::Refuted, texts.join("; ")),
            (false, Some(why)) => (Answer::NotRecorded, why),
            (false, None) if texts.is_empty() => (Answer::Proven, "never".to_owned()),
            (false, None) => (Answer::Proven, texts.join("; ")),
        };
        figure(
            "no owner",
            answer,
            value,
            format!("{}; limit {longest} s each", self.of_history()),
        )
    }

    /// A Service whose address was written before the take-over has the load balancer of then.
    fn load_balancers(&self) -> Figure {
        const NAME: &str = "load balancers";
        let from = "the time of the last write to each Service's address, by its managedFields";
        let (at, services) = match (self.taken_over(), self.here(&self.facts.services.get())) {
            (Some(at), Ok(services)) => (at, services),
            (None, _) => return not_recorded(NAME, "status.history has no take-over"),
            (_, Err(why)) => return not_recorded(NAME, &why),
        };

        let old = services
            .iter()
            .filter(|service| service.created.is_some_and(|created| created < at));
        let old: Vec<_> = old.filter(|service| service.has_address).collect();
        let changed = old
            .iter()
            .filter(|service| service.addressed.is_some_and(|written| written >= at));
        let changed: Vec<String> = changed.map(|service| service.name.clone()).collect();
        let unknown = old.iter().filter(|service| service.addressed.is_none()).count();
        let value = format!("{} of {} Services have a new address", changed.len(), old.len());
        match (changed.as_slice(), unknown) {
            ([], 0) => figure(NAME, Answer::Proven, value, from.to_owned()),
            ([], unknown) => not_recorded(
                NAME,
                &format!("{unknown} of {} Services have no managedFields", old.len()),
            ),
            (changed, _) => figure(
                NAME,
                Answer::Refuted,
                format!("{value}: {}", some(changed)),
                from.to_owned(),
            ),
        }
    }

    fn nodes(&self) -> Figure {
        const NAME: &str = "Nodes";
        let (at, nodes) = match (self.taken_over(), self.here(&self.facts.nodes.get())) {
            (Some(at), Ok(nodes)) => (at, nodes),
            (None, _) => return not_recorded(NAME, "status.history has no take-over"),
            (_, Err(why)) => return not_recorded(NAME, &why),
        };
        let stayed = nodes
            .iter()
            .filter(|node| node.created.is_some_and(|created| created < at))
            .count();
        figure(
            NAME,
            Answer::Proven,
            format!("{stayed} of {} Nodes are older than the take-over", nodes.len()),
            "creationTimestamp; the API server lets nobody change the provider ID of a Node".to_owned(),
        )
    }

    fn kubelets(&self) -> Figure {
        const NAME: &str = "kubelets";
        let nodes = match self.here(&self.facts.nodes.get()) {
            Ok(nodes) => nodes,
            Err(why) => return not_recorded(NAME, &why),
        };
        let read = nodes.iter().filter_map(|node| Some((node, node.kubelet.known()?)));
        let (external, in_tree): (Vec<_>, Vec<_>) = read.partition(|(_, kubelet)| kubelet.provider() != "aws");
        let of_process = external
            .iter()
            .filter(|(_, kubelet)| kubelet.from == KubeletSource::Process)
            .count();
        let in_tree: Vec<String> = in_tree.iter().map(|(node, _)| node.name.clone()).collect();
        let value = format!("{} of {} are external", external.len(), nodes.len());
        let from = format!(
            "{of_process} command lines of processes, {} annotations",
            external.len() - of_process
        );
        match (in_tree.as_slice(), self.migration.phase) {
            ([], _) if external.len() == nodes.len() => figure(NAME, Answer::Proven, value, from),
            ([], _) => not_recorded(NAME, &format!("{value}; the others cannot be read")),
            (in_tree, Phase::Complete) => {
                let value = format!("{value}; in-tree: {}", some(in_tree));
                figure(NAME, Answer::Refuted, value, from)
            }
            _ => not_recorded(NAME, &format!("{value}; they are changed in Complete")),
        }
    }

    /// A part of the facts about the migrated cluster. With a hosted control plane that is another one.
    fn here<'b, T>(&self, part: &Result<&'b T, crate::facts::NotRead>) -> Result<&'b T, String> {
        match part {
            _ if self.migration.is_elsewhere() => Err("it is in another cluster".to_owned()),
            Ok(part) => Ok(part),
            Err(why) => Err(format!("not read: {}", why.reason)),
        }
    }
}

fn aws_writes() -> Figure {
    not_recorded(
        "AWS writes",
        "see CloudTrail: the user agent of the manager is outrigger-manager",
    )
}

fn figure(name: &'static str, answer: Answer, value: String, from: String) -> Figure {
    Figure {
        name,
        answer,
        value,
        from,
    }
}

fn not_recorded(name: &'static str, why: &str) -> Figure {
    figure(name, Answer::NotRecorded, "–".to_owned(), why.to_owned())
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let named: Vec<&str> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
    match more {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
