//! The manager's port: which certificate, suite and group a caller gets, and who may share it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod serving_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use outrigger_certs::{Authority, Validity};
use outrigger_manager::metrics::Metrics;
use outrigger_manager::serving;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, NamedGroup};
use serving_support::{Any, options};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Serves nothing but handshakes, until the test ends. Returns the address.
async fn start(more: &[&str]) -> SocketAddr {
    let listening = serving::bind_to(&options(more).serving, (Ipv4Addr::LOCALHOST, 0).into())
        .await
        .unwrap();
    let address = listening.address().unwrap();
    tokio::spawn(async move {
        let (router, metrics) = (axum::Router::new(), Metrics::new());
        listening.run(router, &metrics, CancellationToken::new()).await;
    });
    address
}

/// The names in the certificate that a caller of `server` gets, and what was agreed with it.
async fn handshake(served: &SocketAddr, server: &'static str, provider: CryptoProvider) -> Result<Agreed, String> {
    let verifier = Arc::new(Any::default());
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
        .with_no_client_auth();
    let stream = TcpStream::connect(*served).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(server).unwrap(), stream).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let (_, session) = stream.get_ref();
    let names = outrigger_certs::own_names(&CertificateDer::from(verifier.0.lock().unwrap().clone())).unwrap();
    Ok(Agreed {
        names,
        suite: session.negotiated_cipher_suite().unwrap().suite(),
        group: session.negotiated_key_exchange_group().unwrap().name(),
    })
}

#[derive(Debug)]
struct Agreed {
    names: Vec<String>,
    suite: CipherSuite,
    group: NamedGroup,
}

/// A client that speaks these suites only.
fn speaking(suites: &[CipherSuite]) -> CryptoProvider {
    let mut provider = CryptoProvider::clone(&outrigger_certs::provider());
    provider.cipher_suites.retain(|suite| suites.contains(&suite.suite()));
    provider
}

#[tokio::test]
async fn further_certificates_are_chosen_by_server_name() {
    let folder = tempfile::tempdir().unwrap();
    let validity = Validity::starting("2026-01-01T00:00:00Z".parse().unwrap(), Duration::from_secs(86_400));
    let pair = |file: &str, name: &str| {
        let issued = Authority::new(file, validity)
            .unwrap()
            .issue(&[name], validity)
            .unwrap();
        let path = |end: &str| folder.path().join(format!("{file}.{end}")).display().to_string();
        std::fs::write(path("crt"), issued.certificate_pem).unwrap();
        std::fs::write(path("key"), issued.key_pem).unwrap();
        format!("--tls-sni-cert-key={},{}", path("crt"), path("key"))
    };
    let flags = [
        pair("held", "held.example.com"),
        pair("named", "inside.test") + ":named.example.com,*.wild.example.com",
        pair("late", "named.example.com"),
    ];
    let served = start(&flags.each_ref().map(String::as_str)).await;
    for (server, wanted) in [
        ("held.example.com", "held.example.com"),
        ("named.example.com", "inside.test"),
        ("a.WILD.example.com", "inside.test"),
        ("a.b.wild.example.com", "localhost"),
        ("inside.test", "localhost"),
        ("other.example.com", "localhost"),
    ] {
        let agreed = handshake(&served, server, speaking(&[CipherSuite::TLS13_AES_128_GCM_SHA256]))
            .await
            .unwrap();
        assert!(agreed.names.iter().any(|name| name == wanted), "{server}: {agreed:?}");
    }
}

#[tokio::test]
async fn suites_and_groups_are_those_of_the_flags() {
    use CipherSuite as Suite;
    let served = start(&[
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "--tls-curve-preferences=24",
    ])
    .await;
    let allowed = handshake(
        &served,
        "x.test",
        speaking(&[Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]),
    )
    .await
    .unwrap();
    assert_eq!(allowed.suite, Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    assert_eq!(allowed.group, NamedGroup::secp384r1);
    let newer = handshake(&served, "x.test", speaking(&[Suite::TLS13_AES_128_GCM_SHA256]))
        .await
        .unwrap();
    assert_eq!(newer.suite, Suite::TLS13_AES_128_GCM_SHA256, "those of TLS 1.3 stay");
    let refused = handshake(
        &served,
        "x.test",
        speaking(&[Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]),
    )
    .await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn two_listeners_share_a_port_only_when_both_permit_it() {
    let (sharing, alone) = (options(&["--permit-port-sharing"]), options(&[]));
    let first = serving::bind_to(&sharing.serving, (Ipv4Addr::LOCALHOST, 0).into())
        .await
        .unwrap();
    let address = first.address().unwrap();
    assert!(serving::bind_to(&sharing.serving, address).await.is_ok());
    assert!(serving::bind_to(&alone.serving, address).await.is_err());
}
