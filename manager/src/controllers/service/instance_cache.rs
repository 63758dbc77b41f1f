//! What is known about the instances of Nodes, shared by all Services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrigger_aws::{Ec2, Error, Instance, InstanceId, InstanceState};
use tokio::time::Instant;

use super::names;
use super::targets::NodeInstance;

/// How long an answer of EC2 serves. The in-tree provider keeps its instances as long.
const MAX_AGE: Duration = Duration::from_secs(600);

/// A cache in front of EC2. Only instances of the cluster are kept: one that is not found or not tagged may be so
/// a moment later, and is asked for again.
pub struct InstanceCache {
    ec2: Arc<dyn Ec2>,
    cluster_id: String,
    entries: Mutex<HashMap<InstanceId, (Instant, NodeInstance)>>,
}

impl InstanceCache {
    /// An empty cache.
    #[must_use]
    pub fn new(ec2: Arc<dyn Ec2>, cluster_id: String) -> Self {
        Self {
            ec2,
            cluster_id,
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<InstanceId, (Instant, NodeInstance)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instances of these IDs that EC2 lists. Only those that are not known are asked for.
    ///
    /// # Errors
    /// When EC2 did not answer.
    pub async fn look_up(&self, ids: &BTreeSet<InstanceId>) -> Result<BTreeMap<InstanceId, NodeInstance>, Error> {
        let now = Instant::now();
        let mut found = self.fresh(ids, now);
        let missing: Vec<InstanceId> = ids.iter().filter(|id| !found.contains_key(*id)).cloned().collect();
        if missing.is_empty() {
            return Ok(found);
        }
        for instance in self.ec2.instances_by_id(&missing).await? {
            let known = self.judge(&instance);
            if known.in_cluster {
                self.entries().insert(instance.id.clone(), (now, known.clone()));
            }
            found.insert(instance.id, known);
        }
        Ok(found)
    }

    fn fresh(&self, ids: &BTreeSet<InstanceId>, now: Instant) -> BTreeMap<InstanceId, NodeInstance> {
        let mut entries = self.entries();
        entries.retain(|_, (at, _)| now.saturating_duration_since(*at) < MAX_AGE);
        let known = ids
            .iter()
            .filter_map(|id| Some((id.clone(), entries.get(id)?.1.clone())));
        known.collect()
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
    use outrigger_aws::fake::{FakeAws, World};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn known_instances_of_the_cluster_are_asked_for_once_in_ten_minutes() {
        let mut tagged = Instance::new("i-1");
        tagged.tags = names::cluster_tags("prod", false);
        let instances = [tagged, Instance::new("i-2")].map(|i| (i.id.clone(), i)).into();
        let aws = Arc::new(FakeAws::new(World {
            instances,
            ..World::default()
        }));
        let cache = InstanceCache::new(aws.clone(), "prod".into());
        let ids = BTreeSet::from(["i-1", "i-2", "i-3"].map(InstanceId::new));
        let found = cache.look_up(&ids).await.unwrap();
        assert_eq!(found.values().map(|i| i.in_cluster).collect::<Vec<_>>(), [true, false]);
        cache.look_up(&ids).await.unwrap();
        tokio::time::advance(MAX_AGE).await;
        cache.look_up(&ids).await.unwrap();
        let asked: Vec<String> = aws.calls().into_iter().map(|call| call.about).collect();
        assert_eq!(asked, ["i-1,i-2,i-3", "i-2,i-3", "i-1,i-2,i-3"]);
    }
}
