//! The HTTP client of all AWS clients and of the credentials that they take.

use std::fmt;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::{RuntimeComponents, RuntimeComponentsBuilder};
use aws_smithy_types::config_bag::ConfigBag;

use crate::proxy::{Path, Proxies};
use crate::{Settings, SettingsError};

/// The client with the proxies and the trusted authorities of the settings.
pub(crate) fn client(settings: &Settings) -> Result<SharedHttpClient, SettingsError> {
    let tls = tls_context(settings)?;
    let proxies = settings.proxies.clone();
    let through = |proxy: Option<&String>| match proxy {
        // The URL was checked when the settings were read.
        Some(url) => ProxyConfig::all(url.as_str()).unwrap_or_else(|_| ProxyConfig::disabled()),
        None => ProxyConfig::disabled(),
    };

    Ok(SharedHttpClient::new(ByPath {
        direct: one_path(ProxyConfig::disabled(), &tls),
        http_proxy: one_path(through(proxies.http.as_ref()), &tls),
        https_proxy: one_path(through(proxies.https.as_ref()), &tls),
        proxies,
    }))
}

/// A client without proxies.
pub(crate) fn direct() -> SharedHttpClient {
    one_path(ProxyConfig::disabled(), &TlsContext::default())
}

fn tls_context(settings: &Settings) -> Result<TlsContext, SettingsError> {
    let trusted = match &settings.ca_bundle {
        // As in the AWS SDK for Go, the bundle replaces the system's authorities:
        // https://github.com/aws/aws-sdk-go-v2/blob/main/config/resolve.go
        Some(pem) => TrustStore::empty().with_pem_certificate(pem.clone()),
        // The system's, or the files that SSL_CERT_FILE and SSL_CERT_DIR name.
        None => TrustStore::default(),
    };
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context.map_err(|error| SettingsError::Tls(error.to_string()))
}

/// A client all of whose requests take one path.
fn one_path(proxy: ProxyConfig, tls: &TlsContext) -> SharedHttpClient {
    let tls = tls.clone();
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder().proxy_config(proxy.clone());
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .tls_context(tls.clone())
            .build()
    })
}

/// A `T` for each path.
#[derive(Clone)]
struct ByPath<T> {
    proxies: Proxies,
    direct: T,
    http_proxy: T,
    https_proxy: T,
}

impl<T> fmt::Debug for ByPath<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByPath")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

impl HttpClient for ByPath<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let connector = |client: &SharedHttpClient| client.http_connector(settings, components);
        SharedHttpConnector::new(ByPath {
            proxies: self.proxies.clone(),
            direct: connector(&self.direct),
            http_proxy: connector(&self.http_proxy),
            https_proxy: connector(&self.https_proxy),
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        bag: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.direct.validate_base_client_config(components, bag)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.direct.connector_metadata()
    }
}

impl HttpConnector for ByPath<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match self.proxies.path(request.uri()) {
            Path::Direct => self.direct.call(request),
            Path::HttpProxy => self.http_proxy.call(request),
            Path::HttpsProxy => self.https_proxy.call(request),
        }
    }
}
