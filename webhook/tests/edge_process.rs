//! The binary itself, beside an API server that is played by this process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod edge_support;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use edge_support::{H2, connect, h2, issue, read, request, review};
use futures::StreamExt;
use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Validity, write};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the played API server has.
#[derive(Debug, Default)]
struct Api {
    crd: AtomicBool,
    down: AtomicBool,
}

async fn list(api: &Api, query: Option<String>, exists: bool, kind: &str, version: &str, items: Value) -> Response {
    if api.down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if !exists {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "message": "the server could not find the requested resource", "code": 404});
        return (StatusCode::NOT_FOUND, status.to_string()).into_response();
    }
    if query.is_some_and(|query| query.contains("watch=true")) {
        // A watch on which nothing ever happens, and that is there.
        let nothing = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let newline = futures::stream::iter([Ok(bytes::Bytes::new())]);
        return Body::from_stream(newline.chain(nothing)).into_response();
    }
    json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
        .to_string()
        .into_response()
}

async fn migrations(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    let exists = api.crd.load(Ordering::SeqCst);
    let object = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": "prod", "resourceVersion": "1", "uid": "x"}, "spec": {"clusterID": "prod"}});
    list(
        &api,
        query,
        exists,
        "CloudProviderMigrationList",
        "outrigger.dev/v1alpha1",
        json!([object]),
    )
    .await
}

async fn namespaces(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    let object =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a", "uid": "y"}});
    list(
        &api,
        query,
        true,
        "PartialObjectMetadataList",
        "meta.k8s.io/v1",
        json!([object]),
    )
    .await
}

async fn leases(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    list(&api, query, true, "LeaseList", "coordination.k8s.io/v1", json!([])).await
}

async fn play(api: Arc<Api>) -> std::net::SocketAddr {
    let router = Router::new()
        .route("/apis/outrigger.dev/v1alpha1/cloudprovidermigrations", get(migrations))
        .route("/api/v1/namespaces", get(namespaces))
        .route(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            get(leases),
        )
        .with_state(api);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// The process; killed when the test ends early.
struct Webhook {
    child: Child,
    admission: u16,
    health: u16,
    authority: Authority,
    _directory: tempfile::TempDir,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Webhook {
    fn start(api: std::net::SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(
            "test",
            Validity::starting(Timestamp::now(), Duration::from_secs(86_400)),
        )
        .unwrap();
        write(directory.path(), &issue(&authority), None).unwrap();
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let (admission, health) = (free_port(), free_port());
        let child = Command::new(env!("CARGO_BIN_EXE_outrigger-webhook"))
            .arg(format!("--bind-address=127.0.0.1:{admission}"))
            .arg(format!("--health-bind-address=127.0.0.1:{health}"))
            .arg(format!("--cert-dir={}", directory.path().display()))
            .arg(format!("--kubeconfig={}", file.display()))
            .arg(format!("--cluster-kubeconfig=prod={}", file.display()))
            .args(["--server-name=localhost", "--shutdown-delay=200ms"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            admission,
            health,
            authority,
            _directory: directory,
        }
    }

    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.health)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Asks the health port until the answer holds `text`.
    async fn shows(&self, path: &str, text: &str) {
        let mut last = None;
        for _ in 0..400 {
            last = self.get(path).await;
            if last.as_ref().is_some_and(|answer| answer.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path} never showed {text:?}, but {last:?}");
    }

    async fn review(&self) -> u16 {
        let address = ([127, 0, 0, 1], self.admission).into();
        let mut client = h2(connect(address, self.authority.certificate_pem(), H2).await.unwrap()).await;
        read(client.send_request(request("/mutate/prod", review("u"))).await.unwrap())
            .await
            .0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_follows_its_cluster_and_ends_politely() {
    let api = Arc::new(Api::default());
    api.down.store(true, Ordering::SeqCst);
    let mut webhook = Webhook::start(play(Arc::clone(&api)).await);

    webhook.shows("/healthz", "200 OK").await;
    webhook.shows("/readyz", "migrations have not been listed").await;
    assert_eq!(
        webhook.review().await,
        503,
        "nothing is known yet, so the failure policy decides"
    );

    // The API server is back, without the CRD: there are no migrations, and that is knowledge.
    api.down.store(false, Ordering::SeqCst);
    webhook.shows("/readyz", "200 OK").await;
    assert_eq!(webhook.review().await, 200);
    webhook
        .shows("/metrics", "outrigger_webhook_watch_up{watch=\"migrations\"} 0")
        .await;

    api.crd.store(true, Ordering::SeqCst);
    webhook.shows("/metrics", "outrigger_webhook_migrations_known 1").await;
    webhook
        .shows("/metrics", "outrigger_webhook_watch_up{watch=\"migrations\"} 1")
        .await;
    webhook
        .shows("/metrics", "outrigger_webhook_certificate_days_left 0.04")
        .await;
    assert_eq!(webhook.review().await, 200);

    let pid = webhook.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = tokio::task::spawn_blocking(move || webhook.child.wait().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(20), status)
        .await
        .unwrap()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_start_without_a_certificate_fails_and_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_outrigger-webhook"))
        .arg(format!("--cert-dir={}", directory.path().display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("tls.crt") && text.contains("mount"),
        "{text}"
    );
}
