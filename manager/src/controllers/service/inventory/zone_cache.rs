//! The region's zones, cached for the life of the process: they change rarely.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::ec2::{AvailabilityZone, Subnet};
use outrigger_aws::{Ec2, Error, Kind};
use tokio::time::Instant;

use super::super::plan::subnets::{unknown_zones, zone_by_name};
use super::denial::Denial;

/// After a denial EC2 is called again after this time; until then zone types are derived from names.
const DENIAL_BACKOFF: Duration = Duration::from_secs(1800);

/// Zones as EC2 last listed them; none before the first [`ZoneCache::covering`].
#[derive(Debug, Default)]
pub struct ZoneCache {
    /// The first denial.
    pub denial: Denial,
    denied_at: Mutex<Option<Instant>>,
    last: Mutex<Listed>,
    /// One call at a time; the waiting callers use its answer: after a start all workers need the zones at once.
    turn: tokio::sync::Mutex<()>,
}

/// A list, and the number of lists so far.
#[derive(Debug, Default, Clone)]
struct Listed {
    zones: Vec<AvailabilityZone>,
    number: u64,
}

impl ZoneCache {
    fn last(&self) -> MutexGuard<'_, Listed> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn denied_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.denied_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The zones of these subnets, among others. EC2 is called if one is unknown. If the role may not list zones,
    /// unknown ones are derived from their names.
    pub async fn covering(&self, ec2: &dyn Ec2, subnets: &[Subnet]) -> Result<Vec<AvailabilityZone>, Error> {
        let known = self.last().zones.clone();
        if unknown_zones(subnets, &known).is_empty() {
            return Ok(known);
        }

        let denied = self.denied_at().is_some_and(|at| at.elapsed() < DENIAL_BACKOFF);
        if denied {
            return Ok(with_names(known, subnets));
        }

        match self.refresh(ec2).await {
            Err(error) if error.kind() == Kind::AccessDenied => {
                *self.denied_at() = Some(Instant::now());
                if self.denial.note(&error) {
                    tracing::warn!(%error, "cannot list zones; deriving their types from their names");
                }
                Ok(with_names(known, subnets))
            }
            answer => answer,
        }
    }

    /// Calls EC2, or uses the answer of a concurrent call.
    async fn refresh(&self, ec2: &dyn Ec2) -> Result<Vec<AvailabilityZone>, Error> {
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

/// The known zones, and the missing ones derived from their names.
fn with_names(mut known: Vec<AvailabilityZone>, subnets: &[Subnet]) -> Vec<AvailabilityZone> {
    let named: Vec<AvailabilityZone> = unknown_zones(subnets, &known).into_iter().map(zone_by_name).collect();
    known.extend(named);
    known
}

#[cfg(test)]
mod tests {
    use outrigger_aws::fake::{FakeAws, World};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_call() {
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
    async fn waiting_callers_do_not_share_a_failure() {
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

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_no_failure_and_not_retried_at_once() {
        let (cache, aws) = (ZoneCache::default(), FakeAws::new(World::default()));
        aws.deny("ec2:DescribeAvailabilityZones");
        let subnet = |zone: &str| Subnet {
            id: zone.into(),
            vpc_id: None,
            availability_zone: Some(zone.into()),
            cidr_block: None,
            tags: outrigger_aws::Tags::new(),
        };
        let subnets = [subnet("us-east-1a"), subnet("us-east-1-bos-1a")];
        let types = async || {
            let zones = cache.covering(&aws, &subnets).await.unwrap();
            zones
                .into_iter()
                .map(|zone| zone.zone_type.unwrap())
                .collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert_eq!(types().await, ["local-zone", "availability-zone"]);
        }
        assert_eq!(aws.calls().len(), 1);
        let message = cache.denial.take_unreported().unwrap();
        assert!(message.contains("DescribeAvailabilityZones"), "{message}");
        assert_eq!(cache.denial.take_unreported(), None);
        tokio::time::advance(DENIAL_BACKOFF).await;
        types().await;
        assert_eq!(aws.calls().len(), 2);
    }
}
