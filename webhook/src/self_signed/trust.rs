//! How long the registrations have held a CA.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_certs::bundle;

/// The CAs that all registrations hold, and since when this process has observed that.
///
/// A new process starts without observations. That only defers the replacement of a CA.
#[derive(Debug, Default)]
pub struct Trust {
    since: HashMap<String, Timestamp>,
}

impl Trust {
    /// Records which of the `authorities` every one of `bundles` holds. `None` if a registration cannot be read.
    pub fn observe(&mut self, authorities: &[&str], bundles: Option<&[String]>, now: Timestamp) {
        let is_held = |authority: &str| {
            bundles.is_some_and(|bundles| bundles.iter().all(|bundle| bundle::contains(bundle, authority)))
        };
        let held: Vec<&str> = authorities.iter().copied().filter(|one| is_held(one)).collect();

        self.since.retain(|authority, _| held.contains(&authority.as_str()));
        for authority in held {
            self.since.entry(authority.to_owned()).or_insert(now);
        }
    }

    /// Whether all registrations have held the CA for `settle`, so that every API server uses it.
    #[must_use]
    pub fn settled(&self, authority: &str, settle: Duration, now: Timestamp) -> bool {
        self.since
            .get(authority)
            .is_some_and(|since| now.duration_since(*since).unsigned_abs() >= settle && now >= *since)
    }
}
