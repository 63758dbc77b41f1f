//! The settings of the certificates.

use std::time::Duration;

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
