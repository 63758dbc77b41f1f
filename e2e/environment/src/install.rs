//! Installs the product as an operator would: the project's manifests, through an overlay with the operator's own values.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::operator::{NEW_MANAGER, OLD_MANAGER};
use super::{CLUSTER, CONTROL_PLANE, Environment, Progress, WEBHOOK_ADDRESS, manifests};
use outrigger_cluster_harness::audit::{self, AuditLog};
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::process::free_port;

const PUBLIC_PATHS: &str = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics";

impl Environment {
    /// The management cluster's part, but for the manager itself: definition, rights, webhook registration.
    ///
    /// # Errors
    /// When kustomize or the API server refuses it.
    pub async fn install_management(&self, progress: &Progress) -> Result<()> {
        let mut objects = self.management_objects(1).await?;
        objects.retain(|object| !is_manager(object));
        manifests::apply(&self.management_admin, &objects).await?;
        let kinds = kinds(&objects);
        progress.say(&format!("applied manifests/overlays/hosted/management: {kinds}"));

        Ok(())
    }

    /// The tenant's part.
    ///
    /// # Errors
    /// As [`Environment::install_management`].
    pub async fn install_tenant(&self, progress: &Progress) -> Result<()> {
        let objects = self.rendered("tenant", "overlays/hosted/tenant", "").await?;
        manifests::apply(&self.tenant_admin, &objects).await?;
        let kinds = kinds(&objects);
        progress.say(&format!("applied manifests/overlays/hosted/tenant: {kinds}"));

        Ok(())
    }

    /// The right to read the tenant's own mirror Pods and workloads, for a manager that runs elsewhere: the Role of the
    /// manifests, bound to its user.
    pub(crate) async fn install_evidence_rights(&self) -> Result<()> {
        let mut evidence = manifests::render(&self.tools, &self.run, "evidence", "base/manager", "").await?;
        evidence.retain(|object| object["metadata"]["name"] == "outrigger-manager:evidence");
        for binding in evidence.iter_mut().filter(|object| object["kind"] == "RoleBinding") {
            binding["subjects"] =
                json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": NEW_MANAGER}]);
        }
        manifests::apply(&self.tenant_admin, &evidence).await
    }

    /// The manager's Deployment, with this many replicas.
    ///
    /// # Errors
    /// As [`Environment::install_management`].
    pub async fn install_manager(&self, replicas: u32) -> Result<()> {
        let mut objects = self.management_objects(replicas).await?;
        objects.retain(is_manager);
        manifests::apply(&self.management_admin, &objects).await
    }

    /// Installs a manager with another command line in the place of ours: what the proof must not accept.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn replace_manager(&self, image: &str, arguments: Vec<String>) -> Result<()> {
        let mut objects = self.management_objects(1).await?;
        objects.retain(is_manager);

        for deployment in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
            let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
            container["image"] = Value::from(image);
            container["args"] = json!(arguments);
            if let Some(container) = container.as_object_mut() {
                // The entry point of that image runs.
                container.remove("command");
                // Its port, if it has one, is in the arguments only.
                container.remove("readinessProbe");
            }
        }

        manifests::apply(&self.management_admin, &objects).await
    }

    /// Our manager with one replica and another command line.
    pub(crate) async fn install_manager_with(&self, mut arguments: Vec<String>) -> Result<()> {
        arguments.push(format!("--secure-port={}", free_port()?));
        arguments.push(PUBLIC_PATHS.to_owned());
        self.replace_manager("outrigger-manager", arguments).await
    }

    /// The service account of the manager's Pods alone, where the rest is not installed.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_manager_account(&self) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NEW_MANAGER, "namespace": CONTROL_PLANE}});
        manifests::apply(&self.management_admin, &[account]).await
    }

    /// The flags of the old manager in the external form.
    pub(crate) fn external_flags(&self) -> Result<impl Iterator<Item = String> + use<>> {
        let original = self.old_manager_flags()?.into_iter();
        let without_cloud = original.filter(|flag| !flag.starts_with("--cloud-"));
        Ok(without_cloud.chain(["--cloud-provider=external".to_owned()]))
    }

    /// Rolls the old manager to the external form by hand, as the published guide says.
    pub(crate) async fn deploy_external(&self) -> Result<()> {
        self.deploy_flags(self.external_flags()?).await
    }

    /// Rolls the old manager to the in-tree form with leader migration by hand.
    pub(crate) async fn deploy_guarded(&self) -> Result<()> {
        let original = self.old_manager_flags()?.into_iter();
        self.deploy_flags(original.chain(["--enable-leader-migration".to_owned()]))
            .await
    }

    /// Rolls the old manager by hand to a command line with these flags.
    pub(crate) async fn deploy_flags(&self, flags: impl Iterator<Item = String>) -> Result<()> {
        let command: Vec<String> = std::iter::once(OLD_MANAGER.to_owned()).chain(flags).collect();
        let api: Api<Deployment> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/command", "value": command}]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        api.patch(OLD_MANAGER, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Changes how many replicas a Deployment of the control plane has.
    pub(crate) async fn scale(&self, deployment: &str, replicas: u32) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.management_admin.clone(), CONTROL_PLANE);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch(deployment, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The manager's arguments: those of the manifests, with this environment's files.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn manager_arguments(&self) -> Result<Vec<String>> {
        let tenant = self.tenant.kubeconfig(&User::new("outrigger-manager"))?;
        let account = format!("system:serviceaccount:{CONTROL_PLANE}:outrigger-manager");
        let management = self
            .management
            .kubeconfig(&User::new(account).in_group("system:serviceaccounts"))?;

        Ok(vec![
            "--cloud-provider=aws".into(),
            format!("--kubeconfig={}", tenant.display()),
            format!("--migration={CLUSTER}"),
            format!("--migration-kubeconfig={}", management.display()),
            format!("--cloud-config={}", self.cloud_config()?.display()),
            format!("--cluster-name={CLUSTER}"),
            "--leader-elect=true".into(),
            "--configure-cloud-routes=false".into(),
            "--use-service-account-credentials=false".into(),
            "--bind-address=127.0.0.1".into(),
        ])
    }

    async fn management_objects(&self, replicas: u32) -> Result<Vec<Value>> {
        let home = self.run.display().to_string();
        let mut arguments = self.manager_arguments()?;
        // One host: a fixed port is for one replica only.
        let port = if replicas == 1 { free_port()? } else { 0 };
        arguments.push(format!("--secure-port={port}"));
        arguments.push(PUBLIC_PATHS.to_owned());

        let probed = if port == 0 {
            json!({"op": "remove", "path": "/spec/template/spec/containers/0/readinessProbe"})
        } else {
            json!({"op": "replace", "path": "/spec/template/spec/containers/0/ports/0/containerPort", "value": port})
        };
        let patch = json!([
            probed,
            {"op": "replace", "path": "/spec/replicas", "value": replicas},
            // The old Pod has ended when the new one starts, so that their times are measured apart.
            {"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}},
            {"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments},
            // A process has no mounts: these arguments name kubeconfigs.
            {"op": "replace", "path": "/spec/template/spec/automountServiceAccountToken", "value": false},
            {"op": "replace", "path": "/spec/template/spec/containers/0/volumeMounts", "value": [{"name": "run", "mountPath": home}]},
            {"op": "replace", "path": "/spec/template/spec/volumes", "value": [{"name": "run", "hostPath": {"path": home}}]},
        ]);
        let webhook = json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]);
        let patches = json!([
            {"target": {"kind": "Deployment", "name": NEW_MANAGER}, "patch": patch.to_string()},
            // The environment runs the webhook itself, so that tests can take it away.
            {"target": {"kind": "Deployment", "name": "outrigger-webhook"}, "patch": webhook.to_string()},
        ]);
        let overlay = format!("patches: {patches}\n");
        self.rendered("management", "overlays/hosted/management", &overlay)
            .await
    }

    /// A kustomization with the address and the CA of this environment's webhook.
    async fn rendered(&self, name: &str, path: &str, patches: &str) -> Result<Vec<Value>> {
        let mut objects = manifests::render(&self.tools, &self.run, name, path, patches).await?;
        let (authority, port) = (&self.webhook_authority, self.webhook_port);
        manifests::register_webhook(&mut objects, authority, WEBHOOK_ADDRESS, port);
        Ok(objects)
    }

    /// The Nodes that a program wrote to until now, with the verbs.
    pub(crate) async fn node_writes_by(&self, program: &str) -> Result<Vec<String>> {
        let events = AuditLog::new(self.tenant.audit_log()).events().await?;
        let writes = audit::writes_by(&events, program, "").filter(|event| event.object_ref.resource == "nodes");
        Ok(writes
            .map(|event| format!("{} {}", event.verb, event.object_ref.name))
            .collect())
    }

    /// Whether the kubelet's request to create this Node was answered with the uninitialized taint, as the manager's
    /// later removal shows: nobody removes a taint that was never there.
    pub(crate) async fn node_was_tainted(&self, node: &str) -> Result<bool> {
        let events = AuditLog::new(self.tenant.audit_log()).events().await?;
        Ok(events.iter().any(|event| {
            event.concerns("nodes")
                && event.object_ref.name == node
                && event.verb == "create"
                && event.was_mutated_by("nodes.outrigger.dev")
        }))
    }
}

fn is_manager(object: &Value) -> bool {
    object["metadata"]["name"] == NEW_MANAGER
        && matches!(object["kind"].as_str(), Some("Deployment" | "ServiceAccount"))
}

fn kinds(objects: &[Value]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for object in objects {
        *counts.entry(object["kind"].as_str().unwrap_or("?")).or_default() += 1;
    }

    let text = |(kind, count): (&str, usize)| match count {
        1 => kind.to_owned(),
        count => format!("{count} {kind}"),
    };
    counts.into_iter().map(text).collect::<Vec<_>>().join(", ")
}
