//! The last answers of AWS about load balancers.
//!
//! A change of Nodes concerns all load balancers, and AWS allows 10 reads a second. So targets are registered and
//! deregistered from memory: both may be repeated, and AWS refuses them for a load balancer or target group that does not
//! exist. An observation uses facts only if the last reconciliation has done all of its plan, and only Nodes have changed since
//! (`Reason::NodesChanged`); if its plan is more than targets, everything is read again. Own writes of targets change a fact,
//! others drop it, and each reconciliation that reads the load balancer replaces it. Facts end with the leader's term.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::Target;
use tokio::time::Instant;

use super::super::model::{classic, network};
use super::super::plan::{ClassicStep, NetworkStep, Step, TargetGroupRef};

/// Without drift repair, the largest age of a fact.
const MAX_AGE: Duration = Duration::from_secs(1800);

pub type Targets = Arc<BTreeSet<InstanceId>>;

/// Differs for different sets, except with a probability of about 2^-64.
pub fn hash_of(targets: &BTreeSet<InstanceId>) -> u64 {
    let mut hasher = DefaultHasher::new();
    targets.hash(&mut hasher);
    hasher.finish()
}

/// Sets of targets. Equal ones are one set in memory: thousands of Services may have thousands of targets each.
#[derive(Debug, Default)]
pub struct SharedSets(Mutex<HashMap<u64, Weak<BTreeSet<InstanceId>>>>);

impl SharedSets {
    /// The same set, or an equal one that is in use.
    pub fn share(&self, targets: BTreeSet<InstanceId>) -> Targets {
        let hash = hash_of(&targets);
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sets.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| **known == targets) {
            return known;
        }

        let targets = Arc::new(targets);
        sets.retain(|_, known| known.strong_count() > 0);
        sets.insert(hash, Arc::downgrade(&targets));

        targets
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A load balancer without attributes.
#[derive(Debug)]
enum Fact {
    /// Its targets are apart.
    Classic(classic::Existing, Targets),
    /// The targets of each target group are apart, by ARN, with their port.
    Network(network::Existing, BTreeMap<String, (i32, Targets)>),
}

/// The facts by the name of the load balancer.
#[derive(Debug, Default)]
pub struct Facts {
    by_name: Mutex<HashMap<String, (Instant, Fact)>>,
    sets: SharedSets,
}

impl Facts {
    fn by_name(&self) -> MutexGuard<'_, HashMap<String, (Instant, Fact)>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &str, fact: Option<Fact>) {
        match fact {
            Some(fact) => _ = self.by_name().insert(name.to_owned(), (Instant::now(), fact)),
            None => self.forget(name),
        }
    }

    pub fn forget(&self, name: &str) {
        self.by_name().remove(name);
    }

    /// Records an answer of now.
    pub fn put_classic(&self, name: &str, existing: Option<&classic::Existing>) {
        let fact = existing.cloned().map(|mut existing| {
            existing.attributes = None;
            let targets = std::mem::take(&mut existing.described.instances);
            Fact::Classic(existing, self.sets.share(targets))
        });
        self.put(name, fact);
    }

    /// Records an answer of now. A target group with several ports is the work of somebody else: it is not remembered.
    pub fn put_network(&self, name: &str, existing: Option<&network::Existing>) {
        let fact = existing.cloned().and_then(|mut existing| {
            existing.attributes = None;
            let mut targets = BTreeMap::new();
            for group in &mut existing.groups {
                group.attributes = None;
                let all = std::mem::take(&mut group.targets);
                let port = all.first().map_or(group.described.port, |target| target.port);
                if all.iter().any(|target| target.port != port) {
                    return None;
                }
                let instances = all.into_iter().map(|target| target.id).collect();
                targets.insert(group.described.arn.clone(), (port, self.sets.share(instances)));
            }
            Some(Fact::Network(existing, targets))
        });
        self.put(name, fact);
    }

    pub fn classic(&self, name: &str) -> Option<classic::Existing> {
        self.get(name, |fact| match fact {
            Fact::Classic(existing, targets) => {
                let mut existing = existing.clone();
                existing.described.instances = BTreeSet::clone(targets);
                Some(existing)
            }
            Fact::Network(..) => None,
        })
    }

    pub fn network(&self, name: &str) -> Option<network::Existing> {
        self.get(name, |fact| match fact {
            Fact::Network(existing, targets) => {
                let mut existing = existing.clone();
                for group in &mut existing.groups {
                    let (port, instances) = targets.get(&group.described.arn)?;
                    let target = |id: &InstanceId| Target {
                        id: id.clone(),
                        port: *port,
                    };
                    group.targets = instances.iter().map(target).collect();
                }
                Some(existing)
            }
            Fact::Classic(..) => None,
        })
    }

    fn get<T>(&self, name: &str, read: impl FnOnce(&Fact) -> Option<T>) -> Option<T> {
        let by_name = self.by_name();
        let (read_at, fact) = by_name.get(name)?;
        (read_at.elapsed() < MAX_AGE).then(|| read(fact)).flatten()
    }

    /// Records an own write to a load balancer. After a failure or a refusal the fact is replaced before it is used
    /// again.
    pub fn written(&self, name: &str, step: &Step) {
        if matches!(step, Step::Group(_)) {
            return;
        }

        let mut by_name = self.by_name();
        let fact = by_name.get_mut(name).map(|(_, fact)| fact);
        let is_known = fact.is_some_and(|fact| self.change(fact, step).is_some());
        if !is_known {
            by_name.remove(name);
        }
    }

    /// Changes the targets of a fact; `None` if the step does something else.
    fn change(&self, fact: &mut Fact, step: &Step) -> Option<()> {
        let (targets, add, remove): (&mut Targets, Vec<&InstanceId>, Vec<&InstanceId>) = match (fact, step) {
            (Fact::Classic(_, targets), Step::Classic(ClassicStep::Register { instances, .. })) => {
                (targets, instances.iter().collect(), Vec::new())
            }
            (Fact::Classic(_, targets), Step::Classic(ClassicStep::Deregister(instances))) => {
                (targets, Vec::new(), instances.iter().collect())
            }
            (Fact::Network(_, targets), Step::Network(NetworkStep::ChangeTargets { group, add, remove, .. })) => {
                let TargetGroupRef::Arn(arn) = group else {
                    return None;
                };
                let (port, targets) = targets.get_mut(arn)?;
                if add.iter().any(|target| target.port != *port) {
                    return None;
                }
                (targets, ids(add), ids(remove))
            }
            _ => return None,
        };

        let mut now = BTreeSet::clone(targets);
        now.extend(add.into_iter().cloned());
        now.retain(|id| !remove.contains(&id));
        *targets = self.sets.share(now);

        Some(())
    }
}

fn ids(targets: &[Target]) -> Vec<&InstanceId> {
    targets.iter().map(|target| &target.id).collect()
}

#[cfg(test)]
mod tests {
    use outrigger_aws::elb::LoadBalancer;

    use super::super::super::plan::GroupStep;
    use super::*;

    const LB: &str = "a1";
    const ARN: &str = "arn:1";

    fn instances(ids: &[&str]) -> BTreeSet<InstanceId> {
        ids.iter().map(|id| InstanceId::new(*id)).collect()
    }

    fn target(id: &str, port: i32) -> Target {
        Target {
            id: InstanceId::new(id),
            port,
        }
    }

    fn classic(ids: &[&str]) -> classic::Existing {
        classic::Existing {
            described: LoadBalancer {
                instances: instances(ids),
                ..LoadBalancer::default()
            },
            ..classic::Existing::default()
        }
    }

    fn network(targets: &[(&str, i32)]) -> network::Existing {
        let mut group = network::Group::default();
        group.described.arn = ARN.into();
        group.targets = targets.iter().map(|(id, port)| target(id, *port)).collect();
        network::Existing {
            groups: vec![group],
            ..network::Existing::default()
        }
    }

    fn register(ids: &[&str]) -> Step {
        Step::Classic(ClassicStep::Register {
            instances: instances(ids).into_iter().collect(),
            needed: false,
        })
    }

    fn change(group: TargetGroupRef, add: &[(&str, i32)], remove: &[(&str, i32)]) -> Step {
        let targets = |of: &[(&str, i32)]| of.iter().map(|(id, port)| target(id, *port)).collect();
        Step::Network(NetworkStep::ChangeTargets {
            group,
            add: targets(add),
            remove: targets(remove),
            needed: false,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn own_writes_of_targets_are_in_the_facts() {
        let facts = Facts::default();
        facts.put_classic(LB, Some(&classic(&["i-1"])));
        facts.written(LB, &register(&["i-2"]));
        facts.written(LB, &Step::Group(GroupStep::Delete("sg-1".into())));
        assert_eq!(facts.classic(LB), Some(classic(&["i-1", "i-2"])));
        let step = Step::Classic(ClassicStep::Deregister(instances(&["i-1"]).into_iter().collect()));
        facts.written(LB, &step);
        assert_eq!(facts.classic(LB), Some(classic(&["i-2"])));
        assert_eq!(facts.network(LB), None);

        let of_group = || TargetGroupRef::Arn(ARN.into());
        facts.put_network(LB, Some(&network(&[("i-1", 80)])));
        facts.written(LB, &change(of_group(), &[("i-2", 80)], &[("i-1", 80)]));
        assert_eq!(facts.network(LB), Some(network(&[("i-2", 80)])));
        assert_eq!(facts.classic(LB), None);
        facts.put_network(LB, None);
        assert_eq!(facts.network(LB), None);
    }

    #[tokio::test(start_paused = true)]
    async fn other_writes_and_time_end_a_fact() {
        let facts = Facts::default();
        let has = || {
            facts
                .classic(LB)
                .or_else(|| facts.network(LB).map(|_| classic(&[])))
                .is_some()
        };
        for step in [
            Step::Classic(ClassicStep::DeleteLoadBalancer),
            change(TargetGroupRef::Arn(ARN.into()), &[("i-2", 80)], &[]),
        ] {
            facts.put_classic(LB, Some(&classic(&["i-1"])));
            assert!(has());
            facts.written(LB, &step);
            assert!(!has(), "{step:?}");
        }
        for group in [
            TargetGroupRef::Created("new".into()),
            TargetGroupRef::Arn("arn:2".into()),
        ] {
            facts.put_network(LB, Some(&network(&[("i-1", 80)])));
            facts.written(LB, &change(group, &[("i-2", 80)], &[]));
            assert!(!has());
        }
        facts.put_network(LB, Some(&network(&[("i-1", 80), ("i-1", 81)])));
        assert!(!has(), "not the work of this controller");

        facts.put_classic(LB, Some(&classic(&["i-1"])));
        tokio::time::advance(MAX_AGE - Duration::from_secs(1)).await;
        assert!(has());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!has());
    }

    #[test]
    fn equal_sets_are_one_until_nobody_has_them() {
        let sets = SharedSets::default();
        let first = sets.share(instances(&["i-1", "i-2"]));
        assert!(Arc::ptr_eq(&first, &sets.share(instances(&["i-2", "i-1"]))));
        drop(first);
        let _other = sets.share(instances(&["i-1"]));
        assert_eq!(sets.len(), 1);
    }
}
