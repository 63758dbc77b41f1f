//! The record of a lease: plain data, no IO.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;

/// The three leases of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lease {
    /// The main lease of kube-controller-manager.
    K,
    /// The main lease of the cloud controller manager.
    C,
    /// The migration lease, which both compete for.
    M,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// One state of a lease, as the API server had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseChange {
    pub lease: Lease,
    /// When the change was seen here, by the wall clock.
    pub at: Timestamp,
    /// When the change was seen here, since the recorder's start: never runs backwards.
    pub since_start: Duration,
    /// `holderIdentity`; `None` when empty, missing, or the lease was deleted.
    pub holder: Option<String>,
    /// `acquireTime`, written by the holder.
    pub acquired: Option<Timestamp>,
    /// `renewTime`, written by the holder; in a release, the time of the release.
    pub renewed: Option<Timestamp>,
    pub duration: Option<Duration>,
    pub transitions: i32,
    pub annotations: BTreeMap<String, String>,
    /// True when the lease object itself is gone.
    pub deleted: bool,
}

impl LeaseChange {
    pub fn observed(lease: Lease, object: &LeaseObject, at: Timestamp, since_start: Duration) -> Self {
        let spec = object.spec.clone().unwrap_or_default();
        Self {
            lease,
            at,
            since_start,
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            duration: spec
                .lease_duration_seconds
                .and_then(|s| u64::try_from(s).ok())
                .map(Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or(0),
            annotations: object.metadata.annotations.clone().unwrap_or_default(),
            deleted: false,
        }
    }

    /// When it expires unless it is renewed.
    pub fn expires(&self) -> Option<Timestamp> {
        let duration = SignedDuration::try_from(self.duration?).ok()?;
        self.renewed?.saturating_add(duration).ok()
    }

    /// A lease that is gone: free, with nothing in it.
    pub fn deleted(lease: Lease, at: Timestamp, since_start: Duration) -> Self {
        Self {
            deleted: true,
            ..Self::observed(lease, &LeaseObject::default(), at, since_start)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_holder_is_no_holder() -> Result<(), serde_json::Error> {
        let object = serde_json::from_value(serde_json::json!({
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4,
                     "renewTime": "2026-11-20T10:00:00.000001Z"}
        }))?;
        let change = LeaseChange::observed(Lease::M, &object, Timestamp::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(change.holder, None);
        assert_eq!(change.transitions, 4);
        assert_eq!(change.duration, Some(Duration::from_secs(1)));
        assert_eq!(change.renewed.map(|time| time.as_microsecond() % 1_000_000), Some(1));
        Ok(())
    }
}
