//! When the webhook has seen every change of a migration up to now. Changes of one kind are seen in their order, so one more is
//! made, and the webhook asked by dry runs until it shows. The migration that is changed is about a cluster-scoped object with a
//! label of its own: some cases have migrations that match every namespace.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use serde_json::json;

use crate::bench::{Bench, MIGRATIONS};

const NAME: &str = "watch-barrier";
const CLUSTERS: &str = "/apis/management.cattle.io/v3/clusters?dryRun=All";

#[derive(Default)]
pub struct Barrier {
    is_in_prepare: AtomicBool,
}

impl Barrier {
    pub async fn begin(bench: &Bench) -> Result<Self> {
        let target = json!({"profile": "RancherRKE1", "objectSelector": {"matchLabels": {"watch-barrier": "yes"}}});
        let migration = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": NAME},
            "spec": {"clusterID": NAME, "phase": "InTree", "targets": [target]},
        });
        bench.create(MIGRATIONS, &migration).await?.granted()?;
        Ok(Self::default())
    }

    pub async fn settle(&self, bench: &Bench) -> Result<()> {
        let prepare = !self.is_in_prepare.fetch_xor(true, Ordering::Relaxed);
        let phase = if prepare { "Prepare" } else { "InTree" };
        bench
            .merge(&format!("{MIGRATIONS}/{NAME}"), &json!({"spec": {"phase": phase}}))
            .await?;
        let probe = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": {"name": NAME, "labels": {"watch-barrier": "yes"}},
            "spec": {"rancherKubernetesEngineConfig": {
                "kubernetesVersion": "v1.26.8-rancher1-1", "cloudProvider": {"name": "aws"},
                "services": {"kubeController": {"extraArgs": {"v": "2"}}},
            }},
        });
        bench
            .until("the webhook sees the last change of a migration", async || {
                let answer = bench.create(CLUSTERS, &probe).await?.granted()?;
                let spec = answer.body["spec"].to_string();
                Ok(spec.contains("enable-leader-migration") == prepare)
            })
            .await
    }
}
