//! Certificates without cert-manager: the replicas share a CA and a serving certificate in one Secret, renew both, and
//! set `caBundle` in the registrations.
//!
//! ```text
//! Secret ──watch──▶ State ──▶ decide::step ──▶ create or update with resourceVersion (409: read and decide again)
//!                     │
//!                     ├──▶ Reloader: each new handshake gets the certificate
//!                     └──▶ registration::patch: caBundle gets the CA, and the next one
//! registrations ──watch──▶ Trust: since when they hold a CA
//! ```
//!
//! | time | CA | serving certificate |
//! |---|---|---|
//! | two thirds of a certificate's life | | is issued again by the CA |
//! | two thirds of the CA's life | the next one is created; registrations get both | of the old CA |
//! | registrations hold the next CA for [`Settings::settle`] | the next one replaces the old one and its key | of the new CA |
//! | the old CA expires | registrations lose it | of the new CA |
//!
//! The old CA stays in `caBundle` until it expires: every certificate that it signed has expired by then. An earlier
//! removal needs to know which certificate each replica serves, and gains nothing, because the old key is gone.

mod controller;
pub mod decide;
pub mod registration;
pub mod state;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use controller::{Controller, Options};

/// API servers apply a changed registration within seconds of the watch event.
const MAX_SETTLE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct Settings {
    /// DNS names and IP addresses at which API servers call the webhook.
    pub names: Vec<String>,
    pub certificate_lifetime: Duration,
    pub ca_lifetime: Duration,
}

impl Settings {
    /// How long every registration must hold a CA before its certificates are served.
    pub fn settle(&self) -> Duration {
        MAX_SETTLE.min(self.certificate_lifetime / 6)
    }
}

/// The last error before the first certificate, for `/readyz`.
#[derive(Debug, Default)]
pub struct Obstacle(Mutex<Option<String>>);

impl Obstacle {
    pub fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.write_str(reason.as_deref().unwrap_or("its Secret has not been read yet"))
    }
}
