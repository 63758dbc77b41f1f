//! Writes the steward's reports to the migration object's status, by server-side apply.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use outrigger_evidence::facts::Reading;
use outrigger_evidence::owner::{Lease, Ownership, owner_of};
use outrigger_evidence::why::{Names, code};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::event::{About, whole_seconds};
use outrigger_shared::migration::{
    Adoption, CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, HistoryEntry, NodeCounts,
    Observer, Phase, condition,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::field_manager::FIELD_MANAGER;
use crate::permit::Permit;
use crate::readers::{Own, note_problem, send_new};
use crate::run::Guard;
use crate::steward::Report;

mod conditions;
mod notices;
mod standby;

use conditions::{Inputs, State, UNTIL_STALLED, conditions, missing, progress};
pub use notices::Notice;
use standby::Lasting;
pub use standby::{MainLease, report_not_led};

/// Period of the counts of Nodes without another reason to write.
const COUNT_NODES: Duration = Duration::from_secs(15);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Reports within this time are written as one.
const SETTLE: Duration = Duration::from_millis(200);

/// The status is written again after this time, so that its age shows whether somebody observes the cluster.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(60);

/// A CustomResourceDefinition that lacked a field is tried again with it after this time.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// The request, as logs name it.
const WRITE_STATUS: &str = "write the migration's status";

/// Counts the cluster's Nodes; `None` until they have been listed.
pub type CountNodes = Arc<dyn Fn() -> Option<NodeCounts> + Send + Sync>;

/// The knowledge of the changes that the controllers would make.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum DryRun {
    /// None has ended since this process holds the main lease, or the controllers run here.
    #[default]
    Pending,
    /// The last one failed, with the error.
    Failed(String),
    Ended(Adoption),
}

impl DryRun {
    fn adoption(self) -> Option<Adoption> {
        match self {
            Self::Ended(adoption) => Some(adoption),
            Self::Pending | Self::Failed(_) => None,
        }
    }
}

/// The state of a migration, from the holder of lease C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: String,
    /// The phase that the manager follows; `None` while it is unknown.
    pub phase: Option<Phase>,
    pub conditions: Vec<(&'static str, String)>,
    pub owners: Vec<(String, Option<Party>)>,
    /// Each source of evidence, and whether it cannot be read now.
    pub unreadable: [(&'static str, bool); 4],
    pub alarm: bool,
}

/// Emits an Event, for which the permit of lease C must be valid.
type EmitEvent = dyn Fn(&Permit, &About, &Notice) + Send + Sync;

/// Takes what the holder of lease C reports.
#[derive(Clone)]
pub struct Reporter {
    pub metrics: Arc<dyn Fn(&Snapshot) + Send + Sync>,
    /// Called at each change.
    pub events: Arc<EmitEvent>,
}

impl Snapshot {
    pub(super) fn of(name: &str, report: &Report, status: &CloudProviderMigrationStatus) -> Self {
        let of_type = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let conditions = condition::ALL
            .into_iter()
            .filter_map(|type_| Some((type_, of_type(type_)?.status.clone())));
        let owners = status.controllers.iter().map(|row| (row.name.clone(), row.owner));
        let inputs = &report.inputs;

        Self {
            name: name.to_owned(),
            phase: report.decision.phase,
            conditions: conditions.collect(),
            owners: owners.collect(),
            unreadable: [
                ("migration", matches!(inputs.spec, Reading::Unreadable(_))),
                (
                    "kube-controller-managers",
                    !inputs.facts.controller_managers.unreadable.is_empty(),
                ),
                ("kube-controller-manager-lease", inputs.facts.main.failure.is_some()),
                ("migration-lease", inputs.facts.migration.failure.is_some()),
            ],
            alarm: status.history.last().is_some_and(|newest| newest.alarm),
        }
    }
}

/// The status of the object, and the one that it should have.
#[derive(Clone)]
struct Change {
    old: CloudProviderMigrationStatus,
    new: CloudProviderMigrationStatus,
}

pub struct StatusWriter {
    pub guard: Guard,
    pub own: Own,
    /// The permit of lease C. A manager that lost it must not overwrite the status of its successor.
    pub permit: Permit,
    /// Why this process's last request for lease M failed, while they fail.
    pub lease_problem: watch::Receiver<Option<String>>,
}

struct Sources {
    object: watch::Receiver<Reading<CloudProviderMigration>>,
    reports: watch::Receiver<Option<Report>>,
    changes: watch::Receiver<Vec<HistoryEntry>>,
    lease_problem: watch::Receiver<Option<String>>,
    version: watch::Receiver<Version>,
    dry_run: watch::Receiver<DryRun>,
}

impl Sources {
    /// Waits for a change, or for the next count of Nodes.
    async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.reports.changed() => sleep(SETTLE).await,
            Ok(()) = self.lease_problem.changed() => sleep(SETTLE).await,
            Ok(()) = self.version.changed() => {}
            Ok(()) = self.dry_run.changed() => {}
            () = sleep(COUNT_NODES) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Version {
    /// The first request has ended.
    read: bool,
    minor: Option<u32>,
}

impl StatusWriter {
    pub async fn run(
        self,
        object: watch::Receiver<Reading<CloudProviderMigration>>,
        (reports, all_reports): (watch::Receiver<Option<Report>>, mpsc::UnboundedReceiver<Report>),
        stop: CancellationToken,
    ) {
        let (changes, changes_rx) = watch::channel(Vec::new());
        let (version, version_rx) = watch::channel(Version::default());

        let events = self.events(object.clone());
        let notices = notices::follow(object.clone(), all_reports, changes, events);

        let sources = Sources {
            object,
            reports,
            changes: changes_rx,
            lease_problem: self.lease_problem.clone(),
            version: version_rx,
            dry_run: self.guard.dry_run.clone(),
        };
        let (statuses, newest) = watch::channel(None);
        tokio::join!(
            notices,
            self.follow_version(version, &stop),
            self.follow(sources, statuses, &stop),
            self.write(newest, &stop),
        );
    }

    async fn follow_version(&self, version: watch::Sender<Version>, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let answer = in_time(self.guard.cluster.apiserver_version()).await.ok();
            let minor = answer.and_then(|answer| answer.minor.trim_end_matches('+').parse().ok());
            send_new(&version, Version { read: true, minor });
            stop.run_until_cancelled(sleep(COUNT_NODES)).await;
        }
    }

    /// Makes the status again at each change, and sets the metrics by it. No request delays that.
    async fn follow(&self, mut sources: Sources, statuses: watch::Sender<Option<Change>>, stop: &CancellationToken) {
        let mut blocked = Lasting::default();
        while !stop.is_cancelled() {
            if let Some(report) = sources.reports.borrow().clone() {
                let object = sources.object.borrow().known().cloned();
                let change = self.change(&sources, object.as_ref(), &report, &mut blocked);
                if report.was_read() && self.permit.check().is_ok() {
                    (self.guard.reporter.metrics)(&Snapshot::of(&self.guard.migration, &report, &change.new));
                }
                // A condition that is only not known yet is no change.
                let is_known = object.is_some() && sources.version.borrow().read;
                statuses.send_replace(is_known.then_some(change));
            }
            stop.run_until_cancelled(sources.changed()).await;
        }
    }

    /// Writes the newest status. A write that fails is repeated with the next one.
    async fn write(&self, mut statuses: watch::Receiver<Option<Change>>, stop: &CancellationToken) {
        let api: Api<CloudProviderMigration> = Api::all(self.guard.management.clone());
        let (mut problem, mut sent) = (None, None);
        let mut older = OlderDefinition::default();
        while let Some(Ok(())) = stop.run_until_cancelled(statuses.changed()).await {
            let newest = statuses.borrow_and_update().clone();
            let Some(Change { old, new }) = newest else {
                continue;
            };
            let new = older.known(new);
            // The object of the watch may be older than what was sent last.
            let is_sent = |new| sent.as_ref().is_none_or(|sent| is_same(sent, new));
            if is_same(&old, &new) && is_sent(&new) {
                continue;
            }

            let write = async {
                let write = older.patch(&api, &self.guard.migration, &new);
                // Without the lease, another manager writes it from now on.
                self.permit.guard(write).await.unwrap_or(Ok(()))
            };
            note_problem(&mut problem, in_time(Box::pin(write)).await.err(), WRITE_STATUS);
            sent = Some(new);
        }
    }

    /// Emits Events about the object while it can be read.
    fn events(&self, object: watch::Receiver<Reading<CloudProviderMigration>>) -> impl Fn(&Notice) + Send + use<> {
        let (permit, reporter) = (self.permit.clone(), self.guard.reporter.clone());
        move |notice| {
            let about = object.borrow().known().map(about);
            if let Some(about) = about {
                (reporter.events)(&permit, &about, notice);
            }
        }
    }

    fn change(
        &self,
        sources: &Sources,
        object: Option<&CloudProviderMigration>,
        report: &Report,
        blocked: &mut Lasting<bool>,
    ) -> Change {
        let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
        let now = Timestamp::now();
        let current = object.and_then(|object| object.metadata.generation);
        // The spec that the decision is about. The object may be newer. A spec that is not followed leaves the last one.
        let followed = report.inputs.spec.known().map(|spec| spec.generation);
        let decided = followed.or(old.observed_generation);

        let nodes = (self.guard.nodes)();
        let dry_run = sources.dry_run.borrow().clone();
        let mut rows = conditions(&Inputs {
            report,
            lease_problem: sources.lease_problem.borrow().clone(),
            problems: object.map(|object| self.problems(object)),
            nodes,
            minor: sources.version.borrow().minor,
            controllers: &self.guard.controllers,
            dry_run: &dry_run,
        });
        let ready = rows[0].1.clone();
        rows.extend(progress(&ready, blocked.lasts(ready.is_blocked()) >= UNTIL_STALLED));

        let command = object.and_then(|object| report.decision.action.why()?.command(&self.names(object)));
        let conditions = rows.iter().map(|(type_, state)| {
            let generation = match *type_ {
                condition::SPEC_VALID | condition::PHASE_FOLLOWED => current,
                _ => decided,
            };
            let message = match &command {
                Some(command) if is_about_the_decision(type_, state) => format!("{}: {command}", state.message()),
                _ => state.message(),
            };
            old.condition(
                type_,
                status_text(state.truth),
                (state.reason, message),
                generation,
                now,
            )
        });

        let new = CloudProviderMigrationStatus {
            // A spec that is refused was observed, too.
            observed_generation: followed.or(current),
            phase: report.decision.phase,
            observed_by: Some(self.observer(report, old.observed_by.as_ref(), now)),
            conditions: conditions.collect(),
            missing: missing(&ready, report),
            controllers: self.controllers(report, &old.controllers, now),
            nodes,
            adoption: conditions::is_before_adoption(report)
                .then_some(dry_run)
                .and_then(DryRun::adoption),
            history: notices::merged(&old.history, &sources.changes.borrow()),
        };
        Change { old, new }
    }

    /// Its time changes only with the next heartbeat.
    fn observer(&self, report: &Report, old: Option<&Observer>, now: Timestamp) -> Observer {
        let identity = &report.inputs.identity;
        let current = old.filter(|old| old.identity == *identity && now.duration_since(old.time.0) < HEARTBEAT);
        current.cloned().unwrap_or_else(|| Observer {
            identity: identity.clone(),
            time: Time(whole_seconds(now)),
        })
    }

    fn names(&self, object: &CloudProviderMigration) -> Names {
        Names {
            migration: self.guard.migration.clone(),
            namespace: self.own.namespace.clone(),
            old_main_lease: object.spec.kube_controller_manager_lease.clone(),
            migration_lease: self.own.lease.clone(),
        }
    }

    /// Everything that the operator has to correct in the spec.
    fn problems(&self, object: &CloudProviderMigration) -> Vec<String> {
        let problems = object.spec.problems();
        let of_spec = problems.iter().map(ToString::to_string);
        of_spec.chain(self.own.other_leases(object)).collect()
    }

    fn controllers(&self, report: &Report, old: &[ControllerStatus], now: Timestamp) -> Vec<ControllerStatus> {
        let inputs = &report.inputs;
        let old_manager = Controller::SHARED.map(|controller| (controller, owner_of(inputs, controller)));
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
                let owner = owner.filter(|_| !is_ours || self.guard.controllers.contains(&controller));
                let lease = match lease {
                    Lease::Main => Some(self.own.main_lease.clone()),
                    Lease::Migration => Some(self.own.lease.clone()),
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

fn status_text(truth: Option<bool>) -> &'static str {
    match truth {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// Whether the command of the decision's reason belongs to the condition.
fn is_about_the_decision(type_: &str, state: &State) -> bool {
    match type_ {
        condition::CONTROL_PLANE_MIGRATED => !state.is_true(),
        condition::READY => !state.is_true() || state.reason == code::OLD_MANAGER_OWNS,
        _ => false,
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

/// A CustomResourceDefinition without the newest field of the status. Helm does not change one that is installed, and the API
/// server refuses a server-side apply with a field that the definition lacks.
#[derive(Debug, Default)]
struct OlderDefinition {
    since: Option<tokio::time::Instant>,
}

impl OlderDefinition {
    /// The part of the status that the definition has, as far as it is known.
    fn known(&self, status: CloudProviderMigrationStatus) -> CloudProviderMigrationStatus {
        match self.since {
            Some(since) if since.elapsed() < TRY_AGAIN => CloudProviderMigrationStatus {
                adoption: None,
                ..status
            },
            _ => status,
        }
    }

    /// Whether the write failed for this reason; it is to be repeated then.
    fn explains(&mut self, status: &CloudProviderMigrationStatus, written: &Result<(), kube::Error>) -> bool {
        let Err(kube::Error::Api(refused)) = written else {
            return false;
        };
        let is_older = status.adoption.is_some() && is_undeclared(&refused.message);
        if is_older {
            tracing::warn!(
                error = refused.message,
                "the CustomResourceDefinition is of an older version: apply the one of this version; the status is written without adoption"
            );
            self.since = Some(tokio::time::Instant::now());
        }
        is_older
    }

    /// Writes the status, without the field that the definition lacks.
    async fn patch(
        &mut self,
        api: &Api<CloudProviderMigration>,
        name: &str,
        status: &CloudProviderMigrationStatus,
    ) -> Result<(), kube::Error> {
        let written = patch(api, name, status).await;
        if !self.explains(status, &written) {
            return written;
        }
        patch(api, name, &self.known(status.clone())).await
    }
}

/// <https://github.com/kubernetes-sigs/structured-merge-diff/blob/v6.3.0/typed/validate.go>
fn is_undeclared(message: &str) -> bool {
    message.contains("field not declared in schema")
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
