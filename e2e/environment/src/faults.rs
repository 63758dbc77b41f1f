//! Faults of a cluster: leases that are deleted or emptied by hand, an old manager that nobody expects.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use outrigger_cluster_harness::leases::{Lease, LeaseName};
use outrigger_shared::annotations;
use serde_json::json;

use super::{CLUSTER, CONTROL_PLANE, Environment, Progress, manifests};

/// The Pod of an old manager without leader migration, which belongs to no workload.
const UNGUARDED: &str = "kcm-unguarded";

/// A change of a lease by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseFault {
    Delete,
    /// An empty holder identity, by a patch. The duration stays, so that it is no release.
    Empty,
}

impl Environment {
    /// # Errors
    /// When the API server refuses it.
    pub async fn break_lease(&self, lease: Lease, fault: LeaseFault) -> Result<()> {
        let mut names = LeaseName::defaults().into_iter();
        let LeaseName { namespace, name, .. } = names.find(|name| name.lease == lease).context("no such lease")?;
        let api: Api<LeaseObject> = Api::namespaced(self.tenant_admin.clone(), &namespace);
        match fault {
            LeaseFault::Delete => {
                api.delete(&name, &DeleteParams::default()).await?;
            }
            LeaseFault::Empty => {
                let patch = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
                api.patch(&name, &PatchParams::default(), &patch).await?;
            }
        }
        Ok(())
    }

    /// The latch on lease C.
    #[must_use]
    pub fn latch(&self) -> Option<String> {
        let change = self.leases.latest(Lease::C)?;
        change.annotations.get(annotations::PREPARED).cloned()
    }

    /// Starts an old manager in its original form beside the Deployment's. The webhook must be away.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn start_unguarded_manager(&self) -> Result<()> {
        let mut command = vec!["kube-controller-manager".to_owned()];
        command.extend(self.old_manager()?.arguments());
        let labels = BTreeMap::from([("outrigger.dev/cluster", CLUSTER)]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": UNGUARDED, "namespace": CONTROL_PLANE, "labels": labels},
            "spec": self.old_manager_pod(&command),
        });

        manifests::apply(&self.management_admin, &[pod]).await?;
        self.wait_running(UNGUARDED).await
    }

    async fn wait_running(&self, pod: &str) -> Result<()> {
        let running = async || {
            let argv = self.runner.argv(pod);
            let unchanged = argv
                .first()
                .is_some_and(|argv| !argv.iter().any(|flag| flag.contains("external")));
            Ok(if unchanged { Ok(()) } else { Err(format!("{argv:?}")) })
        };
        Progress::quiet()
            .wait("the Pod runs in its original form", Duration::from_secs(30), running)
            .await
    }

    /// Deletes that manager's Pod, and returns when its process ended.
    ///
    /// # Errors
    /// When the API server refuses it, or the process does not end.
    pub async fn end_unguarded_manager(&self, progress: &Progress) -> Result<Timestamp> {
        let pods: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        pods.delete(UNGUARDED, &DeleteParams::default()).await?;
        progress
            .wait("the unguarded manager is gone", Duration::from_secs(60), async || {
                let gone = pods.get_opt(UNGUARDED).await?.is_none();
                let spans = self.runner.spans().into_iter().filter(|span| span.pod == UNGUARDED);
                let ended = spans.map(|span| span.ended).max().flatten();
                Ok(ended.filter(|_| gone).ok_or_else(|| "it is still there".to_owned()))
            })
            .await
    }
}
