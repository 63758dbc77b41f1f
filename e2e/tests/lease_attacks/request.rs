//! Requests as a principal sends them, and the objects in them.

use http::Method;
use jiff::Timestamp;
use kube::Client;
use outrigger_environment::review::{self, Answer};
use serde_json::{Value, json};

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
pub const K: &str = "kube-controller-manager";
pub const C: &str = "cloud-controller-manager";
pub const M: &str = "cloud-provider-extraction-migration";
pub const NODES: &str = "/api/v1/nodes";
pub const MIGRATIONS: &str = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
/// The annotation of C with the latch.
pub const LATCH: &str = "outrigger.dev/prepared";
pub const ROLE: &str = "node-role.kubernetes.io/control-plane";

/// Kubernetes' `MicroTime`.
pub fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

pub fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

pub fn lease(name: &str) -> String {
    format!("{LEASES}/{name}")
}

pub async fn post(client: &Client, path: &str, object: &Value) -> Answer {
    review::create(client, path, "", object).await.expect("an answer")
}

pub async fn patch(client: &Client, path: &str, object: &Value) -> Answer {
    review::merge(client, path, object).await.expect("an answer")
}

pub async fn put(client: &Client, path: &str, object: &Value) -> Answer {
    let body = Some(("application/json", object));
    review::send(client, Method::PUT, path, body).await.expect("an answer")
}

pub async fn get(client: &Client, path: &str) -> Answer {
    review::send(client, Method::GET, path, None).await.expect("an answer")
}

pub async fn delete(client: &Client, path: &str) -> Answer {
    let at_once = format!("{path}?gracePeriodSeconds=0");
    let answer = review::send(client, Method::DELETE, &at_once, None).await;
    answer.expect("an answer")
}

/// A Pod with the labels of a kube-controller-manager and this command line.
pub struct Pod<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub node: Option<&'a str>,
    /// Its own host name, instead of its Node's.
    pub host_name: Option<&'a str>,
    pub is_mirror: bool,
    pub command: Vec<&'a str>,
}

impl Pod<'_> {
    /// `owner`: the UID of the Node, which NodeRestriction requires of a mirror Pod.
    pub fn object(&self, owner: Option<&str>) -> Value {
        let program = "kube-controller-manager";
        let hash = "0123456789abcdef0123456789abcdef";
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace,
                "labels": {"component": program, "k8s-app": program, "tier": "control-plane"},
            },
            "spec": {
                "nodeName": self.node, "hostname": self.host_name, "hostNetwork": self.host_name.is_none(),
                "tolerations": [{"operator": "Exists"}],
                "automountServiceAccountToken": false,
                "containers": [{"name": program, "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
                    "command": self.command}],
            },
        });
        if self.is_mirror {
            pod["metadata"]["annotations"] = json!({
                "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash,
                "kubernetes.io/config.source": "file",
            });
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": owner, "controller": true,
            }]);
        }
        pod
    }

    pub fn path(&self) -> String {
        format!("{}/{}", pods(self.namespace), self.name)
    }

    /// As an Event or a message names it.
    pub fn named(&self) -> String {
        format!("Pod {}/{}", self.namespace, self.name)
    }
}

/// The record of a process that writes the lease now.
pub fn record(holder: &str, seconds: u64) -> Value {
    let now = micro_time(Timestamp::now());
    json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now}})
}

/// The record by which client-go releases a lease, and the annotation by which our managers sign it.
pub fn release(is_signed: bool) -> Value {
    let mut released = record("", 1);
    if is_signed {
        let signature = released["spec"]["renewTime"].clone();
        released["metadata"] = json!({"annotations": {"outrigger.dev/released": signature}});
    }
    released
}
