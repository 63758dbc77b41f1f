//! The Events about a migration: one for each change. Pure.

use outrigger_shared::event::EventType;
use outrigger_shared::migration::Phase;

use super::history::State;
use crate::gate::LeaseAction;
use crate::latch::{Basis, Latch, Stored};
use crate::steward::Report;

/// An Event about the migration.
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

/// Two reports of one process that follow each other, and the states of the history.
pub(super) struct Change<'a> {
    pub before: Option<&'a Report>,
    pub after: &'a Report,
    /// The state before: at the start of the process the newest one of the object, so that a restart repeats no Event.
    pub old: Option<&'a State>,
    pub new: Option<&'a State>,
}

pub(super) fn of(change: &Change<'_>) -> Vec<Notice> {
    [phase(change), latch(change), alarm(change), lease(change)]
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
        Phase::InTree => "the kube-controller-managers own the controllers",
        Phase::Prepare => "roll the kube-controller-managers, so that they get leader migration",
        Phase::Migrate => "roll the kube-controller-managers, so that they become external",
        Phase::Complete => "remove the in-tree provider from kube-apiservers and kubelets",
    };
    Some(Notice::normal(
        "PhaseFollowed",
        format!("following phase {next}{from}: {step}"),
    ))
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
            let why = action.why().map_or("the process is ending", |why| &why.message);
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
            Some(Notice::warning("MigrationAlarm", why.message.clone()))
        }
        (true, false) => Some(Notice::normal(
            "MigrationAlarmEnded",
            "no kube-controller-manager without leader migration is observed any more",
        )),
        _ => None,
    }
}

fn latch(change: &Change<'_>) -> Option<Notice> {
    let uid = &change.after.inputs.spec.known()?.uid;
    let before = change.before.map_or(&change.after.inputs.latch, |before| &before.latch);
    match (valid(before, uid), valid(&change.after.latch, uid)) {
        (None, Some(latch)) => Some(Notice::normal(
            "EvidenceLatched",
            format!("recorded on the main lease: {}", basis(latch.basis)),
        )),
        (Some(_), None) => {
            let why = change.after.decision.action.why();
            let why = why.map_or("the annotation was removed", |why| &why.message);
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

/// The evidence that a latch stands for.
pub(super) fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::LeaderMigration => "every kube-controller-manager was observed with leader migration on, or external",
        Basis::External => "every kube-controller-manager was observed external",
        Basis::Attested => "spec.attestedPhase states it; not every kube-controller-manager could be read",
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::controller::Party;

    use super::super::tests::{beside_unguarded, holding, migrating, report};
    use super::*;

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
    fn an_alarm_is_a_warning_and_the_release_names_its_reason() {
        let mut alarm = report(beside_unguarded(holding()));
        alarm.latch = Stored::Absent;
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
        released.latch = Stored::Absent;
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
    fn a_latch_is_reported_when_it_is_written() {
        let (mut before, after) = (report(migrating()), report(migrating()));
        before.latch = Stored::Absent;
        let migrate = state(Phase::Migrate, false);
        assert_eq!(
            reasons(Some(&before), &after, Some(&migrate), &migrate),
            ["EvidenceLatched"]
        );
    }
}
