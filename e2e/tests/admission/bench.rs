//! One API server with the project's manifests, and the webhook as a process that the test can take away.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use outrigger_cluster_harness::audit::{AuditEvent, AuditLog};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::loopback::{LoopbackClient, expect_ok};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::review::{self, Answer};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

use crate::objects;

pub const MIGRATIONS: &str = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
/// How long anything may take that happens by itself.
pub const SOON: Duration = Duration::from_secs(60);
/// No stored object is checked.
pub const NEVER: &str = "0s";
/// The migration, and the namespace, that only show when the webhook has caught up.
const CANARY: &str = "canary";

pub struct Bench {
    pub run: PathBuf,
    pub tools: Tools,
    pub version: Version,
    pub etcd: Etcd,
    pub server: ApiServer,
    pub admin: Client,
    audit: AuditLog,
    webhook: Process,
    /// Without the interval of checks.
    launch: Launch,
    check_interval: &'static str,
    health: String,
    canary_is_in_prepare: AtomicBool,
}

impl Bench {
    /// Starts everything; nobody has made a migration yet.
    pub async fn build(run: &Path, version: Version, range: &str, address: &str) -> Result<Self> {
        let wanted = [
            Tool::Etcd,
            Tool::Kustomize,
            version.api_server(),
            version.controller_manager(),
        ];
        let tools = Tools::load(&wanted).await?;
        let etcd = Etcd::start(&tools, run).await?;
        let server = ApiServer::start(&tools, run, &etcd, &ApiServerOptions::new("cluster", version, range)).await?;
        let admin = server.client(&User::admin(), "admission-test/1").await?;
        let (port, health) = (free_port()?, free_port()?);
        let certificates = run.join("webhook-certs");
        let authority = manifests::issue_webhook_certificate(&certificates, address)?;
        install(&tools, run, &admin, &authority, address, port).await?;
        let user =
            User::new("system:serviceaccount:outrigger-system:outrigger-webhook").in_group("system:serviceaccounts");
        let kubeconfig = server.kubeconfig(&user)?.display().to_string();
        let launch = Launch::new("outrigger-webhook", Binaries::find()?.webhook).arguments([
            format!("--bind-address={address}:{port}"),
            format!("--health-bind-address=127.0.0.1:{health}"),
            format!("--cert-dir={}", certificates.display()),
            "--server-name=outrigger-webhook.outrigger-system.svc".to_owned(),
            format!("--server-name={address}"),
            format!("--kubeconfig={kubeconfig}"),
            format!("--cluster-kubeconfig=hosted={kubeconfig}"),
        ]);
        let webhook = Process::start(&checking(&launch, NEVER), run)?;
        let bench = Self {
            run: run.to_owned(),
            tools,
            version,
            etcd,
            audit: AuditLog::new(server.audit_log()),
            server,
            admin,
            webhook,
            launch,
            check_interval: NEVER,
            health: format!("http://127.0.0.1:{health}/readyz"),
            canary_is_in_prepare: AtomicBool::new(false),
        };
        bench.wait_ready().await?;
        Ok(bench)
    }

    async fn wait_ready(&self) -> Result<()> {
        Ok(self.webhook.ready("be ready", SOON, || expect_ok(&self.health)).await?)
    }

    /// The webhook's process, to stop it for a while.
    pub fn webhook(&self) -> &Process {
        &self.webhook
    }

    pub async fn kill_webhook(&self) -> Result<()> {
        self.webhook.kill_now().await?;
        Ok(())
    }

    pub async fn start_webhook_again(&mut self) -> Result<()> {
        self.webhook = Process::start(&checking(&self.launch, self.check_interval), &self.run)?;
        self.wait_ready().await
    }

    /// Starts the webhook again with this interval between two checks of the stored objects. Each lists everything.
    pub async fn check_every(&mut self, interval: &'static str) -> Result<()> {
        self.check_interval = interval;
        self.kill_webhook().await?;
        self.start_webhook_again().await
    }

    /// Makes the canary, with which [`Bench::settle`] works.
    pub async fn begin(&self) -> Result<()> {
        self.namespace(CANARY, &json!({})).await?;
        self.migration(CANARY, json!({})).await
    }

    /// A namespace that belongs to the migration of its name, with the service account that Pods need.
    pub async fn namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let mut all = json!({objects::CLUSTER_LABEL: name});
        if let (Some(all), Some(labels)) = (all.as_object_mut(), labels.as_object()) {
            all.extend(labels.clone());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": all}});
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        manifests::apply(&self.admin, &[namespace, account]).await
    }

    /// A migration that owns what carries its name in the label, and Nodes not; `more` is merged into its spec.
    pub async fn migration(&self, name: &str, more: Value) -> Result<()> {
        let selector = json!({"matchLabels": {objects::CLUSTER_LABEL: name}});
        let mut spec = json!({"clusterID": name, "phase": "InTree", "targets": [
            {"profile": "HostedControlPlane", "namespaceSelector": selector, "objectSelector": selector},
        ]});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        let migration = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": name}, "spec": spec});
        self.create(MIGRATIONS, &migration).await?.granted()?;
        self.settle().await
    }

    /// Changes a migration's spec, and waits until the webhook knows.
    pub async fn change(&self, name: &str, spec: Value) -> Result<()> {
        review::merge(&self.admin, &format!("{MIGRATIONS}/{name}"), &json!({"spec": spec}))
            .await?
            .granted()?;
        self.settle().await
    }

    /// Writes the condition Prepared, as the manager does: server-side apply of the status.
    pub async fn set_prepared(&self, name: &str, status: &str) -> Result<()> {
        self.write_prepared(name, status).await?;
        self.settle().await
    }

    /// The same without the wait.
    pub async fn write_prepared(&self, name: &str, status: &str) -> Result<()> {
        let condition = json!({
            "type": "Prepared", "status": status, "reason": "Tested", "message": "said by the test",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        let body = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": name},
            "status": {"observedGeneration": 1, "conditions": [condition]},
        });
        let path = format!("{MIGRATIONS}/{name}/status?fieldManager=outrigger-manager&force=true");
        review::send(&self.admin, http::Method::PATCH, &path, Some((review::APPLY, &body)))
            .await?
            .granted()?;
        Ok(())
    }

    /// Waits until the webhook has seen every change of a migration up to now. Changes of one kind are seen in their
    /// order, so one more is made, and the webhook asked until it shows.
    pub async fn settle(&self) -> Result<()> {
        let prepare = !self.canary_is_in_prepare.fetch_xor(true, Ordering::Relaxed);
        let phase = if prepare { "Prepare" } else { "InTree" };
        let path = format!("{MIGRATIONS}/{CANARY}");
        review::merge(&self.admin, &path, &json!({"spec": {"phase": phase}}))
            .await?
            .granted()?;
        let canary = objects::Workload::new(CANARY, "canary").deployment();
        self.until("the webhook sees the canary's phase", async || {
            let answer = self
                .create(&format!("{}?dryRun=All", objects::deployments(CANARY)), &canary)
                .await?;
            Ok(objects::line(&answer.granted()?.body)
                .iter()
                .any(|flag| flag.contains("enable-leader-migration"))
                == prepare)
        })
        .await
    }

    pub async fn until(&self, what: &str, probe: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        Ok(wait::until(what, SOON, probe).await?)
    }

    pub async fn create(&self, collection: &str, object: &Value) -> Result<Answer> {
        review::create(&self.admin, collection, "", object).await
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Answer> {
        review::merge(&self.admin, path, patch).await?.granted()
    }

    pub async fn read(&self, path: &str) -> Result<Value> {
        Ok(review::send(&self.admin, http::Method::GET, path, None)
            .await?
            .granted()?
            .body)
    }

    /// The webhook's metrics, as text.
    pub async fn metrics(&self) -> Result<String> {
        self.health("/metrics").await
    }

    /// The API server's metrics, as text.
    pub async fn metrics_of_the_api_server(&self) -> Result<String> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(self.admin.request_text(request).await?)
    }

    /// A page of the webhook's health port.
    pub async fn health(&self, page: &str) -> Result<String> {
        let url = self.health.replace("/readyz", page);
        let request = http::Request::get(url).body(http_body_util::Full::default())?;
        let answer = LoopbackClient::default().send(request).await?;
        Ok(String::from_utf8(answer.into_body().to_vec())?)
    }

    /// The last finished write of an object in the audit log, dry runs left out.
    pub async fn last_write(&self, resource: &str, namespace: &str, name: &str) -> Result<AuditEvent> {
        let events = self.audit.events().await?;
        let of_object = |event: &&AuditEvent| {
            event.is_write()
                && event.concerns(resource)
                && event.object_ref.namespace == namespace
                && event.object_ref.name == name
                && !event.request_uri.contains("dryRun")
        };
        let found = events.iter().rev().find(of_object).cloned();
        found.with_context(|| format!("the audit log has no write of {resource} {namespace}/{name}"))
    }

    /// The webhook's note in the audit log about the last write of an object.
    pub async fn noted(
        &self,
        entry: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<Option<String>> {
        let event = self.last_write(resource, namespace, name).await?;
        Ok(event.annotations.get(&format!("{entry}.outrigger.dev/{key}")).cloned())
    }
}

fn checking(launch: &Launch, interval: &str) -> Launch {
    launch.clone().arguments([format!("--check-interval={interval}")])
}

/// The project's manifests, but for what would run in Pods; and a second registration, as a tenant has it, for Nodes of
/// the migration "hosted".
async fn install(tools: &Tools, run: &Path, admin: &Client, authority: &str, address: &str, port: u16) -> Result<()> {
    let runs = |object: &Value| {
        matches!(
            object["kind"].as_str(),
            Some("Deployment" | "DaemonSet" | "PodDisruptionBudget")
        )
    };
    let mut objects = manifests::build(tools, &manifests::folder().join("base")).await?;
    objects.retain(|object| !runs(object));
    let overlay = "patches:\n- target: {kind: MutatingWebhookConfiguration}\n  patch: |\n    \
                   - {op: replace, path: /metadata/name, value: outrigger-tenant}\n    \
                   - {op: replace, path: /webhooks/0/name, value: hosted-nodes.outrigger.dev}\n    \
                   - {op: replace, path: /webhooks/0/clientConfig/url, value: 'https://outrigger-webhook.invalid/mutate/hosted'}\n";
    let tenant = manifests::render(tools, run, "tenant", "overlays/hosted/tenant", overlay).await?;
    let registrations = tenant
        .into_iter()
        .filter(|object| object["kind"] == "MutatingWebhookConfiguration");
    let before = objects.len();
    objects.extend(registrations);
    ensure!(objects.len() == before + 1, "the tenant has one registration");
    manifests::register_webhook(&mut objects, authority, address, port);
    manifests::apply(admin, &objects).await
}
