//! One API server with the manifests, and replicas of the webhook with the rights of its service account.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::loopback::{LoopbackClient, expect_ok};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::relay::Relay;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::review::{self, Answer};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

use crate::balancer::Balancer;

pub const SOON: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "outrigger-system";
const SECRET: &str = "outrigger-webhook-self-signed";

pub struct Cluster {
    pub balancer: Balancer,
    run: PathBuf,
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Between the second or fourth replica and their API server.
    pub relay: Relay,
    caller: Arc<Caller>,
    tenant: Tenant,
    /// The registration as it was applied.
    manifest: Value,
    network: u8,
    port: u16,
    server: ApiServer,
    _etcd: Etcd,
}

/// The API server of a hosted control plane, whose registration names a URL.
struct Tenant {
    admin: Client,
    kubeconfig: PathBuf,
    _server: ApiServer,
}

/// The administrator.
pub struct Caller {
    admin: Client,
}

pub struct Replica {
    pub name: String,
    pub address: SocketAddr,
    health: String,
    process: Process,
}

impl Cluster {
    pub async fn start(run: &Path, version: Version, network: u8) -> Result<Self> {
        let tools = Tools::load(&[Tool::Etcd, Tool::Kustomize, version.api_server()]).await?;
        let etcd = Etcd::start(&tools, run).await?;
        let options = ApiServerOptions::new("cluster", version, format!("127.{network}.0.0/16"));
        let server = ApiServer::start(&tools, run, &etcd, &options).await?;
        let admin = server.client(&User::admin(), "self-signed-test/1").await?;
        let (address, port) = (Ipv4Addr::new(127, network, 0, 10), free_port()?);

        let mut objects = manifests::with_component(&tools, run, "base", "self-signed").await?;
        objects.retain(|object| !is_run(object));
        manifests::set_webhook_port(&mut objects, &address.to_string(), port);
        objects.extend(namespace("open", &json!({})));
        objects.extend(namespace("guarded", &json!({"outrigger.dev/control-plane": "true"})));
        manifests::apply(&admin, &objects).await?;

        let account = "system:serviceaccount:outrigger-system:outrigger-webhook";
        let kubeconfig = server.kubeconfig(&User::new(account).in_group("system:serviceaccounts"))?;
        let mut registrations = objects.into_iter().filter(manifests::is_registration);
        let manifest = registrations.find(|object| object["metadata"]["name"] == "outrigger");
        let manifest = manifest.context("the registration")?;
        let tenant = Tenant::start(&tools, run, &etcd, version, &format!("{address}:{port}")).await?;
        Ok(Self {
            balancer: Balancer::start(SocketAddr::from((address, port))).await?,
            run: run.to_owned(),
            program: Binaries::one("outrigger-webhook")?,
            relay: Relay::start(server.url().trim_start_matches("https://").parse()?).await?,
            kubeconfig,
            caller: Arc::new(Caller { admin }),
            tenant,
            manifest,
            network,
            port,
            server,
            _etcd: etcd,
        })
    }

    /// Starts a replica; it is not ready yet.
    pub fn replica(&self, index: u8) -> Result<Replica> {
        let name = format!("webhook-{index}");
        let address = SocketAddr::from((Ipv4Addr::new(127, self.network, 1, index + 1), self.port));
        let health = format!("127.0.0.1:{}", free_port()?);
        let launch = Launch::new(&name, &self.program).arguments([
            format!("--bind-address={address}"),
            format!("--health-bind-address={health}"),
            format!("--self-signed-secret={SECRET}"),
            "--server-name=outrigger-webhook.outrigger-system.svc".to_owned(),
            format!("--server-name=127.{}.0.10", self.network),
            // The CA is replaced after 47 s, some seconds after the third certificate was issued.
            "--self-signed-lifetime=20s".to_owned(),
            "--self-signed-ca-lifetime=70s".to_owned(),
            // API servers verify the certificate when they connect.
            "--max-connection-age=1s".to_owned(),
            // An API server closes idle connections itself, after 90 s. Where the webhook is first, a request that is
            // sent at this moment fails.
            "--header-timeout=120s".to_owned(),
            "--idle-timeout=120s".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig_of(index)?.display()),
            format!("--cluster-kubeconfig=prod={}", self.tenant.kubeconfig.display()),
        ]);
        Ok(Replica {
            name,
            address,
            health: format!("http://{health}"),
            process: Process::start(&launch, &self.run)?,
        })
    }

    fn kubeconfig_of(&self, index: u8) -> Result<PathBuf> {
        if index.is_multiple_of(2) {
            return Ok(self.kubeconfig.clone());
        }

        let path = self.kubeconfig.with_extension("relayed");
        let text = std::fs::read_to_string(&self.kubeconfig)?;
        let relay = format!("https://{}", self.relay.address());
        std::fs::write(&path, text.replace(self.server.url(), &relay))?;
        Ok(path)
    }

    pub fn caller(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }

    pub async fn try_pod(&self, namespace: &str) -> Result<Answer> {
        self.caller.try_pod(namespace).await
    }

    /// A key of the Secret's data, as text.
    pub async fn secret(&self, key: &str) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.caller.admin.clone(), NAMESPACE);
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        let value = data.get(key).with_context(|| format!("the Secret has no {key}"))?;
        Ok(String::from_utf8(value.0.clone())?)
    }

    /// `caBundle` of every entry of every registration in both clusters, decoded.
    pub async fn bundles(&self) -> Result<Vec<String>> {
        let mut bundles = Vec::new();
        for admin in [&self.caller.admin, &self.tenant.admin] {
            let api: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
            for registration in api.list(&ListParams::default()).await? {
                for webhook in registration.webhooks.unwrap_or_default() {
                    let bundle = webhook.client_config.ca_bundle.unwrap_or_default();
                    bundles.push(String::from_utf8(bundle.0)?);
                }
            }
        }
        Ok(bundles)
    }

    /// Creates a Node in the tenant as a dry run, which needs the webhook.
    pub async fn try_node(&self) -> Result<Answer> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
        review::create(&self.tenant.admin, "/api/v1/nodes", "?dryRun=All", &node).await
    }

    /// As an upgrade does that registers less.
    pub async fn apply_without_last_entry(&self) -> Result<()> {
        let mut registration = self.manifest.clone();
        let webhooks = registration["webhooks"].as_array_mut().context("entries")?;
        webhooks.pop();
        let left = webhooks.len();
        manifests::apply(&self.caller.admin, &[registration]).await?;

        let api: Api<MutatingWebhookConfiguration> = Api::all(self.caller.admin.clone());
        let stored = api.get("outrigger").await?.webhooks.unwrap_or_default();
        ensure!(stored.len() == left, "{} entries, not {left}", stored.len());
        Ok(())
    }

    pub async fn remove_bundles(&self) -> Result<()> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.caller.admin.clone());
        for name in ["outrigger", "early.outrigger.dev"] {
            let mut registration = api.get(name).await?;
            for webhook in registration.webhooks.iter_mut().flatten() {
                webhook.client_config.ca_bundle = None;
            }
            api.replace(name, &PostParams::default(), &registration).await?;
        }
        Ok(())
    }
}

impl Tenant {
    async fn start(tools: &Tools, run: &Path, etcd: &Etcd, version: Version, webhook: &str) -> Result<Self> {
        let range = match version {
            Version::V1_26 => "127.108.0.0/16",
            Version::V1_36 => "127.109.0.0/16",
        };
        let server = ApiServer::start(tools, run, etcd, &ApiServerOptions::new("tenant", version, range)).await?;
        let admin = server.client(&User::admin(), "self-signed-test/1").await?;

        let mut objects = manifests::with_component(tools, run, "overlays/hosted/tenant", "self-signed-tenant").await?;
        objects.retain(|object| !is_run(object));
        for registration in objects.iter_mut().filter(|object| manifests::is_registration(object)) {
            let entry = &mut registration["webhooks"][0];
            entry["clientConfig"]["url"] = Value::from(format!("https://{webhook}/mutate/prod"));
            // With Ignore nobody would notice a refused certificate.
            entry["failurePolicy"] = Value::from("Fail");
        }
        manifests::apply(&admin, &objects).await?;

        Ok(Self {
            kubeconfig: server.kubeconfig(&User::new("outrigger-webhook"))?,
            admin,
            _server: server,
        })
    }
}

impl Caller {
    /// Creates a Pod of a kube-controller-manager as a dry run. In the namespace "guarded" that needs the webhook.
    pub async fn try_pod(&self, namespace: &str) -> Result<Answer> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "kcm", "namespace": namespace, "labels": {"app": "kube-controller-manager"}},
            "spec": {"containers": [{"name": "kube-controller-manager", "image": "none", "command": ["kube-controller-manager"]}]},
        });
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        review::create(&self.admin, &pods, "?dryRun=All", &pod).await
    }
}

impl Replica {
    pub async fn ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.health);
        Ok(self.process.ready("be ready", SOON, || expect_ok(&url)).await?)
    }

    /// The answer of its health port.
    pub async fn probe(&self, path: &str) -> Result<(u16, String)> {
        let request = http::Request::get(format!("{}{path}", self.health)).body(Full::default())?;
        let answer = LoopbackClient::default().send(request).await?;
        let text = String::from_utf8(answer.body().to_vec())?;
        Ok((answer.status().as_u16(), text))
    }

    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// The sum of the series that begin with `series`.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let request = http::Request::get(format!("{}/metrics", self.health)).body(Full::default())?;
        let answer = LoopbackClient::default().send(request).await?;
        let text = std::str::from_utf8(answer.body())?;
        let values = text.lines().filter(|line| line.starts_with(series));
        values
            .map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?))
            .sum()
    }
}

fn is_run(object: &Value) -> bool {
    matches!(
        object["kind"].as_str(),
        Some("Deployment" | "DaemonSet" | "PodDisruptionBudget")
    )
}

fn namespace(name: &str, labels: &Value) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}),
    ]
}
