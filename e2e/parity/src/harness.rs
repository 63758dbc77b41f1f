//! Runs cases of Nodes: API servers, one controller manager at a time on each, and the resulting Nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;

use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::Tools;

use super::aws::{Instance, ScriptedEc2};
use super::case::{self, Address, Case, Group, Outcome, Taint};
use super::compare;
use super::subject::Subject;
use outrigger_aws_sim::iam::roles::Role;

/// Requests under way at the same time.
const AT_ONCE: usize = 10;
/// Between two comparisons.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a manager's first call to EC2. A manager without Nodes on EC2 makes none.
const START: Duration = Duration::from_secs(30);
/// Namespace of Events about Nodes.
const EVENTS: &str = "default";

/// API servers for the groups that are not slow. With two, these groups take as long as one slow group.
const QUICK_WORKERS: usize = 2;
/// The same for a role: several roles run at the same time.
const QUICK_WORKERS_OF_A_ROLE: usize = 1;
/// A comparison without a role ends as soon as all is equal, so that it may wait so many times as long: a busy machine does
/// not run a manager for seconds.
const PATIENCE: u32 = 3;

/// Runs all cases and returns the outcomes by the case's name. Each slow group has its own API server. On the others,
/// one group runs after the other.
///
/// # Errors
/// When a part of the harness fails, or a manager makes a call that the scripted EC2 does not know.
pub async fn run(subject: Subject, cases: &[Case], folder: &Path) -> Result<BTreeMap<String, Outcome>> {
    run_as(subject, None, cases, folder).await
}

/// As [`run`], with the permissions of a role.
///
/// # Errors
/// As [`run`].
pub async fn run_as(
    subject: Subject,
    role: Option<&Role>,
    cases: &[Case],
    folder: &Path,
) -> Result<BTreeMap<String, Outcome>> {
    let tools = Tools::load(&subject.tools()).await?;
    let etcd = Etcd::start(&tools, folder).await?;
    let (slow, quick): (Vec<Group>, Vec<Group>) = case::groups(cases).into_iter().partition(Group::is_slow);
    let mut workers: Vec<Vec<Group>> = slow.into_iter().map(|group| vec![group]).collect();

    let quick_workers = match role {
        Some(_) => QUICK_WORKERS_OF_A_ROLE,
        None => QUICK_WORKERS,
    };
    let share = quick.len().div_ceil(quick_workers).max(1);
    workers.extend(quick.chunks(share).map(<[Group]>::to_vec));

    let workers = workers.iter().enumerate().map(|(number, groups)| {
        let (tools, etcd) = (&tools, &etcd);
        async move {
            let mut worker = Worker::start(subject, tools, etcd, folder, number).await?;
            worker.role = role.cloned();
            let mut outcomes = BTreeMap::new();
            for (index, group) in groups.iter().enumerate() {
                outcomes.extend(worker.run(index, group).await?);
            }
            anyhow::Ok(outcomes)
        }
    });

    Ok(try_join_all(workers).await?.into_iter().flatten().collect())
}

/// An API server on which groups run one after the other.
struct Worker<'a> {
    subject: Subject,
    role: Option<Role>,
    tools: &'a Tools,
    api: ApiServer,
    nodes: Api<Node>,
    events: Api<Event>,
}

impl<'a> Worker<'a> {
    async fn start(subject: Subject, tools: &'a Tools, etcd: &Etcd, folder: &Path, number: usize) -> Result<Self> {
        let range = format!("127.{}.0.0/16", 100 + number);
        let options = ApiServerOptions::new(format!("parity-{number}"), Version::V1_36, range);
        let api = ApiServer::start(tools, folder, etcd, &options).await?;
        let client: Client = api.client(&User::admin(), "parity").await?;

        Ok(Self {
            subject,
            role: None,
            tools,
            api,
            nodes: Api::all(client.clone()),
            events: Api::namespaced(client, EVENTS),
        })
    }

    async fn run(&self, index: usize, group: &Group) -> Result<BTreeMap<String, Outcome>> {
        let folder = self.api.home().join(format!("group-{index}"));
        std::fs::create_dir_all(&folder)?;

        let mut account = group.account();
        let bystanders = bystanders(group);
        account
            .instances
            .extend(bystanders.iter().map(|(_, instance)| instance.clone()));

        let ec2 = ScriptedEc2::start(account, self.role.as_ref().map(|role| Arc::clone(&role.policy))).await?;
        let objects = group.cases.iter().map(object);
        let objects = objects.chain(bystanders.into_iter().map(|(node, _)| Ok(node)));

        stream::iter(objects.collect::<Result<Vec<Node>>>()?)
            .map(|node| async move { self.nodes.create(&PostParams::default(), &node).await })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await
            .context("creating the Nodes")?;

        let kubeconfig = self.api.kubeconfig(&User::admin())?;
        let manager = self
            .subject
            .start(self.tools, &folder, &kubeconfig, ec2.url(), &group.config)?;
        // A busy machine does not run a manager for seconds: the time until the comparison begins with its first call.
        let _ = tokio::time::timeout(START, ec2.called()).await;
        let outcomes = self.settle(group, &manager).await?;
        manager.stop(Duration::from_secs(5)).await?;

        let unknown = ec2.unknown();
        if !unknown.is_empty() {
            bail!("the scripted EC2 does not know {unknown:?}: add them, and record again");
        }

        self.clear().await?;

        Ok(outcomes)
    }

    /// Waits as long as the subject needs, and returns the results.
    async fn settle(&self, group: &Group, manager: &Process) -> Result<BTreeMap<String, Outcome>> {
        let patience = self.subject.patience(group);
        let most = match self.role {
            Some(_) => patience.most,
            None => patience.most * PATIENCE,
        };
        let start = Instant::now();
        tokio::time::sleep(patience.least).await;
        loop {
            manager.ensure_running()?;
            let outcomes = self.outcomes(group).await?;
            let settled = group.cases.iter().all(|case| {
                outcomes
                    .get(&case.name)
                    .is_some_and(|ours| compare::settled(case, ours))
            });
            if settled || start.elapsed() >= most {
                return Ok(outcomes);
            }

            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn outcomes(&self, group: &Group) -> Result<BTreeMap<String, Outcome>> {
        let nodes = self.nodes.list(&ListParams::default()).await?.items;
        let events = self.events.list(&ListParams::default()).await?.items;
        let outcome = |case: &Case| {
            let name = Some(case.node.name.as_str());
            let node = nodes.iter().find(|node| node.metadata.name.as_deref() == name);
            let about = |event: &&Event| {
                event.involved_object.kind.as_deref() == Some("Node") && event.involved_object.name.as_deref() == name
            };
            (case.name.clone(), outcome(node, events.iter().filter(about)))
        };

        Ok(group.cases.iter().map(outcome).collect())
    }

    /// Deletes everything before the next group.
    async fn clear(&self) -> Result<()> {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.nodes.delete_collection(&delete, &all).await?;
        self.events.delete_collection(&delete, &all).await?;
        Ok(())
    }
}

/// Further Nodes. Our manager deletes no Nodes if a tenth of all or more would be deleted at once, because a failure of
/// AWS may look like that.
fn bystanders(group: &Group) -> Vec<(Node, Instance)> {
    let gone = |case: &&Case| case.recorded.as_ref().is_some_and(|recorded| recorded.deleted);
    let count = match group.cases.iter().filter(gone).count() {
        0..=3 => 0,
        gone => gone * 10,
    };
    (0..count).filter_map(bystander).collect()
}

fn bystander(number: usize) -> Option<(Node, Instance)> {
    let id = format!("i-b{number:07x}");
    let name = format!("bystander-{number}");
    let instance = json!({"instanceId": id, "privateDnsName": name, "privateIpAddress": "10.9.9.9"});
    let node = json!({
        "metadata": {"name": name},
        "spec": {"providerID": format!("aws:///us-east-1a/{id}")},
        "status": {"conditions": [ready("True")], "addresses": [
            {"type": "InternalIP", "address": "10.9.9.9"},
            {"type": "InternalDNS", "address": name},
            {"type": "Hostname", "address": name},
        ]},
    });

    Some((
        serde_json::from_value(node).ok()?,
        serde_json::from_value(instance).ok()?,
    ))
}

fn object(case: &Case) -> Result<Node> {
    let node = &case.node;
    let hostname = || {
        vec![Address {
            kind: "Hostname".to_owned(),
            address: node.name.clone(),
        }]
    };
    let object = json!({
        "metadata": {"name": node.name, "labels": node.labels, "annotations": node.annotations},
        "spec": {"providerID": node.provider_id, "taints": node.taints},
        "status": {
            "conditions": node.ready.iter().map(|status| ready(status)).collect::<Vec<_>>(),
            "addresses": node.addresses.clone().unwrap_or_else(hostname),
        },
    });

    serde_json::from_value(object).with_context(|| format!("the Node of {}", case.name))
}

/// The condition Ready.
pub(super) fn ready(status: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready", "status": status, "reason": "Harness", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

fn outcome<'a>(node: Option<&Node>, events: impl Iterator<Item = &'a Event>) -> Outcome {
    let mut events: Vec<case::Event> = events.map(event).collect();
    events.sort();
    events.dedup();
    let Some(node) = node else {
        return Outcome {
            deleted: true,
            events,
            ..Outcome::default()
        };
    };

    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut taints: Vec<Taint> = taints
        .into_iter()
        .map(|taint| Taint {
            key: taint.key,
            value: taint.value.unwrap_or_default(),
            effect: taint.effect,
        })
        .collect();

    taints.sort();

    let addresses = status.and_then(|status| status.addresses.clone()).unwrap_or_default();
    Outcome {
        deleted: false,
        provider_id: spec.and_then(|spec| spec.provider_id.clone()),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
        taints,
        addresses: addresses
            .into_iter()
            .map(|address| Address {
                kind: address.type_,
                address: address.address,
            })
            .collect(),
        events,
    }
}

fn event(event: &Event) -> case::Event {
    let source = event.source.as_ref().and_then(|source| source.component.clone());
    case::Event {
        kind: event.type_.clone().unwrap_or_default(),
        reason: event.reason.clone().unwrap_or_default(),
        component: source.or_else(|| event.reporting_component.clone()).unwrap_or_default(),
        message: event.message.clone(),
    }
}
