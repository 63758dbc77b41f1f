//! The manager's port on a free port of this machine, a caller, and an API server that reviews callers.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use outrigger_manager::args::{self, Options, Request as CommandLine};
use outrigger_manager::logs::Verbosity;
use outrigger_manager::metrics::Metrics;
use outrigger_manager::serving::{self, Access, Authorities, Health, Surface};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

pub fn options(more: &[&str]) -> Options {
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
pub struct Any(pub Mutex<Vec<u8>>);

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
        outrigger_certs::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A certificate and its key.
pub type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub struct Served {
    pub address: SocketAddr,
    pub health: Health,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    _log: Box<dyn Send + Sync>,
}

impl Served {
    pub async fn start(more: &[&str], reviewer: Option<kube::Client>) -> Self {
        Self::following(more, reviewer, None).await
    }

    /// Follows the ConfigMap of authorities with a client, too.
    pub async fn following(more: &[&str], reviewer: Option<kube::Client>, follower: Option<kube::Client>) -> Self {
        let options = options(more);
        let listening = serving::bind_to(&options.serving, (Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listening.address().unwrap();
        let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
        metrics.set_leader("cloud-controller-manager", true);
        let authorities = Authorities::load(&options.authentication).unwrap();
        if let Some(follower) = follower {
            tokio::spawn(authorities.clone().follow(follower, stop.clone()));
        }
        let access = Arc::new(Access::new(options.authentication, authorities, reviewer));
        let (verbosity, log) = Verbosity::detached();
        let surface = Surface {
            health: health.clone(),
            metrics: metrics.clone(),
            configz: options.configz,
            verbosity: options.profiling.then_some(verbosity),
        };
        let router = serving::router(surface, access);
        let stopping = stop.clone();
        let task = tokio::spawn(async move { listening.run(router, &metrics, stopping).await });
        Self {
            address,
            health,
            stop,
            task,
            _log: Box::new(log),
        }
    }

    pub async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let (status, _, body) = self.ask("GET", path, token, "", "").await;
        (status, body)
    }

    /// Status, head and body of the answer.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &str,
        body: &str,
    ) -> (u16, String, String) {
        let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        self.ask_as(None, method, path, &format!("{token}{headers}"), body)
            .await
    }

    /// The same with a certificate.
    pub async fn ask_as(
        &self,
        identity: Option<&Identity>,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (u16, String, String) {
        let provider = outrigger_certs::provider();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any::default()));
        let config = match identity {
            Some((chain, key)) => config
                .with_client_auth_cert(vec![chain.clone()], key.clone_key())
                .unwrap(),
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    pub async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .unwrap()
            .unwrap();
    }
}

/// An API server that knows the token `good` of user `scraper`, who may read `/metrics`, and counts its reviews.
pub fn reviewer(reviews: Arc<AtomicUsize>) -> kube::Client {
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
                    // As an API server answers about a token that is not good.
                    _ => json!({"user": {}}),
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
