//! Instances of Nodes, from the store that all controllers share.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outrigger_aws::{Error, Instance, InstanceId, InstanceState};

use super::super::plan::targets::NodeInstance;
use super::super::spec::names;
use crate::instances::{Answer, Instances, Priority};

/// Maximum age of an answer about an instance of the cluster, as in the in-tree provider.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Maximum age of an answer about an instance that EC2 does not list or that is not the cluster's: either may change
/// soon.
const DOUBT: Duration = Duration::from_secs(3);

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
        let mut found = self.ask(ids.iter().cloned().collect(), MAX_AGE).await?;
        let doubtful = |id: &&InstanceId| !found.get(*id).is_some_and(|instance| instance.in_cluster);
        let doubtful: Vec<InstanceId> = ids.iter().filter(doubtful).cloned().collect();
        if !doubtful.is_empty() {
            found.extend(self.ask(doubtful, DOUBT).await?);
        }
        Ok(found)
    }

    async fn ask(&self, ids: Vec<InstanceId>, max_age: Duration) -> Result<BTreeMap<InstanceId, NodeInstance>, Error> {
        let mut found = BTreeMap::new();
        for (id, answer) in self.store.by_id(&ids, Priority::Lifecycle, max_age).await {
            match answer {
                Answer::Found(instance) => {
                    found.insert(id, self.judge(&instance));
                }
                Answer::Failed(error) => return Err(error),
                // The others are no answers about an ID.
                Answer::Absent | Answer::Ambiguous(_) | Answer::Fargate(_) | Answer::Foreign(_) => {}
            }
        }

        Ok(found)
    }

    fn judge(&self, instance: &Instance) -> NodeInstance {
        let ending = matches!(
            instance.state,
            Some(InstanceState::ShuttingDown | InstanceState::Terminated)
        );
        NodeInstance {
            in_cluster: names::in_cluster(&instance.tags, &self.cluster_id),
            living: !ending,
            security_groups: instance.security_groups.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outrigger_aws::fake::{FakeAws, World};

    use super::*;

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
        tokio::time::advance(MAX_AGE).await;
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
