//! The API server shows the webhook a client certificate, with the two files that `manifests/README.md` gives for it, and the
//! webhook lets in the one whose name it was told.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use kube::Client;
use outrigger_certs::{Authority, Validity};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::loopback::{LoopbackClient, expect_ok};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::review::{self, Answer};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "guarded";

/// Client certificates, where the files of the documentation look for them.
struct Clients {
    folder: PathBuf,
    authority: Authority,
    validity: Validity,
}

impl Clients {
    fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let validity = Validity::starting(jiff::Timestamp::now(), Duration::from_secs(24 * 3600));
        let authority = Authority::new("callers of the webhook", validity)?;
        fs::write(folder.join("ca.crt"), authority.certificate_pem())?;
        Ok(Self {
            folder,
            authority,
            validity,
        })
    }

    /// Gives the API server another certificate; it reads it at its start.
    fn issue(&self, name: &str) -> Result<()> {
        let issued = self.authority.issue_client(name, &[], self.validity)?;
        fs::write(self.folder.join("client.crt"), issued.certificate_pem)?;
        fs::write(self.folder.join("client.key"), issued.key_pem)?;
        Ok(())
    }

    /// The documentation's files, with this folder and this port in the place of the ones of a real control plane.
    fn documented(&self, port: u16) -> Result<PathBuf> {
        let readme = fs::read_to_string(manifests::folder().join("README.md"))?;
        let host = "outrigger-webhook.outrigger-system.svc";
        let example = |kind: &str| {
            let wanted = format!("kind: {kind}\n");
            let blocks = readme
                .split("```yaml\n")
                .skip(1)
                .filter_map(|rest| rest.split("```").next());
            let found = blocks.into_iter().find(|block| block.contains(&wanted));
            let text = found.with_context(|| format!("manifests/README.md shows no {kind}"))?;
            ensure!(text.contains("/etc/kubernetes/outrigger/"), "{text}");
            Ok(text
                .replace("/etc/kubernetes/outrigger", &self.folder.display().to_string())
                .replace(host, &format!("{host}:{port}")))
        };
        let configuration = self.folder.join("admission.yaml");
        fs::write(&configuration, example("AdmissionConfiguration")?)?;
        fs::write(self.folder.join("webhooks.kubeconfig"), example("Config")?)?;
        Ok(configuration)
    }
}

struct Bench {
    server: ApiServer,
    admin: Client,
    health: String,
    _webhook: Process,
    _etcd: Etcd,
}

impl Bench {
    async fn build(run: &Path, version: Version, range: &str, address: &str, clients: &Clients) -> Result<Self> {
        let tools = Tools::load(&[Tool::Etcd, Tool::Kustomize, version.api_server()]).await?;
        let etcd = Etcd::start(&tools, run).await?;
        let (port, health) = (free_port()?, free_port()?);
        let mut options = ApiServerOptions::new("cluster", version, range);
        let configuration = clients.documented(port)?.display().to_string();
        options
            .extra_arguments
            .push(format!("--admission-control-config-file={configuration}"));
        let server = ApiServer::start(&tools, run, &etcd, &options).await?;
        let admin = server.client(&User::admin(), "callers-test/1").await?;

        let certificates = run.join("webhook-certs");
        let authority = manifests::issue_webhook_certificate(&certificates, address)?;
        let mut objects = manifests::build(&tools, &manifests::folder().join("base")).await?;
        objects.retain(|object| !["Deployment", "DaemonSet", "PodDisruptionBudget"].contains(&kind(object)));
        manifests::register_webhook(&mut objects, &authority, address, port);
        objects.extend(guarded_namespace());
        manifests::apply(&admin, &objects).await?;

        let account = "system:serviceaccount:outrigger-system:outrigger-webhook";
        let kubeconfig = server.kubeconfig(&User::new(account).in_group("system:serviceaccounts"))?;
        let launch = Launch::new("outrigger-webhook", Binaries::find()?.webhook).arguments([
            format!("--bind-address={address}:{port}"),
            format!("--health-bind-address=127.0.0.1:{health}"),
            format!("--cert-dir={}", certificates.display()),
            "--server-name=outrigger-webhook.outrigger-system.svc".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--client-ca-file={}", clients.folder.join("ca.crt").display()),
            "--client-name=kube-apiserver".to_owned(),
        ]);
        let webhook = Process::start(&launch, run)?;
        let health = format!("http://127.0.0.1:{health}");
        let readyz = format!("{health}/readyz");
        webhook.ready("be ready", SOON, || expect_ok(&readyz)).await?;
        Ok(Self {
            server,
            admin,
            health,
            _webhook: webhook,
            _etcd: etcd,
        })
    }

    /// A Pod that may only be made with the webhook's word.
    async fn try_pod(&self) -> Result<Answer> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "kcm", "namespace": NAMESPACE, "labels": {"app": "kube-controller-manager"}},
            "spec": {"containers": [{"name": "kube-controller-manager", "image": "none", "command": ["kube-controller-manager"]}]},
        });
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        review::create(&self.admin, &pods, "?dryRun=All", &pod).await
    }

    async fn metric(&self, series: &str) -> Result<f64> {
        let request = http::Request::get(format!("{}/metrics", self.health)).body(Full::default())?;
        let answer = LoopbackClient::default().send(request).await?;
        let text = std::str::from_utf8(answer.body())?;
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines
            .map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?))
            .sum()
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn guarded_namespace() -> [Value; 2] {
    let labels = json!({"outrigger.dev/control-plane": "true"});
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}),
    ]
}

async fn by_name(version: Version, range: &str, address: &str) -> Result<()> {
    const REVIEWS: &str = "outrigger_webhook_reviews_total{kind=\"Pod\"";
    const REFUSED: &str =
        "outrigger_webhook_connections_refused_total{port=\"admission\",reason=\"client_certificate\"}";
    let run = tempfile::tempdir()?;
    let clients = Clients::new(run.path().join("clients"))?;
    clients.issue("kube-apiserver")?;
    let mut bench = Bench::build(run.path(), version, range, address, &clients).await?;

    bench.try_pod().await?.granted().context("the right name")?;
    let seen = bench.metric(REVIEWS).await?;
    ensure!(seen >= 1.0, "the webhook has seen nothing");
    ensure!(bench.metric(REFUSED).await? == 0.0, "somebody was refused");

    clients.issue("somebody-else")?;
    bench.server.stop(SOON).await?;
    bench.server.start_again().await?;
    let refused = bench.try_pod().await?;
    ensure!(!refused.is_granted(), "another name was let in");
    ensure!(refused.message().contains("outrigger.dev"), "{}", refused.message());
    ensure!(
        bench.metric(REVIEWS).await? <= seen,
        "a review of another name was decided"
    );
    ensure!(bench.metric(REFUSED).await? >= 1.0, "{}", refused.message());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_1_26_shows_the_certificate_that_its_files_name() {
    if let Err(error) = by_name(Version::V1_26, "127.86.0.0/16", "127.86.0.10").await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_1_36_shows_the_certificate_that_its_files_name() {
    if let Err(error) = by_name(Version::V1_36, "127.87.0.0/16", "127.87.0.10").await {
        panic!("{error:#}");
    }
}
