//! The manager's port, over real TLS on a free port of this machine.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use outrigger_manager::args::{self, Options, Request as CommandLine};
use outrigger_manager::metrics::Metrics;
use outrigger_manager::serving::{self, Access, Health};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

fn options(more: &[&str]) -> Options {
    let line: Vec<String> = ["--cloud-provider=aws"]
        .iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect();
    match args::parse(&line) {
        Ok(CommandLine::Run(options)) => *options,
        other => panic!("{other:?}"),
    }
}

/// Takes any certificate and keeps it: the test wants to know which one was served.
#[derive(Debug, Default)]
struct Any(Mutex<Vec<u8>>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap() = end.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        outrigger_certs::tls::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

struct Served {
    address: SocketAddr,
    health: Health,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn start(more: &[&str], reviewer: Option<kube::Client>) -> Self {
        let options = options(more);
        let listening = serving::bind_to(&options.serving, (Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listening.address().unwrap();
        let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
        metrics.set_leader("cloud-controller-manager", true);
        let access = Arc::new(Access::new(options.authentication, reviewer));
        let router = serving::router(health.clone(), metrics, access);
        let task = tokio::spawn(listening.run(router, stop.clone()));
        Self {
            address,
            health,
            stop,
            task,
        }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let provider = outrigger_certs::tls::provider();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any::default()))
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .unwrap()
            .unwrap();
    }
}

/// An API server that knows the token `good` of user `scraper`, who may read `/metrics`, and counts its reviews.
fn reviewer(reviews: Arc<AtomicUsize>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let reviews = Arc::clone(&reviews);
        async move {
            reviews.fetch_add(1, Ordering::SeqCst);
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            body["status"] = if path.ends_with("tokenreviews") {
                match body["spec"]["token"].as_str() {
                    Some("good") => json!({"authenticated": true, "user": {"username": "scraper"}}),
                    Some("master") => {
                        json!({"authenticated": true, "user": {"username": "m", "groups": ["system:masters"]}})
                    }
                    _ => json!({"authenticated": false}),
                }
            } else {
                let spec = &body["spec"];
                let asked = (
                    &spec["user"],
                    &spec["nonResourceAttributes"]["path"],
                    &spec["nonResourceAttributes"]["verb"],
                );
                json!({"allowed": asked == (&json!("scraper"), &json!("/metrics"), &json!("get"))})
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body.to_string()))))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn probes_need_no_credentials_and_follow_the_checks() {
    let served = Served::start(&[], None).await;
    let fine = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&fine);
    served.health.register("leaderElection", move || {
        if state.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err("the lease is old".into())
        }
    });
    served.health.register_readiness("nodes", || Err("no list yet".into()));
    assert_eq!(served.get("/healthz", None).await, (200, "ok".into()));
    assert_eq!(served.get("/livez", None).await, (200, "ok".into()));
    assert_eq!(served.get("/readyz", None).await.0, 500);
    assert_eq!(served.get("/readyz?exclude=nodes", None).await.0, 200);
    assert!(
        served
            .get("/healthz?verbose", None)
            .await
            .1
            .contains("[+]leaderElection ok")
    );
    fine.store(false, Ordering::SeqCst);
    let (status, body) = served.get("/healthz", None).await;
    assert_eq!(status, 500);
    assert!(
        body.contains("[-]leaderElection failed: reason withheld") && !body.contains("old"),
        "{body}"
    );
    served.end().await;
}

#[tokio::test]
async fn metrics_are_for_callers_that_the_api_server_lets_read_them() {
    let reviews = Arc::new(AtomicUsize::new(0));
    let served = Served::start(&[], Some(reviewer(Arc::clone(&reviews)))).await;
    assert_eq!(served.get("/metrics", None).await.0, 403, "anonymous");
    assert_eq!(served.get("/metrics", Some("bad")).await.0, 401);
    let before = reviews.load(Ordering::SeqCst);
    let (status, body) = served.get("/metrics", Some("good")).await;
    assert_eq!(status, 200);
    assert!(body.contains("leader_election_master_status"), "{body}");
    assert_eq!(served.get("/metrics", Some("good")).await.0, 200);
    assert_eq!(
        reviews.load(Ordering::SeqCst),
        before + 2,
        "the second answer came from the cache"
    );
    assert_eq!(
        served.get("/secrets", Some("good")).await.0,
        403,
        "a path that does not exist is not told apart"
    );
    assert_eq!(served.get("/secrets", Some("master")).await.0, 404);
    assert_eq!(served.get("/healthz/none", Some("master")).await.0, 404);
    served.end().await;
}

#[tokio::test]
async fn without_an_api_server_only_open_paths_are_served() {
    let served = Served::start(&[], None).await;
    assert_eq!(served.get("/metrics", Some("good")).await.0, 403);
    served.end().await;
    let served = Served::start(&["--authorization-always-allow-paths=/metrics,/healthz*"], None).await;
    assert_eq!(served.get("/metrics", None).await.0, 200);
    assert_eq!(served.get("/healthz/x", None).await.0, 404);
    assert_eq!(served.get("/livez", None).await.0, 403);
    served.end().await;
}

#[tokio::test]
async fn a_port_of_zero_serves_nothing_and_a_missing_certificate_ends_the_start() {
    assert!(
        serving::bind(&options(&["--secure-port=0"]).serving)
            .await
            .unwrap()
            .is_none()
    );
    let wrong = options(&[
        "--tls-cert-file=/nonexistent/a",
        "--tls-private-key-file=/nonexistent/b",
    ]);
    let error = serving::bind_to(&wrong.serving, (Ipv4Addr::LOCALHOST, 0).into())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nonexistent/a"), "{error}");
}

#[tokio::test]
async fn an_open_connection_does_not_hold_up_the_end() {
    let served = Served::start(&[], None).await;
    let _idle = TcpStream::connect(served.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    served.end().await;
}
