//! The actions of the operator: objects of the in-tree cluster, phases, roll-outs.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Binaries, CLUSTER, CONTROL_PLANE, Environment, Progress, manifests};
use outrigger_cluster_harness::cluster::{ApiServer, User};
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_cluster_harness::leases::Lease;

/// The Deployment of the tenant's old manager.
pub const OLD_MANAGER: &str = "kube-controller-manager";
/// The Deployment of ours, as the manifests name it.
pub const NEW_MANAGER: &str = "outrigger-manager";

/// Whether a command line has an argument that begins with `start`.
pub(crate) fn has_flag(start: &'static str) -> impl Fn(&[String]) -> bool {
    move |argv| argv.iter().any(|flag| flag.starts_with(start))
}

/// The output of the program about the cluster of an API server.
async fn outrigger(server: &ApiServer, arguments: &[&str]) -> Result<String> {
    let (text, errors, code) = run_outrigger(server, arguments).await?;
    ensure!(code == Some(0), "outrigger {}: {text}{errors}", arguments.join(" "));
    Ok(text)
}

/// Its output, its errors and its exit code.
async fn run_outrigger(server: &ApiServer, arguments: &[&str]) -> Result<(String, String, Option<i32>)> {
    let output = Command::new(Binaries::one("outrigger")?)
        .args(arguments)
        .env("KUBECONFIG", server.kubeconfig(&User::admin())?)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr), output.status.code()))
}

impl Environment {
    /// The tenant's old kube-controller-manager as a Deployment of the management cluster, in its original form or with
    /// more flags.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn deploy_old_manager(&self, extra: &[&str]) -> Result<()> {
        let labels = json!({"app": OLD_MANAGER, "outrigger.dev/cluster": CLUSTER});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": OLD_MANAGER, "namespace": CONTROL_PLANE, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": OLD_MANAGER}},
                "template": {"metadata": {"labels": labels}, "spec": self.old_manager_pod(extra)?},
            },
        });

        self.create_control_plane_namespace().await?;

        manifests::apply(&self.management_admin, &[deployment]).await
    }

    /// The spec of a Pod that runs the old manager in its original form with more flags.
    pub(super) fn old_manager_pod(&self, extra: &[impl AsRef<str>]) -> Result<Value> {
        let mut command = vec![OLD_MANAGER.to_owned()];
        command.extend(self.old_manager_flags()?);
        command.extend(extra.iter().map(|flag| flag.as_ref().to_owned()));
        let home = self.run.display().to_string();
        Ok(json!({
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": OLD_MANAGER,
                "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
                "command": command,
                "volumeMounts": [{"name": "run", "mountPath": home}],
            }],
            "volumes": [{"name": "run", "hostPath": {"path": home}}],
        }))
    }

    pub(crate) async fn create_control_plane_namespace(&self) -> Result<()> {
        let labels = json!({"outrigger.dev/control-plane": "true", "outrigger.dev/cluster": CLUSTER});
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONTROL_PLANE, "labels": labels},
        });
        manifests::apply(&self.management_admin, &[namespace]).await?;

        // The service account controller makes the account that Pods need.
        let api: Api<ServiceAccount> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let found = async || {
            let account = api.get_opt("default").await?;
            Ok(account.map(drop).ok_or_else(|| "ServiceAccount default".to_owned()))
        };
        Progress::quiet()
            .wait("the namespace has its service account", Duration::from_secs(60), found)
            .await
    }

    /// A Service of type LoadBalancer in the tenant's namespace `default`.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_load_balancer_service(&self, name: &str, port: u16) -> Result<()> {
        self.create_service(name, port, &json!({})).await
    }

    /// As [`Environment::create_load_balancer_service`], with a network load balancer.
    pub(crate) async fn create_network_load_balancer_service(&self, name: &str, port: u16) -> Result<()> {
        let kind = json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"});
        self.create_service(name, port, &kind).await
    }

    async fn create_service(&self, name: &str, port: u16, annotations: &Value) -> Result<()> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": port, "protocol": "TCP"}]},
        });
        let api: Api<Service> = Api::namespaced(self.tenant_admin.clone(), "default");
        api.create(&PostParams::default(), &serde_json::from_value(service)?)
            .await?;
        Ok(())
    }

    /// Creates or changes objects of the tenant.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn apply_to_tenant(&self, objects: &[Value]) -> Result<()> {
        crate::manifests::apply(&self.tenant_admin, objects).await
    }

    /// The load balancer host name in a Service's status, if it has one.
    ///
    /// # Errors
    /// When the API server has no such Service.
    pub async fn host_name(&self, service: &str) -> Result<Option<String>> {
        let api: Api<Service> = Api::namespaced(self.tenant_admin.clone(), "default");
        let status = api.get(service).await?.status.and_then(|status| status.load_balancer);
        let ingress = status.and_then(|balancer| balancer.ingress).unwrap_or_default();
        Ok(ingress.into_iter().next().and_then(|ingress| ingress.hostname))
    }

    /// Waits until each of these Services has a host name.
    ///
    /// # Errors
    /// When that does not happen within `limit`.
    pub async fn wait_host_names(&self, services: &[&str], limit: Duration, progress: &Progress) -> Result<()> {
        let what = format!("{} Services have host names", services.len());
        progress
            .wait(&what, limit, async || {
                for service in services {
                    if self.host_name(service).await?.is_none() {
                        return Ok(Err(format!("Service {service} has none")));
                    }
                }
                Ok(Ok(()))
            })
            .await
    }

    /// Waits until each of these Services has a host name and its load balancer has exactly these targets.
    ///
    /// # Errors
    /// When that does not happen within 90 s.
    pub async fn wait_load_balancers(&self, services: &[&str], targets: usize, progress: &Progress) -> Result<()> {
        let what = format!("{} load balancers have {targets} targets each", services.len());
        progress
            .wait(&what, Duration::from_secs(90), async || {
                let balancers = self.load_balancers().await?;
                for service in services {
                    let Some(host) = self.host_name(service).await? else {
                        return Ok(Err(format!("Service {service} has no host name in its status")));
                    };
                    let Some((_, balancer)) = balancers.iter().find(|(_, balancer)| balancer.dns_name == host) else {
                        return Ok(Err(format!("AWS has no load balancer {host}")));
                    };
                    if balancer.targets.len() != targets {
                        return Ok(Err(format!("{service} has {} targets", balancer.targets.len())));
                    }
                }

                Ok(Ok(()))
            })
            .await
    }

    /// The migration objects.
    pub fn migrations(&self) -> Api<CloudProviderMigration> {
        Api::all(self.management_admin.clone())
    }

    /// Creates the migration object in phase InTree.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_migration(&self) -> Result<()> {
        self.create_migration_in("InTree").await
    }

    /// Creates the migration object in a phase.
    pub(crate) async fn create_migration_in(&self, phase: &str) -> Result<()> {
        let labels = json!({"matchLabels": {"outrigger.dev/cluster": CLUSTER}});
        let control_plane =
            json!({"profile": "HostedControlPlane", "namespaceSelector": labels, "objectSelector": labels});
        self.create_migration_of(&json!({"phase": phase, "targets": [control_plane]}))
            .await
    }

    /// As [`Environment::create_migration`], of a cluster whose control plane runs in the cluster itself.
    pub(crate) async fn create_migration_of_nodes(&self) -> Result<()> {
        self.create_migration_of(&json!({"targets": [{"profile": "Nodes"}]}))
            .await
    }

    /// Creates it with these fields of the spec, beside those that each one has.
    pub(crate) async fn create_migration_of(&self, fields: &Value) -> Result<()> {
        let mut migration = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": CLUSTER},
            "spec": {"clusterID": CLUSTER, "phase": "InTree", "kubernetesVersion": "1.26"},
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            migration["spec"][name] = value.clone();
        }

        manifests::apply(&self.management_admin, &[migration]).await
    }

    /// Changes fields of the migration object's spec.
    pub(crate) async fn change_migration(&self, fields: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": fields}));
        self.migrations()
            .patch(CLUSTER, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    pub(crate) async fn delete_migration(&self) -> Result<()> {
        self.mark("the object is deleted");
        self.migrations().delete(CLUSTER, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Sets the phase and marks it.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn set_phase(&self, phase: &str) -> Result<()> {
        self.mark(&format!("phase {phase}"));
        self.change_migration(&json!({"phase": phase})).await
    }

    /// Asks for the phase to be applied to the old manager's Deployment: the annotation that the tool would write.
    /// Returns the command line that the API server stored.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn apply_phase(&self, phase: &str) -> Result<Vec<String>> {
        let api: Api<Deployment> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let annotations = json!({"outrigger.dev/apply": format!("{CLUSTER}/{phase}")});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let stored = api.patch(OLD_MANAGER, &PatchParams::default(), &patch).await?;
        let spec = stored.spec.context("a Deployment without spec")?;
        let template = spec.template.spec.context("a template without spec")?;

        let first = template.containers.into_iter().next();
        Ok(first.and_then(|container| container.command).unwrap_or_default())
    }

    /// The text of `outrigger status`.
    ///
    /// # Errors
    /// When the program is not built, or fails.
    pub async fn status(&self) -> Result<String> {
        outrigger(&self.management, &["status", CLUSTER]).await
    }

    /// The output of `outrigger verify`, with these flags.
    ///
    /// # Errors
    /// When the program is not built, or cannot read the cluster.
    pub async fn verify(&self, flags: &[&str]) -> Result<String> {
        let arguments = [&["verify", CLUSTER], flags].concat();
        let (text, errors, code) = run_outrigger(&self.management, &arguments).await?;
        ensure!(code != Some(1), "outrigger {}: {text}{errors}", arguments.join(" "));
        Ok(text)
    }

    /// The texts of `outrigger check` in the management cluster and in the tenant.
    ///
    /// # Errors
    /// When the program is not built, or finds an error.
    pub async fn checks(&self) -> Result<[String; 2]> {
        let check = ["check", "--kubelets=none"];
        // The webhook is no Pod here.
        let management = [&check[..], &["--only=access,control-plane,nodes"]].concat();
        Ok([
            outrigger(&self.management, &management).await?,
            outrigger(&self.tenant, &check).await?,
        ])
    }

    /// Waits until `outrigger status` names the command for a phase as the next step.
    ///
    /// # Errors
    /// When that does not happen within a minute.
    pub async fn next_step(&self, phase: &str, progress: &Progress) -> Result<()> {
        let command = format!("outrigger apply {CLUSTER} --to={phase}");
        let is_next = async || {
            let text = self.status().await?;
            Ok(if text.contains(&command) { Ok(()) } else { Err(text) })
        };
        let what = format!("`outrigger status` names the step to {phase}");
        progress.wait(&what, Duration::from_secs(60), is_next).await
    }

    /// Waits for a condition of the migration object to be True.
    ///
    /// # Errors
    /// When it does not get True within `limit`.
    pub async fn wait_condition(&self, condition: &str, limit: Duration, progress: &Progress) -> Result<()> {
        let api = self.migrations();
        progress
            .wait(&format!("condition {condition} is True"), limit, async || {
                let object = api.get(CLUSTER).await?;
                let status = object.status.unwrap_or_default();
                let found = status.conditions.iter().find(|c| c.type_ == condition);
                // As `kubectl wait` does: a condition of an older spec does not count.
                let is_older = |observed: Option<i64>| observed < object.metadata.generation;
                Ok(match found {
                    Some(found) if is_older(found.observed_generation) => {
                        Err(format!("it is of an older spec: {}", found.reason))
                    }
                    Some(found) if found.status == "True" => Ok(()),
                    Some(found) => Err(format!("{}: {}", found.reason, found.message)),
                    None => Err("the status does not have it yet".to_owned()),
                })
            })
            .await
    }

    /// Waits until exactly one Pod of a Deployment runs, it is Ready, and its argument list satisfies `wanted`.
    ///
    /// # Errors
    /// When that does not happen within `limit`.
    pub async fn wait_rolled(
        &self,
        deployment: &str,
        what: &str,
        limit: Duration,
        progress: &Progress,
        wanted: impl Fn(&[String]) -> bool,
    ) -> Result<String> {
        let api: Api<Pod> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let params = ListParams::default().labels(&format!("{}={deployment}", label_of(deployment)));
        progress
            .wait(what, limit, async || {
                let pods = api.list(&params).await?.items;
                let [pod] = pods.as_slice() else {
                    return Ok(Err(format!("{} Pods", pods.len())));
                };

                let name = pod.name_any();
                let argv = self.runner.argv(&name);
                let Some(argv) = argv.first() else {
                    return Ok(Err(format!("Pod {name} has not started")));
                };
                if !wanted(argv) {
                    return Ok(Err(format!("Pod {name} has another command line")));
                }
                if !is_ready(pod) {
                    return Ok(Err(format!("Pod {name} is not Ready")));
                }

                Ok(Ok(name))
            })
            .await
    }

    /// Waits until a lease is held by another than `before`, and returns the holder.
    ///
    /// # Errors
    /// When that does not happen within `limit`.
    pub async fn wait_holder(
        &self,
        lease: Lease,
        before: Option<&str>,
        limit: Duration,
        progress: &Progress,
    ) -> Result<String> {
        progress
            .wait(&format!("lease {lease} has a new holder"), limit, async || {
                Ok(match self.holder(lease) {
                    Some(holder) if Some(holder.as_str()) != before => Ok(holder),
                    Some(holder) => Err(format!("still held by {holder}")),
                    None => Err("nobody holds it".to_owned()),
                })
            })
            .await
    }

    /// Waits until the old manager runs without the cloud provider, its roll-out within `limit`, and until another than
    /// `before` holds M.
    pub(crate) async fn wait_handed_over(
        &self,
        before: Option<&str>,
        limit: Duration,
        progress: &Progress,
    ) -> Result<()> {
        let external = has_flag("--cloud-provider=external");
        let what = "the old manager runs without the cloud provider";
        self.wait_rolled(OLD_MANAGER, what, limit, progress, external).await?;
        self.wait_holder(Lease::M, before, Duration::from_secs(60), progress)
            .await?;
        Ok(())
    }

    /// The holder of a lease now.
    pub fn holder(&self, lease: Lease) -> Option<String> {
        self.leases.latest(lease).and_then(|change| change.holder)
    }

    /// Terminates a machine of the account: its kubelet stops, and its Node is not Ready.
    ///
    /// # Errors
    /// When AWS or the API server refuses it.
    pub async fn terminate(&self, index: usize) -> Result<()> {
        let instance = self.instance(index)?;
        self.account.terminate(&self.moto, &[&instance.id]).await?;
        let of_machine = self
            .kubelets
            .iter()
            .filter(|kubelet| kubelet.name() == instance.private_dns_name);
        of_machine.for_each(Kubelet::stop);
        self.report_not_ready(&instance.private_dns_name).await
    }

    /// Says in a Node's status that it is not Ready, as its kubelet does when the machine shuts down.
    ///
    /// # Errors
    /// When the API server refuses it.
    async fn report_not_ready(&self, name: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.tenant_admin.clone());
        let condition =
            json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "shutting down"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A Node of the tenant as JSON.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn node(&self, name: &str) -> Result<Option<Value>> {
        let api: Api<Node> = Api::all(self.tenant_admin.clone());
        let node = api.get_opt(name).await?;
        Ok(node.map(|node| serde_json::to_value(node).unwrap_or_default()))
    }

    /// Fields of old Nodes that may not change, by name: labels, addresses, provider ID.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn node_identities(&self) -> Result<BTreeMap<String, Value>> {
        let api: Api<Node> = Api::all(self.tenant_admin.clone());
        let nodes = api.list(&ListParams::default()).await?;
        let one = |node: &Node| {
            let addresses = node.status.iter().filter_map(|status| status.addresses.as_ref());
            let addresses = addresses.flatten();
            let mut addresses: Vec<String> = addresses.map(|one| format!("{}={}", one.type_, one.address)).collect();
            addresses.sort();

            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            let identity = json!({"labels": node.labels(), "addresses": addresses, "providerID": provider_id});
            (node.name_any(), identity)
        };

        Ok(nodes.iter().map(one).collect())
    }
}

/// The label by which a Deployment's Pods are found.
fn label_of(deployment: &str) -> &'static str {
    if deployment == OLD_MANAGER {
        "app"
    } else {
        "app.kubernetes.io/name"
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
