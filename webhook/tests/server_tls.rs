//! Which TLS the admission port speaks, and with whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Issued, Validity, bundle};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, SupportedProtocolVersion};
use server_support::process::Webhook;
use server_support::{Options, Server, h2, request, review, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The first message of a client that speaks no more than `version`, and else has all that it takes.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend_from_slice(&[7; 32]); // random
    body.push(0); // no session
    body.extend_from_slice(&[0, 6, 0xc0, 0x2b, 0xc0, 0x0a, 0x00, 0x2f]); // the first is for TLS 1.2, the others older
    body.extend_from_slice(&[1, 0]); // no compression
    // supported_groups P-256, ec_point_formats uncompressed, signature_algorithms ECDSA with SHA-256
    body.extend_from_slice(&[
        0, 22, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3,
    ]);
    let length = u8::try_from(body.len()).unwrap();
    let mut message = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    message.extend(body);
    message
}

#[tokio::test]
async fn tls_before_1_2_gets_an_alert_and_no_more() {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    let server = Server::start(Options::default()).await;
    for (version, expected) in [([3, 0], ALERT), ([3, 1], ALERT), ([3, 2], ALERT), ([3, 3], HANDSHAKE)] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&hello(version)).await.unwrap();
        assert_eq!(within(stream.read_u8()).await.unwrap(), expected, "{version:?}");
        if expected == ALERT {
            let mut rest = Vec::new();
            within(stream.read_to_end(&mut rest)).await.unwrap();
            assert_eq!(
                &rest[2..5],
                &[0, 2, 2],
                "{version:?}: a fatal alert and nothing after it: {rest:?}"
            );
        }
    }
    server.assert_serving().await;
}

async fn negotiate(
    server: &Server,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> (Option<ProtocolVersion>, Option<Vec<u8>>) {
    let mut config = ClientConfig::builder_with_provider(outrigger_certs::provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(bundle::roots(server.authority.certificate_pem()).unwrap())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let connection = stream.get_ref().1;
    (
        connection.protocol_version(),
        connection.alpn_protocol().map(<[u8]>::to_vec),
    )
}

#[tokio::test]
async fn tls_1_2_is_spoken_and_1_3_and_http_two_are_preferred() {
    let server = Server::start(Options::default()).await;
    let (v12, v13) = (Some(ProtocolVersion::TLSv1_2), Some(ProtocolVersion::TLSv1_3));
    let (h1, h2) = (Some(b"http/1.1".to_vec()), Some(b"h2".to_vec()));
    for (versions, protocols, expected) in [
        (&[&TLS12][..], &["h2"][..], (v12, h2.clone())),
        (&[&TLS12, &TLS13], &["http/1.1", "h2"], (v13, h2)),
        (&[&TLS13], &["http/1.1"], (v13, h1)),
        (&[&TLS12], &[], (v12, None)),
    ] {
        assert_eq!(negotiate(&server, versions, protocols).await, expected, "{protocols:?}");
    }
}

fn hour() -> Validity {
    Validity::starting(Timestamp::now(), Duration::from_secs(3600))
}

/// One review by a caller that shows a certificate, or none.
async fn call(webhook: &Webhook, shown: Option<&Issued>) -> Option<u16> {
    let config = ClientConfig::builder_with_provider(outrigger_certs::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(bundle::roots(webhook.authority.certificate_pem()).unwrap());
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(issued) => {
            let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(webhook.admission).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
    // With TLS 1.3 the server says no after the client's handshake is done.
    let answer = within(h2(stream).await.send_request(request("/mutate", review("u")))).await;
    answer.ok().map(|answer| answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_lets_in_whom_its_flags_say() {
    let [ours, other] = ["ours", "other"].map(|name| Authority::new(name, hour()).unwrap());
    let named = ours.issue_client("kube-apiserver", &[], hour()).unwrap();
    let unnamed = ours.issue_client("system:node:a", &[], hour()).unwrap();
    let stranger = other.issue_client("kube-apiserver", &[], hour()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clients.pem");
    std::fs::write(&file, ours.certificate_pem()).unwrap();
    let authority = format!("--client-ca-file={}", file.display());
    let levels: [(&[&str], [bool; 4], f64); 3] = [
        (&[], [true, true, true, true], 0.0),
        (&[&authority], [false, false, true, true], 2.0),
        (
            &[&authority, "--client-name=kube-apiserver"],
            [false, false, false, true],
            3.0,
        ),
    ];
    for (flags, expected, refused) in levels {
        let webhook = Webhook::ready(flags).await;
        let callers = [None, Some(&stranger), Some(&unnamed), Some(&named)];
        for (caller, expected) in callers.into_iter().zip(expected) {
            assert_eq!(
                call(&webhook, caller).await,
                expected.then_some(200),
                "{flags:?} {caller:?}"
            );
        }
        let series = r#"outrigger_webhook_connections_refused_total{port="admission",reason="client_certificate"}"#;
        assert!((webhook.metric(series).await - refused).abs() < 0.5, "{flags:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_follows_the_file_of_authorities() {
    let [old, new] = ["old", "new"].map(|name| Authority::new(name, hour()).unwrap());
    let [by_old, by_new] = [&old, &new].map(|authority| authority.issue_client("c", &[], hour()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clients.pem");
    std::fs::write(&file, old.certificate_pem()).unwrap();
    let flag = format!("--client-ca-file={}", file.display());
    let webhook = Webhook::ready(&[&flag, "--cert-reload-interval=50ms"]).await;
    assert_eq!(
        (call(&webhook, Some(&by_old)).await, call(&webhook, Some(&by_new)).await),
        (Some(200), None)
    );
    std::fs::write(&file, new.certificate_pem()).unwrap();
    within(async {
        while call(&webhook, Some(&by_new)).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(call(&webhook, Some(&by_old)).await, None);
}
