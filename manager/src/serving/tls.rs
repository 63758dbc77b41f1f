//! The crypto provider of the port, cut down to what the flags name.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::ALL_KX_GROUPS;

use crate::args::Serving;

/// The workspace's provider with the suites and the groups of the flags. The suites of TLS 1.3 stay, as in Go; groups come in
/// the order in which they are named.
pub(super) fn provider(options: &Serving) -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&outrigger_certs::tls::provider());
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
