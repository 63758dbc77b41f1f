//! The TLS settings of every server in this workspace.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::version::{TLS12, TLS13};

use crate::clients::Clients;

/// The one crypto provider of this workspace. It is handed around explicitly, so nothing depends on a default of the
/// process having been set, or set to something else.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Whether callers must show a certificate.
#[derive(Debug, Clone, Default)]
pub enum Callers {
    /// Anyone who reaches the port may call; the network policy is the only fence.
    #[default]
    Any,
    /// Only callers that pass the check.
    Checked(Arc<Clients>),
}

/// A server of TLS 1.3 and 1.2, over which HTTP/2 and HTTP/1.1 are offered, in that order.
///
/// No session is resumed: a resumed one skips the check of the caller, which may have failed since. API servers keep their
/// connections for minutes, so a whole handshake each time costs nothing that counts.
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
