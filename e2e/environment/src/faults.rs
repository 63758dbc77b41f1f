//! Faults of a cluster: leases that are deleted or emptied by hand, an old manager that nobody expects.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use outrigger_cluster_harness::leases::{Lease, LeaseName};
use outrigger_cluster_harness::process::free_port;
use outrigger_shared::annotations;
use serde_json::json;

use super::operator::NEW_MANAGER;
use super::{CLUSTER, CONTROL_PLANE, Environment, Progress, manifests};

/// The Pod of an old manager that belongs to no workload.
const BESIDE: &str = "kcm-beside";
/// The Pod of a manager of ours that belongs to no workload.
const STANDBY: &str = "outrigger-manager-standby";

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

    /// Writes or removes the latch on lease C by hand.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn set_latch(&self, latch: Option<&str>) -> Result<()> {
        let mut names = LeaseName::defaults().into_iter();
        let LeaseName { namespace, name, .. } = names.find(|name| name.lease == Lease::C).context("no lease C")?;
        let api: Api<LeaseObject> = Api::namespaced(self.tenant_admin.clone(), &namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::PREPARED: latch}}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Starts an old manager in its original form, with more flags, beside the Deployment's. The webhook must be away, or in
    /// mode Audit.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn start_old_manager_beside(&self, extra: &[String]) -> Result<()> {
        let mut command = vec!["kube-controller-manager".to_owned()];
        command.extend(self.old_manager()?.arguments());
        command.extend(extra.iter().cloned());
        let labels = BTreeMap::from([("outrigger.dev/cluster", CLUSTER)]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": BESIDE, "namespace": CONTROL_PLANE, "labels": labels},
            "spec": self.old_manager_pod(&command),
        });

        manifests::apply(&self.management_admin, &[pod]).await?;
        self.wait_running(BESIDE).await
    }

    /// Starts a manager of ours that belongs to no workload, with its usual command line.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn start_standby(&self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let template = deployments.get(NEW_MANAGER).await?.spec.map(|spec| spec.template);
        let spec = template.and_then(|template| template.spec).context("no template")?;
        let mut spec = serde_json::to_value(spec)?;
        let mut arguments = self.manager_arguments()?;
        arguments.push(format!("--secure-port={}", free_port()?));
        spec["containers"][0]["args"] = json!(arguments);

        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": STANDBY, "namespace": CONTROL_PLANE},
            "spec": spec,
        });
        manifests::apply(&self.management_admin, &[pod]).await
    }

    /// Deletes that manager's Pod, and waits until it is gone.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn end_standby(&self, progress: &Progress) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        pods.delete(STANDBY, &DeleteParams::default()).await?;
        progress
            .wait("the standby is gone", Duration::from_secs(60), async || {
                let gone = pods.get_opt(STANDBY).await?.is_none();
                Ok(if gone {
                    Ok(())
                } else {
                    Err("it is still there".to_owned())
                })
            })
            .await
    }

    /// Stops and continues etcd by signals: no API server answers meanwhile.
    ///
    /// # Errors
    /// When a signal cannot be sent.
    pub async fn pause_etcd(&self, time: Duration) -> Result<()> {
        let etcd = self.etcd.process();
        etcd.pause().await?;
        tokio::time::sleep(time).await;
        etcd.resume()?;
        Ok(())
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
    pub async fn end_old_manager_beside(&self, progress: &Progress) -> Result<Timestamp> {
        let pods: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        pods.delete(BESIDE, &DeleteParams::default()).await?;
        progress
            .wait("the other old manager is gone", Duration::from_secs(60), async || {
                let gone = pods.get_opt(BESIDE).await?.is_none();
                let spans = self.runner.spans().into_iter().filter(|span| span.pod == BESIDE);
                let ended = spans.map(|span| span.ended).max().flatten();
                Ok(ended.filter(|_| gone).ok_or_else(|| "it is still there".to_owned()))
            })
            .await
    }
}
