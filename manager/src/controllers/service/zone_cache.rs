//! The region's zones, kept for the life of the process: they change less often than it is started.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_aws::ec2::AvailabilityZone;
use outrigger_aws::{Ec2, Error};

/// Zones as EC2 last listed them; none before the first [`ZoneCache::refresh`].
#[derive(Debug, Default)]
pub struct ZoneCache {
    last: Mutex<Listed>,
    /// One asks at a time, and those who wait take its answer: at a start all workers need the zones at once.
    turn: tokio::sync::Mutex<()>,
}

/// A listing, and the number of listings so far.
#[derive(Debug, Default, Clone)]
struct Listed {
    zones: Vec<AvailabilityZone>,
    number: u64,
}

impl ZoneCache {
    fn last(&self) -> MutexGuard<'_, Listed> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The zones known so far.
    #[must_use]
    pub fn known(&self) -> Vec<AvailabilityZone> {
        self.last().zones.clone()
    }

    /// Asks EC2 again, or takes the answer that somebody else was given in the meantime.
    ///
    /// # Errors
    /// When EC2 did not answer; the known zones stay.
    pub async fn refresh(&self, ec2: &dyn Ec2) -> Result<Vec<AvailabilityZone>, Error> {
        let before = self.last().number;
        let _turn = self.turn.lock().await;
        let last = self.last().clone();
        if last.number > before {
            return Ok(last.zones);
        }
        let zones = ec2.availability_zones().await?;
        let number = before + 1;
        *self.last() = Listed {
            zones: zones.clone(),
            number,
        };
        Ok(zones)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_aws::fake::{FakeAws, World};

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_share_one_answer() {
        let (cache, aws) = (ZoneCache::default(), FakeAws::new(World::default()));
        let busy = cache.turn.lock().await;
        let asked = futures::future::join_all((0..4).map(|_| cache.refresh(&aws)));
        let (answers, ()) = tokio::join!(asked, async {
            tokio::task::yield_now().await;
            drop(busy);
        });
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(aws.calls().len(), 1);
        cache.refresh(&aws).await.unwrap();
        assert_eq!(aws.calls().len(), 2, "who asks later has EC2 asked again");
    }

    #[tokio::test]
    async fn a_failure_is_no_answer_to_those_who_wait() {
        let (cache, aws) = (ZoneCache::default(), FakeAws::new(World::default()));
        let denied = Error::answered("DescribeAvailabilityZones", "UnauthorizedOperation", "no");
        aws.fail_next("DescribeAvailabilityZones", denied);
        let busy = cache.turn.lock().await;
        let asked = futures::future::join_all((0..2).map(|_| cache.refresh(&aws)));
        let (answers, ()) = tokio::join!(asked, async {
            tokio::task::yield_now().await;
            drop(busy);
        });
        assert!(answers[0].is_err() && answers[1].is_ok());
    }
}
