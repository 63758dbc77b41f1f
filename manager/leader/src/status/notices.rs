//! The changes of a migration: entries of `status.history`, which the object keeps across restarts, and an Event for each.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use outrigger_evidence::facts::{Basis, Proven, Reading};
use outrigger_evidence::gate::LeaseAction;
use outrigger_evidence::latch::{Latch, Stored};
use outrigger_evidence::owner::owner_of_shared;
use outrigger_evidence::record::micros;
use outrigger_evidence::why::{Warning, Why};
use outrigger_shared::controller::Party;
use outrigger_shared::event::EventType;
use outrigger_shared::migration::{CloudProviderMigration, HistoryEntry, MAX_HISTORY, Phase};
use tokio::sync::{mpsc, watch};

use crate::steward::Report;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub kind: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl Notice {
    fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventType::Normal,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventType::Warning,
            ..Self::normal(reason, message)
        }
    }
}

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

        let lasts = matches!(action.why(), Some(Why::Leader(..) | Why::Unlocked(..)));
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
        of(&change).iter().for_each(&notify);
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

/// Two reports of one process that follow each other, and the states of the history.
pub(super) struct Change<'a> {
    pub before: Option<&'a Report>,
    pub after: &'a Report,
    /// The state before: at the start of the process the newest one of the object, so that a restart repeats no Event.
    pub old: Option<&'a State>,
    pub new: Option<&'a State>,
}

pub(super) fn of(change: &Change<'_>) -> Vec<Notice> {
    [
        phase(change),
        refused_phase(change),
        latch(change),
        alarm(change),
        lease(change),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn phase(change: &Change<'_>) -> Option<Notice> {
    let next = change.new?.phase;
    let last = change.old.map(|old| old.phase).filter(|last| *last != next);
    if change.old.is_some() && last.is_none() {
        return None;
    }

    let from = last.map_or_else(String::new, |last| format!(" after {last}"));
    let step = match next {
        Phase::InTree if last.is_some() => "roll the kube-controller-managers, so that they get their original flags",
        Phase::InTree => "the kube-controller-managers own the controllers",
        Phase::Prepare => "roll the kube-controller-managers, so that they get leader migration",
        Phase::Migrate if last == Some(Phase::Complete) => "the kube-controller-managers stay external",
        Phase::Migrate => "roll the kube-controller-managers, so that they become external",
        Phase::Complete => "remove the in-tree provider from kube-apiservers and kubelets",
    };
    Some(Notice::normal(
        "PhaseFollowed",
        format!("following phase {next}{from}: {step}"),
    ))
}

/// The spec requests a phase that is not followed.
fn refused_phase(change: &Change<'_>) -> Option<Notice> {
    let refusal = |report: &Report| {
        let mut warnings = report.decision.warnings.iter();
        warnings
            .find(|warning| **warning == Warning::InTreeNotFollowed)
            .cloned()
    };
    let warning = refusal(change.after)?;
    let is_new = change.before.and_then(refusal).is_none();
    is_new.then(|| Notice::warning("PhaseNotFollowed", warning.message(change.after.decision.phase)))
}

fn lease(change: &Change<'_>) -> Option<Notice> {
    let after = &change.after.inputs;
    let before = change.before.filter(|before| before.inputs.holding);
    match (before, after.holding) {
        (None, true) => Some(Notice::normal(
            "MigrationLeaseAcquired",
            format!(
                "{} acquired the migration lease and runs the controllers under it",
                after.identity
            ),
        )),
        (Some(before), false) => {
            let action = &before.decision.action;
            let why = action
                .why()
                .map_or_else(|| "the process is ending".to_owned(), Why::message);
            let message = format!("{} released the migration lease: {why}", after.identity);
            Some(match action {
                LeaseAction::Alarm(_) => Notice::warning("MigrationLeaseReleased", message),
                _ => Notice::normal("MigrationLeaseReleased", message),
            })
        }
        _ => None,
    }
}

fn alarm(change: &Change<'_>) -> Option<Notice> {
    let was = change.old.is_some_and(|old| old.alarm);
    match (was, change.new?.alarm) {
        (false, true) => {
            let why = change.after.decision.action.why()?;
            Some(Notice::warning("MigrationAlarm", why.message()))
        }
        (true, false) => Some(Notice::normal(
            "MigrationAlarmEnded",
            "the holder of the kube-controller-manager's main lease is proven to act only while it holds the migration lease, or no process holds that lease",
        )),
        _ => None,
    }
}

fn latch(change: &Change<'_>) -> Option<Notice> {
    let uid = &change.after.inputs.spec.known()?.uid;
    let before = change
        .before
        .map_or(&change.after.inputs.latch, |before| &before.inputs.latch);
    match (valid(before, uid), valid(&change.after.inputs.latch, uid)) {
        (None, Some(latch)) => Some(Notice::normal(
            "EvidenceLatched",
            format!("recorded on the main lease: {}", proofs(latch)),
        )),
        (Some(_), None) => {
            let why = change.after.decision.action.why();
            let why = why.map_or_else(|| "the annotation was removed".to_owned(), Why::message);
            let message = format!("removed the recorded evidence from the main lease: {why}");
            Some(match change.after.decision.phase {
                Some(Phase::InTree) => Notice::normal("EvidenceRemoved", message),
                _ => Notice::warning("EvidenceRemoved", message),
            })
        }
        _ => None,
    }
}

fn valid<'a>(stored: &'a Stored, uid: &str) -> Option<&'a Latch> {
    match stored {
        Stored::Latch(latch) if latch.uid == uid && !latch.superseded => Some(latch),
        _ => None,
    }
}

/// The kube-controller-managers that are proven, and by what.
fn proofs(latch: &Latch) -> String {
    let proof = |proven: &Proven| {
        let by = match proven.by {
            Basis::External => "external by its command line",
            Basis::Guarded => "with leader migration by its command line",
            Basis::MigrationLease => "because it has held the migration lease",
            Basis::AttestedInPrepare | Basis::AttestedInMigrate => "by spec.attestation",
        };
        format!("{:?} {by}", proven.identity)
    };
    match latch.proven.as_slice() {
        [] => "no process holds the kube-controller-manager's main lease".to_owned(),
        all => format!(
            "proven to act only while it holds the migration lease, or not at all: {}",
            all.iter().map(proof).collect::<Vec<_>>().join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::controller::Party;

    use super::super::tests::report;
    use super::*;
    use outrigger_evidence::samples::{beside_unguarded, holding, in_phase, latch as stored_latch, migrating};

    fn state(phase: Phase, alarm: bool) -> State {
        State {
            phase,
            holder: None,
            owner: Some(Party::KubeControllerManager),
            alarm,
        }
    }

    fn reasons(before: Option<&Report>, after: &Report, old: Option<&State>, new: &State) -> Vec<&'static str> {
        let new = Some(new);
        let all = of(&Change {
            before,
            after,
            old,
            new,
        });
        all.iter().map(|notice| notice.reason).collect()
    }

    #[test]
    fn each_change_is_one_event_and_no_change_is_none() {
        let (standby, held) = (report(migrating()), report(holding()));
        let migrate = state(Phase::Migrate, false);
        let same = |before, after| reasons(Some(before), after, Some(&migrate), &migrate);
        assert_eq!(same(&standby, &held), ["MigrationLeaseAcquired"]);
        assert!(same(&held, &held).is_empty());
        assert!(same(&standby, &standby).is_empty());

        let prepare = state(Phase::Prepare, false);
        assert_eq!(
            reasons(Some(&standby), &standby, Some(&prepare), &migrate),
            ["PhaseFollowed"]
        );
        assert_eq!(reasons(None, &standby, None, &migrate), ["PhaseFollowed"]);
        assert!(
            reasons(None, &standby, Some(&migrate), &migrate).is_empty(),
            "a restart"
        );
    }

    #[test]
    fn a_phase_that_is_not_followed_is_a_warning_once() {
        let (held, refused) = (report(holding()), report(in_phase(holding(), Phase::InTree)));
        let prepare = state(Phase::Prepare, false);
        let reasons = |before| reasons(Some(before), &refused, Some(&prepare), &prepare);
        assert_eq!(reasons(&held), ["PhaseNotFollowed"]);
        assert!(reasons(&refused).is_empty());
    }

    #[test]
    fn an_alarm_is_a_warning_and_the_release_names_its_reason() {
        let mut alarm = report(beside_unguarded(holding()));
        alarm.inputs.latch = Stored::Absent;
        let (quiet, loud) = (state(Phase::Migrate, false), state(Phase::Migrate, true));
        let held = report(holding());
        let all = of(&Change {
            before: Some(&held),
            after: &alarm,
            old: Some(&quiet),
            new: Some(&loud),
        });
        assert_eq!(
            all.iter()
                .map(|notice| (notice.reason, notice.kind))
                .collect::<Vec<_>>(),
            [
                ("EvidenceRemoved", EventType::Warning),
                ("MigrationAlarm", EventType::Warning)
            ]
        );

        let mut released = report(beside_unguarded(migrating()));
        released.inputs.latch = Stored::Absent;
        let all = of(&Change {
            before: Some(&alarm),
            after: &released,
            old: Some(&loud),
            new: Some(&loud),
        });
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (all[0].reason, all[0].kind),
            ("MigrationLeaseReleased", EventType::Warning)
        );
        assert!(
            all[0].message.contains("runs in-tree without leader migration"),
            "{all:?}"
        );
        let ended = reasons(Some(&released), &released, Some(&loud), &quiet);
        assert_eq!(ended, ["MigrationAlarmEnded"]);
    }

    #[test]
    fn the_event_of_a_phase_names_the_next_step() {
        let report = report(migrating());
        let message = |last: Option<Phase>, next| {
            let (old, new) = (last.map(|last| state(last, false)), state(next, false));
            let all = of(&Change {
                before: Some(&report),
                after: &report,
                old: old.as_ref(),
                new: Some(&new),
            });
            all[0].message.clone()
        };
        for (last, next, expected) in [
            (
                None,
                Phase::InTree,
                "following phase InTree: the kube-controller-managers own",
            ),
            (
                Some(Phase::Prepare),
                Phase::InTree,
                "InTree after Prepare: roll the kube-controller-managers",
            ),
            (Some(Phase::Prepare), Phase::Migrate, "so that they become external"),
            (
                Some(Phase::Complete),
                Phase::Migrate,
                "Migrate after Complete: the kube-controller-managers stay",
            ),
        ] {
            let message = message(last, next);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn removed_evidence_is_a_warning_except_in_phase_in_tree() {
        let before = report(migrating());
        let Stored::Latch(latch) = before.inputs.latch.clone() else {
            panic!("no latch");
        };
        let of_another = Latch {
            uid: "of another object".into(),
            ..latch.clone()
        };
        let superseded = Latch {
            superseded: true,
            ..latch
        };
        let migrate = state(Phase::Migrate, false);
        for after_latch in [Stored::Absent, Stored::Latch(of_another), Stored::Latch(superseded)] {
            for (phase, kind) in [(Phase::InTree, EventType::Normal), (Phase::Migrate, EventType::Warning)] {
                let mut after = before.clone();
                after.inputs.latch = after_latch.clone();
                after.decision.phase = Some(phase);
                let all = of(&Change {
                    before: Some(&before),
                    after: &after,
                    old: Some(&migrate),
                    new: Some(&migrate),
                });
                let all: Vec<_> = all.iter().map(|notice| (notice.reason, notice.kind)).collect();
                assert_eq!(all, [("EvidenceRemoved", kind)], "{after_latch:?}");
            }
        }
    }

    #[test]
    fn a_latch_is_reported_when_it_is_written() {
        let (mut before, after) = (report(migrating()), report(migrating()));
        before.inputs.latch = Stored::Absent;
        let migrate = state(Phase::Migrate, false);
        assert_eq!(
            reasons(Some(&before), &after, Some(&migrate), &migrate),
            ["EvidenceLatched"]
        );

        let notice = latch(&Change {
            before: Some(&before),
            after: &after,
            old: None,
            new: None,
        });
        let message = notice.unwrap().message;
        assert_eq!(
            message,
            "recorded on the main lease: no process holds the kube-controller-manager's main lease"
        );

        let mut after = after;
        after.inputs.latch = stored_latch(
            Phase::Migrate,
            r#","proven":[{"identity":"a","by":"External"},{"identity":"b","by":"AttestedInMigrate"}]"#,
        );
        let notice = latch(&Change {
            before: Some(&before),
            after: &after,
            old: None,
            new: None,
        });
        let message = notice.unwrap().message;
        assert!(
            message.ends_with(r#""a" external by its command line, "b" by spec.attestation"#),
            "{message}"
        );
    }
}

#[cfg(test)]
mod history_tests {
    use outrigger_shared::migration::{CloudProviderMigrationSpec, CloudProviderMigrationStatus};

    use super::super::tests::report;
    use super::*;
    use outrigger_evidence::samples::{beside_unguarded, holding, migrating};

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

        let of_another = [first.clone(), vec![entry(3, Some("b"))]].concat();
        assert_eq!(
            merged(&of_another, &changes),
            of_another,
            "another process changed it later"
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
            state(Some("us"), None, true),
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
    async fn what_is_not_known_yet_is_no_change() {
        let mut found = report(migrating());
        found.holders.known = false;
        let mut unread = migrating();
        unread.facts.main.read = false;
        let newest = entry(1, Some("kcm-0_a"));
        assert_eq!(observed(Some(newest), vec![found, report(unread)]).await, []);
    }
}
