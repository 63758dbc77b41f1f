//! Records what the migration object's status said, and when.

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use outrigger_cluster_harness::versions::VersionRecorder;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::CloudProviderMigrationStatus;
use outrigger_timeline::{Condition, Side, Statement};

/// A running recorder. Dropping it ends the watch.
#[derive(Debug)]
pub struct Statuses(VersionRecorder);

impl Statuses {
    /// Starts to watch the migration object of this name, which need not exist yet.
    pub fn start(client: &Client, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("outrigger.dev", "v1alpha1", "CloudProviderMigration");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        Self(VersionRecorder::start(api, name))
    }

    /// Each status that differs from the one before.
    pub fn statements(&self) -> Vec<Statement> {
        let mut statements: Vec<Statement> = Vec::new();
        for (at, object) in self.0.versions() {
            let status = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
            let next = statement(at, status);
            let same = |last: &Statement| Statement { at, ..last.clone() } == next;
            if !statements.last().is_some_and(same) {
                statements.push(next);
            }
        }
        statements
    }
}

fn statement(at: Timestamp, status: CloudProviderMigrationStatus) -> Statement {
    let service = status
        .controllers
        .into_iter()
        .find(|row| row.name == Controller::Service.canonical_name());
    let (owner, holder) = service.map_or((None, None), |row| (row.owner, row.holder));
    let conditions = status.conditions.into_iter().map(|condition| Condition {
        kind: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
    });

    Statement {
        at,
        owner: owner.map(|party| match party {
            Party::KubeControllerManager => Side::Old,
            Party::CloudControllerManager => Side::New,
        }),
        holder,
        conditions: conditions.collect(),
    }
}
