//! The binary itself, beside an API server that is played by the test's process.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::StreamExt;
use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Validity, write};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use super::{H2, connect, h2, issue, read, request, review};

/// The state of the simulated API server.
#[derive(Debug, Default)]
pub struct Api {
    pub crd: AtomicBool,
    pub down: AtomicBool,
    /// The `spec` of the only migration; `None`: one without targets.
    pub spec: Option<Value>,
    /// In the EndpointSlice of the API servers.
    pub address: Option<&'static str>,
    /// Of the webhook's namespace.
    pub secret: Value,
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
    let spec = api.spec.clone().unwrap_or_else(|| json!({"clusterID": "prod"}));
    let object = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": "prod", "resourceVersion": "1", "uid": "x"}, "spec": spec});
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

async fn endpoint_slices(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    let items = match &api.address {
        Some(address) => json!([{"metadata": {"name": "kubernetes", "resourceVersion": "1"},
            "addressType": "IPv4", "endpoints": [{"addresses": [address]}]}]),
        None => json!([]),
    };
    list(&api, query, true, "EndpointSliceList", "discovery.k8s.io/v1", items).await
}

async fn secrets(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Response {
    list(&api, query, true, "SecretList", "v1", json!([api.secret])).await
}

pub async fn play(api: Arc<Api>) -> SocketAddr {
    play_at("127.0.0.1:0".parse().unwrap(), api).await
}

pub async fn play_at(address: SocketAddr, api: Arc<Api>) -> SocketAddr {
    let router = Router::new()
        .route("/apis/outrigger.dev/v1alpha1/cloudprovidermigrations", get(migrations))
        .route("/api/v1/namespaces", get(namespaces))
        .route(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            get(leases),
        )
        .route("/api/v1/namespaces/outrigger-system/secrets", get(secrets))
        .route(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            get(endpoint_slices),
        )
        .with_state(api);
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// The process; killed when the test ends early.
pub struct Webhook {
    pub child: Child,
    pub admission: SocketAddr,
    pub health: SocketAddr,
    pub authority: Authority,
    pub directory: tempfile::TempDir,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

impl Webhook {
    /// Starts it with `more` flags.
    pub fn start(api: SocketAddr, more: &[&str]) -> Self {
        Self::logging(api, more, Stdio::null())
    }

    /// Starts it with `more` flags and a place for its log.
    pub fn logging(api: SocketAddr, more: &[&str], log: Stdio) -> Self {
        Self::spawn(api, more, &[], log)
    }

    /// Starts it with more variables in its environment.
    pub fn with_environment(api: SocketAddr, variables: &[(&str, &str)]) -> Self {
        Self::spawn(api, &[], variables, Stdio::null())
    }

    fn spawn(api: SocketAddr, more: &[&str], variables: &[(&str, &str)], log: Stdio) -> Self {
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
        let (admission, health) = (free_address(), free_address());
        let is_self_signed = more.iter().any(|flag| flag.starts_with("--self-signed-secret="));
        let files = (!is_self_signed).then(|| format!("--cert-dir={}", directory.path().display()));
        let child = Command::new(env!("CARGO_BIN_EXE_outrigger-webhook"))
            .arg(format!("--bind-address={admission}"))
            .arg(format!("--health-bind-address={health}"))
            .args(files)
            .arg(format!("--kubeconfig={}", file.display()))
            .arg(format!("--cluster-kubeconfig=prod={}", file.display()))
            .args(["--server-name=localhost", "--shutdown-delay=200ms"])
            .args(more)
            .envs(variables.iter().copied())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            admission,
            health,
            authority,
            directory,
        }
    }

    pub async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.health).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Asks the health port until the answer holds `text`.
    pub async fn shows(&self, path: &str, text: &str) {
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

    /// Starts it beside an API server that answers, and waits until it is ready.
    pub async fn ready(more: &[&str]) -> Self {
        let webhook = Self::start(play(Arc::new(Api::default())).await, more);
        webhook.shows("/readyz", "200 OK").await;
        webhook
    }

    pub async fn connect(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.admission, self.authority.certificate_pem(), protocol).await
    }

    pub async fn review(&self) -> u16 {
        let mut client = h2(self.connect(H2).await.unwrap()).await;
        read(client.send_request(request("/mutate/prod", review("u"))).await.unwrap())
            .await
            .0
    }

    /// A value of its metrics; zero where the series does not exist yet.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics").await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// A size of the process in KiB, such as VmRSS or VmHWM (the largest that VmRSS ever was).
    pub fn kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}
