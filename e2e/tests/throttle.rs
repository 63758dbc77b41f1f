//! AWS throttles every call for a minute, as it does in an account that others have used up. No Node is deleted, no
//! taint is lost, the log stays readable, and when AWS answers again everything goes on by itself.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use outrigger_aws_sim::{Call, Fault, Instance};
use outrigger_cluster_harness::cluster::Version;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// How long AWS throttles: longer than a Node counts as young, so that nothing but the rules protects it.
const THROTTLED: Duration = Duration::from_secs(75);
/// Before, everything is done within this.
const SOON: Duration = Duration::from_secs(90);
/// The longest pause between two calls of a throttled action (`manager/aws/src/limit/bucket.rs`), and what a busy machine
/// may need for the call. The next longer pause would be twice as long.
const PAUSE: Duration = Duration::from_secs(18);
/// From the first good answer of AWS until everything that waited is done: another action may just have begun its pause.
const RECOVERY: Duration = Duration::from_secs(30);

/// The kind of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// Ready, in good order.
    Settled,
    /// Its instance runs, its kubelet does not.
    Silent,
    /// Its instance was stopped before AWS throttled.
    Stopped,
    /// Its instance was stopped while AWS throttled.
    StoppedLater,
    /// New while AWS throttles.
    New,
}

/// How many of each: a hundred in all. So many are new that one line for each of them is too much, and so few are not
/// Ready that the breaker of deletions, which holds back more than a tenth at once, does not protect them.
const ROLES: [(Role, usize); 5] = [
    (Role::Settled, 15),
    (Role::Silent, 6),
    (Role::Stopped, 2),
    (Role::StoppedLater, 2),
    (Role::New, 75),
];

/// Fields drop in order.
struct Fixture {
    manager: Manager,
    nodes: Api<Node>,
    roles: BTreeMap<String, (Role, Instance)>,
    cluster: SingleCluster,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minute_of_throttled_aws_costs_nothing_but_the_minute() {
    let fixture = Fixture::start().await;
    fixture.create(&[Role::Settled, Role::Silent, Role::Stopped]).await;
    fixture
        .until("shutdown taints", SOON, |node, role| {
            role != Role::Stopped || has(node, SHUTDOWN)
        })
        .await;

    let mark = fixture.cluster.proxy.mark();
    let fault = fixture
        .cluster
        .proxy
        .add_fault(Fault::on_everything().error(503, "RequestLimitExceeded"));
    let began = Timestamp::now();
    fixture.create(&[Role::StoppedLater, Role::New]).await;
    fixture.nothing_happens_for(THROTTLED).await;
    let lines = lines_by_cause(&fixture.manager, began);
    let calls = fixture.cluster.proxy.calls_since(mark).len();
    println!("{calls} calls while throttled; lines by cause: {lines:#?}");
    let answers = fixture.cluster.proxy.mark();
    drop(fault);

    fixture.first_good_answer(answers).await;
    let recovered = Instant::now();
    fixture
        .until("recovery", RECOVERY, |node, role| match role {
            Role::New => !has(node, UNINITIALIZED) && provider_id(node).is_some(),
            Role::Stopped | Role::StoppedLater => has(node, SHUTDOWN),
            Role::Settled | Role::Silent => !has(node, SHUTDOWN),
        })
        .await;
    println!(
        "recovered after {:.1?}; {calls} calls while throttled; lines by cause: {lines:#?}",
        recovered.elapsed()
    );
    for (cause, count) in &lines {
        assert!(
            *count < THROTTLED.as_secs() as usize,
            "{count} lines in {THROTTLED:?}: {cause}"
        );
    }
    assert!(calls > 0, "nothing was asked of AWS, so nothing was throttled");
    fixture.manager.alive().expect("the manager runs");
    fixture.manager.stop(Duration::from_secs(5)).await.expect("ends");
}

impl Fixture {
    async fn start() -> Self {
        let count = ROLES.iter().map(|(_, count)| count).sum();
        let options = Options {
            name: "outrigger-throttle-",
            service_range: "127.94.0.0/16",
            instances: count,
            global: &[],
        };
        let cluster = SingleCluster::start_version(Version::V1_36, &options).await;
        let cluster = cluster.expect("a tenant");
        let roles = ROLES
            .iter()
            .flat_map(|(role, count)| std::iter::repeat_n(*role, *count));
        let roles: BTreeMap<String, (Role, Instance)> = roles
            .zip(&cluster.account.instances)
            .map(|(role, instance)| (instance.private_dns_name.clone(), (role, instance.clone())))
            .collect();
        assert_eq!(roles.len(), count, "every instance has a name of its own");
        let stopped: Vec<&str> = roles
            .values()
            .filter(|(role, _)| matches!(role, Role::Stopped | Role::StoppedLater))
            .map(|(_, instance)| instance.id.as_str())
            .collect();
        cluster.account.stop(&cluster.moto, &stopped).await.expect("stopped");

        let flags = ["--leader-elect=false", "--logging-format=json"];
        Self {
            manager: cluster
                .manager("outrigger-manager", &flags)
                .expect("the manager starts"),
            nodes: Api::all(cluster.client.clone()),
            roles,
            cluster,
        }
    }

    async fn create(&self, roles: &[Role]) {
        let wanted = self.roles.iter().filter(|(_, (role, _))| roles.contains(role));
        let objects: Vec<Node> = wanted
            .map(|(name, (role, instance))| object(name, *role, instance))
            .collect();
        stream::iter(&objects)
            .map(|node| async move { self.nodes.create(&PostParams::default(), node).await })
            .buffer_unordered(10)
            .try_collect::<Vec<_>>()
            .await
            .expect("created");
    }

    async fn list(&self) -> BTreeMap<String, Node> {
        let nodes = self.nodes.list(&ListParams::default()).await.expect("listed").items;
        let named = |node: Node| Some((node.metadata.name.clone()?, node));
        nodes.into_iter().filter_map(named).collect()
    }

    /// Waits until every Node that there is satisfies `good`.
    async fn until(&self, what: &str, within: Duration, good: impl Fn(&Node, Role) -> bool) {
        let all = async || {
            let nodes = self.list().await;
            let bad = nodes.iter().filter(|(name, node)| !good(node, self.roles[*name].0));
            let bad: Vec<&String> = bad.map(|(name, _)| name).collect();
            bad.is_empty()
                .then_some(())
                .ok_or_else(|| format!("{} Nodes, {:?}", bad.len(), bad.first()))
        };
        self.manager.until(what, within, all).await.expect("in time");
    }

    /// Waits for the first call that AWS answers.
    async fn first_good_answer(&self, mark: u64) {
        let answered = async || self.cluster.proxy.calls_since(mark).iter().any(Call::succeeded);
        let answered = self.manager.until("call after the last throttled one", PAUSE, answered);
        answered.await.expect("in time");
    }

    /// Every Node stays, with the taints that it has; none is initialized on what is not known.
    async fn nothing_happens_for(&self, while_throttled: Duration) {
        let end = Instant::now() + while_throttled;
        let names: BTreeSet<&String> = self.roles.keys().collect();
        while Instant::now() < end {
            let nodes = self.list().await;
            let lost: Vec<_> = names.iter().filter(|name| !nodes.contains_key(**name)).collect();
            assert!(lost.is_empty(), "deleted while AWS throttled: {lost:?}");
            for (name, node) in &nodes {
                match self.roles[name].0 {
                    Role::New => assert!(has(node, UNINITIALIZED), "{name} lost its taint"),
                    Role::Stopped => assert!(has(node, SHUTDOWN), "{name} lost its shutdown taint"),
                    Role::Settled | Role::Silent => assert!(!has(node, SHUTDOWN), "{name} got a shutdown taint"),
                    Role::StoppedLater => {}
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn object(name: &str, role: Role, instance: &Instance) -> Node {
    let ready = matches!(role, Role::Settled | Role::New);
    let (provider_id, taints) = match role {
        Role::New => (
            Value::Null,
            json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]),
        ),
        _ => (instance.provider_id().into(), json!([])),
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"providerID": provider_id, "taints": taints},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "Unknown" }, "reason": "Harness", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        },
    });
    serde_json::from_value(node).expect("a Node")
}

fn has(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// How many lines of the log since `began` come from the same place with the same message: one cause.
fn lines_by_cause(manager: &Manager, began: Timestamp) -> BTreeMap<String, usize> {
    let log = manager.log().expect("the log");
    let mut causes = BTreeMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let at = line["ts"].as_f64().expect("milliseconds since 1970");
        if at >= began.as_millisecond() as f64 {
            let cause = format!("{}: {}", line["caller"], line["msg"]);
            *causes.entry(cause).or_default() += 1;
        }
    }
    causes
}
