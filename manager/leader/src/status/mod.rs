//! Writes the steward's reports to the migration object's status, by server-side apply.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::event::About;
use outrigger_shared::migration::{
    CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, HistoryEntry, NodeCounts, condition,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::evidence::Reading;
use crate::permit::{NotLeader, Permit};
use crate::steward::Report;

mod candidate;
mod conditions;
mod history;
mod notices;
mod owner;
mod reporter;

pub use candidate::Candidate;
use conditions::conditions;
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

#[cfg(test)]
mod tests;
