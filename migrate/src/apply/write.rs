//! The writes of `outrigger apply` and `outrigger rollback`. A phase is conditional on what was read, so that two commands at
//! once do what one does.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use outrigger_shared::annotations;
use outrigger_shared::migration::{CloudProviderMigration, KUBE_SYSTEM, Phase};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::error::Error;

/// In the audit log and in `managedFields`.
const FIELD_MANAGER: &str = "outrigger";

/// kubeadm's name for the ConfigMap of its configuration.
const KUBEADM_CONFIG: &str = "kubeadm-config";

/// Answers that say nothing about the write: too slow, too many requests.
const AGAIN: [u16; 2] = [408, 429];

/// Writes to the API server of one cluster. A write answers with false if somebody else has changed the object since it was
/// read.
pub struct Writer {
    pub client: Client,
    /// Of each request.
    pub timeout: Duration,
}

impl Writer {
    /// Sets the phase, if it is still `from`. An attestation of this phase or of a later one is removed: the API server refuses
    /// one for the phase that the same write enters.
    pub async fn set_phase(&self, name: &str, from: Phase, to: Phase) -> Result<bool, Error> {
        let what = format!("phase {to}");
        let api: Api<CloudProviderMigration> = Api::all(self.client.clone());
        let stored = self.answer(&what, api.get(name)).await?;
        let Some(stored) = stored.filter(|stored| stored.spec.phase == from) else {
            return Ok(false);
        };

        let mut spec = json!({"phase": to});
        if stored
            .spec
            .attestation
            .is_some_and(|attestation| attestation.phase >= to)
        {
            spec["attestation"] = Value::Null;
        }
        let patch = json!({"metadata": {"resourceVersion": stored.metadata.resource_version}, "spec": spec});
        let parameters = parameters(false);
        let patch = Patch::Merge(patch);
        let answer = self.answer(&what, api.patch(name, &parameters, &patch)).await?;

        Ok(answer.is_some())
    }

    /// Asks the webhook to give the ConfigMap `kubeadm-config` the form of a phase. It acts when the value changes.
    pub async fn apply_kubeadm_config(&self, name: &str, phase: Phase, dry_run: bool) -> Result<bool, Error> {
        let what = format!(
            "the annotation {} of the ConfigMap {KUBEADM_CONFIG}",
            annotations::APPLY
        );
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), KUBE_SYSTEM);
        let value = format!("{name}/{phase}");
        let parameters = parameters(dry_run);
        let Some(stored) = self.answer(&what, api.get(KUBEADM_CONFIG)).await? else {
            return Ok(false);
        };
        if stored.annotations().get(annotations::APPLY) == Some(&value) {
            let removed = annotation(&Value::Null);
            self.answer(&what, api.patch(KUBEADM_CONFIG, &parameters, &removed))
                .await?;
        }

        let set = annotation(&json!(value));
        let answer = self.answer(&what, api.patch(KUBEADM_CONFIG, &parameters, &set)).await?;

        Ok(answer.is_some())
    }

    /// The answer, or none if the object has changed since it was read.
    async fn answer<T>(&self, what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, Error> {
        let unanswered = |reason: String| Error::Unanswered {
            what: what.to_owned(),
            reason,
        };
        match timeout(self.timeout, call).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(None),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && !AGAIN.contains(&status.code) => {
                Err(Error::Refused {
                    what: what.to_owned(),
                    reason: status.message.clone(),
                })
            }
            Ok(Err(error)) => Err(unanswered(error.to_string())),
            Err(_) => Err(unanswered(format!("none in {} s", self.timeout.as_secs()))),
        }
    }
}

fn annotation(value: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {annotations::APPLY: value}}}))
}

fn parameters(dry_run: bool) -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        dry_run,
        ..PatchParams::default()
    }
}
