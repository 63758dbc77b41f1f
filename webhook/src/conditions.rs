//! Writes a condition of a migration.

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::json;

/// A condition that the webhook writes. Its field manager writes no other one, because server-side apply removes what a
/// manager leaves out: <https://kubernetes.io/docs/reference/using-api/server-side-apply/>
#[derive(Clone, Copy, Debug)]
pub struct ConditionType {
    pub name: &'static str,
    pub field_manager: &'static str,
}

/// Its status, reason and message.
pub type Verdict = (&'static str, &'static str, String);

impl ConditionType {
    /// Writes the condition if it differs from the known one. Replicas write equal conditions.
    pub async fn write(
        self,
        client: &Client,
        migration: &CloudProviderMigration,
        (status, reason, message): Verdict,
        now: Timestamp,
    ) {
        let known = migration.status.clone().unwrap_or_default();
        let generation = migration.metadata.generation;
        let condition = known.condition(self.name, status, (reason, message), generation, now);
        if known.conditions.contains(&condition) {
            return;
        }

        let name = migration.name_any();
        let body = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": name},
            "status": {"conditions": [condition]},
        });
        let kind = ApiResource::erase::<CloudProviderMigration>(&());
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let parameters = PatchParams::apply(self.field_manager).force();

        if let Err(error) = api.patch_status(&name, &parameters, &Patch::Apply(body)).await {
            tracing::warn!(migration = name, condition = self.name, %error, "cannot write condition");
        }
    }
}
