//! An API server in memory, as far as the node controllers write to one.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod running;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use kube::runtime::watcher::Event;
use outrigger_aws::ec2::AvailabilityZone;
use outrigger_aws::ec2::NetworkInterface;
use outrigger_aws::fake::{FakeAws, World};
use outrigger_aws::{Instance, InstanceId, InstanceState};
use outrigger_manager::metrics::Metrics;
use outrigger_manager::node_cache::{NodeCache, NodeView};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Inner {
    nodes: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
    events: Vec<String>,
    messages: Vec<String>,
    faults: Vec<(String, u16)>,
    latency: Duration,
    lost: Vec<String>,
}

/// A controller that runs.
pub struct Running<E> {
    pub api: Api,
    pub aws: Arc<FakeAws>,
    pub metrics: Metrics,
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), E>>,
}

impl<E: std::fmt::Debug> Running<E> {
    pub async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// The API server; clones share it.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Mutex<Inner>>,
    pub cache: NodeCache,
}

impl Api {
    /// A server with these Nodes, all of them in the cache.
    pub fn with(nodes: Vec<Value>) -> Self {
        let api = Self {
            inner: Arc::default(),
            cache: NodeCache::new(),
        };
        api.cache.observe(Event::Init);
        for node in nodes {
            api.store(node);
        }
        let views: Vec<NodeView> = api
            .inner()
            .nodes
            .values()
            .map(|node| serde_json::from_value(node.clone()).unwrap())
            .collect();
        views
            .into_iter()
            .for_each(|view| api.cache.observe(Event::InitApply(view)));
        api.cache.observe(Event::InitDone);
        api
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Stores a Node and lets the watch deliver it.
    pub fn put(&self, node: Value) {
        let stored = self.store(node);
        self.cache
            .observe(Event::Apply(serde_json::from_value(stored).unwrap()));
    }

    fn store(&self, mut node: Value) -> Value {
        let mut inner = self.inner();
        inner.version += 1;
        node["metadata"]["resourceVersion"] = inner.version.to_string().into();
        inner
            .nodes
            .insert(node["metadata"]["name"].as_str().unwrap().into(), node.clone());
        node
    }

    /// Changes a Node as someone else would, without telling the watch.
    pub fn change_behind(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.node(name).unwrap();
        change(&mut node);
        self.store(node);
    }

    pub fn node(&self, name: &str) -> Option<Value> {
        self.inner().nodes.get(name).cloned()
    }

    /// The addresses of a Node as `Type address`.
    pub fn addresses(&self, name: &str) -> Vec<String> {
        let node = self.node(name).unwrap();
        let list = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|a| format!("{} {}", a["type"].as_str().unwrap(), a["address"].as_str().unwrap()))
            .collect()
    }

    pub fn writes(&self) -> Vec<String> {
        self.inner().writes.clone()
    }

    /// The Events as `Type Reason name`.
    pub fn events(&self) -> Vec<String> {
        self.inner().events.clone()
    }

    /// The Events as `Type Reason name: message`.
    pub fn messages(&self) -> Vec<String> {
        self.inner().messages.clone()
    }

    /// The next request whose method and path start with `start` fails with this status.
    pub fn fail_next(&self, start: &str, status: u16) {
        self.inner().faults.push((start.into(), status));
    }

    /// How long each request takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.inner().latency = latency;
    }

    /// The next request whose method and path start with `start` takes effect, but its answer is lost.
    pub fn lose_answer(&self, start: &str) {
        self.inner().lost.push(start.into());
    }

    /// Removes a Node as someone else would, and lets the watch tell.
    pub fn remove(&self, name: &str) {
        let node = self.inner().nodes.remove(name).unwrap();
        self.cache.observe(Event::Delete(serde_json::from_value(node).unwrap()));
    }

    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let line = format!("{} {}", parts.method, parts.uri.path());
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let latency = api.inner().latency;
                if !latency.is_zero() {
                    tokio::time::sleep(latency).await;
                }
                Ok::<_, std::convert::Infallible>(api.answer(&line, &body))
            }
        });
        kube::Client::new(service, "default")
    }

    fn answer(&self, line: &str, body: &Value) -> Response<Full<Bytes>> {
        let fault = {
            let mut inner = self.inner();
            if !line.contains("/events") && !line.starts_with("GET") {
                inner.writes.push(line.to_owned());
            }
            let place = inner.faults.iter().position(|(start, _)| line.starts_with(start));
            place.map(|place| inner.faults.remove(place).1)
        };
        let (status, body) = match fault {
            Some(status) => refused(status),
            None if self.loses(line) => {
                self.act(line, body);
                refused(504)
            }
            None => self.act(line, body),
        };
        let response = Response::builder()
            .status(status)
            .header("content-type", "application/json");
        response.body(Full::new(Bytes::from(body.to_string()))).unwrap()
    }

    fn loses(&self, line: &str) -> bool {
        let lost = &mut self.inner().lost;
        let place = lost.iter().position(|start| line.starts_with(start));
        place.map(|place| lost.remove(place)).is_some()
    }

    fn act(&self, line: &str, body: &Value) -> (u16, Value) {
        let parts: Vec<&str> = line.split(['/', ' ']).collect();
        match (parts[0], parts[4]) {
            ("POST", "namespaces") => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let about = text(&body["involvedObject"]["name"]);
                let mut inner = self.inner();
                let event = format!("{} {} {about}", text(&body["type"]), text(&body["reason"]));
                inner.messages.push(format!("{event}: {}", text(&body["message"])));
                inner.events.push(event);
                (201, body.clone())
            }
            ("GET", "nodes") => {
                let nodes: Vec<Value> = self.inner().nodes.values().cloned().collect();
                (200, json!({"metadata": {"resourceVersion": "1"}, "items": nodes}))
            }
            ("PATCH", "nodes") => self.patch(parts[5], body),
            ("DELETE", "nodes") => self.delete(parts[5], body),
            _ => panic!("unexpected request {line}"),
        }
    }

    fn patch(&self, name: &str, body: &Value) -> (u16, Value) {
        let Some(mut node) = self.node(name) else {
            return refused(404);
        };
        if body.is_object() {
            return self.merge_status(node, body);
        }
        // API servers take a `test` for null as "is not there".
        let mut operations = body.as_array().cloned().unwrap_or_default();
        operations.retain(|operation| {
            let path = operation["path"].as_str().unwrap_or_default();
            operation["op"] != "test" || !operation["value"].is_null() || node.pointer(path).is_some()
        });
        let patch: json_patch::Patch = serde_json::from_value(operations.into()).unwrap();
        if json_patch::patch(&mut node, &patch).is_err() {
            return refused(422);
        }
        self.put(node);
        (200, self.node(name).unwrap())
    }

    /// A strategic merge patch of a status, as far as conditions go: they are merged by their type.
    fn merge_status(&self, mut node: Value, body: &Value) -> (u16, Value) {
        if body["metadata"]["uid"] != node["metadata"]["uid"] {
            return refused(409);
        }
        let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for change in body["status"]["conditions"].as_array().unwrap() {
            match conditions
                .iter_mut()
                .find(|condition| condition["type"] == change["type"])
            {
                Some(present) => json_patch::merge(present, change),
                None => conditions.push(change.clone()),
            }
        }
        node["status"]["conditions"] = conditions.into();
        self.put(node.clone());
        (200, node)
    }

    fn delete(&self, name: &str, body: &Value) -> (u16, Value) {
        let Some(node) = self.node(name) else {
            return refused(404);
        };
        if body["preconditions"]["uid"] != node["metadata"]["uid"] {
            return refused(409);
        }
        self.inner().nodes.remove(name);
        self.cache
            .observe(Event::Delete(serde_json::from_value(node.clone()).unwrap()));
        (200, node)
    }
}

fn refused(code: u16) -> (u16, Value) {
    let reason = StatusCode::from_u16(code)
        .unwrap()
        .canonical_reason()
        .unwrap_or_default();
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

/// Waits, in the test's own time, until something holds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..200_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// A Node with its uninitialized taint, created now.
pub fn new_node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "creationTimestamp": jiff::Timestamp::now().to_string(),
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        ]},
        "status": {"addresses": [{"type": "Hostname", "address": name}]},
    })
}

/// An instance with one interface.
pub fn instance(id: &str, name: &str, ip: &str) -> Instance {
    let mut instance = Instance::new(id);
    instance.state = Some(InstanceState::Running);
    instance.availability_zone = Some("us-east-1a".into());
    instance.instance_type = Some("m5.large".into());
    instance.private_dns_name = Some(name.into());
    instance
        .tags
        .insert("kubernetes.io/cluster/prod".into(), "owned".into());
    instance.network_interfaces = vec![NetworkInterface {
        status: Some("in-use".into()),
        device_index: Some(0),
        private_ips: vec![ip.into()],
        ..NetworkInterface::default()
    }];
    instance
}

/// AWS with these instances and one zone.
pub fn aws(instances: Vec<Instance>) -> Arc<FakeAws> {
    let zone = AvailabilityZone {
        name: "us-east-1a".into(),
        id: Some("use1-az1".into()),
        zone_type: Some("availability-zone".into()),
    };
    let instances = instances
        .into_iter()
        .map(|instance| (instance.id.clone(), instance))
        .collect();
    Arc::new(FakeAws::new(World {
        instances,
        zones: vec![zone],
        ..World::default()
    }))
}

/// Changes an instance.
pub fn set_state(aws: &FakeAws, id: &str, state: InstanceState) {
    aws.change(|world| world.instances.get_mut(&InstanceId::new(id)).unwrap().state = Some(state));
}

/// How often AWS was asked for instances.
pub fn describes(aws: &FakeAws) -> usize {
    aws.calls()
        .iter()
        .filter(|call| call.action == "DescribeInstances")
        .count()
}

/// A Node that was initialized long ago, or brought by an in-tree kubelet: everything but the zone's ID is there.
pub fn old_node(name: &str, addresses: Value) -> Value {
    let id = format!("aws:///us-east-1a/{name}");
    let labels = json!({
        "beta.kubernetes.io/instance-type": "m5.large", "node.kubernetes.io/instance-type": "m5.large",
        "failure-domain.beta.kubernetes.io/zone": "us-east-1a", "topology.kubernetes.io/zone": "us-east-1a",
        "failure-domain.beta.kubernetes.io/region": "us-east-1", "topology.kubernetes.io/region": "us-east-1",
    });
    json!({
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"providerID": id},
        "status": {"addresses": addresses},
    })
}

/// A Node has every label that its instance gives it.
pub fn assert_labelled(node: &Value) {
    for (key, value) in [
        ("beta.kubernetes.io/instance-type", "m5.large"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("failure-domain.beta.kubernetes.io/zone", "us-east-1a"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("failure-domain.beta.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.k8s.aws/zone-id", "use1-az1"),
    ] {
        assert_eq!(node["metadata"]["labels"][key], value, "{key}");
    }
}
