//! The TLS settings of every server in this workspace.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::version::{TLS12, TLS13};

use crate::clients::Clients;

/// Whether clients must have a certificate.
#[derive(Debug, Clone, Default)]
pub enum Callers {
    /// Everyone who reaches the port may call; only a network policy restricts access.
    #[default]
    Any,
    /// Only clients with a valid certificate may call.
    Checked(Arc<Clients>),
}

/// A server of TLS 1.3 and 1.2, over which HTTP/2 and HTTP/1.1 are offered, in that order.
///
/// No session is resumed: a resumed one skips the check of the caller, which may have failed since. API servers keep
/// their connections for minutes, so that a full handshake each time costs little.
///
/// # Errors
/// [`rustls::Error`] when the provider cannot speak both versions.
pub fn server_config(
    provider: Arc<CryptoProvider>,
    certificates: Arc<dyn ResolvesServerCert>,
    callers: &Callers,
) -> Result<ServerConfig, rustls::Error> {
    let versions = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match callers {
        Callers::Any => versions.with_no_client_auth(),
        Callers::Checked(clients) => versions.with_client_cert_verifier(Arc::clone(clients) as _),
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;

    Ok(config)
}
