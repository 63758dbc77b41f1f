//! Why there is no certificate yet.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The last error before the first certificate, for `/readyz`.
#[derive(Debug, Default)]
pub struct Obstacle(Mutex<Option<String>>);

impl Obstacle {
    /// Replaces the reason.
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
