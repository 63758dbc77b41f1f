//! Nodes as the test plays them, and why a Node's target may go.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use outrigger_aws_sim::Instance;
use serde_json::{Value, json};

/// A Node with this label is no target.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// How long after a Node's return a manager may still act on its having been away: it gathers changes for a second,
/// and looks twice at many that go at once.
const AFTERMATH: Duration = Duration::from_secs(20);

const BYSTANDERS: usize = 1000;
/// Bytes that each carries besides.
const WEIGHT: usize = 4000;

/// Since when a Node is away or excluded, and until when it was.
#[derive(Debug, Clone, Copy)]
struct Away {
    from: Timestamp,
    until: Option<Timestamp>,
}

/// Of every instance, the times at which its Node was away or excluded.
#[derive(Debug, Default)]
pub struct Causes(Mutex<BTreeMap<String, Vec<Away>>>);

impl Causes {
    /// The Node of this instance is about to go, or to be excluded.
    pub fn begin(&self, instance: &str, now: Timestamp) {
        let away = Away { from: now, until: None };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(instance.to_owned())
            .or_default()
            .push(away);
    }

    /// It is back, and not excluded.
    pub fn end(&self, instance: &str, now: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = all.get_mut(instance).and_then(|all| all.last_mut()) {
            last.until.get_or_insert(now);
        }
    }

    /// Whether there was a reason, at this moment, to take the instance out.
    pub fn cover(&self, instance: &str, at: Timestamp) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = |away: &Away| {
            let over = away.until.and_then(|until| until.checked_add(AFTERMATH).ok());
            away.from <= at && over.is_none_or(|over| at <= over)
        };
        all.get(instance).is_some_and(|all| all.iter().any(covers))
    }
}

/// The Node of an instance.
pub struct Played {
    /// Its machine.
    pub instance: Instance,
    nodes: Api<Node>,
}

impl Played {
    /// Not there yet.
    pub fn new(nodes: Api<Node>, instance: Instance) -> Self {
        Self { instance, nodes }
    }

    fn name(&self) -> &str {
        &self.instance.private_dns_name
    }

    /// It joins, Ready.
    pub async fn join(&self) {
        let name = self.name();
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
            "spec": {"providerID": self.instance.provider_id()},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": self.instance.private_ip},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [condition("True")],
            },
        });
        let node = serde_json::from_value(node).expect("a Node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
    }

    pub async fn leave(&self) {
        self.nodes
            .delete(self.name(), &DeleteParams::default())
            .await
            .expect("deleted");
    }

    /// Its kubelet says, or is believed to say, that it is Ready (`True`, `False`, `Unknown`).
    pub async fn ready(&self, status: &str) {
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition(status)]}}));
        let patched = self
            .nodes
            .patch_status(self.name(), &PatchParams::default(), &patch)
            .await;
        patched.expect("patched");
    }

    /// It is excluded from load balancers, or no longer.
    pub async fn exclude(&self, on: bool) {
        self.label(EXCLUDED, on.then_some("true")).await;
    }

    /// Sets or removes a label.
    pub async fn label(&self, key: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        let patched = self.nodes.patch(self.name(), &PatchParams::default(), &patch).await;
        patched.expect("patched");
    }
}

/// Nodes that are no targets, so many and so large that a new leader has to wait for their list: what it knows before
/// is not enough to act on.
pub async fn bystanders(nodes: &Api<Node>) {
    let one = |number: usize| {
        let node = json!({
            "metadata": {
                "name": format!("bystander-{number}"),
                "labels": {EXCLUDED: "true"},
                "annotations": {"example.com/weight": "x".repeat(WEIGHT)},
            },
            "status": {"conditions": [condition("True")]},
        });
        serde_json::from_value::<Node>(node).expect("a Node")
    };
    let created = stream::iter(0..BYSTANDERS).map(|number| async move {
        let node = one(number);
        nodes.create(&PostParams::default(), &node).await
    });
    created
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await
        .expect("created");
}

fn condition(ready: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready", "status": ready, "reason": "Harness", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

#[test]
fn a_cause_lasts_from_the_going_until_a_while_after_the_return() {
    let at = |seconds| Timestamp::from_second(seconds).expect("a time");
    let causes = Causes::default();
    causes.begin("i-1", at(100));
    assert!(!causes.cover("i-1", at(99)) && causes.cover("i-1", at(500)) && !causes.cover("i-2", at(500)));
    causes.end("i-1", at(110));
    causes.end("i-1", at(300));
    assert!(causes.cover("i-1", at(130)) && !causes.cover("i-1", at(131)));
}
