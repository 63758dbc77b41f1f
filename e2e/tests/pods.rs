//! The pod runner against a real API server 1.26 and a real controller manager: what is stored is what runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, User, Version,
};
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::pods::{Exit, Image, ImageTable, PodRunner, RunnerConfig};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Ends at once when told to.
const OBEDIENT: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
/// Has to be killed.
const STUBBORN: &str = "trap '' TERM; echo deaf; while :; do sleep 0.05; done";

struct Fixture {
    runner: PodRunner,
    pods: Api<Pod>,
    deployments: Api<Deployment>,
    keys: Arc<Mutex<BTreeMap<String, String>>>,
    server: ApiServer,
    _controllers: Process,
    _etcd: Etcd,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Result<Self> {
        let tools = Tools::load(&[Tool::ApiServer126, Tool::ControllerManager126, Tool::Etcd]).await?;
        let folder = tempfile::tempdir()?;
        let etcd = Etcd::start(&tools, folder.path()).await?;
        let options = ApiServerOptions::new("management", Version::V1_26, "127.97.0.0/16");
        let server = ApiServer::start(&tools, folder.path(), &etcd, &options).await?;
        let kubeconfig = server.kubeconfig(&User::admin())?;
        let controllers = controllers(&tools, &server, &kubeconfig)?;
        let cluster = kubelets::config(&kubeconfig).await?;
        let keys: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let told = Arc::clone(&keys);
        let logs = folder.path().join("pods");
        std::fs::create_dir(&logs)?;
        let config = RunnerConfig {
            node: "harness".into(),
            namespaces: vec!["default".into()],
            images: ImageTable::new([
                Image::new("shell", "sh", "/bin/sh").environment("ADDED", "by-the-table"),
                Image::new("broken", "broken", "/nonexistent/broken"),
            ]),
            folder: logs,
            on_access_key: Arc::new(move |key, process| {
                told.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(key.to_owned(), process.to_owned());
            }),
        };
        let runner = PodRunner::start(&cluster, config).await?;
        let client = Client::try_from(cluster)?;
        let (pods, deployments) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
        Ok(Self {
            runner,
            pods,
            deployments,
            keys,
            server,
            _controllers: controllers,
            _etcd: etcd,
            folder,
        })
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let late = match wait::until(what, Duration::from_secs(60), look).await {
            Ok(found) => return Ok(found),
            Err(late) => late,
        };
        let pods = self.pods.list(&ListParams::default()).await?;
        let states: Vec<_> = pods.iter().map(|pod| (&pod.metadata.name, &pod.status)).collect();
        Err(format!(
            "{late}; Pods {}; spans {:?}",
            serde_json::to_string(&states)?,
            self.runner.spans()
        )
        .into())
    }

    async fn pod_until(&self, what: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Pod> {
        let look = async || {
            let pod = self.pods.get_opt(name).await?;
            let status = serde_json::to_value(pod.as_ref().and_then(|pod| pod.status.as_ref()))?;
            Ok(pod.filter(|_| wanted(&status)))
        };
        self.until(what, look).await
    }

    async fn gone(&self, name: &str) -> Result {
        self.until("the Pod is gone", async || {
            Ok(self.pods.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    async fn create(&self, name: &str, spec: Value) -> Result<Pod> {
        let mut spec = spec;
        spec["automountServiceAccountToken"] = false.into();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        // The service account that admission asks for is made by a controller, a moment after the server's start.
        self.until("the Pod is admitted", async || {
            let made = self
                .pods
                .create(&PostParams::default(), &serde_json::from_value(pod.clone())?)
                .await;
            match made {
                Err(kube::Error::Api(status)) if status.message.contains("serviceaccount") => Ok(None),
                made => Ok(Some(made?)),
            }
        })
        .await
    }

    /// The only running Pod of the Deployment's template with this argument, once it is Ready.
    async fn ready_pod(&self, argument: &str) -> Result<Pod> {
        let look = async || {
            let pods = self.pods.list(&ListParams::default().labels("app=kcm")).await?;
            let of_template = pods.into_iter().filter(|pod| {
                let spec = pod
                    .spec
                    .as_ref()
                    .map(|spec| spec.containers[0].args.clone().unwrap_or_default());
                spec.is_some_and(|args| args.iter().any(|arg| arg == argument))
            });
            Ok(of_template.into_iter().find(is_ready))
        };
        self.until(&format!("a ready Pod with {argument}"), look).await
    }
}

fn controllers(tools: &Tools, server: &ApiServer, kubeconfig: &Path) -> Result<Process> {
    let flags = ManagementControllerManager {
        kubeconfig: kubeconfig.to_owned(),
        service_account_key: server.service_account_key(),
        certificate_folder: server.home().join("kcm-certificates"),
        port: free_port()?,
    };
    let program = tools.path(Tool::ControllerManager126)?;
    let launch = Launch::new("kube-controller-manager", program).arguments(flags.arguments());
    Ok(Process::start(&launch, server.home())?)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

fn shell(script: &str) -> Value {
    json!({"name": "main", "image": "shell:v1", "command": ["/bin/sh", "-c", script]})
}

/// The command line, by the kernel.
fn command_line(pid: u32) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    Ok(text.trim_end_matches('\0').split('\0').map(Into::into).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_run_as_the_api_server_stores_them() -> Result {
    let fixture = Fixture::start().await?;
    a_rolled_deployment_runs_its_new_command_and_the_old_process_ends(&fixture).await?;
    a_killed_process_comes_back_with_a_key_of_its_own(&fixture).await?;
    a_pod_that_ignores_sigterm_is_killed_and_its_deletion_is_confirmed_after_that(&fixture).await?;
    a_pod_that_plain_processes_cannot_run_says_why(&fixture).await?;
    a_pod_is_ready_when_its_probe_is_answered(&fixture).await?;
    a_pod_that_completes_is_over(&fixture).await?;
    a_shutdown_ends_every_process(fixture).await
}

async fn a_rolled_deployment_runs_its_new_command_and_the_old_process_ends(fixture: &Fixture) -> Result {
    let mut container = shell(OBEDIENT);
    container["args"] = json!(["--phase=InTree"]);
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "kcm"},
        "spec": {
            "selector": {"matchLabels": {"app": "kcm"}},
            "template": {
                "metadata": {"labels": {"app": "kcm"}},
                "spec": {"automountServiceAccountToken": false, "containers": [container]},
            },
        },
    }))?;
    fixture.deployments.create(&PostParams::default(), &deployment).await?;
    let old = name(&fixture.ready_pod("--phase=InTree").await?);
    let stored = vec![
        "/bin/sh".to_owned(),
        "-c".into(),
        OBEDIENT.into(),
        "--phase=InTree".into(),
    ];
    assert_eq!(fixture.runner.argv(&old), std::slice::from_ref(&stored));
    let pid = fixture.runner.spans()[0].pid;
    assert_eq!(command_line(pid)?, stored, "what runs is what is stored");

    let patch =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": "--phase=Prepare"}]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
    fixture
        .deployments
        .patch("kcm", &PatchParams::default(), &patch)
        .await?;
    let new = name(&fixture.ready_pod("--phase=Prepare").await?);
    fixture.gone(&old).await?;
    let spans = fixture.runner.spans();
    let of = |pod: &str| spans.iter().find(|span| span.pod == pod).ok_or("no span");
    assert_eq!(of(&old)?.exit, Some(Exit::Code(0)), "it obeyed SIGTERM");
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "its deletion is confirmed only after its end"
    );
    assert_eq!(of(&new)?.argv.last().map(String::as_str), Some("--phase=Prepare"));
    assert_eq!(of(&new)?.component, "sh");
    Ok(())
}

async fn a_killed_process_comes_back_with_a_key_of_its_own(fixture: &Fixture) -> Result {
    let pod = name(&fixture.ready_pod("--phase=Prepare").await?);
    fixture.runner.kill(&pod).await?;
    let restarted = |status: &Value| {
        let container = &status["containerStatuses"][0];
        container["restartCount"] == 1 && container["state"]["running"].is_object()
    };
    let again = fixture.pod_until("it is restarted", &pod, restarted).await?;
    let status = serde_json::to_value(&again.status)?;
    assert_eq!(
        status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        137
    );
    let spans: Vec<_> = fixture
        .runner
        .spans()
        .into_iter()
        .filter(|span| span.pod == pod)
        .collect();
    assert_eq!(
        spans.iter().map(|span| span.exit).collect::<Vec<_>>(),
        [Some(Exit::Signal(9)), None]
    );
    assert_eq!(spans[1].process, format!("{pod}#1"));
    let keys = fixture.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", spans[1].pid))?;
    let key = environment
        .split('\0')
        .find_map(|pair| pair.strip_prefix("AWS_ACCESS_KEY_ID="))
        .ok_or("no key")?;
    assert_eq!(keys.get(key), Some(&spans[1].process));
    assert_eq!(keys.values().filter(|process| process.starts_with(&pod)).count(), 2);
    assert!(environment.contains("ADDED=by-the-table"));
    Ok(())
}

async fn a_pod_that_ignores_sigterm_is_killed_and_its_deletion_is_confirmed_after_that(fixture: &Fixture) -> Result {
    let spec = json!({"containers": [shell(STUBBORN)], "terminationGracePeriodSeconds": 1});
    fixture.create("stubborn", spec).await?;
    fixture
        .pod_until("it runs", "stubborn", |status| status["phase"] == "Running")
        .await?;
    fixture
        .until("it ignores SIGTERM", async || {
            let spans = fixture.runner.spans();
            let span = spans.iter().find(|span| span.pod == "stubborn").ok_or("no span")?;
            let log = fixture.folder.path().join(format!("pods/{}.log", span.process));
            Ok(std::fs::read_to_string(log)?.contains("deaf").then_some(()))
        })
        .await?;
    let deleted = jiff::Timestamp::now();
    fixture.pods.delete("stubborn", &DeleteParams::default()).await?;
    fixture.gone("stubborn").await?;
    let span = fixture
        .runner
        .spans()
        .into_iter()
        .find(|span| span.pod == "stubborn")
        .ok_or("no span")?;
    assert_eq!(span.exit, Some(Exit::Signal(9)));
    let took = span.ended.ok_or("no end")?.duration_since(deleted).as_secs_f64();
    assert!(
        (0.9..25.0).contains(&took),
        "the grace period is 1 s, not the usual 30 s; it ended after {took} s"
    );
    Ok(())
}

async fn a_pod_that_plain_processes_cannot_run_says_why(fixture: &Fixture) -> Result {
    let spec = json!({
        "containers": [shell(OBEDIENT)],
        "volumes": [{"name": "config", "configMap": {"name": "config"}}],
    });
    fixture.create("volumes", spec).await?;
    let waits = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["message"].is_string();
    let pod = fixture.pod_until("it waits with a message", "volumes", waits).await?;
    let waiting = serde_json::to_value(&pod.status)?["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert!(
        waiting["message"]
            .as_str()
            .unwrap_or_default()
            .contains("volume config: only hostPath"),
        "{waiting}"
    );
    fixture.pods.delete("volumes", &DeleteParams::default()).await?;
    fixture.gone("volumes").await?;

    fixture
        .create("broken", json!({"containers": [{"name": "main", "image": "broken"}]}))
        .await?;
    let broken = |status: &Value| {
        let waiting = status["containerStatuses"][0]["state"]["waiting"].clone();
        waiting["message"]
            .as_str()
            .is_some_and(|message| message.contains("/nonexistent/broken"))
    };
    fixture
        .pod_until("it says which binary is missing", "broken", broken)
        .await?;
    fixture.pods.delete("broken", &DeleteParams::default()).await?;
    fixture.gone("broken").await
}

async fn a_pod_is_ready_when_its_probe_is_answered(fixture: &Fixture) -> Result {
    // It has its port, and does not listen yet.
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let port = socket.local_addr()?.port();
    let mut plain = shell(OBEDIENT);
    plain["readinessProbe"] = json!({"httpGet": {"port": port, "path": "/readyz"}, "failureThreshold": 1});
    fixture.create("plain", json!({"containers": [plain]})).await?;
    let pod = fixture
        .pod_until("it runs", "plain", |status| status["phase"] == "Running")
        .await?;
    assert!(!is_ready(&pod), "nobody answers yet");
    let listener = socket.listen(16)?;
    let answers = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            if stream.write_all(answer).await.is_err() {
                continue;
            }
        }
    });
    let ready = |status: &Value| status["containerStatuses"][0]["ready"] == true;
    fixture.pod_until("its probe is answered", "plain", ready).await?;
    answers.abort();

    // HTTPS with a certificate of an unknown authority: the API server's own.
    let port: u16 = fixture.server.url().rsplit(':').next().unwrap_or_default().parse()?;
    let mut tls = shell(OBEDIENT);
    tls["readinessProbe"] = json!({"httpGet": {"port": port, "path": "/readyz", "scheme": "HTTPS"}});
    fixture.create("tls", json!({"containers": [tls]})).await?;
    fixture
        .pod_until("its probe is answered over TLS", "tls", ready)
        .await?;
    Ok(())
}

async fn a_pod_that_completes_is_over(fixture: &Fixture) -> Result {
    let spec = json!({"containers": [shell("exit 3")], "restartPolicy": "Never"});
    fixture.create("once", spec).await?;
    let pod = fixture
        .pod_until("it failed", "once", |status| status["phase"] == "Failed")
        .await?;
    let status = serde_json::to_value(&pod.status)?;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    Ok(())
}

async fn a_shutdown_ends_every_process(fixture: Fixture) -> Result {
    let running = fixture
        .runner
        .spans()
        .into_iter()
        .filter(|span| span.ended.is_none())
        .count();
    assert!(running >= 3, "the Deployment's and the probed Pods run");
    let spans = fixture.runner.shutdown(Duration::from_secs(5)).await;
    for span in spans {
        assert!(span.ended.is_some(), "{} has not ended", span.process);
        assert!(
            !Path::new(&format!("/proc/{}", span.pid)).exists(),
            "{} is left behind",
            span.process
        );
    }
    assert!(
        fixture.folder.path().join("pods").read_dir()?.count() >= 5,
        "each process has a log"
    );
    Ok(())
}
