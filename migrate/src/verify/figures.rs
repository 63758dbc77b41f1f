//! The figures of a migration, each from a record that the cluster has. Pure.
//!
//! Nothing is stored before a migration. The status has the history, the API server says when the address of a Service was
//! written and when a Node was created, and it never lets a provider ID change. A record that is missing, cut, or open to more
//! than one meaning proves nothing, and refutes nothing.

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp};
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{HistoryEntry, MAX_HISTORY, Phase, condition};
use serde::Serialize;

use crate::explain::printable;
use crate::facts::{API_VERSION, ClusterFacts, KubeletSource, Migration, NotRead};
use crate::status::position::is_current;

/// The longest time without an owner at a hand-over: a lease duration of 15 s, and the start of the next process.
const LONGEST_GAP: i128 = 20_000;

/// Addresses are written by the API server's clock, and the history is written by those of the managers.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

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
    /// The migration is complete, its owners are proven, and no figure is refuted.
    Proven,
    Refuted,
    /// The migration is complete, and its owners are not recorded.
    NotRecorded,
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

/// A hand-over between the old manager and Outrigger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOver {
    pub phase: Phase,
    pub to: Party,
    /// The begin of the time without an owner.
    pub from: Timestamp,
    pub milliseconds: i128,
}

impl HandOver {
    fn text(&self) -> String {
        let (seconds, tenths) = (self.milliseconds / 1000, self.milliseconds % 1000 / 100);
        format!("{seconds}.{tenths} s in {}, from {}", self.phase, time(self.from))
    }
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
    pub hand_overs: Vec<HandOver>,
    /// Of the last migration.
    pub history: Vec<HistoryEntry>,
}

impl Evidence {
    pub fn of(facts: &ClusterFacts, migration: &Migration) -> Self {
        let records = Records::of(facts, migration);
        let figures = vec![
            records.owners(),
            records.no_owner(),
            records.load_balancers(),
            records.nodes(),
            records.kubelets(),
            aws_writes(),
        ];
        let is_refuted = figures.iter().any(|figure| figure.answer == Answer::Refuted);
        let has_owners = figures.iter().take(2).all(|figure| figure.answer == Answer::Proven);
        let verdict = match (is_refuted, records.is_complete(), has_owners) {
            (true, ..) => Verdict::Refuted,
            (false, false, _) => Verdict::NotOver,
            (false, true, true) => Verdict::Proven,
            (false, true, false) => Verdict::NotRecorded,
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
            hand_overs: records.hand_overs,
            history: records.history.to_vec(),
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
            Verdict::NotRecorded => "NOT RECORDED: the migration is complete, and its owners are not proven".to_owned(),
            Verdict::NotOver => format!("NOT OVER: the phase is {}; no figure is refuted", self.phase),
        }
    }

    /// Context and name.
    pub fn title(&self) -> String {
        let context = self.context.as_ref().map(|context| format!("{context}, "));
        format!("{}migration {}", context.unwrap_or_default(), self.migration)
    }

    /// # Errors
    /// When `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}, {}\n", printable(&self.title()), self.phase, time(self.at))?;
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
    /// From the last time in InTree on.
    history: &'a [HistoryEntry],
    hand_overs: Vec<HandOver>,
}

impl<'a> Records<'a> {
    fn of(facts: &'a ClusterFacts, migration: &'a Migration) -> Self {
        let all = migration.status.as_ref().map_or(&[][..], |status| &status.history);
        let is_begin = |at: &usize| all[*at].phase == Phase::InTree && (*at == 0 || all[at - 1].phase != Phase::InTree);
        let begin = (0..all.len()).rev().find(is_begin).unwrap_or_default();
        let history = &all[begin..];
        Self {
            facts,
            migration,
            history,
            hand_overs: hand_overs(history),
        }
    }

    fn is_observed(&self) -> bool {
        let status = self.migration.status.as_ref();
        status.is_some_and(|status| is_current(self.facts, self.migration, status))
    }

    /// The manager says so now, about this spec.
    fn is_complete(&self) -> bool {
        let status = self.migration.status.as_ref();
        self.is_observed() && status.is_some_and(|status| status.is_true(condition::COMPLETED))
    }

    /// Why the history does not show the whole migration.
    fn is_cut(&self) -> Option<String> {
        match self.history.first() {
            None => Some("status.history is empty".to_owned()),
            Some(first) if first.phase != Phase::InTree => Some(format!(
                "status.history begins in phase {}: it has the last {MAX_HISTORY} changes of the object",
                first.phase
            )),
            Some(_) => None,
        }
    }

    fn of_history(&self) -> String {
        format!("{} entries of status.history", self.history.len())
    }

    /// Managers that followed each other without an entry between, and whose end nobody has seen.
    fn unseen(&self) -> usize {
        let ours = |entry: &HistoryEntry| entry.owner == Some(Party::CloudControllerManager);
        let pairs = self.history.iter().zip(self.history.iter().skip(1));
        pairs
            .filter(|(last, next)| ours(last) && ours(next) && last.holder != next.holder)
            .count()
    }

    fn owners(&self) -> Figure {
        const NAME: &str = "one owner";
        let starts = self.history.iter().enumerate().filter(|(at, entry)| {
            let before = at.checked_sub(1).and_then(|at| self.history.get(at));
            entry.alarm && before.is_none_or(|before| !before.alarm)
        });
        let alarms: Vec<String> = starts.map(|(_, entry)| time(entry.time.0)).collect();
        match (self.is_cut(), alarms.as_slice(), self.unseen()) {
            (Some(why), ..) => not_recorded(NAME, why),
            (None, [], 0) => figure(
                NAME,
                Answer::Proven,
                "no alarm while a manager observed".to_owned(),
                self.of_history(),
            ),
            (None, [], unseen) => not_recorded(NAME, format!("{unseen} times no manager observed: it was replaced")),
            (None, alarms, _) => not_recorded(
                NAME,
                format!(
                    "the manager released the controllers in an alarm, at {}; its Events say whether another process acted",
                    some(alarms)
                ),
            ),
        }
    }

    /// The hand-overs count. Between two old managers, and while Outrigger's manager is replaced, nobody measures.
    fn no_owner(&self) -> Figure {
        const NAME: &str = "no owner";
        let texts: Vec<String> = self.hand_overs.iter().map(HandOver::text).collect();
        let from = format!(
            "hand-overs in {}; limit {} s each",
            self.of_history(),
            LONGEST_GAP / 1000
        );
        let is_long = self.hand_overs.iter().any(|one| one.milliseconds > LONGEST_GAP);
        let has_other_rules = self.migration.is_downtime || self.migration.is_attested;
        match self.is_cut() {
            Some(why) => not_recorded(NAME, why),
            None if has_other_rules => not_recorded(NAME, "with spec.downtime or spec.attestation nobody measures it"),
            None if texts.is_empty() => not_recorded(NAME, "status.history has no hand-over"),
            None if self.hand_overs.iter().any(|one| one.milliseconds < 0) => {
                not_recorded(NAME, "the clocks of two managers differ")
            }
            None if is_long => figure(NAME, Answer::Refuted, texts.join("; "), from),
            None => figure(NAME, Answer::Proven, texts.join("; "), from),
        }
    }

    /// The begin of the last hand-over to Outrigger. Without the begin of the history another one may have been it.
    fn taken_over(&self) -> Result<Timestamp, String> {
        if let Some(why) = self.is_cut() {
            return Err(why);
        }
        let ours = self
            .hand_overs
            .iter()
            .rfind(|one| one.to == Party::CloudControllerManager);
        ours.map(|one| one.from)
            .ok_or_else(|| "status.history has no hand-over".to_owned())
    }

    /// A Service whose address was written before the hand-over has the load balancer of then. A later address may be of a
    /// later change.
    fn load_balancers(&self) -> Figure {
        const NAME: &str = "load balancers";
        let services = self.here(self.facts.services.get());
        let (at, services) = match (self.taken_over(), services) {
            (Ok(at), Ok(services)) => (at - CLOCKS, services),
            (Err(why), _) | (_, Err(why)) => return not_recorded(NAME, why),
        };

        let is_old = |created: Option<Timestamp>| created.is_some_and(|created| created < at);
        let old: Vec<_> = services
            .iter()
            .filter(|one| is_old(one.created) && one.deleted.is_none())
            .collect();
        let is_same = |written: Option<Timestamp>| written.is_some_and(|written| written < at);
        let others = old.iter().filter(|one| !one.has_address || !is_same(one.addressed));
        let others: Vec<String> = others.map(|one| one.name.clone()).collect();
        match (old.len(), others.as_slice()) {
            (0, _) => not_recorded(NAME, "no Service is older than the hand-over"),
            (count, []) => figure(
                NAME,
                Answer::Proven,
                format!("{count} of {count} Services have the address that they had before"),
                "the time of the last write to each address, by managedFields".to_owned(),
            ),
            (count, others) => not_recorded(
                NAME,
                format!(
                    "{} of {count} Services have no address, or one that was written later, maybe for a later change: {}",
                    others.len(),
                    some(others)
                ),
            ),
        }
    }

    fn nodes(&self) -> Figure {
        const NAME: &str = "Nodes";
        let (at, nodes) = match (self.taken_over(), self.here(self.facts.nodes.get())) {
            (Ok(at), Ok(nodes)) => (at - CLOCKS, nodes),
            (Err(why), _) | (_, Err(why)) => return not_recorded(NAME, why),
        };
        let is_old = |created: Option<Timestamp>| created.is_some_and(|created| created < at);
        let stayed = nodes.iter().filter(|node| is_old(node.created)).count();
        let value = format!("{stayed} of {} are older than the hand-over", nodes.len());
        let from = "creationTimestamp; the API server lets nobody change the provider ID of a Node";
        if stayed == 0 || stayed < nodes.len() {
            return not_recorded(NAME, format!("{value}; the others are new, or have registered again"));
        }

        figure(NAME, Answer::Proven, value, from.to_owned())
    }

    fn kubelets(&self) -> Figure {
        const NAME: &str = "kubelets";
        let nodes = match self.here(self.facts.nodes.get()) {
            Ok(nodes) => nodes,
            Err(why) => return not_recorded(NAME, why),
        };
        let read = || nodes.iter().filter_map(|node| Some((node, node.kubelet.known()?)));
        let external: Vec<_> = read().filter(|(_, kubelet)| kubelet.provider() == "external").collect();
        let in_tree = read().filter(|(_, kubelet)| kubelet.provider() == "aws");
        let in_tree: Vec<String> = in_tree.map(|(node, _)| node.name.clone()).collect();
        let of_process = external
            .iter()
            .filter(|(_, kubelet)| kubelet.from == KubeletSource::Process)
            .count();
        let value = format!("{} of {} are external", external.len(), nodes.len());
        let from = format!(
            "{of_process} command lines of processes, {} annotations",
            external.len() - of_process
        );
        match in_tree.as_slice() {
            [] if external.len() == nodes.len() && !nodes.is_empty() => figure(NAME, Answer::Proven, value, from),
            [] => not_recorded(NAME, format!("{value}; nothing is known of the others")),
            in_tree if self.is_complete() => figure(
                NAME,
                Answer::Refuted,
                format!("{value}; in-tree: {}", some(in_tree)),
                from,
            ),
            _ => not_recorded(NAME, format!("{value}; they are changed in Complete")),
        }
    }

    /// A part of the facts about the migrated cluster. With a hosted control plane that is another one.
    fn here<T>(&self, part: Result<T, NotRead>) -> Result<T, String> {
        if self.migration.is_elsewhere() {
            return Err("it is in another cluster".to_owned());
        }
        part.map_err(|why| format!("not read: {}", why.reason))
    }
}

/// The times without an owner between the old manager and Outrigger's, and back.
fn hand_overs(history: &[HistoryEntry]) -> Vec<HandOver> {
    let mut found = Vec::new();
    let mut last = None::<Party>;
    let mut open = None::<Timestamp>;
    for entry in history {
        let Some(owner) = entry.owner else {
            open = open.or(Some(entry.time.0));
            continue;
        };
        if last.is_some_and(|last| last != owner) {
            let from = open.unwrap_or(entry.time.0);
            found.push(HandOver {
                phase: entry.phase,
                to: owner,
                from,
                milliseconds: entry.time.0.duration_since(from).as_millis(),
            });
        }
        (last, open) = (Some(owner), None);
    }

    found
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

fn not_recorded(name: &'static str, why: impl Into<String>) -> Figure {
    figure(name, Answer::NotRecorded, "–".to_owned(), why.into())
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
