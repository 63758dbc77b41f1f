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
use outrigger_manager::logs::Verbosity;
use outrigger_manager::metrics::Metrics;
use outrigger_manager::serving::{self, Access, Health, Surface};
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
    _log: Box<dyn Send + Sync>,
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
        let (verbosity, log) = Verbosity::detached();
        let surface = Surface {
            health: health.clone(),
            metrics,
            configz: options.configz,
            verbosity: options.profiling.then_some(verbosity),
        };
        let router = serving::router(surface, access);
        let task = tokio::spawn(listening.run(router, stop.clone()));
        Self {
            address,
            health,
            stop,
            task,
            _log: Box::new(log),
        }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let (status, _, body) = self.ask("GET", path, token, "", "").await;
        (status, body)
    }

    /// Status, head and body of the answer.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &str,
        body: &str,
    ) -> (u16, String, String) {
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
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{token}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
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

const OPEN: &str = "--authorization-always-allow-paths=/*";

#[tokio::test]
async fn a_scraper_gets_prometheus_text_unless_it_prefers_open_metrics() {
    let served = Served::start(&[OPEN], None).await;
    let (_, head, body) = served.ask("GET", "/metrics", None, "", "").await;
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!body.contains("# EOF") && body.contains("# TYPE service_controller_loadbalancer_sync_total counter"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let (_, head, body) = served.ask("GET", "/metrics", None, accept, "").await;
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE service_controller_loadbalancer_sync counter"));
    served.end().await;
}

#[tokio::test]
async fn what_the_checks_said_is_counted_until_it_is_reset() {
    let served = Served::start(&[OPEN], None).await;
    served.health.register("leaderElection", || Ok(()));
    served
        .health
        .register("service-lb-controller", || Err("it broke".into()));
    assert_eq!(served.get("/healthz", None).await.0, 500);
    assert_eq!(served.get("/healthz?exclude=service-lb-controller", None).await.0, 200);
    let (_, body) = served.get("/metrics/slis", None).await;
    for line in [
        "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 1",
        "kubernetes_healthcheck{name=\"service-lb-controller\",type=\"healthz\"} 0",
        "kubernetes_healthchecks_total{name=\"leaderElection\",type=\"healthz\",status=\"success\"} 2",
        "kubernetes_healthchecks_total{name=\"service-lb-controller\",type=\"healthz\",status=\"error\"} 1",
    ] {
        assert!(body.contains(line), "{line} is missing in\n{body}");
    }
    assert_eq!(served.ask("DELETE", "/metrics/slis", None, "", "").await.0, 200);
    assert!(
        !served
            .get("/metrics/slis", None)
            .await
            .1
            .contains("kubernetes_healthcheck")
    );
    served.health.remove("service-lb-controller");
    assert_eq!(served.get("/healthz", None).await.0, 200);
    served.end().await;
}

#[tokio::test]
async fn the_settings_have_the_form_of_the_incumbents_configuration() {
    let served = Served::start(
        &[OPEN, "--leader-elect-lease-duration=30s", "--controllers=*,-route"],
        None,
    )
    .await;
    let (status, body) = served.get("/configz", None).await;
    assert_eq!(status, 200);
    let body: Value = serde_json::from_str(&body).unwrap();
    let config = &body["cloudcontrollermanager.config.k8s.io"];
    assert_eq!(config["kind"], "CloudControllerManagerConfiguration");
    assert_eq!(config["apiVersion"], "cloudcontrollermanager.config.k8s.io/v1alpha1");
    assert_eq!(config["Generic"]["LeaderElection"]["leaseDuration"], "30s");
    assert_eq!(config["Generic"]["Controllers"], json!(["*", "-route"]));
    assert_eq!(config["KubeCloudShared"]["CloudProvider"]["Name"], "aws");
    assert_eq!(config["NodeStatusUpdateFrequency"], "5m0s");
    served.end().await;
}

#[tokio::test]
async fn the_verbosity_is_changed_by_a_put_and_profiles_are_refused_with_a_reason() {
    let served = Served::start(&[OPEN], None).await;
    let put = |body: &'static str| served.ask("PUT", "/debug/flags/v", None, "", body);
    assert_eq!(put("4").await.2, "successfully set klog.logging.verbosity to 4\n");
    for wrong in ["", "-1", "much"] {
        assert_eq!(put(wrong).await.0, 400, "{wrong}");
    }
    assert_eq!(served.get("/debug/flags/v", None).await.0, 406);
    let (status, body) = served.get("/debug/pprof/heap", None).await;
    assert_eq!(status, 404);
    assert!(body.contains("no profiles"), "{body}");
    served.end().await;
    let served = Served::start(&[OPEN, "--profiling=false"], None).await;
    assert_eq!(served.ask("PUT", "/debug/flags/v", None, "", "4").await.0, 404);
    served.end().await;
}
