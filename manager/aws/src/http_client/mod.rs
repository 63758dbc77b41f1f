//! The HTTP client of all AWS clients and of the credentials that they take.
//!
//! It follows the SDK's own client, which creates its sockets itself and offers no `TCP_USER_TIMEOUT`:
//! <https://docs.rs/aws-smithy-http-client/1.5.2/src/aws_smithy_http_client/client.rs.html>.

mod call;
mod connector;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{Settings, SettingsError, tcp};
use call::Caller;
use connector::Paths;

/// The client with the proxies and the trusted authorities of the settings.
pub(crate) fn client(settings: &Settings) -> Result<SharedHttpClient, SettingsError> {
    let tls = tls_config(settings.ca_bundle.as_deref())?;
    let tcp = tcp::connector(settings.tcp_user_timeout);
    Ok(SharedHttpClient::new(Client {
        paths: Arc::new(Paths::new(&settings.proxies, tcp, tls)),
        connectors: Mutex::default(),
    }))
}

/// A client without proxies, which sends no writes.
pub(crate) fn direct() -> Result<SharedHttpClient, SettingsError> {
    client(&Settings::default())
}

/// `ca_bundle` replaces the system's authorities, as in the AWS SDK for Go:
/// <https://github.com/aws/aws-sdk-go-v2/blob/main/config/resolve.go>.
fn tls_config(ca_bundle: Option<&[u8]>) -> Result<Arc<ClientConfig>, SettingsError> {
    let failed = |error: &dyn fmt::Display| SettingsError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    match ca_bundle {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let added = roots.add(certificate.map_err(|error| failed(&error))?);
                added.map_err(|error| failed(&error))?;
            }
        }
        None => add_system_authorities(&mut roots),
    }

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Without HTTP/2 a request that is dropped closes its connection, and with it discards its unsent bytes.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The system's, or the files that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
fn add_system_authorities(roots: &mut RootCertStore) {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "cannot load the CA certificates of the system");
    }

    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        tracing::warn!("the system has no CA certificates");
    }
}

/// The time limits of a connection and of an answer.
type Timeouts = (Option<Duration>, Option<Duration>);

/// Has one pool of connections for each pair of time limits, as [`HttpClient`] demands.
struct Client {
    paths: Arc<Paths>,
    connectors: Mutex<HashMap<Timeouts, SharedHttpConnector>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

impl HttpClient for Client {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let (connect, read) = (settings.connect_timeout(), settings.read_timeout());
        let mut connectors = self.connectors.lock().unwrap_or_else(PoisonError::into_inner);
        let connector = connectors
            .entry((connect, read))
            .or_insert_with(|| SharedHttpConnector::new(Caller::new(Arc::clone(&self.paths), connect, read)));
        connector.clone()
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        Some(ConnectorMetadata::new("hyper", Some(Cow::Borrowed("1.x"))))
    }
}
