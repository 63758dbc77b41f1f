//! The conditions of the status. Pure.

use outrigger_evidence::facts::{self, ControllerManager, MainHolder};
use outrigger_evidence::gate::{LatchChange, LeaseAction};
use outrigger_evidence::latch::{Latch, Stored};
use outrigger_evidence::why::{self, Missing, Why, code};
use outrigger_shared::annotations::{EXTERNAL_KUBELET, KUBELET};
use outrigger_shared::component::Form;
use outrigger_shared::controller::Controller;
use outrigger_shared::migration::{NodeCounts, Phase, condition};

use crate::steward::Report;

/// The last minor release with the in-tree AWS provider.
const LAST_IN_TREE_MINOR: u32 = 26;

/// Type, truth, reason and message of a condition.
pub(super) type Row = (&'static str, Option<bool>, &'static str, String);
type State = (Option<bool>, &'static str, String);

pub(super) struct Inputs<'a> {
    pub report: &'a Report,
    pub lease_problem: Option<String>,
    /// Of the object, which may be newer than the spec of the decision; `None` while it cannot be read.
    pub problems: Option<Vec<String>>,
    pub nodes: Option<NodeCounts>,
    /// The minor version of the API server.
    pub minor: Option<u32>,
    /// The controllers that this manager runs under lease M.
    pub controllers: &'a [Controller],
}

pub(super) fn conditions(inputs: &Inputs<'_>) -> [Row; 6] {
    let report = inputs.report;
    let control_plane = control_plane(report, inputs.lease_problem.as_deref());
    let nodes = nodes(inputs.nodes);
    let is_complete = report.decision.phase == Some(Phase::Complete);
    let completed = match is_complete && control_plane.1 == Some(true) && nodes.0 == Some(true) {
        true => (Some(true), "Completed", over(inputs.controllers)),
        false => (Some(false), "NotYet", left(report, control_plane.1, nodes.0)),
    };

    let row = |type_, (truth, reason, text): State| (type_, truth, reason, text);
    [
        row(condition::SPEC_VALID, spec_valid(inputs.problems.as_deref())),
        row(condition::PREPARED, prepared(report)),
        control_plane,
        row(condition::NODES_MIGRATED, nodes),
        row(condition::COMPLETED, completed),
        row(condition::ROLLBACK_POSSIBLE, rollback(inputs.minor)),
    ]
}

fn spec_valid(problems: Option<&[String]>) -> State {
    match problems {
        None => (
            None,
            "NotReadable",
            "the CloudProviderMigration cannot be read".to_owned(),
        ),
        Some([]) => (Some(true), "Valid", "the spec has no problems".to_owned()),
        Some(problems) => (Some(false), "Invalid", problems.join("; ")),
    }
}

/// The latch that the decision leaves on lease C.
fn latch(report: &Report) -> Option<&Latch> {
    match &report.latch {
        Stored::Latch(latch) if report.decision.bound.is_some() => Some(latch),
        Stored::Latch(latch) if report.inputs.spec.known().is_some_and(|spec| spec.uid == latch.uid) => {
            let was_stored_now = matches!(report.decision.latch, LatchChange::Store(_));
            was_stored_now.then_some(latch)
        }
        _ => None,
    }
}

/// The evidence is recorded, and nothing contradicts it now.
fn prepared(report: &Report) -> State {
    let contradictions = contradictions(report);
    if latch(report).is_some() && contradictions.is_empty() {
        let text = "it is recorded that every kube-controller-manager acts only while it holds the migration lease, or is external";
        return (Some(true), "EvidenceLatched", text.to_owned());
    }

    let facts = &report.inputs.facts;
    let missing = match (report.decision.phase, report.decision.action.why()) {
        (Some(Phase::InTree), _) => {
            "phase InTree: set spec.phase to Prepare and roll the kube-controller-managers".to_owned()
        }
        (phase, _) if !contradictions.is_empty() => why::messages(&contradictions, phase),
        (_, Some(why)) if !matches!(why, Why::OldManagerOwns(_)) => why.message(),
        (phase, _) => why::messages(&facts::missing(facts, phase.unwrap_or_default()), phase),
    };

    (Some(false), "EvidenceMissing", with_warnings(report, &missing))
}

/// The facts that block the next step although the evidence was complete once.
fn contradictions(report: &Report) -> Vec<Missing> {
    let facts = &report.inputs.facts;
    let running = facts.controller_managers.seen.iter().filter(|seen| seen.running);
    let unguarded = running.filter(|seen| seen.is_unguarded());
    let mut found: Vec<Missing> = unguarded.map(|seen| Missing::Unguarded(seen.object.clone())).collect();
    if let Some((seen, flag)) = facts.unlocked() {
        let (object, flag) = (seen.object.clone(), flag.to_owned());
        found.push(Missing::Unlocked { object, flag });
    }
    if let MainHolder::Unproven(unproven) = facts.main_holder() {
        found.push(Missing::Leader(unproven));
    }

    found
}

fn with_warnings(report: &Report, text: &str) -> String {
    let phase = report.decision.phase;
    let warnings = report.decision.warnings.iter().map(|warning| warning.message(phase));
    let texts = std::iter::once(text.to_owned()).chain(warnings);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

pub(super) fn control_plane(report: &Report, lease_problem: Option<&str>) -> Row {
    let (truth, reason, text) = match (report.inputs.holding, &report.decision.action) {
        (false, _) => {
            let (reason, why) = not_held(report, lease_problem);
            let text = format!("this manager does not hold the migration lease: {why}");
            (Some(false), reason, text)
        }
        (true, LeaseAction::Pause(why)) => {
            let text = format!("this manager holds the migration lease, but {}", why.message());
            (None, why.code(), text)
        }
        (true, LeaseAction::Alarm(why)) => {
            let text = format!("this manager is releasing the migration lease: {}", why.message());
            (Some(false), why.code(), text)
        }
        (true, _) => held(report),
    };

    (
        condition::CONTROL_PLANE_MIGRATED,
        truth,
        reason,
        with_warnings(report, &text),
    )
}

fn held(report: &Report) -> State {
    let phase = report.decision.phase;
    let conflict = || {
        let problem = facts::node_ipam_problem(&report.inputs.facts)?;
        Some((Some(false), "NodeIpamConflict", problem.message(phase)))
    };
    let problem = old_managers_left(report).or_else(conflict);
    problem.unwrap_or_else(|| external(report))
}

/// The operator attests that the kube-controller-managers that cannot be read are external. In an earlier phase an
/// attestation states the opposite.
fn is_attested_external(report: &Report) -> bool {
    report.decision.phase >= Some(Phase::Migrate) && report.inputs.facts.attestation.is_some()
}

/// A kube-controller-manager that is not external, or holds the migration lease for nothing.
fn old_managers_left(report: &Report) -> Option<State> {
    let seen = || report.inputs.facts.controller_managers.seen.iter();
    let is_attested = is_attested_external(report);
    let counts_as_external = |seen: &ControllerManager| seen.is_external() || is_attested && seen.needs_attestation();
    let Some(left) = seen().find(|seen| !counts_as_external(seen)) else {
        let left_on = seen().find(|seen| seen.holds_for_nothing())?;
        let text = format!(
            "{} is external and still has --enable-leader-migration: remove that flag, or it can acquire the migration lease although it runs no cloud controller",
            left_on.object
        );
        return Some((Some(false), "LeaderMigrationLeftOn", text));
    };

    let (object, phase) = (&left.object, report.decision.phase);
    Some(match (&left.form, phase) {
        (Form::Unreadable { reason }, _) => {
            let missing = Missing::Unreadable {
                object: object.clone(),
                reason: reason.clone(),
                may_be_attested: left.needs_attestation(),
            };
            (None, "Undecided", missing.message(phase))
        }
        (_, Some(Phase::Prepare)) => (Some(false), code::STEPPING_BACK, stepping_back(report, object)),
        _ => {
            let text = format!(
                "{object} is still in-tree: roll its workload in phase Migrate, or write --cloud-provider=external into the file of the static Pod"
            );
            (Some(false), "InTreeLeft", text)
        }
    })
}

/// Every kube-controller-manager that can be read is external.
fn external(report: &Report) -> State {
    let all = &report.inputs.facts.controller_managers;
    if all.are_all_readable() {
        let text = "this manager holds the migration lease and every kube-controller-manager is external";
        return (Some(true), "Migrated", text.into());
    }
    if is_attested_external(report) {
        let text = "this manager holds the migration lease, and spec.attestation states that every kube-controller-manager is external";
        return (Some(true), "Migrated", text.into());
    }
    if report.decision.phase == Some(Phase::Prepare) {
        let text = stepping_back(report, "a kube-controller-manager");
        return (Some(false), code::STEPPING_BACK, text);
    }

    let why = all.unknown().map_or_else(
        || "a command line cannot be read".to_owned(),
        |missing| missing.message(report.decision.phase),
    );
    let text = format!("this manager holds the migration lease, but {why}");
    (None, "NotReadable", text)
}

/// The end of the migration, with the controllers that nobody runs from now on. The flags of the manager turn them off,
/// so this may be intended.
pub(super) fn over(controllers: &[Controller]) -> String {
    let is_off = |controller: &Controller| !controllers.contains(controller);
    let off: Vec<&str> = Controller::SHARED
        .into_iter()
        .filter(is_off)
        .map(Controller::canonical_name)
        .collect();
    if off.is_empty() {
        return "the migration is over".to_owned();
    }

    format!(
        "the migration is over; no manager runs these controllers, because the flags of this manager turn them off: {}",
        off.join(", ")
    )
}

pub(super) fn left(report: &Report, control_plane: Option<bool>, nodes: Option<bool>) -> String {
    let followed = report.decision.phase;
    let phase = match report.inputs.spec.known().map(|spec| spec.phase).or(followed) {
        _ if followed == Some(Phase::Complete) => None,
        Some(Phase::Complete) => Some(
            "spec.phase is Complete, and this manager does not follow it: see the message of ControlPlaneMigrated"
                .to_owned(),
        ),
        Some(phase) => Some(format!(
            "spec.phase has to go from {phase} to Complete, one step at a time"
        )),
        None => Some("the phase is not known".to_owned()),
    };
    let conditions = [
        (condition::CONTROL_PLANE_MIGRATED, control_plane),
        (condition::NODES_MIGRATED, nodes),
    ];
    let open = conditions.into_iter().filter(|(_, truth)| *truth != Some(true));
    let conditions = open.map(|(name, _)| format!("{name} is not True: see its message"));

    phase.into_iter().chain(conditions).collect::<Vec<_>>().join("; ")
}

fn stepping_back(report: &Report, object: &str) -> String {
    let offer = match (report.inputs.facts.external_leader(), report.offer) {
        (Some(leader), _) => format!("the main lease is led by {}, which is external: roll it", leader.object),
        (None, None) => "this manager releases it as soon as a new one holds the main lease".to_owned(),
        (None, Some(offer)) => format!(
            "it was last offered at {} ({} times) and not acquired: grant user system:kube-controller-manager get, update and create on it (Role outrigger:kube-controller-manager:migration-lease)",
            offer.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            offer.count
        ),
    };
    format!(
        "stepping back: roll the kube-controller-managers in phase Prepare. This manager holds the migration lease until {object} acquires it; {offer}"
    )
}

/// Why this manager does not hold the migration lease, and what ends that.
fn not_held(report: &Report, lease_problem: Option<&str>) -> (&'static str, String) {
    let facts = &report.inputs.facts;
    if let Some(seen) = facts.held_for_nothing() {
        let text = format!(
            "{} holds it and runs no cloud controller: remove its --enable-leader-migration",
            seen.object
        );
        return ("HeldForNothing", text);
    }
    if let (LeaseAction::Compete, Some(problem)) = (&report.decision.action, lease_problem) {
        return ("LeaseRequestFailed", format!("it cannot be acquired: {problem}"));
    }
    match (&report.decision.action, &facts.migration.live_holder) {
        (LeaseAction::Compete, Some(holder)) => ("LeaseHeldByOther", held_by(report, holder)),
        (LeaseAction::Compete, None) => match &facts.migration.holder {
            Some(holder) if *holder != report.inputs.identity => ("LeaseHeldByOther", held_by(report, holder)),
            _ => ("Acquiring", "it is being acquired".to_owned()),
        },
        (action, _) => action
            .why()
            .map_or(("LeaseNotHeld", String::new()), |why| (why.code(), why.message())),
    }
}

fn held_by(report: &Report, holder: &str) -> String {
    let bound = report.decision.bound.as_ref();
    match bound.and_then(|latch| latch.held_by.as_deref()) == Some(holder) {
        true => format!("the former manager {holder:?} has not released it: waiting until it expires"),
        false => {
            let seconds = report.inputs.facts.migration.duration.unwrap_or_default().as_secs();
            format!(
                "{holder:?} holds it: roll or stop that process; this manager acquires the lease when it is released, or {seconds} s after its last renewal; if that process has ended and the time is too long, delete the lease"
            )
        }
    }
}

fn nodes(counts: Option<NodeCounts>) -> State {
    match counts {
        None => (None, "NotCounted", "the Nodes have not been listed yet".into()),
        Some(n) if n.total == 0 => (Some(false), "NoNodes", "the cluster has no Nodes yet".into()),
        Some(n) if n.migrated == n.total => {
            let text = format!("all {} Nodes have external kubelets", n.total);
            (Some(true), "Migrated", text)
        }
        Some(n) => {
            let text = format!(
                "{} of {} Nodes are not known to have an external kubelet: replace them, or restart their kubelets with \
                 --cloud-provider=external and state it: kubectl annotate node NAME {KUBELET}={EXTERNAL_KUBELET}",
                n.total - n.migrated,
                n.total
            );
            (Some(false), "InTreeLeft", text)
        }
    }
}

fn rollback(minor: Option<u32>) -> State {
    match minor {
        None => (None, "VersionUnknown", "the API server's version is unknown".into()),
        Some(minor) if minor <= LAST_IN_TREE_MINOR => {
            let text = format!("the API server is at 1.{minor}; 1.26 still has the in-tree provider");
            (Some(true), "InTreeAvailable", text)
        }
        Some(minor) => {
            let text =
                format!("the API server is at 1.{minor}; from 1.27 on there is no in-tree AWS provider to go back to");
            (Some(false), "InTreeRemoved", text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{beside_unguarded, holding, migrating, report, standby};
    use super::*;
    use outrigger_evidence::facts::{Lock, Reading};
    use outrigger_evidence::samples::held;

    fn counts(migrated: u32) -> Option<NodeCounts> {
        Some(NodeCounts {
            total: 3,
            migrated,
            ..NodeCounts::default()
        })
    }

    /// Phase Complete, with external kube-controller-managers and kubelets.
    fn all_done(report: &Report) -> Inputs<'_> {
        Inputs {
            report,
            lease_problem: None,
            problems: Some(Vec::new()),
            nodes: counts(3),
            minor: Some(26),
            controllers: &Controller::SHARED,
        }
    }

    fn in_phase(phase: Phase) -> Report {
        let mut report = report(holding());
        report.decision.phase = Some(phase);
        report
    }

    fn completed(inputs: &Inputs<'_>) -> (Option<bool>, String) {
        let rows = conditions(inputs).into_iter();
        let mut rows = rows.filter(|(type_, ..)| *type_ == condition::COMPLETED);
        rows.next().map(|(_, truth, _, text)| (truth, text)).unwrap()
    }

    #[test]
    fn the_migration_is_completed_in_phase_complete_when_both_parts_are_migrated() {
        let complete = in_phase(Phase::Complete);
        let all = all_done(&complete);
        assert_eq!(completed(&all), (Some(true), "the migration is over".to_owned()));

        let nodes_left = Inputs {
            nodes: counts(2),
            ..all_done(&complete)
        };
        let left = "NodesMigrated is not True: see its message";
        assert_eq!(completed(&nodes_left), (Some(false), left.to_owned()));

        let mut alarm = report(beside_unguarded(holding()));
        alarm.decision.phase = Some(Phase::Complete);
        let left = "ControlPlaneMigrated is not True: see its message";
        assert_eq!(completed(&all_done(&alarm)), (Some(false), left.to_owned()));

        let migrate = in_phase(Phase::Migrate);
        let left = "spec.phase has to go from Migrate to Complete, one step at a time";
        assert_eq!(completed(&all_done(&migrate)), (Some(false), left.to_owned()));
    }

    #[test]
    fn nodes_are_migrated_when_each_of_them_is() {
        let empty = Some(NodeCounts::default());
        for (counts, truth, reason) in [
            (None, None, "NotCounted"),
            (empty, Some(false), "NoNodes"),
            (counts(2), Some(false), "InTreeLeft"),
            (counts(3), Some(true), "Migrated"),
        ] {
            let (found, why, text) = nodes(counts);
            assert_eq!((found, why), (truth, reason), "{text}");
        }
        assert!(nodes(counts(2)).2.starts_with("1 of 3 Nodes are not known"));
    }

    #[test]
    fn a_rollback_needs_a_release_with_the_in_tree_provider() {
        for (minor, truth, reason) in [
            (None, None, "VersionUnknown"),
            (Some(25), Some(true), "InTreeAvailable"),
            (Some(26), Some(true), "InTreeAvailable"),
            (Some(27), Some(false), "InTreeRemoved"),
        ] {
            let (found, why, text) = rollback(minor);
            assert_eq!((found, why), (truth, reason), "{text}");
        }
    }

    #[test]
    fn a_stored_latch_that_is_followed_or_was_stored_now_is_the_evidence() {
        let is_prepared = |report: &Report| prepared(report).0 == Some(true);
        let mut followed = report(holding());
        followed.decision.latch = LatchChange::Keep;
        assert!(followed.decision.bound.is_some());
        let (truth, reason, text) = prepared(&followed);
        assert_eq!((truth, reason), (Some(true), "EvidenceLatched"), "{text}");

        let mut stored = followed.clone();
        stored.decision.bound = None;
        assert!(!is_prepared(&stored), "a latch that binds nobody");
        let Stored::Latch(latch) = stored.latch.clone() else {
            panic!("no latch");
        };
        stored.decision.latch = LatchChange::Store(latch);
        assert!(is_prepared(&stored));

        let Reading::Known(spec) = &mut stored.inputs.spec else {
            panic!("it can be read");
        };
        spec.uid = "of another object".into();
        assert!(!is_prepared(&stored));
    }

    #[test]
    fn recorded_evidence_is_contradicted_by_each_process_that_acts_without_the_migration_lease() {
        type Change = fn(&mut outrigger_evidence::gate::Inputs);
        let cases: [(&str, Change); 3] = [
            ("Pod tenant/kcm-1 runs in-tree without leader migration", |inputs| {
                inputs.facts.controller_managers.seen.push(standby());
            }),
            ("(--leader-elect=false)", |inputs| {
                inputs.facts.controller_managers.seen.push(ControllerManager {
                    lock: Lock::Other("--leader-elect=false".into()),
                    ..standby()
                });
            }),
            (r#"the holder "hidden_a""#, |inputs| {
                inputs.facts.main = held("hidden_a")
            }),
        ];
        for (text, change) in cases {
            for inputs in [holding(), migrating()] {
                let mut inputs = inputs;
                change(&mut inputs);
                let report = report(inputs);
                assert!(report.decision.bound.is_some(), "the latch stays");
                let (truth, reason, message) = prepared(&report);
                assert_eq!((truth, reason), (Some(false), "EvidenceMissing"));
                assert!(message.contains(text), "{message}");
            }
        }

        let mut stopped = holding();
        let template = ControllerManager {
            running: false,
            ..standby()
        };
        stopped.facts.controller_managers.seen.push(template);
        assert_eq!(prepared(&report(stopped)).0, Some(true), "no Pod of it runs");
    }

    #[test]
    fn missing_evidence_is_reported_with_its_remedy() {
        let mut report = report(migrating());
        report.decision.bound = None;
        report.latch = Stored::Absent;
        report.inputs.facts.main.is_coordinated = true;
        let reported = |report: &Report| {
            let (truth, reason, text) = prepared(report);
            assert_eq!((truth, reason), (Some(false), "EvidenceMissing"), "{text}");
            text
        };

        let no_owner = Why::NoOwner(Phase::Prepare);
        report.decision.action = LeaseAction::StandBy(no_owner.clone());
        assert_eq!(reported(&report), no_owner.message());
        let missing = why::messages(
            &facts::missing(&report.inputs.facts, Phase::Migrate),
            Some(Phase::Migrate),
        );
        assert!(missing.contains("spec.preferredHolder"), "{missing}");
        let owned = LeaseAction::StandBy(Why::OldManagerOwns(Phase::Prepare));
        for action in [owned, LeaseAction::Compete] {
            report.decision.action = action;
            assert_eq!(reported(&report), missing);
        }
        report.decision.phase = Some(Phase::InTree);
        assert!(reported(&report).starts_with("phase InTree: set spec.phase to Prepare"));
    }
}
