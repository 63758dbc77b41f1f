//! The changes of ownership, for `status.history`. The object keeps them across restarts.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{CloudProviderMigration, HistoryEntry, MAX_HISTORY, Phase};
use tokio::sync::{mpsc, watch};

use super::notices::{self, Change, Notice};
use super::owner::owner_of_shared;
use crate::evidence::Reading;
use crate::gate::{LeaseAction, reason};
use crate::record::micros;
use crate::steward::Report;

/// An entry of the history without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub phase: Phase,
    pub holder: Option<String>,
    pub owner: Option<Party>,
    pub alarm: bool,
}

impl State {
    fn of(entry: &HistoryEntry) -> Self {
        Self {
            phase: entry.phase,
            holder: entry.holder.clone(),
            owner: entry.owner,
            alarm: entry.alarm,
        }
    }

    fn at(&self, time: Timestamp) -> HistoryEntry {
        HistoryEntry {
            time: MicroTime(micros(time)),
            phase: self.phase,
            holder: self.holder.clone(),
            owner: self.owner,
            alarm: self.alarm,
        }
    }

    /// The state that a report shows. None while it is unknown: a source was not read yet, or it is not known yet
    /// whether the named holder of a lease is alive.
    fn observed(report: &Report, last: Option<&Self>) -> Option<Self> {
        let inputs = &report.inputs;
        let action = &report.decision.action;
        if !report.was_read() || !report.holders.known && !inputs.holding {
            return None;
        }

        let causes = [reason::UNGUARDED, reason::SECOND_OWNER];
        let lasts = action.why().is_some_and(|why| causes.contains(&why.reason));
        Some(Self {
            phase: report.decision.phase?,
            holder: match inputs.holding {
                true => Some(inputs.identity.clone()),
                false => report.holders.migration.clone(),
            },
            owner: owner_of_shared(inputs).owner,
            alarm: matches!(action, LeaseAction::Alarm(_)) || lasts && last.is_some_and(|last| last.alarm),
        })
    }
}

/// Collects the changes that this process observes, at most [`MAX_HISTORY`], and passes on the Events about them, until
/// the reports end. It waits for nothing else, so a slow write of the status loses none.
pub(super) async fn follow(
    object: watch::Receiver<Reading<CloudProviderMigration>>,
    mut reports: mpsc::UnboundedReceiver<Report>,
    changes: watch::Sender<Vec<HistoryEntry>>,
    notify: impl Fn(&Notice) + Send,
) {
    let (mut last, mut previous) = (None, None::<Report>);
    while let Some(report) = reports.recv().await {
        let before = last.take().or_else(|| newest(&object.borrow()));
        last = State::observed(&report, before.as_ref()).or_else(|| before.clone());
        if let Some(next) = last.as_ref().filter(|_| last != before) {
            let entry = next.at(Timestamp::now());
            changes.send_modify(|all| {
                all.push(entry);
                all.drain(..all.len().saturating_sub(MAX_HISTORY));
            });
        }

        let change = Change {
            before: previous.as_ref(),
            after: &report,
            old: before.as_ref(),
            new: last.as_ref(),
        };
        notices::of(&change).iter().for_each(&notify);
        previous = Some(report);
    }
}

fn newest(object: &Reading<CloudProviderMigration>) -> Option<State> {
    let history = &object.known()?.status.as_ref()?.history;
    history.last().map(State::of)
}

/// The history with the changes that it does not have yet. `changes` are of this process.
pub(super) fn merged(history: &[HistoryEntry], changes: &[HistoryEntry]) -> Vec<HistoryEntry> {
    let stored = changes.iter().rposition(|change| history.contains(change));
    let new = changes.iter().skip(stored.map_or(0, |last| last + 1));

    let mut merged = history.to_vec();
    for change in new {
        if merged.last().map(State::of) != Some(State::of(change)) {
            merged.push(change.clone());
        }
    }
    merged.drain(..merged.len().saturating_sub(MAX_HISTORY));
    merged
}

#[cfg(test)]
mod tests {
    use outrigger_shared::migration::{CloudProviderMigrationSpec, CloudProviderMigrationStatus};

    use super::super::tests::{beside_unguarded, holding, migrating, report};
    use super::*;
    use crate::latch::Stored;
    use crate::service_write::ServiceWrite;

    fn entry(second: i64, holder: Option<&str>) -> HistoryEntry {
        let state = State {
            phase: Phase::Migrate,
            holder: holder.map(str::to_owned),
            owner: None,
            alarm: false,
        };
        state.at(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_change_is_appended_once_also_to_an_outdated_object_and_after_a_restart() {
        let changes = [entry(1, None), entry(2, Some("a"))];
        let first = merged(&[], &changes);
        assert_eq!(first, changes);
        assert_eq!(merged(&first, &changes), changes);
        assert_eq!(
            merged(&first[..1], &changes),
            changes,
            "the watch lags behind our write"
        );

        // Another process, whose clock is late, finds the same state.
        assert_eq!(merged(&first, &[entry(0, Some("a"))]), changes);
        let next = merged(&first, &[entry(0, Some("a")), entry(1, Some("b"))]);
        assert_eq!(next[2..], [entry(1, Some("b"))]);
    }

    #[test]
    fn the_history_keeps_its_newest_entries() {
        let of = |index: usize| entry(i64::try_from(index).unwrap(), [None, Some("a")][index % 2]);
        let changes: Vec<_> = (0..MAX_HISTORY + 6).map(of).collect();
        let history = merged(&changes[..MAX_HISTORY], &changes[6..]);
        assert_eq!(history, changes[6..]);
        assert_eq!(merged(&history, &changes[6..]), history);
    }

    fn object(newest: Option<HistoryEntry>) -> Reading<CloudProviderMigration> {
        let mut object = CloudProviderMigration::new("x", CloudProviderMigrationSpec::new("x"));
        object.status = Some(CloudProviderMigrationStatus {
            history: newest.into_iter().collect(),
            ..CloudProviderMigrationStatus::default()
        });
        Reading::Known(object)
    }

    /// The states that the history gets from these reports, after an object with `newest`.
    async fn observed(newest: Option<HistoryEntry>, all: Vec<Report>) -> Vec<State> {
        let (_object, object) = watch::channel(object(newest));
        let (reports, reports_rx) = mpsc::unbounded_channel();
        let (changes, changes_rx) = watch::channel(Vec::new());
        let task = tokio::spawn(follow(object, reports_rx, changes, |_| {}));
        for report in all {
            reports.send(report).unwrap();
        }
        drop(reports);
        task.await.unwrap();
        let changes = changes_rx.borrow().clone();
        changes.iter().map(State::of).collect()
    }

    fn state(holder: Option<&str>, owner: Option<Party>, alarm: bool) -> State {
        let holder = holder.map(str::to_owned);
        let phase = Phase::Migrate;
        State {
            phase,
            holder,
            owner,
            alarm,
        }
    }

    #[tokio::test]
    async fn the_alarm_lasts_as_long_as_its_reason_also_over_a_restart() {
        let us = Some(Party::CloudControllerManager);
        let kcm = Some(Party::KubeControllerManager);
        let reports = [
            report(migrating()),
            report(holding()),
            report(holding()),
            report(beside_unguarded(holding())),
            report(beside_unguarded(migrating())),
        ];
        let expected = [
            state(None, None, false),
            state(Some("us"), us, false),
            state(Some("us"), us, true),
            state(None, kcm, true),
        ];
        assert_eq!(observed(None, reports.to_vec()).await, expected);

        let newest = expected[3].at(Timestamp::UNIX_EPOCH);
        let reports = vec![report(beside_unguarded(migrating())), report(migrating())];
        assert_eq!(observed(Some(newest), reports).await, [state(None, None, false)]);
        let never_held = vec![report(beside_unguarded(migrating()))];
        assert_eq!(observed(None, never_held).await, [state(None, kcm, false)]);
    }

    #[tokio::test]
    async fn the_alarm_of_a_second_owner_lasts_while_its_writes_are_recent() {
        let us = Some(Party::CloudControllerManager);
        let written = |mut inputs: crate::gate::Inputs| {
            let (acquired, wrote) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
            let text = r#"{"version":1,"uid":"u","generation":4,"phase":"Migrate","basis":"External","heldBy":"us","heldSince":"1970-01-01T00:00:00Z"}"#;
            inputs.latch = Stored::read(Some(text));
            inputs.acquired = inputs.holding.then_some(acquired);
            inputs.service_write = Some(ServiceWrite {
                service: "shop/web".into(),
                time: wrote,
            });
            report(inputs)
        };
        let reports = [
            report(holding()),
            written(holding()),
            written(migrating()),
            report(migrating()),
        ];
        let expected = [
            state(Some("us"), us, false),
            state(Some("us"), us, true),
            state(None, None, true),
            state(None, None, false),
        ];
        assert_eq!(observed(None, reports.to_vec()).await, expected);
    }

    #[tokio::test]
    async fn what_is_not_known_yet_is_no_change() {
        let mut found = report(migrating());
        found.holders.known = false;
        let mut unread = migrating();
        unread.facts.main.read = false;
        let newest = entry(1, Some("kcm-0_a"));
        assert_eq!(observed(Some(newest), vec![found, report(unread)]).await, []);
    }
}
