//! A real API server with the programs of cert-manager, and the node that runs the webhook's Pod.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
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
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

use crate::kubelet::SecretVolume;
use crate::load::GUARDED;

pub const LIMIT: Duration = Duration::from_secs(120);
pub const NAMESPACE: &str = "outrigger-system";
pub const IMAGE: &str = "registry.example.com/outrigger";
/// The serving certificate.
pub const SECRET: &str = "outrigger-webhook-tls";
pub const CA_SECRET: &str = "outrigger-webhook-ca";
const VERSION: Version = Version::V1_36;

/// The next authority's effect on `caBundle`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cainjector {
    /// It is added. Expired ones are removed. The default of cert-manager 1.19 and later.
    Adds,
    /// It replaces the old one: the default of cert-manager up to 1.18.
    Replaces,
}

/// The data of a Secret, as text.
pub type Data = BTreeMap<String, String>;

pub struct Cluster {
    source: Source,
    pub run: PathBuf,
    pub kubeconfig: PathBuf,
    /// Of the webhook's service account.
    pub webhook_kubeconfig: PathBuf,
    /// Of the webhook's Service.
    pub address: Ipv4Addr,
    /// The folder of the webhook's certificate.
    pub certificates: PathBuf,
    node: Option<(PodRunner, SecretVolume)>,
    programs: Vec<Process>,
    _server: ApiServer,
    _etcd: Etcd,
}

/// Reads what is stored.
#[derive(Clone)]
pub struct Source {
    pub admin: Client,
}

impl Deref for Cluster {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

impl Cluster {
    pub async fn start(run: &Path, cainjector: Cainjector, network: u8) -> Result<Self> {
        let tools = Tools::load(&[
            Tool::Etcd,
            VERSION.api_server(),
            VERSION.controller_manager(),
            Tool::CertManagerController,
            Tool::CertManagerCainjector,
        ])
        .await?;
        let etcd = Etcd::start(&tools, run).await?;
        let options = ApiServerOptions::new("cert-manager", VERSION, format!("127.{network}.0.0/16"));
        let server = ApiServer::start(&tools, run, &etcd, &options).await?;
        let admin = server.client(&User::admin(), "cert-manager-test/1").await?;
        let account = "system:serviceaccount:outrigger-system:outrigger-webhook";
        let webhook = User::new(account).in_group("system:serviceaccounts");

        manifests::apply(&admin, &definitions(&tools)?).await?;
        manifests::apply(&admin, &guarded()).await?;
        Ok(Self {
            source: Source { admin },
            run: run.to_owned(),
            kubeconfig: server.kubeconfig(&User::admin())?,
            webhook_kubeconfig: server.kubeconfig(&webhook)?,
            address: Ipv4Addr::new(127, network, 0, 10),
            certificates: run.join("certificates"),
            node: None,
            programs: programs(&tools, run, &server, cainjector)?,
            _server: server,
            _etcd: etcd,
        })
    }

    /// Mounts the Secret, runs the Pod of the Deployment, and waits until a request needs and gets its answer.
    pub async fn run_the_webhook(&mut self) -> Result<()> {
        let volume = SecretVolume::mount(self.source.clone(), self.certificates.clone()).await?;
        let folder = self.run.join("pods");
        std::fs::create_dir(&folder)?;
        let program = Binaries::one("outrigger-webhook")?;
        let config = RunnerConfig {
            node: "harness".to_owned(),
            namespaces: vec![NAMESPACE.to_owned()],
            images: ImageTable::new([Image::new(IMAGE, "outrigger-webhook", program)]),
            folder,
            on_access_key: Arc::new(|_, _| {}),
        };
        let runner = PodRunner::start(&kubelets::config(&self.kubeconfig).await?, config).await?;

        let deployments: Api<Deployment> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let is_available = wait::until("the Deployment is available", LIMIT, async || {
            let status = deployments.get("outrigger-webhook").await?.status.unwrap_or_default();
            Ok::<_, anyhow::Error>(status.available_replicas == Some(1))
        });
        let result = is_available.await;
        result.with_context(|| format!("{:?}", runner.spans()))?;
        self.node = Some((runner, volume));

        wait::until("a request is granted", LIMIT, async || {
            Ok::<_, anyhow::Error>(crate::load::try_pod(&self.admin).await?.is_granted())
        })
        .await?;
        Ok(())
    }

    /// Fails if one of the programs ended, or the webhook was started again.
    pub fn check_programs(&self) -> Result<()> {
        for program in &self.programs {
            program.ensure_running()?;
        }
        if let Some((runner, volume)) = &self.node {
            let spans = runner.spans();
            ensure!(
                spans.len() == 1 && spans[0].ended.is_none(),
                "the webhook ended: {spans:?}"
            );
            ensure!(volume.is_running(), "the Secret or the registrations could not be read");
        }
        Ok(())
    }
}

impl Source {
    pub async fn secret_data(&self, name: &str) -> Result<Data> {
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let data = secrets.get(name).await?.data.unwrap_or_default();
        data.into_iter()
            .map(|(key, value)| Ok((key, String::from_utf8(value.0)?)))
            .collect()
    }

    pub async fn secret(&self, name: &str, key: &str) -> Result<String> {
        let mut data = self.secret_data(name).await?;
        data.remove(key).with_context(|| format!("{name} has no {key}"))
    }

    /// Whether API servers trust the authority in every entry of every registration.
    pub async fn each_bundle_has(&self, authority: &str) -> Result<bool> {
        let bundles = self.bundles().await?;
        Ok(bundles.iter().all(|bundle| bundle.contains(authority.trim())))
    }

    pub async fn no_bundle_has(&self, authority: &str) -> Result<bool> {
        let bundles = self.bundles().await?;
        Ok(!bundles.iter().any(|bundle| bundle.contains(authority.trim())))
    }

    /// `caBundle` of every entry, decoded.
    async fn bundles(&self) -> Result<Vec<String>> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.admin.clone());
        let mut bundles = Vec::new();
        for registration in api.list(&ListParams::default()).await? {
            for webhook in registration.webhooks.unwrap_or_default() {
                let bundle = webhook.client_config.ca_bundle.unwrap_or_default();
                bundles.push(String::from_utf8(bundle.0)?);
            }
        }
        ensure!(bundles.len() > 1, "{} entries", bundles.len());
        Ok(bundles)
    }

    /// A Certificate, as it is stored.
    pub async fn certificate(&self, name: &str) -> Result<Value> {
        let wanted = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": name, "namespace": NAMESPACE},
        });
        Ok(manifests::get(&self.admin, &wanted).await?.data)
    }

    /// The end of the issued certificate's life.
    pub async fn expiry(&self, certificate: &str) -> Result<Timestamp> {
        let data = self.certificate(certificate).await?;
        let end = data["status"]["notAfter"].as_str().context("no status.notAfter")?;
        Ok(end.parse()?)
    }

    /// Calls of a webhook that failed, by the API server's own count: with `Ignore` the request is granted.
    /// <https://kubernetes.io/docs/reference/instrumentation/metrics/>
    pub async fn unanswered_calls(&self) -> Result<f64> {
        let text = self
            .admin
            .request_text(http::Request::get("/metrics").body(Vec::new())?)
            .await?;
        let is_counted = |line: &&str| {
            line.starts_with("apiserver_admission_webhook_fail_open_count{")
                || (line.starts_with("apiserver_admission_webhook_rejection_count{")
                    && line.contains("error_type=\"calling_webhook_error\""))
        };
        let values = text.lines().filter(is_counted);
        values
            .map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?))
            .sum()
    }
}

/// cert-manager's own, of the module that its programs are built from.
fn definitions(tools: &Tools) -> Result<Vec<Value>> {
    let folder = tools.path(Tool::CertManagerController)?.with_file_name("crds");
    let mut definitions = Vec::new();
    for file in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            definitions.push(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?);
        }
    }
    ensure!(
        definitions.len() == 6,
        "{} definitions in {}",
        definitions.len(),
        folder.display()
    );
    Ok(definitions)
}

fn guarded() -> [Value; 2] {
    let labels = json!({"outrigger.dev/control-plane": "true"});
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GUARDED, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": GUARDED}}),
    ]
}

/// The controllers of Deployments, and cert-manager.
fn programs(tools: &Tools, run: &Path, server: &ApiServer, cainjector: Cainjector) -> Result<Vec<Process>> {
    let manager = ManagementControllerManager {
        kubeconfig: server.kubeconfig(&User::admin())?,
        service_account_key: server.service_account_key(),
        certificate_folder: run.to_owned(),
        port: free_port()?,
    };
    let kubeconfig = format!("--kubeconfig={}", manager.kubeconfig.display());
    let merging = format!("--feature-gates=CAInjectorMerging={}", cainjector == Cainjector::Adds);
    let programs = [
        ("controllers", VERSION.controller_manager(), manager.arguments()),
        (
            "cert-manager-controller",
            Tool::CertManagerController,
            vec![kubeconfig.clone()],
        ),
        (
            "cert-manager-cainjector",
            Tool::CertManagerCainjector,
            vec![kubeconfig, merging],
        ),
    ];
    let started = programs.into_iter().map(|(name, tool, arguments)| {
        let launch = Launch::new(name, tools.path(tool)?).arguments(arguments);
        Ok(Process::start(&launch, run)?)
    });
    started.collect()
}
