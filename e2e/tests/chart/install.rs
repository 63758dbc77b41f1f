//! Install, upgrade and uninstall on real API servers. No kubelet runs, so no Pod does: see
//! `self_signed.rs` for that.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::Client;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_e2e::stored_objects;
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use super::{Helm, NAMESPACE, chart, values};

const LIMIT: Duration = Duration::from_secs(60);

/// Everything of ours that is stored: kind, namespace and name. Every object of the chart has the project's name in its own.
pub async fn ours(client: &Client) -> Result<BTreeSet<String>> {
    let mut names = stored_objects::names(client).await?;
    names.retain(|name| name.contains("outrigger"));
    Ok(names)
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

async fn on(helm: &Helm, version: Version, range: &str) -> Result<()> {
    let tools = Tools::load(&[Tool::Etcd, version.api_server()]).await?;
    let run = tempfile::tempdir()?;
    let etcd = Etcd::start(&tools, run.path()).await?;
    let options = ApiServerOptions::new("chart", version, range);
    let server = ApiServer::start(&tools, run.path(), &etcd, &options).await?;
    let admin = server.client(&User::admin(), "chart-test/1").await?;
    let helm = Installer::new(helm, &server.kubeconfig(&User::admin())?);
    // A real one: API servers parse it.
    let authority = manifests::issue_webhook_certificate(run.path(), "127.0.0.1")?;
    let bundle = manifests::ca_bundle(&authority);

    with_a_secret(&helm, &admin, &bundle).await.context("secret")?;
    with_operators(&helm, &admin, &bundle).await.context("operators")
}

/// Neither cert-manager nor the Prometheus operator is installed.
async fn with_a_secret(helm: &Installer<'_>, admin: &Client, bundle: &str) -> Result<()> {
    let certificates = json!({"source": "secret", "caBundle": bundle});
    helm.install(&values(&json!({"certificates": certificates}))).await?;
    let installed = ours(admin).await?;
    for name in [
        "DaemonSet kube-system outrigger-manager",
        "Deployment outrigger-system outrigger-webhook",
        "MutatingWebhookConfiguration  outrigger",
        "CustomResourceDefinition  cloudprovidermigrations.outrigger.dev",
    ] {
        ensure!(installed.contains(name), "no {name}: {installed:?}");
    }
    let migration = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "cluster"},
        "spec": {"clusterID": "prod", "phase": "InTree", "targets": [{"profile": "Nodes"}]},
    });
    manifests::apply(admin, &[migration]).await?;

    // Its Pods do not run, so the webhook is unavailable, and a Node joins nevertheless.
    manifests::apply(admin, &[node("during")]).await?;

    let more = json!({
        "certificates": certificates, "profiles": ["Nodes", "KubeadmConfig"], "webhook": {"replicas": 3},
    });
    helm.upgrade(&values(&more)).await?;
    let upgraded = ours(admin).await?;
    let added: Vec<&String> = upgraded.difference(&installed).collect();
    let expected = [
        "MutatingWebhookConfiguration  outrigger-kube-system",
        "Secret outrigger-system sh.helm.release.v1.outrigger.v2",
    ];
    ensure!(added == expected, "added by the upgrade: {added:?}");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "outrigger-webhook", "namespace": NAMESPACE}});
    let spec = manifests::get(admin, &deployment).await?.data["spec"].take();
    ensure!(spec["replicas"] == 3, "{spec}");

    helm.upgrade(&values(&json!({"migration": ""}))).await?;
    let replaced = ours(admin).await?;
    let of_webhook = |name: &&String| name.to_lowercase().contains("webhook");
    let left: Vec<&String> = replaced.iter().filter(of_webhook).collect();
    ensure!(left.is_empty(), "left of the webhook: {left:?}");
    ensure!(
        replaced.contains("DaemonSet kube-system outrigger-manager"),
        "{replaced:?}"
    );

    helm.upgrade(&values(&json!({"certificates": certificates}))).await?;
    helm.uninstall().await?;
    only_the_definition_is_left(admin).await?;
    manifests::apply(admin, &[node("after")]).await
}

/// With the kinds of cert-manager and of the Prometheus operator. The authority that cert-manager's cainjector writes
/// outlives an upgrade.
async fn with_operators(helm: &Installer<'_>, admin: &Client, bundle: &str) -> Result<()> {
    let kinds = [
        ("cert-manager.io", "Issuer", "issuers", "v1"),
        ("cert-manager.io", "Certificate", "certificates", "v1"),
        ("monitoring.coreos.com", "PodMonitor", "podmonitors", "v1"),
        ("monitoring.coreos.com", "PrometheusRule", "prometheusrules", "v1"),
    ];
    let definitions =
        kinds.map(|(group, kind, plural, version)| manifests::open_definition(group, kind, plural, true, &[version]));
    manifests::apply(admin, &definitions).await?;
    let first = json!({
        "certificates": {"source": "certManager"}, "podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
    });
    helm.install(&values(&first)).await?;
    let registration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "outrigger"}});
    let path = review::path_of(admin, &registration).await?;
    let patch = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let media_type = "application/json-patch+json";
    review::send(admin, Method::PATCH, &path, Some((media_type, &patch)))
        .await?
        .granted()?;

    let mut second = first.clone();
    second["profiles"] = json!(["Nodes", "HostedControlPlane"]);
    helm.upgrade(&values(&second)).await?;

    let webhooks = manifests::get(admin, &registration).await?.data["webhooks"].take();
    let entries = webhooks.as_array().context("entries")?;
    ensure!(entries.len() > 10, "{} entries", entries.len());
    let nodes = entries.iter().find(|entry| entry["name"] == "nodes.outrigger.dev");
    ensure!(
        nodes.context("the entry for Nodes")?["clientConfig"]["caBundle"] == bundle,
        "the upgrade removed the authority"
    );
    helm.uninstall().await?;
    only_the_definition_is_left(admin).await
}

/// The definition with its objects, so that a history is not lost, and the namespace that Helm created.
async fn only_the_definition_is_left(admin: &Client) -> Result<()> {
    let expected: BTreeSet<String> = [
        "APIService  v1alpha1.outrigger.dev",
        "CustomResourceDefinition  cloudprovidermigrations.outrigger.dev",
        "Namespace  outrigger-system",
    ]
    .map(str::to_owned)
    .into();
    let mut last = BTreeSet::new();
    // The address of a deleted Service is released a moment later.
    let is_clean = wait::until("a clean cluster", LIMIT, async || {
        last = ours(admin).await.unwrap_or_default();
        (last == expected).then_some(())
    });
    let result = is_clean.await;
    ensure!(result.is_ok(), "left after the removal: {last:?}");

    let migration = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "cluster"}});
    manifests::get(admin, &migration).await.context("the migration stays")?;
    Ok(())
}

pub struct Installer<'a> {
    helm: &'a Helm,
    kubeconfig: String,
    /// A program that edits the rendered objects.
    pub post_renderer: Option<String>,
}

impl<'a> Installer<'a> {
    pub fn new(helm: &'a Helm, kubeconfig: &Path) -> Self {
        Self {
            helm,
            kubeconfig: kubeconfig.display().to_string(),
            post_renderer: None,
        }
    }

    pub async fn install(&self, values: &Value) -> Result<()> {
        let notes = self.deploy("install", &["--create-namespace"], values).await?;
        ensure!(notes.contains("kubectl"), "the notes name no command: {notes}");
        Ok(())
    }

    pub async fn upgrade(&self, values: &Value) -> Result<()> {
        self.deploy("upgrade", &[], values).await.map(drop)
    }

    async fn deploy(&self, verb: &str, flags: &[&str], values: &Value) -> Result<String> {
        let (chart, values) = (chart(), self.helm.values(verb, values)?);
        let mut arguments = vec![verb, "outrigger", &chart, "--values", &values];
        arguments.extend(["--namespace", NAMESPACE, "--kubeconfig", &self.kubeconfig]);
        arguments.extend(flags);
        if let Some(program) = &self.post_renderer {
            arguments.extend(["--post-renderer", program]);
        }
        self.helm.succeed(&arguments).await
    }

    pub async fn uninstall(&self) -> Result<()> {
        let arguments = [
            "uninstall",
            "outrigger",
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            &self.kubeconfig,
        ];
        self.helm.succeed(&arguments).await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_chart_is_upgraded_and_removed_without_a_rest() {
    let helm = Helm::new().await;
    for (version, range) in [(Version::V1_26, "127.88.0.0/16"), (Version::V1_36, "127.87.0.0/16")] {
        if let Err(error) = on(&helm, version, range).await {
            panic!("on {version:?}: {error:#}");
        }
    }
}
