//! The conditions of the status. Pure.

use std::time::Duration;

use outrigger_evidence::facts::{self, ControllerManager, MainHolder, Reading};
use outrigger_evidence::gate::{LatchChange, LeaseAction};
use outrigger_evidence::latch::{Latch, Stored};
use outrigger_evidence::why::{self, Item, Missing, Warning, Why, code};
use outrigger_shared::annotations::{EXTERNAL_KUBELET, KUBELET};
use outrigger_shared::component::Form;
use outrigger_shared::controller::Controller;
use outrigger_shared::migration::{MAX_MISSING, MAX_MISSING_TEXT, MissingFact, NodeCounts, Phase, condition};

use super::DryRun;
use crate::steward::Report;

/// The last minor release with the in-tree AWS provider.
const LAST_IN_TREE_MINOR: u32 = 26;

/// A state that a person has to end is Stalled when it has lasted for this long. A process that starts or ends causes shorter
/// ones.
pub(super) const UNTIL_STALLED: Duration = Duration::from_secs(30);

/// The value of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub truth: Option<bool>,
    pub reason: &'static str,
    /// The subject of the items; empty, or with a colon at its end.
    lead: &'static str,
    pub items: Vec<Item>,
    /// Facts that change nothing now.
    notes: Vec<String>,
    /// It ends by itself. False: a person has to act, unless it is true.
    pub is_passing: bool,
}

impl State {
    fn new(truth: Option<bool>, reason: &'static str, observation: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::of(truth, reason, vec![Item::new(reason, observation, fix)])
    }

    fn of(truth: Option<bool>, reason: &'static str, items: Vec<Item>) -> Self {
        Self {
            truth,
            reason,
            lead: "",
            items,
            notes: Vec::new(),
            is_passing: false,
        }
    }

    fn yes(reason: &'static str, text: impl Into<String>) -> Self {
        Self::new(Some(true), reason, text, "")
    }

    fn because(truth: Option<bool>, why: &Why) -> Self {
        Self {
            is_passing: why.is_passing(),
            ..Self::of(truth, why.code(), why.items())
        }
    }

    fn lead(self, lead: &'static str) -> Self {
        Self { lead, ..self }
    }

    fn passing(self) -> Self {
        Self {
            is_passing: true,
            ..self
        }
    }

    /// With the warnings of the report.
    fn noted(self, report: &Report) -> Self {
        let phase = report.decision.phase;
        let warnings = report.decision.warnings.iter();
        Self {
            notes: warnings.map(|warning| warning.message(phase)).collect(),
            ..self
        }
    }

    pub fn message(&self) -> String {
        let items = format!("{}{}", self.lead, why::message_of(&self.items));
        let texts = std::iter::once(items).chain(self.notes.iter().cloned());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    }

    pub fn is_true(&self) -> bool {
        self.truth == Some(true)
    }

    /// A person has to act.
    pub fn is_blocked(&self) -> bool {
        !self.is_true() && !self.is_passing
    }
}

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
    pub dry_run: &'a DryRun,
}

/// All but those of [`progress`]. The first one is `Ready`.
pub(super) fn conditions(inputs: &Inputs<'_>) -> Vec<(&'static str, State)> {
    let report = inputs.report;
    let followed = phase_followed(report);
    let prepared = prepared(report);
    let control_plane = control_plane(report, inputs.lease_problem.as_deref());
    let nodes = nodes(inputs.nodes);
    let completed = completed(inputs, &control_plane, &nodes);
    let ready = match report.decision.phase {
        Some(Phase::Complete) if completed.is_true() => completed.clone(),
        Some(Phase::Complete) if control_plane.is_true() => nodes.clone(),
        _ => ready(report, &prepared, &control_plane),
    };

    let mut rows = vec![
        (
            condition::READY,
            if followed.truth == Some(false) {
                followed.clone()
            } else {
                ready
            },
        ),
        (condition::SPEC_VALID, spec_valid(inputs.problems.as_deref())),
        (condition::PHASE_FOLLOWED, followed),
        (condition::PREPARED, prepared),
        (condition::CONTROL_PLANE_MIGRATED, control_plane),
        (condition::NODES_MIGRATED, nodes),
        (condition::COMPLETED, completed),
        (condition::ROLLBACK_POSSIBLE, rollback(inputs.minor)),
    ];
    if is_before_adoption(report) {
        rows.push((condition::ADOPTION_CLEAN, adoption_clean(inputs.dry_run)));
    }

    rows
}

/// Whether the phase is InTree or Prepare.
pub(super) fn is_before_adoption(report: &Report) -> bool {
    report.decision.phase.is_some_and(|phase| phase < Phase::Migrate)
}

/// Most changes that the message names.
const NAMED_CHANGES: usize = 3;

fn adoption_clean(dry_run: &DryRun) -> State {
    let adoption = match dry_run {
        DryRun::Pending => {
            let text = "no dry run of this manager has ended yet; none runs while it runs the controllers itself";
            return State::new(None, "NotCompared", text, "").passing();
        }
        DryRun::Failed(error) => {
            return State::new(None, "DryRunFailed", format!("the last dry run failed: {error}"), "");
        }
        DryRun::Ended(adoption) => adoption,
    };
    let (services, nodes) = (adoption.services, adoption.nodes);
    if adoption.changes == 0 {
        let text =
            format!("the manager would change nothing: it compared {services} Services and {nodes} Nodes with AWS");
        return State::yes("NoChanges", text);
    }

    let named = adoption.first.iter().take(NAMED_CHANGES);
    let named: Vec<String> = named
        .map(|change| format!("{}: {} ({})", change.object, change.action, change.reason))
        .collect();
    let others = (adoption.changes as usize).saturating_sub(named.len());
    let others = match others {
        0 => String::new(),
        others => format!(", and {others} more"),
    };
    let changes = match adoption.changes {
        1 => "1 change".to_owned(),
        changes => format!("{changes} changes"),
    };
    State::new(
        Some(false),
        "ChangesExpected",
        format!("the manager would make {changes}: {}{others}", named.join(", ")),
        "read status.adoption; correct the Service, the Node or the resource at AWS, or accept the changes",
    )
}

/// `Reconciling` and `Stalled`, from `Ready`. `is_settled`: it has been blocked for [`UNTIL_STALLED`].
pub(super) fn progress(ready: &State, is_settled: bool) -> [(&'static str, State); 2] {
    let is_stalled = ready.is_blocked() && is_settled;
    let row = |truth: bool| match truth {
        true => State {
            truth: Some(true),
            notes: Vec::new(),
            ..ready.clone()
        },
        false if ready.is_true() => State::new(Some(false), "Ready", "the state of the phase is reached", ""),
        false if is_stalled => State::new(Some(false), "Stalled", "a person has to act", ""),
        false => State::new(Some(false), "Reconciling", "no person has to act now", ""),
    };
    [
        (condition::RECONCILING, row(!ready.is_true() && !is_stalled)),
        (condition::STALLED, row(is_stalled)),
    ]
}

/// Whether the state is reached that the phase requests, before Complete.
fn ready(report: &Report, prepared: &State, control_plane: &State) -> State {
    if report.decision.phase >= Some(Phase::Migrate) || report.decision.phase.is_none() {
        return control_plane.clone();
    }

    match &report.decision.action {
        LeaseAction::StandBy(why @ Why::OldManagerOwns(Phase::InTree)) => State::because(Some(true), why),
        LeaseAction::StandBy(why @ Why::OldManagerOwns(_)) if prepared.is_true() => State {
            reason: code::EVIDENCE_LATCHED,
            ..State::because(Some(true), why)
        },
        LeaseAction::StandBy(Why::OldManagerOwns(_)) => prepared.clone(),
        LeaseAction::StandBy(why) => State::because(Some(false), why),
        LeaseAction::Release(why) => State::because(Some(false), why).passing(),
        // This manager holds the migration lease, or will acquire it again.
        _ if control_plane.is_true() => stepping_back(report, "a kube-controller-manager"),
        _ => control_plane.clone(),
    }
}

/// The facts that prevent the state of the phase.
pub(super) fn missing(ready: &State, report: &Report) -> Vec<MissingFact> {
    if ready.is_true() {
        return Vec::new();
    }

    let short = |text: &str| text.chars().take(MAX_MISSING_TEXT).collect();
    let items = ready.items.iter().take(MAX_MISSING);
    items
        .map(|item| MissingFact {
            code: item.code.to_owned(),
            observation: short(&item.observation),
            consequence: consequence(report),
            fix: short(&item.fix),
        })
        .collect()
}

/// The effect on this manager while the state of the phase is not reached.
fn consequence(report: &Report) -> String {
    let phase = report
        .decision
        .phase
        .map_or_else(|| "of the object".to_owned(), |phase| phase.to_string());
    match (&report.decision.action, report.inputs.holding) {
        (LeaseAction::Alarm(_) | LeaseAction::Release(_), true) => {
            "this manager stops its controllers and releases the migration lease".to_owned()
        }
        (LeaseAction::Pause(_), true) => "this manager holds the migration lease and writes nothing".to_owned(),
        (_, true) => format!("this manager runs the controllers, and the state of phase {phase} is not reached"),
        (LeaseAction::Compete, false) => "this manager does not run the controllers yet".to_owned(),
        (_, false) if report.decision.phase <= Some(Phase::Prepare) => {
            format!("the state of phase {phase} is not reached, so the next phase has to wait")
        }
        (_, false) => "this manager does not acquire the migration lease".to_owned(),
    }
}

fn phase_followed(report: &Report) -> State {
    let decision = &report.decision;
    if let Reading::Unreadable(why) = &report.inputs.spec {
        return State::new(Some(false), code::SPEC_NOT_FOLLOWED, why.clone(), "correct the spec");
    }

    let phase = match decision.phase {
        _ if decision.warnings.contains(&Warning::InTreeNotFollowed) => {
            let item = Warning::InTreeNotFollowed.item(decision.phase);
            return State::of(Some(false), item.code, vec![item]);
        }
        Some(phase) => phase,
        None => return State::new(None, code::NOT_READ_YET, "the phase is not known yet", "").passing(),
    };
    State::yes(code::FOLLOWED, format!("the manager follows phase {phase}"))
}

fn spec_valid(problems: Option<&[String]>) -> State {
    match problems {
        None => State::new(
            None,
            code::NOT_READABLE,
            "the CloudProviderMigration cannot be read",
            "",
        ),
        Some([]) => State::yes("Valid", "the spec has no problems"),
        Some(problems) => State::new(Some(false), "Invalid", problems.join("; "), ""),
    }
}

/// The latch that the decision leaves on lease C.
fn latch(report: &Report) -> Option<&Latch> {
    match &report.inputs.latch {
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
        return State::yes(
            code::EVIDENCE_LATCHED,
            "it is recorded that every kube-controller-manager acts only while it holds the migration lease, or is external",
        );
    }

    let facts = &report.inputs.facts;
    let of = |missing: &[Missing], phase| {
        let items = why::items(missing, phase);
        State {
            is_passing: missing.iter().all(Missing::is_passing),
            ..State::of(Some(false), code::EVIDENCE_MISSING, items)
        }
    };
    let state = match (report.decision.phase, report.decision.action.why()) {
        (Some(Phase::InTree), _) => State::new(
            Some(false),
            code::EVIDENCE_MISSING,
            "phase InTree",
            "set spec.phase to Prepare and roll the kube-controller-managers",
        ),
        (phase, _) if !contradictions.is_empty() => of(&contradictions, phase),
        (_, Some(why)) if !matches!(why, Why::OldManagerOwns(_)) => State {
            reason: code::EVIDENCE_MISSING,
            ..State::because(Some(false), why)
        },
        (phase, _) => of(&facts::missing(facts, phase.unwrap_or_default()), phase),
    };
    state.noted(report)
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

pub(super) fn control_plane(report: &Report, lease_problem: Option<&str>) -> State {
    let state = match (report.inputs.holding, &report.decision.action) {
        (false, _) => not_held(report, lease_problem).lead("this manager does not hold the migration lease: "),
        (true, LeaseAction::Pause(why)) => {
            State::because(None, why).lead("this manager holds the migration lease, but ")
        }
        (true, LeaseAction::Alarm(why)) => {
            State::because(Some(false), why).lead("this manager is releasing the migration lease: ")
        }
        (true, _) => held(report),
    };
    state.noted(report)
}

fn held(report: &Report) -> State {
    let phase = report.decision.phase;
    let conflict = || {
        let problem = facts::node_ipam_problem(&report.inputs.facts)?;
        Some(State::of(Some(false), code::NODE_IPAM, vec![problem.item(phase)]))
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
        return Some(State::new(
            Some(false),
            code::LEFT_ON,
            format!(
                "{} is external and still has --enable-leader-migration, so it can acquire the migration lease although it runs no cloud controller",
                left_on.object
            ),
            "remove that flag",
        ));
    };

    let (object, phase) = (&left.object, report.decision.phase);
    Some(match (&left.form, phase) {
        (Form::Unreadable { reason }, _) => {
            let missing = Missing::Unreadable {
                object: object.clone(),
                reason: reason.clone(),
                may_be_attested: left.needs_attestation(),
            };
            State::of(None, code::UNDECIDED, vec![missing.item(phase)])
        }
        (_, Some(Phase::Prepare)) => stepping_back(report, object),
        _ => State::new(
            Some(false),
            code::IN_TREE_LEFT,
            format!("{object} is still in-tree"),
            "roll its workload in phase Migrate, or write --cloud-provider=external into the file of the static Pod",
        ),
    })
}

/// Every kube-controller-manager that can be read is external.
fn external(report: &Report) -> State {
    let all = &report.inputs.facts.controller_managers;
    if all.are_all_readable() {
        let text = "this manager holds the migration lease and every kube-controller-manager is external";
        return State::yes(code::MIGRATED, text);
    }
    if is_attested_external(report) {
        let text = "this manager holds the migration lease, and spec.attestation states that every kube-controller-manager is external";
        return State::yes(code::MIGRATED, text);
    }
    if report.decision.phase == Some(Phase::Prepare) {
        return stepping_back(report, "a kube-controller-manager");
    }

    let items = all.unknown().map_or_else(
        || vec![Item::new(code::NOT_READABLE, "a command line cannot be read", "")],
        |missing| vec![missing.item(report.decision.phase)],
    );
    State::of(None, code::NOT_READABLE, items).lead("this manager holds the migration lease, but ")
}

fn completed(inputs: &Inputs<'_>, control_plane: &State, nodes: &State) -> State {
    let is_complete = inputs.report.decision.phase == Some(Phase::Complete);
    if is_complete && control_plane.is_true() && nodes.is_true() {
        return State::yes(code::COMPLETED, over(inputs.controllers));
    }

    let parts = [
        (condition::CONTROL_PLANE_MIGRATED, control_plane),
        (condition::NODES_MIGRATED, nodes),
    ];
    let open = parts.into_iter().filter(|(_, state)| !state.is_true());
    let open = open.map(|(name, _)| Item::new(code::NOT_YET, format!("{name} is not True"), "see its message"));
    let items: Vec<Item> = phase_left(inputs.report).into_iter().chain(open).collect();
    State {
        is_passing: is_complete && control_plane.is_true() && nodes.is_passing,
        ..State::of(Some(false), code::NOT_YET, items)
    }
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

/// The steps of the phase to Complete.
pub(super) fn phase_left(report: &Report) -> Option<Item> {
    let followed = report.decision.phase;
    let item = |observation: String, fix: &str| Some(Item::new(code::NOT_YET, observation, fix));
    match report.inputs.spec.known().map(|spec| spec.phase).or(followed) {
        _ if followed == Some(Phase::Complete) => None,
        Some(Phase::Complete) => item(
            "spec.phase is Complete, and this manager does not follow it".to_owned(),
            "see the message of PhaseFollowed",
        ),
        Some(phase) => item(
            format!("the phase is {phase}"),
            "set spec.phase to Complete, one step at a time",
        ),
        None => item("the phase is not known".to_owned(), ""),
    }
}

fn stepping_back(report: &Report, object: &str) -> State {
    let (offer, fix) = match (report.inputs.facts.external_leader(), report.offer) {
        (Some(leader), _) => (
            format!("the main lease is led by {}, which is external", leader.object),
            "roll it in phase Prepare".to_owned(),
        ),
        (None, None) => (
            "this manager releases it as soon as a new one holds the main lease".to_owned(),
            "roll the kube-controller-managers in phase Prepare".to_owned(),
        ),
        (None, Some(offer)) => (
            format!(
                "it was last offered at {} ({} times) and not acquired",
                offer.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                offer.count
            ),
            "grant user system:kube-controller-manager get, update and create on it (Role outrigger:kube-controller-manager:migration-lease)"
                .to_owned(),
        ),
    };
    State::new(
        Some(false),
        code::STEPPING_BACK,
        format!("stepping back: this manager holds the migration lease until {object} acquires it; {offer}"),
        fix,
    )
}

/// Why this manager does not hold the migration lease, and what ends that.
fn not_held(report: &Report, lease_problem: Option<&str>) -> State {
    let facts = &report.inputs.facts;
    if let Some(seen) = facts.held_for_nothing() {
        return State::new(
            Some(false),
            code::HELD_FOR_NOTHING,
            format!("{} holds it and runs no cloud controller", seen.object),
            "remove its --enable-leader-migration",
        );
    }

    let other = facts.migration.holder.as_ref();
    let other = other.filter(|holder| **holder != report.inputs.identity);
    match (&report.decision.action, lease_problem, other) {
        (LeaseAction::Compete, Some(problem), _) => State::new(
            Some(false),
            code::LEASE_REQUEST_FAILED,
            format!("it cannot be acquired: {problem}"),
            "",
        ),
        (LeaseAction::Compete, None, Some(holder)) => held_by(report, holder),
        (LeaseAction::Compete, None, None) => {
            State::new(Some(false), code::ACQUIRING, "it is being acquired", "").passing()
        }
        (action, ..) => match action.why() {
            Some(why) => State::because(Some(false), why),
            None => State::new(Some(false), code::ACQUIRING, "", ""),
        },
    }
}

fn held_by(report: &Report, holder: &str) -> State {
    let bound = report.decision.bound.as_ref();
    if bound.and_then(|latch| latch.held_by.as_deref()) == Some(holder) {
        let text = format!("the former manager {holder:?} has not released it: waiting until it expires");
        return State::new(Some(false), code::HELD_BY_OTHER, text, "").passing();
    }

    let seconds = report.inputs.facts.migration.duration.unwrap_or_default().as_secs();
    State::new(
        Some(false),
        code::HELD_BY_OTHER,
        format!("{holder:?} holds it"),
        format!(
            "roll or stop that process; this manager acquires the lease when it is released, or {seconds} s after its last renewal; if that process has ended and the time is too long, delete the lease"
        ),
    )
}

fn nodes(counts: Option<NodeCounts>) -> State {
    match counts {
        None => State::new(None, "NotCounted", "the Nodes have not been listed yet", "").passing(),
        Some(n) if n.total == 0 => State::new(Some(false), "NoNodes", "the cluster has no Nodes yet", "add one"),
        Some(n) if n.migrated == n.total => {
            State::yes(code::MIGRATED, format!("all {} Nodes have external kubelets", n.total))
        }
        Some(n) => State::new(
            Some(false),
            code::KUBELETS_LEFT,
            format!(
                "{} of {} Nodes are not known to have an external kubelet",
                n.total - n.migrated,
                n.total
            ),
            format!(
                "replace them, or restart their kubelets with --cloud-provider=external and state it: kubectl annotate node NAME {KUBELET}={EXTERNAL_KUBELET}"
            ),
        ),
    }
}

fn rollback(minor: Option<u32>) -> State {
    match minor {
        None => State::new(None, "VersionUnknown", "the API server's version is unknown", ""),
        Some(minor) if minor <= LAST_IN_TREE_MINOR => State::yes(
            "InTreeAvailable",
            format!("the API server is at 1.{minor}; 1.26 still has the in-tree provider"),
        ),
        Some(minor) => State::new(
            Some(false),
            "InTreeRemoved",
            format!("the API server is at 1.{minor}; from 1.27 on there is no in-tree AWS provider to go back to"),
            "",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use outrigger_evidence::facts::{LeaseFacts, Lock};
    use outrigger_evidence::samples::in_phase as requested;
    use outrigger_evidence::samples::{
        GUARDED, UNGUARDED, beside_unguarded, held, holding, kcm, latch, migrating, seen, standby,
    };
    use outrigger_shared::migration::{Adoption, AdoptionChange};

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
            dry_run: &DryRun::Pending,
        }
    }

    fn in_phase(phase: Phase) -> Report {
        let mut report = report(holding());
        report.decision.phase = Some(phase);
        report
    }

    fn completed(inputs: &Inputs<'_>) -> (Option<bool>, String) {
        let state = of(inputs, condition::COMPLETED);
        (state.truth, state.message())
    }

    fn of(inputs: &Inputs<'_>, type_: &str) -> State {
        let mut rows = conditions(inputs).into_iter().filter(|row| row.0 == type_);
        rows.next().map(|(_, state)| state).unwrap()
    }

    /// Truth, reason and message.
    fn shown(state: &State) -> (Option<bool>, &'static str, String) {
        (state.truth, state.reason, state.message())
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
        let left = "the phase is Migrate: set spec.phase to Complete, one step at a time";
        assert_eq!(completed(&all_done(&migrate)), (Some(false), left.to_owned()));
    }

    #[test]
    fn nodes_are_migrated_when_each_of_them_is() {
        let empty = Some(NodeCounts::default());
        for (counts, truth, reason) in [
            (None, None, "NotCounted"),
            (empty, Some(false), "NoNodes"),
            (counts(2), Some(false), "KubeletsLeft"),
            (counts(3), Some(true), "Migrated"),
        ] {
            let (found, why, text) = shown(&nodes(counts));
            assert_eq!((found, why), (truth, reason), "{text}");
        }
        assert!(nodes(counts(2)).message().starts_with("1 of 3 Nodes are not known"));
    }

    #[test]
    fn the_changes_of_a_dry_run_count_until_the_manager_may_take_over() {
        let clean = |phase: Phase, dry_run: &DryRun| {
            let report = in_phase(phase);
            let inputs = Inputs {
                dry_run,
                ..all_done(&report)
            };
            let mut rows = conditions(&inputs).into_iter();
            rows.find(|row| row.0 == condition::ADOPTION_CLEAN)
                .map(|(_, state)| (state.truth, state.reason, state.message()))
        };
        let ended = |changes: u32| {
            let first = (0..changes).map(|number| AdoptionChange {
                object: format!("Service default/s{number}"),
                action: "CreateListener".to_owned(),
                reason: "it has none".to_owned(),
            });
            DryRun::Ended(Adoption {
                time: Time(Timestamp::UNIX_EPOCH),
                services: 7,
                nodes: 3,
                changes,
                first: first.collect(),
            })
        };

        for phase in [Phase::InTree, Phase::Prepare] {
            assert_eq!(clean(phase, &DryRun::Pending).map(|row| row.0), Some(None));
            let (truth, reason, text) = clean(phase, &DryRun::Failed("no answer".into())).unwrap();
            assert_eq!((truth, reason), (None, "DryRunFailed"));
            assert!(text.contains("no answer"), "{text}");
            let (truth, _, text) = clean(phase, &ended(0)).unwrap();
            assert_eq!(truth, Some(true));
            assert!(text.contains("7 Services and 3 Nodes"), "{text}");
            let (truth, _, text) = clean(phase, &ended(5)).unwrap();
            assert_eq!(truth, Some(false));
            let change = "Service default/s2: CreateListener (it has none), and 2 more";
            assert!(text.contains(change) && text.contains("5 changes"), "{text}");
        }
        for phase in [Phase::Migrate, Phase::Complete] {
            assert_eq!(clean(phase, &ended(5)), None);
        }
    }

    #[test]
    fn a_rollback_needs_a_release_with_the_in_tree_provider() {
        for (minor, truth, reason) in [
            (None, None, "VersionUnknown"),
            (Some(25), Some(true), "InTreeAvailable"),
            (Some(26), Some(true), "InTreeAvailable"),
            (Some(27), Some(false), "InTreeRemoved"),
        ] {
            let (found, why, text) = shown(&rollback(minor));
            assert_eq!((found, why), (truth, reason), "{text}");
        }
    }

    #[test]
    fn a_stored_latch_that_is_followed_or_was_stored_now_is_the_evidence() {
        let is_prepared = |report: &Report| prepared(report).is_true();
        let mut followed = report(holding());
        followed.decision.latch = LatchChange::Keep;
        assert!(followed.decision.bound.is_some());
        let (truth, reason, text) = shown(&prepared(&followed));
        assert_eq!((truth, reason), (Some(true), "EvidenceLatched"), "{text}");

        let mut stored = followed.clone();
        stored.decision.bound = None;
        assert!(!is_prepared(&stored), "a latch that binds nobody");
        let Stored::Latch(latch) = stored.inputs.latch.clone() else {
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
                let (truth, reason, message) = shown(&prepared(&report));
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
        assert!(prepared(&report(stopped)).is_true(), "no Pod of it runs");
    }

    #[test]
    fn missing_evidence_is_reported_with_its_remedy() {
        let mut report = report(migrating());
        report.decision.bound = None;
        report.inputs.latch = Stored::Absent;
        report.inputs.facts.main.is_coordinated = true;
        let reported = |report: &Report| {
            let (truth, reason, text) = shown(&prepared(report));
            assert_eq!((truth, reason), (Some(false), "EvidenceMissing"), "{text}");
            text
        };

        let no_owner = Why::NoOwner(Phase::Prepare);
        report.decision.action = LeaseAction::StandBy(no_owner.clone());
        assert_eq!(reported(&report), no_owner.message());
        let missing = facts::missing(&report.inputs.facts, Phase::Migrate);
        let missing = why::message_of(&why::items(&missing, Some(Phase::Migrate)));
        assert!(missing.contains("spec.preferredHolder"), "{missing}");
        let owned = LeaseAction::StandBy(Why::OldManagerOwns(Phase::Prepare));
        for action in [owned, LeaseAction::Compete] {
            report.decision.action = action;
            assert_eq!(reported(&report), missing);
        }
        report.decision.phase = Some(Phase::InTree);
        assert!(reported(&report).starts_with("phase InTree: set spec.phase to Prepare"));
    }

    fn ready_of(inputs: outrigger_evidence::gate::Inputs, nodes: u32) -> State {
        let report = report(inputs);
        let inputs = Inputs {
            nodes: counts(nodes),
            ..all_done(&report)
        };
        of(&inputs, condition::READY)
    }

    /// The old manager leads, with this form.
    fn owned(phase: Phase, form: Form) -> outrigger_evidence::gate::Inputs {
        let mut inputs = requested(migrating(), phase);
        inputs.facts.controller_managers = seen(vec![kcm(form)]);
        inputs.facts.main = held("kcm-0_a");
        inputs.facts.migration = held("kcm-0_a");
        inputs.latch = latch(phase, "");
        inputs
    }

    #[test]
    fn ready_is_true_when_the_state_of_the_phase_is_reached() {
        let in_tree = owned(Phase::InTree, UNGUARDED);
        assert_eq!(shown(&ready_of(in_tree, 0)).1, "OldManagerOwns");
        let prepared = ready_of(owned(Phase::Prepare, GUARDED), 0);
        assert_eq!((prepared.truth, prepared.reason), (Some(true), "EvidenceLatched"));
        let migrated = ready_of(holding(), 0);
        assert_eq!((migrated.truth, migrated.reason), (Some(true), "Migrated"));
        let complete = ready_of(requested(holding(), Phase::Complete), 3);
        assert_eq!((complete.truth, complete.reason), (Some(true), "Completed"));
    }

    #[test]
    fn ready_is_not_true_while_the_state_of_the_phase_is_not_reached_and_says_what_is_missing() {
        let unguarded = ready_of(owned(Phase::Prepare, UNGUARDED), 0);
        let left_over = ready_of(requested(holding(), Phase::Prepare), 0);
        let acquiring = ready_of(migrating(), 3);
        let alarm = ready_of(beside_unguarded(holding()), 3);
        let kubelets = ready_of(requested(holding(), Phase::Complete), 2);
        let not_followed = ready_of(requested(holding(), Phase::InTree), 3);
        let cases = [
            (unguarded, "EvidenceMissing", true),
            (left_over, "SteppingBack", true),
            (acquiring, "Acquiring", false),
            (alarm, "UnguardedControllerManager", true),
            (kubelets, "KubeletsLeft", true),
            (not_followed, "InTreeNotFollowed", true),
        ];
        for (state, reason, is_blocked) in cases {
            assert_eq!((state.truth, state.reason), (Some(false), reason), "{state:?}");
            assert_eq!(state.is_blocked(), is_blocked, "{state:?}");
            assert!(
                !is_blocked || state.items.iter().all(|item| !item.fix.is_empty()),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_state_that_a_person_has_to_end_is_stalled_when_it_lasts() {
        let truths =
            |state: &State, is_settled| progress(state, is_settled).map(|(_, state)| state.truth == Some(true));
        let ready = ready_of(holding(), 0);
        assert_eq!(truths(&ready, true), [false, false]);
        let acquiring = ready_of(migrating(), 3);
        assert_eq!(truths(&acquiring, true), [true, false]);
        let alarm = ready_of(beside_unguarded(holding()), 3);
        assert_eq!(truths(&alarm, false), [true, false]);
        assert_eq!(truths(&alarm, true), [false, true]);
        let [_, (_, stalled)] = progress(&alarm, true);
        assert_eq!(stalled.reason, "UnguardedControllerManager");
    }

    #[test]
    fn the_phase_that_is_not_followed_has_its_reason() {
        let of = |inputs| shown(&phase_followed(&report(inputs)));
        assert_eq!(of(holding()).1, "Followed");
        let (truth, reason, text) = of(requested(holding(), Phase::InTree));
        assert_eq!((truth, reason), (Some(false), "InTreeNotFollowed"), "{text}");
        let mut refused = holding();
        refused.spec = Reading::Unreadable("its lease is ours".into());
        assert_eq!(of(refused).1, "SpecNotFollowed");
    }

    #[test]
    fn each_missing_fact_has_a_consequence() {
        let facts = |inputs| {
            let report = report(inputs);
            missing(&of(&all_done(&report), condition::READY), &report)
        };
        assert!(facts(holding()).is_empty());

        let alarm = facts(beside_unguarded(holding()));
        assert_eq!(alarm[0].code, "UnguardedControllerManager");
        assert!(
            alarm[0].consequence.contains("releases the migration lease"),
            "{alarm:?}"
        );

        let mut paused = holding();
        paused.facts.controller_managers.seen.push(standby());
        paused.facts.main = LeaseFacts {
            read: true,
            idle: true,
            ..LeaseFacts::default()
        };
        assert!(facts(paused)[0].consequence.ends_with("and writes nothing"));

        let mut evidence = owned(Phase::Prepare, UNGUARDED);
        evidence.facts.main.is_coordinated = true;
        evidence.latch = Stored::Absent;
        let evidence = facts(evidence);
        let codes: Vec<&str> = evidence.iter().map(|fact| fact.code.as_str()).collect();
        assert!(
            codes.contains(&"CoordinatedLease") || codes.contains(&"UnguardedControllerManager"),
            "{codes:?}"
        );
        assert!(
            evidence.iter().all(|fact| fact.consequence.contains("Prepare")),
            "{evidence:?}"
        );
    }
}
