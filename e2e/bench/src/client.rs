//! Connections like those of an API server: HTTP/2 over TLS, persistent.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outrigger_certs::bundle;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Requests at once on one connection: the webhook's limit, below that of Go.
const STREAMS: usize = 100;

/// Open connections to one server.
#[derive(Debug, Clone)]
pub struct Connections {
    senders: Vec<SendRequest<Full<Bytes>>>,
}

impl Connections {
    /// Opens the connections for `in_flight` requests at once. `authority` is the PEM of the certificate's issuer.
    ///
    /// # Errors
    /// When a connection, a handshake, or the agreement on HTTP/2 fails.
    pub async fn open(address: SocketAddr, authority: &str, in_flight: usize) -> Result<Self> {
        let mut config = rustls::ClientConfig::builder_with_provider(outrigger_certs::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(bundle::roots(authority)?)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];

        let connector = TlsConnector::from(Arc::new(config));
        let mut senders = Vec::new();
        for _ in 0..in_flight.div_ceil(STREAMS) {
            let sender = connect(address, &connector).await;
            senders.push(sender.with_context(|| format!("connecting to {address}"))?);
        }

        Ok(Self { senders })
    }

    /// The connection of the request loop with this number.
    ///
    /// # Errors
    /// When there is none at all.
    pub fn sender(&self, number: usize) -> Result<SendRequest<Full<Bytes>>> {
        let sender = self.senders.get(number % self.senders.len().max(1));
        sender.cloned().context("no connection is open")
    }
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> Result<SendRequest<Full<Bytes>>> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;

    let stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;
    let protocol = stream.get_ref().1.alpn_protocol();
    ensure!(protocol == Some(b"h2"), "the server does not speak HTTP/2");

    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    });

    Ok(sender)
}

/// Sends one review and reads the whole answer.
///
/// # Errors
/// When the connection breaks; a status is no error here.
pub async fn post(sender: &mut SendRequest<Full<Bytes>>, body: Bytes) -> Result<(StatusCode, Bytes)> {
    let request = Request::post("https://localhost/mutate?timeout=10s")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
