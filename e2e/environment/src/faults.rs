//! Faults of a cluster: leases that are changed by hand, managers that nobody expects, links that are cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
use outrigger_cluster_harness::relay::{Link, Relay};
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
pub(crate) enum LeaseFault {
    Delete,
    /// An empty holder identity, by a patch. The duration stays, so that it is no release.
    Empty,
}

/// The flags of our manager that name a file with a server's address.
const FILES: [&str; 3] = ["--kubeconfig=", "--migration-kubeconfig=", "--cloud-config="];

/// The relays of one or more managers.
pub(crate) struct Relays {
    tenant: Relay,
    pub(crate) management: Relay,
    pub(crate) aws: Relay,
    /// The URL of each server, and that of its relay.
    urls: [(String, String); 3],
}

impl Relays {
    /// Both API servers.
    pub(crate) fn set_api(&self, link: Link) {
        self.tenant.set(link);
        self.management.set(link);
    }
}

impl Environment {
    pub(crate) async fn break_lease(&self, lease: Lease, fault: LeaseFault) -> Result<()> {
        let (api, name) = self.lease(lease)?;
        match fault {
            LeaseFault::Delete => drop(api.delete(&name, &DeleteParams::default()).await?),
            LeaseFault::Empty => {
                let patch = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
                api.patch(&name, &PatchParams::default(), &patch).await?;
            }
        }
        Ok(())
    }

    fn lease(&self, lease: Lease) -> Result<(Api<LeaseObject>, String)> {
        let mut names = LeaseName::defaults().into_iter();
        let LeaseName { namespace, name, .. } = names.find(|name| name.lease == lease).context("no such lease")?;
        Ok((Api::namespaced(self.tenant_admin.clone(), &namespace), name))
    }

    /// The latch on lease C.
    pub(crate) fn latch(&self) -> Option<String> {
        let change = self.leases.latest(Lease::C)?;
        change.annotations.get(annotations::PREPARED).cloned()
    }

    /// Writes or removes the latch on lease C by hand.
    pub(crate) async fn set_latch(&self, latch: Option<&str>) -> Result<()> {
        let (api, name) = self.lease(Lease::C)?;
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::PREPARED: latch}}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Starts an old manager in its original form, with more flags, beside the Deployment's. The webhook must be away, or in
    /// mode Audit.
    pub(crate) async fn start_old_manager_beside(&self, extra: &[String]) -> Result<()> {
        self.start_old_manager_pod(BESIDE, extra).await
    }

    /// As [`Environment::start_old_manager_beside`], as a Pod of this name.
    pub(crate) async fn start_old_manager_pod(&self, name: &str, extra: &[String]) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": CONTROL_PLANE, "labels": {"outrigger.dev/cluster": CLUSTER}},
            "spec": self.old_manager_pod(extra)?,
        });

        manifests::apply(&self.management_admin, &[pod]).await?;
        self.wait_running(name).await
    }

    /// Starts a manager of ours that belongs to no workload, with its usual command line.
    pub(crate) async fn start_standby(&self) -> Result<()> {
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
    pub(crate) async fn end_standby(&self, progress: &Progress) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        pods.delete(STANDBY, &DeleteParams::default()).await?;
        progress
            .wait("the standby is gone", Duration::from_secs(60), async || {
                let found = pods.get_opt(STANDBY).await?;
                Ok(found.map_or(Ok(()), |_| Err("it is still there".to_owned())))
            })
            .await
    }

    /// Stops and continues etcd by signals: no API server answers meanwhile.
    pub(crate) async fn pause_etcd(&self, time: Duration) -> Result<()> {
        let etcd = self.etcd.process();
        etcd.pause().await?;
        tokio::time::sleep(time).await;
        etcd.resume()?;
        Ok(())
    }

    async fn wait_running(&self, pod: &str) -> Result<()> {
        let running = async || {
            let argv = self.runner.argv(pod);
            let original = |argv: &Vec<String>| !argv.iter().any(|flag| flag.contains("external"));
            let unchanged = argv.first().is_some_and(original);
            Ok(if unchanged { Ok(()) } else { Err(format!("{argv:?}")) })
        };
        Progress::quiet()
            .wait("the Pod runs in its original form", Duration::from_secs(30), running)
            .await
    }

    /// Deletes that manager's Pod, and returns when its process ended.
    pub(crate) async fn end_old_manager_beside(&self, progress: &Progress) -> Result<Timestamp> {
        self.end_old_manager_pod(BESIDE, progress).await
    }

    /// As [`Environment::end_old_manager_beside`], of the Pod of this name.
    pub(crate) async fn end_old_manager_pod(&self, name: &str, progress: &Progress) -> Result<Timestamp> {
        let pods: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        pods.delete(name, &DeleteParams::default()).await?;
        progress
            .wait("the other old manager is gone", Duration::from_secs(60), async || {
                let gone = pods.get_opt(name).await?.is_none();
                let spans = self.runner.spans().into_iter().filter(|span| span.pod == name);
                let ended = spans.map(|span| span.ended).max().flatten();
                Ok(ended.filter(|_| gone).ok_or_else(|| "it is still there".to_owned()))
            })
            .await
    }

    pub(crate) async fn start_relays(&self) -> Result<Relays> {
        let (tenant, tenant_urls) = relay(self.tenant.url()).await?;
        let (management, management_urls) = relay(self.management.url()).await?;
        let (aws, aws_urls) = relay(self.proxy.url()).await?;
        Ok(Relays {
            tenant,
            management,
            aws,
            urls: [tenant_urls, management_urls, aws_urls],
        })
    }

    /// The arguments of our manager, with the addresses of the relays in its files.
    pub(crate) fn arguments_through(&self, relays: &Relays) -> Result<Vec<String>> {
        let relayed = |argument: String| {
            let Some(flag) = FILES.iter().find(|flag| argument.starts_with(**flag)) else {
                return Ok(argument);
            };
            let path = through(Path::new(&argument[flag.len()..]), relays)?;
            Ok(format!("{flag}{}", path.display()))
        };
        self.manager_arguments()?.into_iter().map(relayed).collect()
    }
}

/// A relay in front of a URL, and both URLs.
async fn relay(url: &str) -> Result<(Relay, (String, String))> {
    let (scheme, address) = url.split_once("://").context("a URL without a scheme")?;
    let address: SocketAddr = address.trim_end_matches('/').parse()?;
    let relay = Relay::start(address).await?;
    let own = format!("{scheme}://{}", relay.address());
    Ok((relay, (url.to_owned(), own)))
}

/// A copy of a file with the relays' URLs.
fn through(path: &Path, relays: &Relays) -> Result<PathBuf> {
    let mut text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    for (server, relay) in &relays.urls {
        text = text.replace(server, relay);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".relayed");
    std::fs::write(&name, text)?;
    Ok(name.into())
}
