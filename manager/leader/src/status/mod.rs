//! Writes the steward's reports to the migration object's status, by server-side apply.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use outrigger_shared::component::Form;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::event::About;
use outrigger_shared::migration::{
    CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, HistoryEntry, NodeCounts, Phase, condition,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::evidence::{self, ControllerManager, Reading};
use crate::gate::{self, LeaseAction, reason};
use crate::latch::{Latch, Stored};
use crate::permit::{NotLeader, Permit};
use crate::steward::Report;

mod candidate;
mod history;
mod notices;
mod owner;
mod reporter;

pub use candidate::Candidate;
pub use notices::Notice;
use owner::{Lease, Ownership, owner_of_shared};
pub use reporter::{Reporter, Snapshot};

/// The field manager of all writes of the manager. It also shows which process set the provider ID of a Node.
pub const FIELD_MANAGER: &str = "outrigger-manager";

/// Period of the counts of Nodes without another reason to write.
const COUNT_NODES: Duration = Duration::from_secs(15);
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Reports within this time are written as one.
const SETTLE: Duration = Duration::from_millis(200);
/// The last minor release with the in-tree AWS provider.
const LAST_IN_TREE_MINOR: u32 = 26;

/// Counts the cluster's Nodes; `None` until they have been listed.
pub type CountNodes = Arc<dyn Fn() -> Option<NodeCounts> + Send + Sync>;

/// Writes the status of one migration.
pub struct StatusWriter {
    /// The API server of the object.
    pub management: Client,
    /// The cluster's API server, for its version.
    pub cluster: Client,
    /// The cluster's Nodes.
    pub nodes: CountNodes,
    /// The object's name.
    pub migration: String,
    /// Lease M's name.
    pub lease: String,
    /// Lease C's name.
    pub main_lease: String,
    /// The controllers that this manager runs under lease M.
    pub controllers: Vec<Controller>,
    /// The permit of lease C. A manager that lost it must not overwrite the status of its successor.
    pub permit: Permit,
    /// Why this process's last request for lease M failed, while they fail.
    pub lease_problem: watch::Receiver<Option<String>>,
    /// Takes the state for metrics, and Events.
    pub reporter: Reporter,
}

struct StatusInputs<'a> {
    report: &'a Report,
    lease_problem: Option<String>,
    /// The changes of ownership that this process observed.
    changes: Vec<HistoryEntry>,
    /// `None` while the object cannot be read.
    problems: Option<Vec<String>>,
    /// The generation that has these problems. The decision may be about an older one.
    generation: Option<i64>,
    nodes: Option<NodeCounts>,
    minor: Option<u32>,
}

impl StatusWriter {
    /// Writes whenever the content changes, until `stop`.
    pub async fn run(
        mut self,
        object: watch::Receiver<Reading<CloudProviderMigration>>,
        mut reports: watch::Receiver<Option<Report>>,
        stop: CancellationToken,
    ) {
        let api: Api<CloudProviderMigration> = Api::all(self.management.clone());
        let (changes, changes_rx) = watch::channel(Vec::new());
        let events = self.events(object.clone());
        tokio::spawn(history::follow(object.clone(), reports.clone(), changes, events));
        let mut last_error = String::new();
        let (mut minor, mut asked) = (None, None::<Instant>);
        while !stop.is_cancelled() {
            let nodes = (self.nodes)();
            if asked.is_none_or(|at| at.elapsed() >= COUNT_NODES) {
                let version = in_time(self.cluster.apiserver_version()).await.ok();
                minor = version.and_then(|v| v.minor.trim_end_matches('+').parse().ok());
                asked = Some(Instant::now());
            }

            match in_time(self.write(&api, &object, (&reports, &changes_rx), nodes, minor)).await {
                Ok(()) => last_error.clear(),
                Err(error) if error == last_error => {}
                Err(error) => {
                    tracing::error!(error, "cannot write the migration's status");
                    last_error = error;
                }
            }

            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = reports.changed() => sleep(SETTLE).await,
                Ok(()) = self.lease_problem.changed() => sleep(SETTLE).await,
                () = sleep(COUNT_NODES) => {}
            }
        }
    }

    /// Emits Events about the object while it can be read.
    fn events(&self, object: watch::Receiver<Reading<CloudProviderMigration>>) -> impl Fn(&Notice) + Send + use<> {
        let (permit, reporter) = (self.permit.clone(), self.reporter.clone());
        move |notice| {
            let about = object.borrow().known().map(about);
            if let Some(about) = about {
                (reporter.events)(&permit, &about, notice);
            }
        }
    }

    async fn write(
        &self,
        api: &Api<CloudProviderMigration>,
        object: &watch::Receiver<Reading<CloudProviderMigration>>,
        (reports, changes): (&watch::Receiver<Option<Report>>, &watch::Receiver<Vec<HistoryEntry>>),
        nodes: Option<NodeCounts>,
        minor: Option<u32>,
    ) -> Result<(), kube::Error> {
        let (reading, changes) = (object.borrow().clone(), changes.borrow().clone());
        let Some(report) = reports.borrow().clone() else {
            return Ok(());
        };

        let object = reading.known();
        let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
        let new = self.status(
            &old,
            &StatusInputs {
                problems: object.map(|object| object.spec.problems().iter().map(ToString::to_string).collect()),
                generation: object.and_then(|object| object.metadata.generation),
                report: &report,
                lease_problem: self.lease_problem.borrow().clone(),
                changes,
                nodes,
                minor,
            },
            Timestamp::now(),
        );
        if report.was_read() && self.permit.check().is_ok() {
            (self.reporter.metrics)(&Snapshot::of(&self.migration, &report, &new));
        }

        if object.is_none() || is_same(&old, &new) {
            return Ok(());
        }

        let write = patch(api, &self.migration, &new);
        match self.permit.guard(write).await {
            Ok(answer) => answer,
            // Another manager writes it from now on.
            Err(NotLeader) => Ok(()),
        }
    }

    fn status(
        &self,
        old: &CloudProviderMigrationStatus,
        inputs: &StatusInputs<'_>,
        now: Timestamp,
    ) -> CloudProviderMigrationStatus {
        // The spec that the decision is about. The object may be newer.
        let generation = inputs.report.inputs.spec.known().map(|spec| spec.generation);
        let conditions = conditions(inputs)
            .into_iter()
            .map(|(type_, truth, reason, message)| {
                let status = match truth {
                    Some(true) => "True",
                    Some(false) => "False",
                    None => "Unknown",
                };
                let generation = match type_ {
                    condition::SPEC_VALID => inputs.generation,
                    _ => generation,
                };
                old.condition(type_, status, (reason, message), generation, now)
            })
            .collect();

        let controllers = self.controllers(inputs.report, &old.controllers, now);

        CloudProviderMigrationStatus {
            observed_generation: generation,
            conditions,
            controllers,
            nodes: inputs.nodes,
            history: history::merged(&old.history, &inputs.changes),
        }
    }

    fn controllers(&self, report: &Report, old: &[ControllerStatus], now: Timestamp) -> Vec<ControllerStatus> {
        let inputs = &report.inputs;
        let old_manager = Controller::SHARED.map(|controller| (controller, owner_of_shared(inputs)));
        let node = Ownership {
            owner: Some(Party::CloudControllerManager),
            lease: Lease::Main,
            holder: Some(inputs.identity.clone()),
        };

        old_manager
            .into_iter()
            .chain([(Controller::Node, node)])
            .map(|(controller, ownership)| {
                let Ownership { owner, lease, holder } = ownership;
                // The holder of the lease runs only the controllers that its flags name.
                let is_ours = owner == Some(Party::CloudControllerManager) && controller != Controller::Node;
                let owner = owner.filter(|_| !is_ours || self.controllers.contains(&controller));
                let lease = match lease {
                    Lease::Main => Some(self.main_lease.clone()),
                    Lease::Migration => Some(self.lease.clone()),
                    Lease::OldManagers => None,
                };
                let name = controller.canonical_name().to_owned();
                let same = old
                    .iter()
                    .find(|row| row.name == name && row.owner == owner && row.holder == holder);
                let since = same.map_or_else(|| Some(Time(now)), |row| row.since.clone());

                ControllerStatus {
                    name,
                    owner,
                    lease,
                    holder,
                    since,
                }
            })
            .collect()
    }
}

/// Whether both say the same, apart from conditions of other writers.
fn is_same(old: &CloudProviderMigrationStatus, new: &CloudProviderMigrationStatus) -> bool {
    let own = |status: &CloudProviderMigrationStatus| {
        let mut own = status.clone();
        own.conditions
            .retain(|row| condition::ALL.contains(&row.type_.as_str()));
        own.conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
        own
    };
    own(old) == own(new)
}

async fn patch(
    api: &Api<CloudProviderMigration>,
    name: &str,
    status: &CloudProviderMigrationStatus,
) -> Result<(), kube::Error> {
    let patch = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": name}, "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_status(name, &parameters, &Patch::Apply(&patch))
        .await
        .map(drop)
}

fn about(object: &CloudProviderMigration) -> About {
    About {
        api_version: CloudProviderMigration::api_version(&()).into_owned(),
        kind: CloudProviderMigration::kind(&()).into_owned(),
        name: object.name_any(),
        namespace: None,
        uid: object.uid().unwrap_or_default(),
    }
}

/// Limits the time of a request, and turns failures into text.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {REQUEST_TIMEOUT:?}")),
    }
}

type Row = (&'static str, Option<bool>, &'static str, String);

/// The conditions. Pure.
fn conditions(inputs: &StatusInputs<'_>) -> [Row; 6] {
    let control_plane = control_plane(inputs.report, inputs.lease_problem.as_deref());
    let nodes = nodes(inputs.nodes);
    let phase = inputs.report.decision.phase;
    let all = phase == Some(Phase::Complete) && control_plane.1 == Some(true) && nodes.1 == Some(true);
    let completed = match all {
        true => (
            condition::COMPLETED,
            Some(true),
            "Completed",
            "the migration is over".to_owned(),
        ),
        false => (
            condition::COMPLETED,
            Some(false),
            "NotYet",
            left(inputs.report, control_plane.1, nodes.1),
        ),
    };

    [
        spec_valid(inputs.problems.as_deref()),
        prepared(inputs.report),
        control_plane,
        nodes,
        completed,
        rollback(inputs.minor),
    ]
}

fn spec_valid(problems: Option<&[String]>) -> Row {
    let name = condition::SPEC_VALID;
    match problems {
        None => (
            name,
            None,
            "NotReadable",
            "the CloudProviderMigration cannot be read".to_owned(),
        ),
        Some([]) => (name, Some(true), "Valid", "the spec has no problems".to_owned()),
        Some(problems) => (name, Some(false), "Invalid", problems.join("; ")),
    }
}

/// The latch that the decision leaves on lease C.
fn latch(report: &Report) -> Option<&Latch> {
    match &report.latch {
        Stored::Latch(latch) if report.decision.bound.is_some() => Some(latch),
        Stored::Latch(latch) if report.inputs.spec.known().is_some_and(|spec| spec.uid == latch.uid) => {
            let was_stored_now = matches!(report.decision.latch, gate::LatchChange::Store(_));
            was_stored_now.then_some(latch)
        }
        _ => None,
    }
}

fn prepared(report: &Report) -> Row {
    let name = condition::PREPARED;
    if let Some(latch) = latch(report) {
        let message = notices::basis(latch.basis);
        return (name, Some(true), "EvidenceLatched", message.into());
    }

    let why = report.decision.action.why();
    let missing = match why {
        _ if report.decision.phase == Some(Phase::InTree) => {
            "phase InTree: set spec.phase to Prepare and roll the kube-controller-managers".to_owned()
        }
        Some(why) if why.reason != reason::OLD_MANAGER_OWNS => with_warnings(report, &why.message),
        _ => with_warnings(report, &evidence::missing(&report.inputs.facts).join("; ")),
    };

    (name, Some(false), "EvidenceMissing", missing)
}

fn with_warnings(report: &Report, text: &str) -> String {
    let warnings = report.decision.warnings.iter().map(String::as_str);
    let texts = std::iter::once(text).chain(warnings).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("; ")
}

fn control_plane(report: &Report, lease_problem: Option<&str>) -> Row {
    let (name, truth, reason, text) = match report.inputs.holding {
        true => held(report),
        false => {
            let (reason, why) = not_held(report, lease_problem);
            let text = format!("this manager does not hold the migration lease: {why}");
            (condition::CONTROL_PLANE_MIGRATED, Some(false), reason, text)
        }
    };

    (name, truth, reason, with_warnings(report, &text))
}

fn held(report: &Report) -> Row {
    let name = condition::CONTROL_PLANE_MIGRATED;
    let facts = &report.inputs.facts;
    let all = &facts.controller_managers;
    let phase = report.decision.phase.filter(|phase| *phase >= Phase::Migrate);
    let is_attested = phase.is_some() && facts.attested_phase == phase;
    let counts_as_external = |seen: &ControllerManager| seen.is_external() || is_attested && seen.needs_attestation();
    let text = match all.seen.iter().find(|seen| !counts_as_external(seen)) {
        Some(
            seen @ ControllerManager {
                object,
                form: Form::Unreadable { reason },
                ..
            },
        ) => {
            let attest = phase
                .filter(|_| seen.needs_attestation())
                .map_or_else(String::new, |phase| {
                    format!("; or state in spec.attestedPhase: {phase} that it is external")
                });
            let text = format!("{object} cannot be judged: {reason}{attest}");
            return (name, None, "Undecided", text);
        }
        Some(seen) if report.decision.phase == Some(Phase::Prepare) => {
            return (
                name,
                Some(false),
                reason::STEPPING_BACK,
                stepping_back(report, &seen.object),
            );
        }
        Some(seen) => {
            let text = format!(
                "{} is still in-tree: roll its workload in phase Migrate, or write --cloud-provider=external into the file of the static Pod",
                seen.object
            );
            return (name, Some(false), "InTreeLeft", text);
        }
        None => "this manager holds the migration lease and every kube-controller-manager is external",
    };
    if let Some(left_on) = all.seen.iter().find(|seen| seen.holds_for_nothing()) {
        let text = format!(
            "{} is external and still has --enable-leader-migration: remove that flag, or it can acquire the migration lease although it runs no cloud controller",
            left_on.object
        );
        return (name, Some(false), "LeaderMigrationLeftOn", text);
    }

    let attested = facts.attested_phase.is_some() && facts.attested_phase == report.decision.phase;
    match all.unknown() {
        Some(why) if !attested => {
            let text = format!(
                "this manager holds the migration lease, but {why}: correct the targets or the access, or state in spec.attestedPhase that none is in-tree"
            );
            (name, None, "NotReadable", text)
        }
        None if all.are_all_readable() => (name, Some(true), "Migrated", text.into()),
        _ => {
            let text = "this manager holds the migration lease, and spec.attestedPhase states that every kube-controller-manager is external";
            (name, Some(true), "Migrated", text.into())
        }
    }
}

/// The steps to the end of the migration.
fn left(report: &Report, control_plane: Option<bool>, nodes: Option<bool>) -> String {
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
    let offer = match (gate::external_leader(&report.inputs.facts), report.offer) {
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
    if let Some(seen) = gate::held_for_nothing(facts) {
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
        (LeaseAction::Compete, Some(holder)) => (
            "LeaseHeldByOther",
            format!("{holder:?} holds it: roll or stop that process, so that it releases the lease"),
        ),
        (LeaseAction::Compete, None) => ("Acquiring", "it is being acquired".to_owned()),
        (action, _) => action
            .why()
            .map_or(("LeaseNotHeld", String::new()), |why| (why.reason, why.message.clone())),
    }
}

fn nodes(counts: Option<NodeCounts>) -> Row {
    let name = condition::NODES_MIGRATED;
    match counts {
        None => (name, None, "NotCounted", "the Nodes have not been listed yet".into()),
        Some(n) if n.total == 0 => (name, Some(false), "NoNodes", "the cluster has no Nodes yet".into()),
        Some(n) if n.migrated == n.total => (
            name,
            Some(true),
            "Migrated",
            format!("all {} Nodes have external kubelets", n.total),
        ),
        Some(n) => {
            let left = n.total - n.migrated;
            (
                name,
                Some(false),
                "InTreeLeft",
                format!(
                    "{left} of {} Nodes are not known to have an external kubelet: replace them, or restart them with --cloud-provider=external",
                    n.total
                ),
            )
        }
    }
}

fn rollback(minor: Option<u32>) -> Row {
    let name = condition::ROLLBACK_POSSIBLE;
    match minor {
        None => (
            name,
            None,
            "VersionUnknown",
            "the API server's version is unknown".into(),
        ),
        Some(minor) if minor <= LAST_IN_TREE_MINOR => (
            name,
            Some(true),
            "InTreeAvailable",
            format!("the API server is at 1.{minor}; 1.26 still has the in-tree provider"),
        ),
        Some(minor) => (
            name,
            Some(false),
            "InTreeRemoved",
            format!("the API server is at 1.{minor}; from 1.27 on there is no in-tree AWS provider to go back to"),
        ),
    }
}

#[cfg(test)]
mod tests;
