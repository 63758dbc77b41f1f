//! HTTPS: health, metrics, settings, and who may read them.
//!
//! ```text
//! outrigger-serving: TLS (certificate) ─▶ access (authorization) ─▶ routes: /healthz /livez /readyz
//!                                                                           /metrics /configz /debug
//! ```

mod authentication;
mod authorities;
mod authorization;
mod certificate;
mod health;
mod routes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outrigger_serving::{ConnectionLimits, Server, WhenFull};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::ALL_KX_GROUPS;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedCipherSuite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::{Serving, TlsVersion};
use crate::metrics::Metrics;
use authentication::AnyCaller;
pub use authorities::{Authorities, AuthoritiesError};
pub use authorization::Access;
pub use certificate::CertificateError;
use certificate::Certificates;
pub use health::Health;
pub use routes::{Surface, router};

/// The streams of a connection where `--http2-max-streams-per-connection` is 0. Scrapers use one.
const STREAMS: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    #[error("cannot listen on {address} (--bind-address, --secure-port)")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the TLS settings do not work")]
    Tls(#[from] rustls::Error),
}

pub struct Listening {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    limits: ConnectionLimits,
}

/// Binds the socket and loads or makes the certificate, so that a wrong setting ends the start, not a later moment.
/// `None`: `--secure-port=0` serves nothing.
pub async fn bind(options: &Serving) -> Result<Option<Listening>, ServingError> {
    if options.secure_port == 0 {
        return Ok(None);
    }
    bind_to(options, SocketAddr::new(options.bind_address, options.secure_port))
        .await
        .map(Some)
}

/// As [`bind`], on any address; port 0 takes a free one.
pub async fn bind_to(options: &Serving, address: SocketAddr) -> Result<Listening, ServingError> {
    let certificates = Arc::new(Certificates::load(
        files(options),
        &options.tls_sni_certificates,
        jiff::Timestamp::now(),
    )?);
    let versions: &[&rustls::SupportedProtocolVersion] = match options.tls_min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(provider(options))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(AnyCaller(outrigger_certs::provider())))
        .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn rustls::server::ResolvesServerCert>);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if options.http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }

    let listener = outrigger_serving::listen(address, options.share_port)
        .map_err(|source| ServingError::Bind { address, source })?;
    Ok(Listening {
        listener,
        tls: Arc::new(config),
        certificates,
        limits: limits(options),
    })
}

/// The workspace's crypto provider with the cipher suites and the groups of the flags. The suites of TLS 1.3 stay, as in Go;
/// groups keep the order of the flag.
fn provider(options: &Serving) -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&outrigger_certs::provider());
    if !options.tls_cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            matches!(suite, SupportedCipherSuite::Tls13(_)) || options.tls_cipher_suites.contains(&suite.suite())
        });
    }

    if !options.tls_curves.is_empty() {
        let of_name = |name| ALL_KX_GROUPS.iter().copied().find(|group| group.name() == name);
        provider.kx_groups = options.tls_curves.iter().copied().filter_map(of_name).collect();
    }

    Arc::new(provider)
}

/// The limits of the port. Its clients are probes and scrapers, from the control plane's machines. Every client in the
/// network can reach it, and the paths of the probes need no credentials.
fn limits(options: &Serving) -> ConnectionLimits {
    ConnectionLimits {
        connections: 256,
        reserved: 32,
        per_source: 64,
        when_full: WhenFull::EndIdle,
        streams: options.http2_max_streams.unwrap_or(STREAMS),
        handshake: Duration::from_secs(5),
        header: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        age: Duration::from_secs(600),
        drain: Duration::from_secs(1),
    }
}

/// The files of the flags; without any, those of the certificate folder, if they are there.
fn files(options: &Serving) -> Option<(PathBuf, PathBuf)> {
    if let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file) {
        return Some((certificate.clone(), key.clone()));
    }

    let folder = options.cert_dir.as_ref()?;
    let pair = (
        folder.join("cloud-controller-manager.crt"),
        folder.join("cloud-controller-manager.key"),
    );
    (pair.0.exists() && pair.1.exists()).then_some(pair)
}

impl Listening {
    /// The address that was bound.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then lets open requests end, for at most a second. Certificate files that change are loaded without
    /// ending a connection. Connections are counted in `metrics`.
    pub async fn run(self, router: axum::Router, metrics: &Metrics, stop: CancellationToken) {
        let server = Server {
            tls: Some(self.tls),
            router,
            limits: self.limits,
            observer: metrics.connections(),
        };
        tokio::join!(server.serve(self.listener, stop.clone()), self.certificates.watch(stop));
    }
}
