//! Writes the steward's reports to the migration object's status, by server-side apply.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::component::Form;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::{
    CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, NodeCounts, Phase, condition,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::evidence::{ControllerManager, Reading};
use crate::gate::{Decision, LeaseAction};
use crate::permit::{NotLeader, Permit};
use crate::steward::Report;

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
    /// The permit of lease C. A manager that lost it must not overwrite the status of its successor.
    pub permit: Permit,
}

struct StatusInputs<'a> {
    report: &'a Report,
    nodes: Option<NodeCounts>,
    minor: Option<u32>,
}

impl StatusWriter {
    /// Writes whenever the content changes, until `stop`.
    pub async fn run(
        self,
        object: watch::Receiver<Reading<CloudProviderMigration>>,
        mut reports: watch::Receiver<Option<Report>>,
        stop: CancellationToken,
    ) {
        let api: Api<CloudProviderMigration> = Api::all(self.management.clone());
        let mut last_error = String::new();
        while !stop.is_cancelled() {
            let nodes = (self.nodes)();
            let version = in_time(self.cluster.apiserver_version()).await.ok();
            let minor = version.and_then(|v| v.minor.trim_end_matches('+').parse().ok());

            match in_time(self.write(&api, &object, &reports, nodes, minor)).await {
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
                () = sleep(COUNT_NODES) => {}
            }
        }
    }

    async fn write(
        &self,
        api: &Api<CloudProviderMigration>,
        object: &watch::Receiver<Reading<CloudProviderMigration>>,
        reports: &watch::Receiver<Option<Report>>,
        nodes: Option<NodeCounts>,
        minor: Option<u32>,
    ) -> Result<(), kube::Error> {
        let (Reading::Known(object), Some(report)) = (object.borrow().clone(), reports.borrow().clone()) else {
            return Ok(());
        };

        let old = object.status.clone().unwrap_or_default();
        let new = self.status(
            &object,
            &old,
            &StatusInputs {
                report: &report,
                nodes,
                minor,
            },
            Timestamp::now(),
        );
        if new == old {
            return Ok(());
        }

        let patch = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": object.name_any()}, "status": new,
        });
        let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(&patch));
        let write = api.patch_status(&self.migration, &parameters, &patch);

        match self.permit.guard(write).await {
            Ok(answer) => answer.map(drop),
            // Another manager writes it from now on.
            Err(NotLeader) => Ok(()),
        }
    }

    fn status(
        &self,
        object: &CloudProviderMigration,
        old: &CloudProviderMigrationStatus,
        inputs: &StatusInputs<'_>,
        now: Timestamp,
    ) -> CloudProviderMigrationStatus {
        let generation = object.metadata.generation;
        let conditions = conditions(inputs)
            .into_iter()
            .map(|(type_, truth, reason, message)| {
                let status = match truth {
                    Some(true) => "True",
                    Some(false) => "False",
                    None => "Unknown",
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
        }
    }

    fn controllers(&self, report: &Report, old: &[ControllerStatus], now: Timestamp) -> Vec<ControllerStatus> {
        let facts = &report.inputs.facts;
        let shared = if report.inputs.holding {
            (
                Some(Party::CloudControllerManager),
                Some(self.lease.clone()),
                facts.migration_holder.clone(),
            )
        } else if let Some(holder) = facts.migration_holder.clone() {
            (
                Some(Party::KubeControllerManager),
                Some(self.lease.clone()),
                Some(holder),
            )
        } else if let Some(holder) = facts.main_holder.clone().filter(|_| report.latch.is_none()) {
            (Some(Party::KubeControllerManager), None, Some(holder))
        } else {
            (None, Some(self.lease.clone()), None)
        };

        let node = (Some(Party::CloudControllerManager), Some(self.main_lease.clone()), None);
        let rows = [Controller::Service, Controller::Route, Controller::NodeLifecycle].map(|c| (c, shared.clone()));

        rows.into_iter()
            .chain([(Controller::Node, node)])
            .map(|(controller, (owner, lease, holder))| {
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

/// Limits the time of a request, and turns failures into text.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {REQUEST_TIMEOUT:?}")),
    }
}

type Row = (&'static str, Option<bool>, &'static str, String);

/// The five conditions. Pure.
fn conditions(inputs: &StatusInputs<'_>) -> [Row; 5] {
    let control_plane = control_plane(inputs.report);
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
            "needs phase Complete, ControlPlaneMigrated and NodesMigrated".to_owned(),
        ),
    };

    [
        prepared(inputs.report),
        control_plane,
        nodes,
        completed,
        rollback(inputs.minor),
    ]
}

fn prepared(report: &Report) -> Row {
    let name = condition::PREPARED;
    if report.latch.is_some() {
        return (
            name,
            Some(true),
            "EvidenceLatched",
            "every readable kube-controller-manager was observed with leader migration on".into(),
        );
    }

    let missing = match &report.decision.action {
        _ if report.decision.phase == Some(Phase::InTree) => {
            "phase InTree: set spec.phase to Prepare and roll the kube-controller-managers".to_owned()
        }
        LeaseAction::StandBy(why) | LeaseAction::Release(why) | LeaseAction::Alarm(why)
            if !why.starts_with("phase Prepare") =>
        {
            why.clone()
        }
        _ => crate::evidence::assess(&report.inputs.facts).missing.join("; "),
    };

    (name, Some(false), "EvidenceMissing", missing)
}

fn control_plane(report: &Report) -> Row {
    let name = condition::CONTROL_PLANE_MIGRATED;
    if !report.inputs.holding {
        return (name, Some(false), "LeaseNotHeld", not_held(&report.decision));
    }

    let seen = report
        .inputs
        .facts
        .controller_managers
        .known()
        .map_or(&[][..], Vec::as_slice);
    let left = |form: &Form| !matches!(form, Form::External { .. } | Form::NoProvider);
    match seen.iter().find(|kcm| left(&kcm.form)) {
        Some(ControllerManager {
            object,
            form: Form::Unreadable { reason },
            ..
        }) => (name, None, "Undecided", format!("{object} cannot be judged: {reason}")),
        Some(kcm) => (
            name,
            Some(false),
            "InTreeLeft",
            format!("{} is still in-tree: roll it in phase Migrate", kcm.object),
        ),
        None => (
            name,
            Some(true),
            "Migrated",
            "this manager holds the migration lease and no readable kube-controller-manager is in-tree".into(),
        ),
    }
}

/// Why this manager does not hold the migration lease, with what the operator should know besides.
fn not_held(decision: &Decision) -> String {
    let why = match &decision.action {
        LeaseAction::StandBy(why) | LeaseAction::Release(why) | LeaseAction::Alarm(why) => why.as_str(),
        LeaseAction::Compete => "another process holds it, or it is being acquired",
        LeaseAction::CompeteAfterYield => "it is offered to the old manager",
    };
    let words = std::iter::once(why).chain(decision.warnings.iter().map(String::as_str));
    let words: Vec<&str> = words.collect();

    format!("this manager does not hold the migration lease: {}", words.join("; "))
}

fn nodes(counts: Option<NodeCounts>) -> Row {
    let name = condition::NODES_MIGRATED;
    match counts {
        None => (name, None, "NotCounted", "the Nodes have not been listed yet".into()),
        Some(n) if n.total > 0 && n.migrated == n.total => (
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
