//! `/readyz` of the program itself, as the readiness probe of the manifests asks it: a standby that has listed the Nodes
//! is ready, a process that has not is alive only.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod serving_support;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use serving_support::Any;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(60);

/// The running program; killed when the test ends.
struct Manager {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Manager {
    fn start(api: SocketAddr, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        std::fs::write(file("kubeconfig"), kubeconfig.to_string()).unwrap();
        let cloud = "[Global]\nZone = us-east-1a\nVPC = vpc-1\nKubernetesClusterID = prod\n";
        std::fs::write(file("cloud.conf"), cloud).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let child = Command::new(env!("CARGO_BIN_EXE_outrigger-manager"))
            .args(["--cloud-provider=aws", "--configure-cloud-routes=false"])
            .args(["--bind-address=127.0.0.1", "--leader-elect=true"])
            .arg(format!("--cloud-config={}", file("cloud.conf")))
            .arg(format!("--kubeconfig={}", file("kubeconfig")))
            .arg(format!("--secure-port={port}"))
            .args(more)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(file("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { child, port, folder }
    }

    async fn get(&self, path: &str) -> Option<String> {
        let config = rustls::ClientConfig::builder_with_provider(outrigger_certs::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any::default()))
            .with_no_client_auth();
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        Some(answer)
    }

    /// Asks until the answer begins with `status`.
    async fn answers(&mut self, path: &str, status: &str) {
        let start = Instant::now();
        loop {
            let answer = self.get(path).await;
            if answer.as_ref().is_some_and(|answer| answer.starts_with(status)) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            let log = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap();
            assert!(ended.is_none(), "{ended:?}\n{log}");
            assert!(start.elapsed() < SOON, "{path}: {answer:?}\n{log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A lease that another process has held for less than its duration, and no Nodes.
fn object(path: &str) -> Option<Value> {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system", "resourceVersion": "1", "uid": "u"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let list = |kind: &str, version: &str, items: Value| {
        Some(json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}))
    };
    match path {
        "/api/v1/nodes" => list("NodeList", "v1", json!([])),
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases" => {
            list("LeaseList", "coordination.k8s.io/v1", json!([lease]))
        }
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager" => Some(lease),
        _ => None,
    }
}

/// An API server; it counts the writes.
async fn api_server(writes: Arc<AtomicUsize>) -> SocketAddr {
    let answer = move |request: Request| {
        let writes = Arc::clone(&writes);
        async move { respond(&request, &writes) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

fn respond(request: &Request, writes: &AtomicUsize) -> Response {
    if request.method() != Method::GET {
        writes.fetch_add(1, Ordering::SeqCst);
    }
    if request.uri().query().is_some_and(|query| query.contains("watch=")) {
        let nothing = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let begin = futures::stream::iter([Ok(bytes::Bytes::new())]);
        return Body::from_stream(begin.chain(nothing)).into_response();
    }
    match object(request.uri().path()) {
        Some(object) => ([(CONTENT_TYPE, "application/json")], object.to_string()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_ready() {
    let writes = Arc::new(AtomicUsize::new(0));
    let mut manager = Manager::start(api_server(Arc::clone(&writes)).await, &[]);

    manager.answers("/readyz", "HTTP/1.1 200").await;

    assert_eq!(writes.load(Ordering::SeqCst), 0, "the lease belongs to another process");
}

/// The port opens before the Nodes are watched. The API server accepts connections and does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_not_listed_the_nodes_is_alive_and_not_ready() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let mut manager = Manager::start(address, &["--migration=cluster"]);

    manager.answers("/healthz", "HTTP/1.1 200").await;

    let answer = manager.get("/readyz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("[-]nodes failed"), "{answer}");
}
