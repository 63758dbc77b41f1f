//! Caches for the life of the process: denied reads, zones, target groups, instances of Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use outrigger_aws::ec2::{AvailabilityZone, Subnet};
use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Ec2, Elbv2, Error, Instance, InstanceId, InstanceState, Kind};
use tokio::time::Instant;

use super::super::model::NodeInstance;
use super::super::plan::subnets::{unknown_zones, zone_by_name};
use super::super::spec::names;
use super::shared::Stamp;
use crate::instances::{Answer, Instances, Priority, addresses};

/// A denied read that the controller can do without. It is reported once per process: the role is the same for all
/// Services.
#[derive(Debug, Default)]
pub struct Denial {
    message: OnceLock<String>,
    is_reported: AtomicBool,
}

impl Denial {
    /// Records a denial, and returns whether it is the first.
    fn note(&self, error: &Error) -> bool {
        self.message.set(error.to_string()).is_ok()
    }

    /// The message of the first denial, if it was not returned before.
    pub fn take_unreported(&self) -> Option<String> {
        let message = self.message.get()?;
        (!self.is_reported.swap(true, Ordering::Relaxed)).then(|| message.clone())
    }
}

/// Reads of tags of load balancers and target groups, for which the role may lack `elasticloadbalancing:DescribeTags`.
///
/// Roles for aws-cloud-controller-manager v1.37 usually lack it, since v1.37 never reads these tags. A denial makes
/// the tags unknown.
#[derive(Debug, Default)]
pub struct TagReads {
    pub denial: Denial,
}

impl TagReads {
    /// The tags that a read returned; `None` if AWS denied the read.
    pub fn allowed<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Err(error) if error.kind() == Kind::AccessDenied => {
                if self.denial.note(&error) {
                    tracing::warn!(%error, "cannot read tags of load balancers and target groups; continuing without them");
                }
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }
}

/// After a denial EC2 is called again after this time; until then zone types are derived from names.
const DENIAL_BACKOFF: Duration = Duration::from_secs(1800);

/// The region's zones, cached for the life of the process: they change rarely. There are none before the first [`ZoneCache::covering`].
#[derive(Debug, Default)]
pub struct ZoneCache {
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

        if self.denied_at().is_some_and(|at| at.elapsed() < DENIAL_BACKOFF) {
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
        *self.last() = Listed {
            zones: zones.clone(),
            number: before + 1,
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

/// How long a list is used to find resources of an earlier process.
const LIST_MAX_AGE: Duration = Duration::from_secs(60);

/// How thoroughly to search for unused target groups of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Only the wanted names: there can be no others.
    Named,
    /// Target groups that an earlier process may have left.
    Earlier,
    /// Target groups that may have been left just now.
    Now,
}

/// All target groups, listed at once. One listing serves all Services for a while, and all that wait when it begins.
#[derive(Debug, Default)]
pub struct TargetGroupList {
    last: tokio::sync::Mutex<Option<(Stamp, Arc<Vec<TargetGroup>>)>>,
}

impl TargetGroupList {
    pub async fn all(&self, elb: &dyn Elbv2, search: Search) -> Result<Arc<Vec<TargetGroup>>, Error> {
        let called = Stamp::now();
        let mut last = self.last.lock().await;
        let is_young = |asked: &Stamp| search == Search::Earlier && asked.age(called) < LIST_MAX_AGE;
        if let Some((_, groups)) = last.as_ref().filter(|(asked, _)| *asked > called || is_young(asked)) {
            return Ok(Arc::clone(groups));
        }

        let asked = Stamp::now();
        let groups = Arc::new(elb.all_target_groups().await?);
        *last = Some((asked, Arc::clone(&groups)));

        Ok(groups)
    }
}

/// Maximum age of an answer about an instance of the cluster, as in the in-tree provider.
const INSTANCE_MAX_AGE: Duration = Duration::from_secs(600);

/// Maximum age of an answer about an instance that EC2 does not list or that is not the cluster's: either may change
/// soon.
const DOUBT: Duration = Duration::from_secs(3);

/// Instances of Nodes, from the store that all controllers share.
#[derive(Clone)]
pub struct NodeInstances {
    store: Instances,
    cluster_id: String,
}

impl NodeInstances {
    /// `cluster_id` is in the tag of instances that may be targets.
    pub fn new(store: Instances, cluster_id: String) -> Self {
        Self { store, cluster_id }
    }

    /// The instances of these IDs that EC2 lists.
    /// Fails when EC2 did not answer about one of them: an error is never taken for absence.
    pub async fn look_up(&self, ids: &BTreeSet<InstanceId>) -> Result<BTreeMap<InstanceId, NodeInstance>, Error> {
        let mut found = self.ask(ids.iter().cloned().collect(), INSTANCE_MAX_AGE).await?;
        let doubtful = |id: &&InstanceId| !found.get(*id).is_some_and(|instance| instance.in_cluster);
        let doubtful: Vec<InstanceId> = ids.iter().filter(doubtful).cloned().collect();
        if !doubtful.is_empty() {
            found.extend(self.ask(doubtful, DOUBT).await?);
        }
        Ok(found)
    }

    async fn ask(&self, ids: Vec<InstanceId>, max_age: Duration) -> Result<BTreeMap<InstanceId, NodeInstance>, Error> {
        let mut found = BTreeMap::new();
        for (id, answer) in self.store.by_id(&ids, Priority::current(), max_age).await {
            match answer {
                Answer::Found(instance) => {
                    found.insert(id, self.judge(&instance));
                }
                Answer::Failed(error) => return Err(error),
                // The others are no answers about an ID.
                Answer::Absent
                | Answer::Ambiguous(_)
                | Answer::Fargate(_)
                | Answer::Foreign(_)
                | Answer::Refused(_) => {}
            }
        }

        Ok(found)
    }

    fn judge(&self, instance: &Instance) -> NodeInstance {
        let ending = [InstanceState::ShuttingDown, InstanceState::Terminated];
        NodeInstance {
            in_cluster: names::in_cluster(&instance.tags, &self.cluster_id),
            living: !instance.state.as_ref().is_some_and(|state| ending.contains(state)),
            addresses: addresses(instance),
            security_groups: instance.security_groups.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outrigger_aws::fake::{FakeAws, World};
    use std::sync::Arc;

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
    async fn deletions_that_wait_share_the_next_list_of_target_groups() {
        let (list, aws) = (TargetGroupList::default(), FakeAws::new(World::default()));
        let busy = list.last.lock().await;
        let asked = futures::future::join_all((0..4).map(|_| list.all(&aws, Search::Now)));
        let (answers, ()) = tokio::join!(asked, async {
            tokio::task::yield_now().await;
            drop(busy);
        });
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(aws.calls().len(), 1);
        list.all(&aws, Search::Now).await.unwrap();
        assert_eq!(aws.calls().len(), 2, "who asks later has AWS asked again");
        list.all(&aws, Search::Earlier).await.unwrap();
        assert_eq!(aws.calls().len(), 2);
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

    fn instances() -> (Arc<FakeAws>, NodeInstances) {
        let mut tagged = Instance::new("i-00000001");
        tagged.tags = names::cluster_tags("prod", false);
        let instances = [tagged, Instance::new("i-00000002")].map(|i| (i.id.clone(), i)).into();
        let aws = Arc::new(FakeAws::new(World {
            instances,
            ..World::default()
        }));
        let store = Instances::new(aws.clone(), "prod".into(), "vpc-1".into());
        (aws, NodeInstances::new(store, "prod".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn instances_of_the_cluster_are_read_every_ten_minutes_and_others_sooner() {
        let (aws, cache) = instances();
        let ids = BTreeSet::from(["i-00000001", "i-00000002", "i-00000003"].map(InstanceId::new));
        let found = cache.look_up(&ids).await.unwrap();
        assert_eq!(found.values().map(|i| i.in_cluster).collect::<Vec<_>>(), [true, false]);
        aws.forget_calls();
        tokio::time::advance(DOUBT + Duration::from_secs(1)).await;
        cache.look_up(&ids).await.unwrap();
        let asked: Vec<String> = aws.calls().into_iter().map(|call| call.about).collect();
        assert!(
            !asked.is_empty() && asked.iter().all(|ids| !ids.contains("i-00000001")),
            "{asked:?}"
        );
        aws.forget_calls();
        tokio::time::advance(INSTANCE_MAX_AGE).await;
        cache.look_up(&ids).await.unwrap();
        assert!(aws.calls().iter().any(|call| call.about.contains("i-00000001")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_is_an_error_and_no_absence() {
        let (aws, cache) = instances();
        let denied = Error::answered("DescribeInstances", "UnauthorizedOperation", "no");
        aws.fail_next("DescribeInstances", denied);
        assert!(
            cache
                .look_up(&BTreeSet::from([InstanceId::new("i-00000001")]))
                .await
                .is_err()
        );
    }
}
