//! A whole admission server in this process, on a free port of the loopback address, and clients for it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    reason = "a test fails by panicking; not every file uses every helper"
)]

pub mod frames;
pub mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Issued, Reloader, Source, Validity, bundle, tls, write};
use outrigger_serving::{self as serving, ConnectionLimits, Drained, WhenFull};
use outrigger_webhook::admit::Reviewer;
use outrigger_webhook::callers::ApiServers;
use outrigger_webhook::metrics::{Metrics, Port};
use outrigger_webhook::routes::{self, RequestLimits};
use outrigger_webhook::view::{Clusters, Index, Migrations, Namespaces};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

pub const H2: &[u8] = b"h2";
pub const H1: &[u8] = b"http/1.1";

pub struct Options {
    pub connections: ConnectionLimits,
    pub requests: RequestLimits,
    pub migrations: Option<Vec<Value>>,
    pub callers: tls::Callers,
    /// Networks of API servers.
    pub api_servers: Vec<ipnet::IpNet>,
}

impl Default for Options {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            connections: ConnectionLimits {
                connections: 64,
                reserved: 8,
                per_source: 32,
                when_full: WhenFull::FairShare,
                streams: 100,
                handshake: 5 * second,
                header: 5 * second,
                idle: 60 * second,
                age: 600 * second,
                drain: 5 * second,
            },
            requests: RequestLimits {
                body: 7 * 1024 * 1024,
                memory: 64 * 1024 * 1024,
                objects: 128 * 1024 * 1024,
                requests: 64,
                bodies: 64,
                time: 10 * second,
            },
            migrations: Some(Vec::new()),
            callers: tls::Callers::Any,
            api_servers: Vec::new(),
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub authority: Authority,
    pub certificates: Arc<Reloader>,
    pub directory: tempfile::TempDir,
    pub reviewer: Arc<Reviewer>,
    pub stop: CancellationToken,
    pub task: JoinHandle<Drained>,
}

pub fn issue(authority: &Authority) -> Issued {
    authority
        .issue(
            &["localhost"],
            Validity::starting(Timestamp::now(), Duration::from_secs(3600)),
        )
        .unwrap()
}

pub fn reviewer(migrations: Option<Vec<Value>>) -> Arc<Reviewer> {
    let metrics = Metrics::new();
    let index = Migrations::new(Arc::clone(&metrics));
    if let Some(migrations) = migrations {
        index.replace(
            migrations
                .into_iter()
                .map(|object| serde_json::from_value(object).unwrap())
                .collect(),
        );
    }
    let namespaces = Namespaces::new(None);
    namespaces.replace(Vec::new());
    Arc::new(Reviewer {
        migrations: index,
        namespaces,
        clusters: Clusters::default(),
        own_namespace: "outrigger-system".to_owned(),
        metrics,
    })
}

pub fn load(directory: &Path) -> Arc<Reloader> {
    let source = Source {
        directory: directory.to_owned(),
        names: vec!["localhost".to_owned()],
    };
    Arc::new(Reloader::load(source, outrigger_certs::provider(), Timestamp::now()).unwrap())
}

impl Server {
    pub async fn start(options: Options) -> Self {
        let authority = Authority::new(
            "test",
            Validity::starting(Timestamp::now(), Duration::from_secs(86_400)),
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &issue(&authority), None).unwrap();
        let certificates = load(directory.path());
        let config = tls::server_config(outrigger_certs::provider(), certificates.clone(), &options.callers).unwrap();
        let reviewer = reviewer(options.migrations);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = serving::Server {
            tls: Some(Arc::new(config)),
            router: routes::router(
                Arc::clone(&reviewer),
                ApiServers::new(options.api_servers),
                options.requests,
            ),
            limits: options.connections,
            observer: reviewer.metrics.of_port(Port::Admission),
        };
        let task = tokio::spawn(server.serve(listener, stop.clone()));
        Self {
            address,
            authority,
            certificates,
            directory,
            reviewer,
            stop,
            task,
        }
    }

    pub async fn connect(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.address, self.authority.certificate_pem(), protocol).await
    }

    pub async fn h2(&self) -> SendRequest<Full<Bytes>> {
        h2(self.connect(H2).await.unwrap()).await
    }

    /// Posts one body over a connection of its own.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        let mut client = self.h2().await;
        read(client.send_request(request(path, body)).await.unwrap()).await
    }

    /// Whether the server still answers a good review.
    pub async fn assert_serving(&self) {
        let (status, body) = self.post("/mutate", review("alive")).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            serde_json::from_str::<Value>(&body).unwrap()["response"]["uid"],
            "alive"
        );
    }

    pub async fn finish(self) -> Drained {
        self.stop.cancel();
        within(self.task).await.unwrap()
    }
}

pub async fn connect(address: SocketAddr, trusted: &str, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    connect_from(None, address, trusted, protocol).await
}

pub async fn connect_from(
    source: Option<SocketAddr>,
    address: SocketAddr,
    trusted: &str,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = rustls::ClientConfig::builder_with_provider(outrigger_certs::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(bundle::roots(trusted).unwrap())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpSocket::new_v4()?;
    if let Some(source) = source {
        socket.bind(source)?;
    }
    let tcp = socket.connect(address).await?;
    tcp.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), tcp)
        .await
}

pub async fn h2(stream: TlsStream<TcpStream>) -> SendRequest<Full<Bytes>> {
    let (client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

pub fn request(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{path}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

pub async fn read(response: Response<hyper::body::Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

pub fn review(uid: &str) -> String {
    let request = json!({"uid": uid, "operation": "CREATE", "name": "n", "kind": {"group": "", "version": "v1", "kind": "Node"},
        "resource": {"group": "", "version": "v1", "resource": "nodes"}, "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// Bounds a wait, so that a fault shows as a failure and not as a hang.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}
