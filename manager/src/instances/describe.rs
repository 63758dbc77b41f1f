//! Describes instances with as few calls as possible.
//!
//! | key | call | reason |
//! |---|---|---|
//! | IDs that recently existed, more than 200 | plain IDs, at most 1,000 | a fifth of the calls; rejected as a whole if one does not exist |
//! | all other IDs | filter `instance-id`, at most 200 | unknown IDs are missing in the response and fail nothing |
//! | names, addresses | filters, at most 200 | |
//!
//! A rejection of plain IDs names the bad ones, and the others are sent again. After two rejections in a batch, the
//! remaining IDs are described by filter. So a batch of n IDs costs at most ⌈n/200⌉ + 2 calls: a successful call by
//! plain IDs replaces at least one by filter, and at most two calls are lost. A call with another error fails its own
//! IDs, and is not retried here.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures::{StreamExt, stream};
use outrigger_aws::ec2::{MAX_FILTER_VALUES, MAX_IDS};
use outrigger_aws::{Ec2, Error, Instance, InstanceId};
use outrigger_shared::tags;

use super::bad_ids::{BadIds, Problem};
use super::cache::by_id;
use super::key::{Answer, Key, is_well_formed};

/// How many calls by filter of one batch are under way at the same time: few, since their bucket is the account's.
const CALLS_AT_ONCE: usize = 4;
/// How many refusals of plain IDs a batch may cost.
const MAX_REFUSALS: usize = 2;

pub(super) type Answers = Vec<(Key, Answer)>;

pub(super) struct Describer {
    pub ec2: Arc<dyn Ec2>,
    pub cluster_id: String,
    pub vpc_id: String,
}

impl Describer {
    /// Describes all keys and publishes one answer per key, call by call. `is_living`: whether an ID may be described by
    /// plain ID.
    pub(super) async fn describe(
        &self,
        keys: BTreeSet<Key>,
        is_living: impl Fn(&InstanceId) -> bool,
        publish: impl Fn(Answers) + Sync,
    ) {
        let (mut living, mut ids) = (Vec::new(), Vec::new());
        let (mut names, mut ips, mut fargate) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            match key {
                Key::Id(id) if is_well_formed(&id) && is_living(&id) => living.push(id),
                Key::Id(id) => ids.push(id),
                Key::Dns(name) => names.push(name),
                Key::Ip(ip) => ips.push(ip),
                Key::Fargate(ip) => fargate.push(ip),
            }
        }

        let publish = &publish;
        tokio::join!(
            async {
                ids.extend(self.by_plain_ids(living, publish).await);
                each(ids, publish, |chunk| self.by_filter(chunk)).await;
            },
            each(names, publish, |chunk| self.by_name(chunk)),
            each(ips, publish, |chunk| self.by_ip(chunk)),
            each(fargate, publish, |chunk| self.on_fargate(chunk)),
        );
    }

    /// Describes by plain IDs, one call after the other. Returns the IDs that remain for the filter.
    async fn by_plain_ids(&self, ids: Vec<InstanceId>, publish: impl Fn(Answers)) -> Vec<InstanceId> {
        let mut open: VecDeque<Vec<InstanceId>> = ids.chunks(MAX_IDS).map(<[_]>::to_vec).collect();
        let (mut left, mut refusals) = (Vec::new(), 0);
        while let Some(chunk) = open.pop_front() {
            if refusals == MAX_REFUSALS || chunk.len() <= MAX_FILTER_VALUES {
                left.extend(chunk);
                continue;
            }

            let error = match self.ec2.instances_by_plain_id(&chunk).await {
                Ok(found) => {
                    publish(of_ids(chunk, found));
                    continue;
                }
                Err(error) => error,
            };
            let Some(refusal) = BadIds::parse(&chunk, &error) else {
                publish(failed(chunk.into_iter().map(Key::Id), &error));
                continue;
            };

            refusals += 1;
            if refusal.named.is_empty() {
                left.extend(refusal.rest);
                continue;
            }

            let named = refusal.named.into_iter().map(Key::Id);
            publish(match refusal.why {
                Problem::NotFound => named.map(|key| (key, Answer::Absent)).collect(),
                Problem::Malformed => failed(named, &error),
            });
            open.push_front(refusal.rest);
        }

        left
    }

    async fn by_filter(&self, ids: Vec<InstanceId>) -> Answers {
        match self.ec2.instances_by_id(&ids).await {
            Ok(found) => of_ids(ids, found),
            Err(error) => failed(ids.into_iter().map(Key::Id), &error),
        }
    }

    /// Private DNS names are unique in a VPC, not in a region: only instances of the cluster count.
    async fn by_name(&self, names: Vec<String>) -> Answers {
        match self.ec2.instances_by_private_dns_name(&names).await {
            Ok(found) => self.of_texts(names, found, Key::Dns, |instance| instance.private_dns_name.as_ref()),
            Err(error) => failed(names.into_iter().map(Key::Dns), &error),
        }
    }

    async fn by_ip(&self, ips: Vec<String>) -> Answers {
        match self.ec2.instances_by_private_ip(&self.vpc_id, &ips).await {
            Ok(found) => self.of_texts(ips, found, Key::Ip, |instance| instance.private_ip.as_ref()),
            Err(error) => failed(ips.into_iter().map(Key::Ip), &error),
        }
    }

    fn of_texts(
        &self,
        asked: Vec<String>,
        found: Vec<Instance>,
        key: impl Fn(String) -> Key,
        text: impl Fn(&Instance) -> Option<&String>,
    ) -> Answers {
        let ours = found
            .into_iter()
            .filter(|instance| in_cluster(instance, &self.cluster_id));
        let mut groups = group(ours, |instance| text(instance).cloned());
        let answers = asked.into_iter().map(|asked| {
            let answer = single(groups.remove(&asked), Answer::Found);
            (key(asked), answer)
        });

        answers.collect()
    }

    async fn on_fargate(&self, ips: Vec<String>) -> Answers {
        match self.ec2.fargate_interfaces(&self.vpc_id, &ips).await {
            Ok(found) => {
                let mut groups = group(found.into_iter(), |eni| eni.private_ip.clone());
                let answers = ips.into_iter().map(|ip| {
                    let answer = single(groups.remove(&ip), Answer::Fargate);
                    (Key::Fargate(ip), answer)
                });
                answers.collect()
            }
            Err(error) => failed(ips.into_iter().map(Key::Fargate), &error),
        }
    }
}

pub(super) fn in_cluster(instance: &Instance, cluster_id: &str) -> bool {
    let tags = instance.tags.iter();
    tags::belongs_to(cluster_id, tags.map(|(key, value)| (key.as_str(), value.as_str())))
}

fn of_ids(asked: Vec<InstanceId>, found: Vec<Instance>) -> Answers {
    let mut found = by_id(found);
    let answers = asked.into_iter().map(|id| {
        let answer = found.remove(&id).unwrap_or(Answer::Absent);
        (Key::Id(id), answer)
    });
    answers.collect()
}

fn failed(keys: impl Iterator<Item = Key>, error: &Error) -> Answers {
    keys.map(|key| (key, Answer::Failed(error.clone()))).collect()
}

fn group<T>(found: impl Iterator<Item = T>, name: impl Fn(&T) -> Option<String>) -> HashMap<String, Vec<T>> {
    let mut groups: HashMap<String, Vec<T>> = HashMap::new();
    for one in found {
        if let Some(name) = name(&one) {
            groups.entry(name).or_default().push(one);
        }
    }
    groups
}

fn single<T>(group: Option<Vec<T>>, answer: impl Fn(Arc<T>) -> Answer) -> Answer {
    let mut group = group.unwrap_or_default();
    match (group.pop(), group.len()) {
        (None, _) => Answer::Absent,
        (Some(one), 0) => answer(Arc::new(one)),
        (Some(_), others) => Answer::Ambiguous(others + 1),
    }
}

/// Describes chunks, a few concurrently.
async fn each<T, F: Future<Output = Answers>>(items: Vec<T>, publish: impl Fn(Answers), ask: impl Fn(Vec<T>) -> F) {
    let mut chunks: Vec<Vec<T>> = Vec::with_capacity(items.len().div_ceil(MAX_FILTER_VALUES));
    for item in items {
        match chunks.last_mut().filter(|chunk| chunk.len() < MAX_FILTER_VALUES) {
            Some(chunk) => chunk.push(item),
            None => chunks.push(vec![item]),
        }
    }

    let mut answers = stream::iter(chunks).map(ask).buffer_unordered(CALLS_AT_ONCE);
    while let Some(answered) = answers.next().await {
        publish(answered);
    }
}
