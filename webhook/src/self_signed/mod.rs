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
mod settings;
pub mod state;

use std::fmt;
use std::sync::{Mutex, PoisonError};

pub use controller::{Controller, Options};
pub use settings::Settings;

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
