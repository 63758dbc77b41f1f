//! The Services, and what AWS has to have for them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use outrigger_e2e::single_cluster::{SingleCluster, differences};
use serde_json::{Value, json};

use crate::pair::Pair;

/// Name, type annotation, first node port.
const ALL: [(&str, &str, u16); 4] = [
    ("classic-a", "classic", 31000),
    ("classic-b", "classic", 31010),
    ("network-a", "nlb", 31020),
    ("network-b", "nlb", 31030),
];
const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// The Services of the test.
pub struct Services {
    api: Api<Service>,
    changes: usize,
}

/// Makes all of them.
pub async fn create(cluster: &SingleCluster) -> Services {
    let api = Api::default_namespaced(cluster.client.clone());
    for (name, kind, node_port) in ALL {
        let service = json!({
            "metadata": {"name": name, "annotations": {TYPE: kind}},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports(node_port, false)},
        });
        let service = serde_json::from_value(service).expect("a Service");
        api.create(&PostParams::default(), &service).await.expect("created");
    }
    Services { api, changes: 0 }
}

fn ports(node_port: u16, second: bool) -> Value {
    let mut ports = vec![json!({"name": "a", "port": 80, "nodePort": node_port, "protocol": "TCP"})];
    if second {
        ports.push(json!({"name": "b", "port": 81, "nodePort": node_port + 1, "protocol": "TCP"}));
    }
    ports.into()
}

impl Services {
    /// Changes one of them: its ports, its source ranges, or an annotation that means nothing.
    pub async fn change(&mut self, which: usize) {
        let (name, _, node_port) = ALL[which % ALL.len()];
        self.changes += 1;
        let on = self.changes.is_multiple_of(2);
        let patch = match which / ALL.len() % 3 {
            0 => json!({"spec": {"ports": ports(node_port, on)}}),
            1 => json!({"spec": {"loadBalancerSourceRanges": on.then_some(["10.0.0.0/8"])}}),
            _ => json!({"metadata": {"annotations": {"outrigger.dev/reconcile": self.changes.to_string()}}}),
        };
        let patched = self
            .api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.expect("patched");
    }
}

/// Deletes all of them.
pub async fn delete_all(cluster: &SingleCluster) {
    let api = Api::<Service>::default_namespaced(cluster.client.clone());
    for (name, ..) in ALL {
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
}

/// Waits until every Service has an address, and every instance is a target of each load balancer.
pub async fn wait_served(cluster: &SingleCluster, pair: &Pair, within: Duration) {
    let api = Api::<Service>::default_namespaced(cluster.client.clone());
    let look = async || {
        let mut open = Vec::new();
        for (name, ..) in ALL {
            let service = api.get(name).await.expect("readable");
            let status = service.status.and_then(|status| status.load_balancer?.ingress);
            if status.is_none_or(|ingress| ingress.len() != 1) {
                open.push(format!("Service {name} has no address"));
            }
        }
        open
    };
    eventually(pair, within, look).await;
    wait_complete(cluster, pair, within).await;
}

/// Waits until AWS has one load balancer for each Service, and every instance is a target wherever there are targets.
pub async fn wait_complete(cluster: &SingleCluster, pair: &Pair, within: Duration) {
    eventually(pair, within, async || incomplete(cluster).await).await;
}

async fn incomplete(cluster: &SingleCluster) -> Vec<String> {
    let api = Api::<Service>::default_namespaced(cluster.client.clone());
    let services = api.list(&ListParams::default()).await.expect("listed").items;
    let account = match cluster.read_account(&services).await {
        Ok(account) => account,
        Err(error) => return vec![error.to_string()], // something went between two calls
    };
    let instances = cluster.account.instances.iter();
    let all: BTreeSet<String> = instances.map(|i| format!("<{}>", i.private_dns_name)).collect();
    let objects = account["aws"].as_object().cloned().unwrap_or_default();
    let of_kind = |kind: &'static str| objects.iter().filter(move |(name, _)| name.starts_with(kind));
    let mut open = Vec::new();
    for (kind, annotation) in [("classic load balancer ", "classic"), ("network load balancer ", "nlb")] {
        let found = of_kind(kind).count();
        let wanted = ALL.iter().filter(|(_, kind, _)| *kind == annotation).count();
        if found != wanted {
            open.push(format!("{found} of {wanted} {kind}"));
        }
    }
    for (kind, field) in [("classic load balancer ", "instances"), ("target group ", "targets")] {
        for (name, thing) in of_kind(kind) {
            let targets = thing[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            let targets: BTreeSet<String> = targets.map(instance_of).collect();
            if targets != all {
                let missing: Vec<_> = all.difference(&targets).collect();
                open.push(format!("{name} lacks {missing:?}"));
            }
        }
    }
    open
}

/// `<NODE>:30080` or `<NODE>`.
fn instance_of(target: &str) -> String {
    target.split(':').next().unwrap_or_default().to_owned()
}

/// Waits until AWS has what it had before there was a Service.
pub async fn wait_nothing_left(cluster: &SingleCluster, pair: &Pair, untouched: &Value, within: Duration) {
    let look = async || match cluster.read_account(&[]).await {
        Ok(account) => differences(untouched, &account),
        Err(error) => vec![error.to_string()], // it went between two calls
    };
    eventually(pair, within, look).await;
}

async fn eventually(pair: &Pair, within: Duration, mut look: impl AsyncFnMut() -> Vec<String>) {
    let probe = async || match look().await {
        open if open.is_empty() => Ok(()),
        open => Err(format!("{open:#?}")),
    };
    pair.until("complete state at AWS", within, probe).await;
}
