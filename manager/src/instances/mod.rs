//! The instance cache of all controllers.
//!
//! ```text
//! controllers ─Nodes─▶ target (pure) ─keys─▶ batcher ── fresh ─────▶ cache
//!                                              │ └─── in flight ──▶ that batch's answer
//!                                              └ batch of 20 ms ──▶ describe ─▶ EC2, with few calls
//! ```
//!
//! A caller gives the maximum age of a result and the [`Priority`] of a call. Each caller gets the results for its own
//! keys only: a missing instance, an invalid ID or a failed call does not affect other callers.

mod bad_ids;
mod batcher;
mod cache;
mod describe;
mod key;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::{Ec2, Error, Instance, InstanceId, InstanceState};

use crate::node_cache::NodeView;
use batcher::Batcher;
use describe::{Describer, in_cluster};
use key::Key;

pub use bad_ids::{BadIds, Problem, named};
pub use key::Answer;
pub use outrigger_aws::ec2::FargateEni;
pub use outrigger_aws::limit::Priority;
use target::mismatch;
pub use target::{FoundBy, Name, Target, addresses, claimed, found_by, is_mismatch};

/// The instance cache. Clones share it.
#[derive(Clone)]
pub struct Instances(Arc<Batcher>);

impl Instances {
    /// Nothing is known yet. `cluster_id` is in the tag that an instance found by name or address must carry, and
    /// `vpc_id` is where addresses are looked for.
    pub fn new(ec2: Arc<dyn Ec2>, cluster_id: String, vpc_id: String) -> Self {
        Self(Arc::new(Batcher::new(Describer {
            ec2,
            cluster_id,
            vpc_id,
        })))
    }

    /// One answer for each Node, in their order. Answers of calls that began at most `max_age` ago serve; with an age of
    /// zero only calls that begin after this one.
    pub async fn describe(
        &self,
        nodes: Vec<Arc<NodeView>>,
        priority: Priority,
        max_age: Duration,
    ) -> Vec<(Arc<NodeView>, Answer)> {
        let priority = priority.within();
        let targets: Vec<Target> = nodes.iter().map(|node| Target::of(node)).collect();
        let first = targets.iter().filter_map(Target::key).collect();
        let mut answers = self.0.answers(first, priority, max_age).await;
        let unnamed = targets.iter().filter_map(|target| match target {
            Target::Name(name) => {
                let absent = matches!(answers.get(&Key::Dns(name.dns.clone())), Some(Answer::Absent));
                absent.then(|| name.fallbacks())
            }
            _ => None,
        });
        let second: BTreeSet<Key> = unnamed.flatten().flatten().collect();

        if !second.is_empty() {
            answers.extend(self.0.answers(second, priority, max_age).await);
        }

        let with = |(node, target): (&Arc<NodeView>, &Target)| (Arc::clone(node), self.resolve(node, target, &answers));
        nodes.iter().zip(&targets).map(with).collect()
    }

    /// One answer for each ID, by the same rules.
    pub async fn by_id(
        &self,
        ids: &[InstanceId],
        priority: Priority,
        max_age: Duration,
    ) -> HashMap<InstanceId, Answer> {
        let keys = ids.iter().cloned().map(Key::Id).collect();
        let answers = self.0.answers(keys, priority.within(), max_age).await.into_iter();
        answers
            .filter_map(|(key, answer)| match key {
                Key::Id(id) => Some((id, answer)),
                _ => None,
            })
            .collect()
    }

    /// The IDs that EC2 now reports as not existing, each by its ID. The result may be incomplete.
    ///
    /// # Errors
    /// When EC2 does not respond, or responds with another error: an error is never treated as absence.
    pub async fn confirm_absent(&self, ids: &[InstanceId], priority: Priority) -> Result<BTreeSet<InstanceId>, Error> {
        priority
            .run(bad_ids::absent(self.0.describer().ec2.as_ref(), ids))
            .await
    }

    /// Whether an instance has the tag of this cluster. EC2 finds an instance by ID with any tags, and any writer of
    /// a Node can set its provider ID, so check this before a write to an instance.
    pub fn in_cluster(&self, instance: &Instance) -> bool {
        in_cluster(instance, self.cluster_id())
    }

    pub fn cluster_id(&self) -> &str {
        &self.0.describer().cluster_id
    }

    fn resolve(&self, node: &NodeView, target: &Target, answers: &HashMap<Key, Answer>) -> Answer {
        let of = |key: &Key| answers.get(key).cloned().unwrap_or(Answer::Absent);
        let name = match target {
            Target::Foreign(reason) => return Answer::Foreign(reason.clone()),
            Target::Refused(reason) => return Answer::Refused(reason.clone()),
            Target::Name(name) => name,
            Target::Id(_) => return bound(node, target.key().map_or(Answer::Absent, |key| of(&key))),
            Target::Fargate(_) => return target.key().map_or(Answer::Absent, |key| of(&key)),
        };
        let named = of(&Key::Dns(name.dns.clone()));
        if !matches!(named, Answer::Absent) {
            return named;
        }

        // A guess counts only when it finds an instance of the cluster that is not terminated, and an address only when
        // the instance is at least as old as the Node: the address may have belonged to another instance before.
        let fallbacks = name.fallbacks().into_iter().flatten().map(|key| (of(&key), key));
        let mut counting = fallbacks.filter_map(|(answer, key)| match &answer {
            Answer::Found(instance) => {
                let lives = instance.state != Some(InstanceState::Terminated);
                let is_there = !matches!(key, Key::Ip(_)) || is_older(instance, node);
                (lives && is_there && in_cluster(instance, &self.0.describer().cluster_id)).then_some(answer)
            }
            Answer::Absent => None,
            _ => Some(answer),
        });

        bound(node, counting.next().unwrap_or(Answer::Absent))
    }
}

/// The answer, if the Node does not have the name of another instance.
fn bound(node: &NodeView, answer: Answer) -> Answer {
    let contradiction = match &answer {
        Answer::Found(instance) => mismatch(node.name(), instance),
        _ => None,
    };
    contradiction.map_or(answer, Answer::Refused)
}

fn is_older(instance: &Instance, node: &NodeView) -> bool {
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    matches!((instance.launched, created), (Some(launched), Some(created)) if launched <= created)
}
