//! False parts of a status, planted in the record of a run: one for each claim of a condition.

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_timeline::{Claim, Condition, Inputs, MANAGEMENT_ANSWERS, Marker, ObservedBy, Statement};

use super::mutation::{OLD, OURS, component, write};

/// Longer than a living manager may take to correct its status.
const STANDS: SignedDuration = SignedDuration::from_secs(25);
/// Until a holder of K is no new one.
const KNOWN: SignedDuration = SignedDuration::from_secs(20);
/// After a write, the status may still be the one before.
const LATER: SignedDuration = SignedDuration::from_millis(2_100);
/// Soon after an event.
const AFTER: SignedDuration = SignedDuration::from_millis(100);

type Time = (Timestamp, Timestamp);

/// A false condition: type, status and reason.
pub(super) fn condition(claim: Claim) -> [&'static str; 3] {
    match claim {
        Claim::Owned => ["ControlPlaneMigrated", "True", "Migrated"],
        Claim::InTreeLeft => ["ControlPlaneMigrated", "False", "InTreeLeft"],
        Claim::OldManagerOwns => ["ControlPlaneMigrated", "False", "OldManagerOwns"],
        Claim::NoOwner => ["ControlPlaneMigrated", "False", "NoOwner"],
        Claim::MainLeaseNotHeld => ["ControlPlaneMigrated", "Unknown", "MainLeaseNotHeld"],
        Claim::OtherHoldsM => ["ControlPlaneMigrated", "False", "LeaseHeldByOther"],
        Claim::UnguardedLeads => ["ControlPlaneMigrated", "False", "UnguardedControllerManager"],
        Claim::Unlocked => ["ControlPlaneMigrated", "False", "UnlockedControllerManager"],
        Claim::LeaderNotProven => ["ControlPlaneMigrated", "False", "LeaderNotProven"],
        Claim::NewLeader => ["ControlPlaneMigrated", "Unknown", "Listing"],
        Claim::SteppingBack => ["ControlPlaneMigrated", "False", "SteppingBack"],
        Claim::NotLed => ["ControlPlaneMigrated", "Unknown", "NotLed"],
        Claim::MigrationLeaseFree => ["ControlPlaneMigrated", "False", "Acquiring"],
        Claim::NotAcquired => ["ControlPlaneMigrated", "False", "StoringEvidence"],
        Claim::EvidenceMissing => ["Prepared", "False", "EvidenceMissing"],
        Claim::WritesNothing => ["ControlPlaneMigrated", "Unknown", "NotReadYet"],
        Claim::Prepared => ["Prepared", "True", "EvidenceLatched"],
        Claim::Completed => ["Completed", "True", "Completed"],
        Claim::Ready => ["Ready", "True", "OldManagerOwns"],
        Claim::PhaseFollowed => ["PhaseFollowed", "True", "Followed"],
        // A reason that the timeline does not have.
        Claim::NotRecorded => ["SpecValid", "False", "Unheard"],
    }
}

/// The words of a violation that names the planted condition.
pub(super) fn name(claim: Claim) -> String {
    let [kind, status, reason] = condition(claim);
    format!("{kind}={status} ({reason})")
}

/// Plants the condition at a time at which its claim is false in each run.
pub(super) fn plant(claim: Claim, record: &mut Inputs) {
    let time = match claim {
        Claim::Owned | Claim::InTreeLeft | Claim::SteppingBack | Claim::Prepared | Claim::Completed => old_owns(record),
        Claim::EvidenceMissing => takeover(record),
        _ => ours_owns(record),
    };
    let Some(time) = time else {
        return;
    };
    if claim == Claim::WritesNothing {
        write(record, time.0 + LATER);
    }

    let [kind, status, reason] = condition(claim);
    let in_tree = matches!(claim, Claim::Ready | Claim::PhaseFollowed);
    say(record, time, |statement| {
        statement.conditions.retain(|condition| condition.kind != kind);
        statement.conditions.push(Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
        });
        if in_tree {
            statement.phase = Some("InTree".to_owned());
        }
    });
}

/// The status names an observer that never led.
pub(super) fn plant_observer(record: &mut Inputs) {
    if let Some(time) = ours_owns(record) {
        say(record, time, |statement| {
            statement.observed_by = Some(ObservedBy {
                identity: "nobody_0".to_owned(),
                time: time.0,
            });
        });
    }
}

/// Changes the status for a time.
fn say(record: &mut Inputs, (from, until): Time, change: impl Fn(&mut Statement)) {
    let all = &record.statements;
    let at = |time| Statement {
        at: time,
        ..all
            .iter()
            .rev()
            .find(|said| said.at <= time)
            .cloned()
            .unwrap_or_default()
    };
    let (first, next) = (at(from), at(until));

    let is_between = |said: &&mut Statement| from < said.at && said.at < until;
    record.statements.iter_mut().filter(is_between).for_each(&change);
    let mut first = first;
    change(&mut first);
    record.statements.extend([first, next]);
    record.statements.sort_by_key(|said| said.at);
}

/// A quiet time after the first status, in phase InTree, while the original manager leads.
fn old_owns(record: &mut Inputs) -> Option<Time> {
    let first = record.statements.iter().find(|said| !said.conditions.is_empty())?;
    let end = first.at + AFTER;
    let until = continue_quietly(record, end);
    Some((end + KNOWN, until))
}

/// From before our first acquisition of M. Then comes a quiet time, in which a living manager of ours holds C: it may acquire C
/// a moment after M, and only its holder corrects the status.
fn takeover(record: &mut Inputs) -> Option<Time> {
    let recorded: &Inputs = record;
    let ours = |lease: Lease| {
        let changes = recorded.lease_changes.iter();
        changes.filter(move |change| change.lease == lease && holds(recorded, change, OURS))
    };
    let first = ours(Lease::M).min_by_key(|change| change.at)?;
    let acquired = first.acquired.unwrap_or(first.at);
    let lives = |change: &&LeaseChange| end_of(recorded, change).is_none_or(|end| change.at + AFTER < end);
    let led = ours(Lease::C).filter(|change| first.at <= change.at).filter(lives);
    let end = led.map(|change| change.at).min()? + AFTER;
    let until = continue_quietly(record, end);
    Some((acquired - LATER, until))
}

/// A quiet time after the longest one in which our manager leads and owns, and an old one holds K.
fn ours_owns(record: &mut Inputs) -> Option<Time> {
    let end = owned(record)?;
    let until = continue_quietly(record, end);
    Some((end + KNOWN, until))
}

/// Ends the record at this time, and continues it with the same holders, since no run has a quiet time for certain. Returns
/// the new end.
fn continue_quietly(record: &mut Inputs, end: Timestamp) -> Timestamp {
    let until = end + KNOWN + STANDS;
    record.lease_changes.retain(|change| change.at < end);
    record.lease_changes.sort_by_key(|change| change.at);
    let renewed = [Lease::K, Lease::C, Lease::M].into_iter().filter_map(|lease| {
        let latest = record.lease_changes.iter().rev().find(|change| change.lease == lease)?;
        latest.holder.as_ref()?;
        Some(LeaseChange {
            at: until,
            renewed: Some(until),
            ..latest.clone()
        })
    });
    let renewed: Vec<_> = renewed.collect();
    record.lease_changes.extend(renewed);

    record.statements.retain(|said| said.at < end);
    record.markers.retain(|marker| marker.at < end);
    // Nobody has to correct the status while the API server is silent.
    record.markers.push(Marker {
        at: end,
        name: MANAGEMENT_ANSWERS.to_owned(),
    });
    record.aws_calls.retain(|call| call.at < end);
    record.pauses.retain(|pause| pause.from < end);
    record.processes.retain(|span| span.started < end);
    for span in &mut record.processes {
        span.ended = span.ended.filter(|ended| *ended < end);
    }
    record.until = until;
    until
}

/// The end of the longest time in which our manager leads and owns, and an old one holds K.
fn owned(record: &Inputs) -> Option<Timestamp> {
    let mut changes: Vec<&LeaseChange> = record.lease_changes.iter().collect();
    changes.sort_by_key(|change| change.at);

    let mut found = Vec::new();
    let mut latest: [Option<&LeaseChange>; 3] = [None; 3];
    let mut since = record.until;
    for change in changes.into_iter().filter(|change| change.at <= record.until) {
        let index = change.lease as usize;
        if latest[index].is_none_or(|last| last.holder != change.holder) {
            found.push((since, change.at, latest));
            since = change.at;
        }
        latest[index] = Some(change);
    }
    found.push((since, record.until, latest));

    let owned = found.into_iter().filter_map(|(from, until, latest)| {
        let [main, ours, migration] = latest;
        let latest = [main?, ours?, migration?];
        let mut holders = latest.iter().zip([OLD, OURS, OURS]);
        let is_owned = holders.all(|(change, name)| holds(record, change, name));
        let ends = latest.iter().filter_map(|change| end_of(record, change));
        is_owned.then_some((from, ends.min().unwrap_or(until).min(until)))
    });
    let longest = owned.max_by_key(|(from, until)| until.duration_since(*from));
    longest.map(|(_, end)| end)
}

fn holds(record: &Inputs, change: &LeaseChange, name: &str) -> bool {
    process(record, change).and_then(|process| component(record, process)) == Some(name)
}

fn process<'a>(record: &'a Inputs, change: &LeaseChange) -> Option<&'a String> {
    record.holders.get(change.holder.as_ref()?)
}

/// When the holder ended or was stopped first.
fn end_of(record: &Inputs, change: &LeaseChange) -> Option<Timestamp> {
    let name = process(record, change)?;
    let ended = record
        .processes
        .iter()
        .filter(|span| span.process == *name)
        .filter_map(|span| span.ended);
    let stopped = record
        .pauses
        .iter()
        .filter(|pause| pause.process == *name)
        .map(|pause| pause.from);
    ended.chain(stopped).filter(|end| change.at <= *end).min()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;
    use std::time::Duration;

    use outrigger_cluster_harness::pods::ProcessSpan;
    use outrigger_timeline::{Component, LoadBalancer, MANAGEMENT_SILENT, Rules, Snapshot};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn process(name: &str, component: &str, flag: &str, (from, until): (i64, Option<i64>)) -> ProcessSpan {
        ProcessSpan {
            process: name.to_owned(),
            component: component.to_owned(),
            namespace: String::new(),
            pod: name.to_owned(),
            uid: String::new(),
            pid: 1,
            program: PathBuf::new(),
            argv: vec![component.to_owned(), flag.to_owned()],
            started: at(from),
            ended: until.map(at),
            exit: None,
        }
    }

    fn marker(name: &str, at: Timestamp) -> Marker {
        Marker {
            at,
            name: name.to_owned(),
        }
    }

    fn held(lease: Lease, holder: &str, (from, until): (i64, i64)) -> impl Iterator<Item = LeaseChange> {
        let renewals = (from..=until).step_by(5);
        renewals.map(move |second| LeaseChange {
            lease,
            at: at(second),
            since_start: Duration::ZERO,
            holder: Some(format!("{holder}_0")),
            acquired: Some(at(from)),
            renewed: Some(at(second)),
            duration: Some(Duration::from_secs(15)),
            transitions: 0,
            annotations: BTreeMap::new(),
            deleted: false,
        })
    }

    fn statement(second: i64, phase: &str, [kind, status, reason]: [&str; 3]) -> Statement {
        Statement {
            at: at(second),
            phase: Some(phase.to_owned()),
            conditions: vec![Condition {
                kind: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: String::new(),
            }],
            ..Statement::default()
        }
    }

    /// The original manager leads until 40 s. Ours owns from 60 s beside an external one, and ends at 80 s. From 62 s to
    /// 90 s nobody can correct the status.
    fn record() -> Inputs {
        let names = ["original", "external", "ours"].map(|name| (format!("{name}_0"), name.to_owned()));
        let balancer = LoadBalancer {
            dns_name: String::new(),
            created: String::new(),
            targets: BTreeSet::new(),
            identifiers: BTreeSet::new(),
        };
        let snapshot = Snapshot {
            at: at(1),
            load_balancers: [("web".to_owned(), balancer)].into(),
            routes: BTreeMap::new(),
        };
        Inputs {
            lease_changes: held(Lease::K, "original", (0, 40))
                .chain(held(Lease::K, "external", (55, 90)))
                .chain(held(Lease::C, "ours", (10, 80)))
                .chain(held(Lease::M, "ours", (60, 80)))
                .collect(),
            processes: vec![
                process("original", OLD, "--cloud-provider=aws", (0, Some(40))),
                process("external", OLD, "--cloud-provider=external", (41, None)),
                process("ours", OURS, "--migration=prod", (5, Some(80))),
                process("next", OURS, "--migration=prod", (92, None)),
            ],
            holders: names.into(),
            statements: vec![
                statement(12, "InTree", ["ControlPlaneMigrated", "False", "OldManagerOwns"]),
                statement(41, "Migrate", ["ControlPlaneMigrated", "False", "EvidenceMissing"]),
                statement(61, "Migrate", ["ControlPlaneMigrated", "True", "Migrated"]),
            ],
            snapshots: vec![snapshot],
            markers: vec![marker(MANAGEMENT_SILENT, at(62)), marker(MANAGEMENT_ANSWERS, at(90))],
            until: at(95),
            ..Inputs::default()
        }
    }

    fn violations(record: &Inputs) -> Vec<String> {
        let report = outrigger_timeline::analyse(record, &Rules::new(Component::outrigger_manager()));
        report.contradictions.into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn each_planted_condition_and_observer_is_found_by_its_name() {
        assert_eq!(violations(&record()), Vec::<String>::new());
        for claim in Claim::ALL {
            let mut planted = record();
            plant(claim, &mut planted);
            let found = violations(&planted);
            assert!(
                found.iter().any(|text| text.contains(&name(claim))),
                "{claim:?}: {found:?}"
            );
        }

        let mut planted = record();
        plant_observer(&mut planted);
        assert!(violations(&planted)[0].contains("observedBy named nobody_0"));
    }

    /// Two managers compete for each lease by itself.
    #[test]
    fn evidence_is_found_missing_where_the_main_lease_is_acquired_after_the_migration_lease() {
        let mut planted = record();
        planted.lease_changes.retain(|change| change.lease != Lease::C);
        planted.lease_changes.extend(held(Lease::C, "ours", (61, 80)));
        plant(Claim::EvidenceMissing, &mut planted);
        let found = violations(&planted);
        let name = name(Claim::EvidenceMissing);
        assert!(found.iter().any(|text| text.contains(&name)), "{found:?}");
    }

    #[test]
    fn a_record_without_the_time_for_a_condition_stays_as_it_is() {
        let mut never = record();
        never.lease_changes.retain(|change| change.lease != Lease::M);
        for claim in [Claim::NotLed, Claim::EvidenceMissing] {
            let mut planted = never.clone();
            plant(claim, &mut planted);
            assert_eq!(planted.statements, never.statements, "{claim:?}");
        }
    }
}
