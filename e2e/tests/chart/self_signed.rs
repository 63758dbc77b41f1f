//! The chart with its default values on real API servers: the Pod of its Deployment runs, by a real controller manager
//! and the Pod runner of the harness. Nothing else provides a certificate.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, User, Version,
};
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::pods::{Image, ImageTable, PodRunner, RunnerConfig};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::{Binaries, manifests, review};
use serde_json::{Value, json};

use super::install::{Installer, ours};
use super::{Helm, NAMESPACE, emergency, values};

pub const LIMIT: Duration = Duration::from_secs(120);
const IMAGE: &str = "registry.example.com/outrigger";
const SECRET: &str = "Secret outrigger-system outrigger-webhook-self-signed";

pub struct Cluster {
    pub admin: Client,
    pub kubeconfig: PathBuf,
    /// Of the webhook's service account.
    webhook: PathBuf,
    address: Ipv4Addr,
    runner: PodRunner,
    _controllers: Process,
    _server: ApiServer,
    _etcd: Etcd,
}

impl Cluster {
    async fn start(run: &Path, version: Version, network: u8) -> Result<Self> {
        let tools = Tools::load(&[Tool::Etcd, version.api_server(), version.controller_manager()]).await?;
        let etcd = Etcd::start(&tools, run).await?;
        let options = ApiServerOptions::new("chart", version, format!("127.{network}.0.0/16"));
        let server = ApiServer::start(&tools, run, &etcd, &options).await?;
        let kubeconfig = server.kubeconfig(&User::admin())?;
        let account = "system:serviceaccount:outrigger-system:outrigger-webhook";
        let webhook = server.kubeconfig(&User::new(account).in_group("system:serviceaccounts"))?;

        let manager = ManagementControllerManager {
            kubeconfig: kubeconfig.clone(),
            service_account_key: server.service_account_key(),
            certificate_folder: run.to_owned(),
            port: free_port()?,
        };
        let program = tools.path(version.controller_manager())?;
        let launch = Launch::new("controllers", program).arguments(manager.arguments());
        Ok(Self {
            admin: server.client(&User::admin(), "chart-test/1").await?,
            runner: runner(run, &kubeconfig).await?,
            kubeconfig,
            webhook,
            address: Ipv4Addr::new(127, network, 0, 10),
            _controllers: Process::start(&launch, run)?,
            _server: server,
            _etcd: etcd,
        })
    }

    /// The default values, and the flags for a process that is in no container.
    pub fn values(&self, more: &Value) -> Value {
        let kubeconfig = format!("--kubeconfig={}", self.webhook.display());
        let webhook = json!({"replicas": 1, "extraArgs": [kubeconfig, "--shutdown-delay=0s"]});
        let mut all = values(more);
        all["webhook"] = webhook;
        all
    }

    /// A Helm post-renderer: addresses and ports of this machine, which has no Pod network, and no token in a volume. A
    /// Node is refused if the webhook does not answer; with `Ignore` nobody would notice.
    fn post_renderer(&self, run: &Path) -> Result<PathBuf> {
        let (address, port, health) = (self.address, free_port()?, free_port()?);
        let edits = [
            format!("s/0\\.0\\.0\\.0:8443/{address}:{port}/"),
            format!("s/0\\.0\\.0\\.0:8081/127.0.0.1:{health}/"),
            format!("s/containerPort: 8443/containerPort: {port}/"),
            format!("s/containerPort: 8081/containerPort: {health}/"),
            format!("s/port: 443$/port: {port}/"),
            format!("s/^  ports:$/  clusterIP: {address}\\n  ports:/"),
            "s/^      automountServiceAccountToken: true$/      automountServiceAccountToken: false/".to_owned(),
            "s/failurePolicy: Ignore/failurePolicy: Fail/".to_owned(),
        ];
        let edits: String = edits.iter().map(|edit| format!(" -e '{edit}'")).collect();

        let path = run.join("post-renderer");
        std::fs::write(&path, format!("#!/bin/sh\nexec sed{edits}\n"))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
        Ok(path)
    }

    /// `caBundle` of every entry, decoded.
    pub async fn bundles(&self) -> Result<Vec<String>> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.admin.clone());
        let mut bundles = Vec::new();
        for registration in api.list(&ListParams::default()).await? {
            for webhook in registration.webhooks.unwrap_or_default() {
                let bundle = webhook.client_config.ca_bundle.unwrap_or_default();
                bundles.push(String::from_utf8(bundle.0)?);
            }
        }
        Ok(bundles)
    }

    /// Waits until the Deployment is available.
    pub async fn is_available(&self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let mut last = Value::Null;
        let is_available = wait::until("the Deployment is available", LIMIT, async || {
            let deployment = deployments.get("outrigger-webhook").await?;
            last = serde_json::to_value(&deployment.status)?;
            let is_observed = last["observedGeneration"].as_i64() == deployment.metadata.generation;
            Ok::<_, anyhow::Error>(is_observed && last["updatedReplicas"] == 1 && last["availableReplicas"] == 1)
        });
        let result = is_available.await;
        result.with_context(|| format!("{last}; {:?}", self.runner.spans()))
    }

    /// Waits until the Deployment is available, and every entry calls it with success.
    pub async fn works(&self, entries: usize) -> Result<Vec<String>> {
        self.is_available().await?;
        wait::until("a Node is created", LIMIT, async || {
            let is_complete = self.bundles().await?.iter().all(|bundle| !bundle.is_empty());
            Ok::<_, anyhow::Error>(is_complete && self.try_node().await?)
        })
        .await?;
        let bundles = self.bundles().await?;
        ensure!(bundles.len() == entries, "{} entries, not {entries}", bundles.len());
        Ok(bundles)
    }

    /// Whether a Node may be created, which needs the webhook's answer.
    async fn try_node(&self) -> Result<bool> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "joins"}});
        let answer = review::create(&self.admin, "/api/v1/nodes", "?dryRun=All", &node).await?;
        Ok(answer.is_granted())
    }

    /// Sets `caBundle` of the entry for Nodes, as cert-manager's cainjector does.
    async fn inject(&self, bundle: &str) -> Result<()> {
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/outrigger";
        let value = manifests::ca_bundle(bundle);
        let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]);
        let body = Some(("application/json-patch+json", &patch));
        review::send(&self.admin, Method::PATCH, path, body).await?.granted()?;
        Ok(())
    }

    /// Nothing but the definition and the namespace that Helm created is left.
    async fn is_clean(&self) -> Result<()> {
        let expected = [
            "APIService  v1alpha1.outrigger.dev",
            "CustomResourceDefinition  cloudprovidermigrations.outrigger.dev",
            "Namespace  outrigger-system",
        ];
        // Kubernetes creates these in each namespace.
        let of_the_namespace = [
            "ConfigMap outrigger-system kube-root-ca.crt",
            "ServiceAccount outrigger-system default",
        ];
        let mut last = BTreeSet::new();
        let is_clean = wait::until("a clean cluster", LIMIT, async || {
            last = ours(&self.admin).await?;
            last.retain(|name| !of_the_namespace.contains(&name.as_str()));
            Ok::<_, anyhow::Error>(last.iter().eq(expected))
        });
        let result = is_clean.await;
        result.with_context(|| format!("left after the removal: {last:?}"))
    }
}

async fn runner(run: &Path, kubeconfig: &Path) -> Result<PodRunner> {
    let folder = run.join("pods");
    std::fs::create_dir(&folder)?;
    let program = Binaries::one("outrigger-webhook")?;
    let config = RunnerConfig {
        node: "harness".to_owned(),
        namespaces: vec![NAMESPACE.to_owned()],
        images: ImageTable::new([Image::new(IMAGE, "outrigger-webhook", program)]),
        folder,
        on_access_key: Arc::new(|_, _| {}),
    };
    Ok(PodRunner::start(&kubelets::config(kubeconfig).await?, config).await?)
}

async fn on(helm: &Helm, version: Version, network: u8) -> Result<()> {
    let run = tempfile::tempdir()?;
    let cluster = Cluster::start(run.path(), version, network).await?;
    let mut helm = Installer::new(helm, &cluster.kubeconfig);
    helm.post_renderer = Some(cluster.post_renderer(run.path())?.display().to_string());

    helm.install(&cluster.values(&json!({}))).await?;
    let first = cluster.works(1).await.context("after the installation")?;
    let more = json!({"profiles": ["Nodes", "KubeadmConfig"]});
    helm.upgrade(&cluster.values(&more)).await?;
    ensure!(cluster.bundles().await?.contains(&first[0]), "Helm removed caBundle");
    cluster.works(2).await.context("after an upgrade")?;

    through_cert_manager(&helm, &cluster)
        .await
        .context("through cert-manager")?;
    helm.uninstall().await?;
    cluster.is_clean().await?;

    helm.install(&cluster.values(&json!({}))).await?;
    let again = cluster.works(1).await.context("after another installation")?;
    ensure!(again != first, "the CA of the first installation is trusted");
    emergency::off_and_on(&helm, &cluster).await.context("emergency")?;
    helm.uninstall().await?;
    cluster.is_clean().await?;
    cluster.runner.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>());
    causes.any(|cause| matches!(cause, kube::Error::Api(status) if status.code == 404))
}

/// An upgrade to another source and back keeps each `caBundle`.
async fn through_cert_manager(helm: &Installer<'_>, cluster: &Cluster) -> Result<()> {
    let kinds = [("Issuer", "issuers"), ("Certificate", "certificates")];
    let definitions =
        kinds.map(|(kind, plural)| manifests::open_definition("cert-manager.io", kind, plural, true, &["v1"]));
    manifests::apply(&cluster.admin, &definitions).await?;
    // API servers list a new group before they serve it.
    let served = wait::until("cert-manager's kinds", LIMIT, async || {
        match ours(&cluster.admin).await {
            Err(error) if is_not_found(&error) => Ok(false),
            found => found.map(|_| true),
        }
    });
    served.await?;
    let before = cluster.bundles().await?;
    ensure!(ours(&cluster.admin).await?.contains(SECRET), "no {SECRET}");

    let chosen = json!({"certificates": {"source": "certManager"}, "profiles": ["Nodes", "KubeadmConfig"]});
    helm.upgrade(&cluster.values(&chosen)).await?;
    ensure!(
        cluster.bundles().await? == before,
        "the upgrade to cert-manager changed caBundle"
    );
    // The replica still runs, and cannot create it again.
    let left = ours(&cluster.admin).await?;
    ensure!(
        left.iter().all(|name| !name.contains("self-signed")),
        "left of selfSigned: {left:?}"
    );
    let folder = tempfile::tempdir()?;
    let injected = manifests::issue_webhook_certificate(folder.path(), "127.0.0.1")?;
    cluster.inject(&injected).await?;

    helm.upgrade(&cluster.values(&json!({}))).await?;
    let after = cluster.works(1).await?;
    ensure!(
        after[0].contains(injected.trim()),
        "cert-manager's CA is gone: replicas with its certificate are refused"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_installation_works_on_kubernetes_1_26_and_leaves_nothing() {
    if let Err(error) = on(&Helm::new().await, Version::V1_26, 110).await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_installation_works_on_kubernetes_1_36_and_leaves_nothing() {
    if let Err(error) = on(&Helm::new().await, Version::V1_36, 111).await {
        panic!("{error:#}");
    }
}
