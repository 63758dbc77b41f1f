//! The crypto provider.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The one crypto provider of this workspace. It is passed explicitly, so that nothing depends on the default
/// provider of the process.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
