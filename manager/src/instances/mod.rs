//! From Nodes to instances: one batched question to EC2 for many Nodes, one answer for each of them.

mod target;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
pub use outrigger_aws::ec2::FargateEni;
use outrigger_aws::ec2::MAX_FILTER_VALUES;
pub use outrigger_aws::limit::Lane;
use outrigger_aws::{Ec2, Error, Instance, InstanceId};
use outrigger_shared::tags;

use crate::node_cache::NodeView;

pub use target::Target;

/// How many describe calls are under way at the same time: few, since their bucket is the account's.
const CALLS_AT_ONCE: usize = 4;

/// What EC2 says about one Node's instance.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The instance.
    Found(Arc<Instance>),
    /// EC2 lists none. That alone is no proof that it is gone.
    Absent,
    /// Several living instances have the Node's name as their private DNS name.
    Ambiguous(usize),
    /// The question failed: nothing is known.
    Failed(Error),
    /// The Node runs on Fargate; its network interface.
    Fargate(Arc<FargateEni>),
    /// The Node is not on EC2; why.
    Foreign(String),
}

/// What is known about instances, shared by all controllers. Clones share it.
#[derive(Clone)]
pub struct Instances {
    ec2: Arc<dyn Ec2>,
    cluster_id: Arc<str>,
    vpc_id: Arc<str>,
}

impl Instances {
    /// Nothing is known yet. `cluster_id` is in the tag that an instance found by name or address must carry, and
    /// `vpc_id` is where addresses are looked for.
    #[must_use]
    pub fn new(ec2: Arc<dyn Ec2>, cluster_id: String, vpc_id: String) -> Self {
        Self {
            ec2,
            cluster_id: cluster_id.into(),
            vpc_id: vpc_id.into(),
        }
    }

    /// One answer for each Node, in their order. Answers of calls that were begun less than `max_age` ago serve.
    pub async fn describe(
        &self,
        nodes: Vec<Arc<NodeView>>,
        lane: Lane,
        max_age: Duration,
    ) -> Vec<(Arc<NodeView>, Answer)> {
        let _ = (max_age, &self.vpc_id);
        lane.run(describe(self.ec2.as_ref(), &self.cluster_id, nodes)).await
    }

    /// One answer for each ID. Answers of calls that were begun less than `max_age` ago serve.
    pub async fn by_id(&self, ids: &[InstanceId], lane: Lane, max_age: Duration) -> HashMap<InstanceId, Answer> {
        let _ = max_age;
        let wanted = ids.iter().cloned().collect();
        let mut found = lane.run(ask_by_id(self.ec2.as_ref(), wanted)).await;
        for id in ids {
            found.entry(id.clone()).or_insert(Answer::Absent);
        }
        found
    }
}

/// Asks EC2 about the instances of many Nodes, in calls of at most [`MAX_FILTER_VALUES`]. A failed call fails its own
/// Nodes only. The answers come in the order of the Nodes.
pub async fn describe(ec2: &dyn Ec2, cluster_id: &str, nodes: Vec<Arc<NodeView>>) -> Vec<(Arc<NodeView>, Answer)> {
    let targets: Vec<Target> = nodes.iter().map(|node| Target::of(node)).collect();
    let ids: BTreeSet<InstanceId> = targets.iter().filter_map(Target::id).cloned().collect();
    let names: BTreeSet<String> = targets
        .iter()
        .filter_map(Target::private_dns)
        .map(str::to_owned)
        .collect();
    let (by_id, by_name) = tokio::join!(ask_by_id(ec2, ids), ask_by_name(ec2, cluster_id, names));
    nodes
        .into_iter()
        .zip(targets)
        .map(|(node, target)| {
            let answer = match target {
                Target::Id(id) => by_id.get(&id).cloned().unwrap_or(Answer::Absent),
                Target::PrivateDns(name) => by_name.get(&name).cloned().unwrap_or(Answer::Absent),
                Target::Foreign(reason) => Answer::Foreign(reason),
            };
            (node, answer)
        })
        .collect()
}

async fn ask_by_id(ec2: &dyn Ec2, ids: BTreeSet<InstanceId>) -> HashMap<InstanceId, Answer> {
    let chunks = chunks(ids);
    stream::iter(chunks)
        .map(|chunk| async move {
            match ec2.instances_by_id(&chunk).await {
                Ok(found) => found
                    .into_iter()
                    .map(|instance| (instance.id.clone(), Answer::Found(Arc::new(instance))))
                    .collect::<Vec<_>>(),
                Err(error) => chunk
                    .into_iter()
                    .map(|id| (id, Answer::Failed(error.clone())))
                    .collect(),
            }
        })
        .buffer_unordered(CALLS_AT_ONCE)
        .flat_map(stream::iter)
        .collect()
        .await
}

/// Private DNS names are unique in a VPC, not in a region: only instances of the cluster count.
async fn ask_by_name(ec2: &dyn Ec2, cluster_id: &str, names: BTreeSet<String>) -> HashMap<String, Answer> {
    stream::iter(chunks(names))
        .map(|chunk| async move {
            match ec2.instances_by_private_dns_name(&chunk).await {
                Ok(found) => {
                    let ours = found
                        .into_iter()
                        .filter(|instance| in_cluster(instance, cluster_id))
                        .collect();
                    by_name(ours)
                }
                Err(error) => chunk
                    .into_iter()
                    .map(|name| (name, Answer::Failed(error.clone())))
                    .collect(),
            }
        })
        .buffer_unordered(CALLS_AT_ONCE)
        .flat_map(stream::iter)
        .collect()
        .await
}

fn in_cluster(instance: &Instance, cluster_id: &str) -> bool {
    tags::belongs_to(
        cluster_id,
        instance.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())),
    )
}

fn by_name(instances: Vec<Instance>) -> Vec<(String, Answer)> {
    let mut groups: HashMap<String, Vec<Instance>> = HashMap::new();
    for instance in instances {
        if let Some(name) = instance.private_dns_name.clone() {
            groups.entry(name).or_default().push(instance);
        }
    }
    let answer = |mut group: Vec<Instance>| match (group.pop(), group.len()) {
        (Some(instance), 0) => Answer::Found(Arc::new(instance)),
        (_, others) => Answer::Ambiguous(others + 1),
    };
    groups.into_iter().map(|(name, group)| (name, answer(group))).collect()
}

fn chunks<T: Ord>(set: BTreeSet<T>) -> Vec<Vec<T>> {
    let mut chunks: Vec<Vec<T>> = Vec::new();
    for item in set {
        match chunks.last_mut().filter(|chunk| chunk.len() < MAX_FILTER_VALUES) {
            Some(chunk) => chunk.push(item),
            None => chunks.push(vec![item]),
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use outrigger_aws::fake::{FakeAws, World};
    use serde_json::json;

    use super::*;

    fn node(name: &str, provider_id: Option<&str>) -> Arc<NodeView> {
        let json = json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": provider_id}});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn named(id: &str, dns: &str, cluster: &str) -> Instance {
        let mut instance = Instance::new(id);
        instance.private_dns_name = Some(dns.into());
        instance
            .tags
            .insert(format!("kubernetes.io/cluster/{cluster}"), "owned".into());
        instance
    }

    fn aws(instances: Vec<Instance>) -> FakeAws {
        let instances = instances
            .into_iter()
            .map(|instance| (instance.id.clone(), instance))
            .collect();
        FakeAws::new(World {
            instances,
            ..World::default()
        })
    }

    #[tokio::test]
    async fn five_hundred_nodes_cost_three_calls() {
        let aws = aws((0..500).map(|n| Instance::new(format!("i-{n:04}"))).collect());
        let nodes = (0..500)
            .map(|n| node(&format!("n{n}"), Some(&format!("aws:///z/i-{n:04}"))))
            .collect();
        let answers = describe(&aws, "prod", nodes).await;
        assert!(answers.iter().all(|(_, answer)| matches!(answer, Answer::Found(_))));
        assert_eq!(aws.calls().len(), 3);
    }

    #[tokio::test]
    async fn a_failed_call_fails_its_own_nodes_only() {
        let aws = aws((0..201).map(|n| Instance::new(format!("i-{n:04}"))).collect());
        aws.fail_next(
            "DescribeInstances",
            Error::answered("DescribeInstances", "InternalError", "x"),
        );
        let nodes = (0..201)
            .map(|n| node(&format!("n{n}"), Some(&format!("aws:///z/i-{n:04}"))))
            .collect();
        let answers = describe(&aws, "prod", nodes).await;
        let failed = answers
            .iter()
            .filter(|(_, answer)| matches!(answer, Answer::Failed(_)))
            .count();
        assert!(failed == 200 || failed == 1, "{failed}");
    }

    #[tokio::test]
    async fn names_find_only_instances_of_the_cluster_and_two_are_ambiguous() {
        let aws = aws(vec![
            named("i-1", "one.internal", "prod"),
            named("i-2", "one.internal", "test"),
            named("i-3", "two.internal", "prod"),
            named("i-4", "two.internal", "prod"),
        ]);
        let nodes = vec![
            node("one.internal", None),
            node("two.internal", None),
            node("three.internal", None),
        ];
        let answers: Vec<Answer> = describe(&aws, "prod", nodes)
            .await
            .into_iter()
            .map(|(_, answer)| answer)
            .collect();
        assert!(matches!(&answers[0], Answer::Found(instance) if instance.id.as_str() == "i-1"));
        assert!(matches!(answers[1], Answer::Ambiguous(2)));
        assert!(matches!(answers[2], Answer::Absent));
        assert_eq!(aws.calls().len(), 1);
    }

    #[tokio::test]
    async fn foreign_nodes_cost_no_call() {
        let aws = aws(vec![]);
        let answers = describe(&aws, "prod", vec![node("f", Some("aws:///z/fargate-1.2.3.4"))]).await;
        assert!(matches!(answers[0].1, Answer::Foreign(_)));
        assert!(aws.calls().is_empty());
    }
}
