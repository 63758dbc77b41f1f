//! The region's zones, kept for the life of the process: they change less often than it is started.

use std::sync::{Mutex, PoisonError};

use outrigger_aws::ec2::AvailabilityZone;
use outrigger_aws::{Ec2, Error};

/// Zones as EC2 last listed them; none before the first [`ZoneCache::refresh`].
#[derive(Debug, Default)]
pub struct ZoneCache {
    zones: Mutex<Vec<AvailabilityZone>>,
}

impl ZoneCache {
    /// The zones known so far.
    #[must_use]
    pub fn known(&self) -> Vec<AvailabilityZone> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks EC2 again.
    ///
    /// # Errors
    /// When EC2 did not answer; the known zones stay.
    pub async fn refresh(&self, ec2: &dyn Ec2) -> Result<Vec<AvailabilityZone>, Error> {
        let zones = ec2.availability_zones().await?;
        self.zones
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&zones);
        Ok(zones)
    }
}
