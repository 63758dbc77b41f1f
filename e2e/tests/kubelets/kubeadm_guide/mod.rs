//! The guide of kubeadm, followed to the letter on three machines with real kubelets, from InTree to Complete, back to
//! InTree, and forward again; then the deletion of the leading manager's Pod, and a power cut of all machines.
//!
//! Stand-ins: there is no scheduler (`e2e/src/test_nodes/scheduler.rs`) and no kube-proxy; AWS and the instance metadata
//! service are simulated; `systemctl` of a machine knows only `restart kubelet`; credentials in the environment stand for
//! the role of the instance; `Endpoint` in `cluster.rs` beside it is the endpoint of the control planes.

mod guide;
mod hand_over;
mod install;
mod operator;
mod power_cut;
mod record;
mod steps;

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::{InTreeCluster, SOON, Scheduler};
use outrigger_environment::load_balancers;
use outrigger_machines::{Fleet, real_kubelets};
use outrigger_timeline::Bounds;
use serde_json::json;

use self::guide::Guide;
use self::operator::{Operator, say};
use self::record::Record;
use self::steps::Steps;
use crate::processes::Processes;

/// The cluster ID of the guide's migration.
const CLUSTER_ID: &str = "prod";
const SERVICES: [&str; 2] = ["web", "api"];
/// A lease duration and a reaction, the offer of a step back, and a delay beside other work: if our leader ends on a
/// machine that changes in the step back, another one waits for the lease and offers it for 10 s.
const OWNERLESS: Duration = Duration::from_millis(15_500 + 10_000 + 5_000);

#[test]
fn the_guide_of_kubeadm_there_and_back_and_there_again() -> Result<()> {
    let guide = Guide::read()?;
    real_kubelets(3, async move |fleet| {
        let cluster = InTreeCluster::start(fleet, CLUSTER_ID).await?;
        follow(fleet, &cluster, &guide).await
    })
}

async fn follow(fleet: &mut Fleet, cluster: &InTreeCluster, guide: &Guide) -> Result<()> {
    let names = fleet
        .machines()
        .iter()
        .map(|machine| machine.name().to_owned())
        .collect();
    let scheduler = Scheduler::start(cluster.client.clone(), names);
    let processes = Processes::start(fleet);
    say("three control planes with the in-tree provider are Ready");
    in_tree(fleet, cluster).await?;
    let record = Record::start(fleet, cluster, processes, &SERVICES).await?;

    let operator = Operator::new(fleet.folder(), cluster).await?;
    install::image(fleet).await?;
    install::install(&operator, cluster, guide).await?;
    std::fs::write(operator.folder().join("migration.yaml"), &guide.migration)?;

    let steps = Steps {
        fleet,
        cluster,
        operator: &operator,
        guide,
        record: &record,
    };
    steps.in_tree().await?;
    steps.forward().await?;
    steps.back_to_prepare().await?;
    steps.back_to_in_tree().await?;
    steps.forward().await?;

    let bounds = Bounds {
        hand_overs: 3,
        ownerless: OWNERLESS,
        observed: None,
        late_effects: false,
        overrun: None,
    };
    record.judge(fleet, cluster, &bounds).await?;
    hand_over::by_deletion(fleet, cluster, &operator).await?;
    drop(scheduler);
    power_cut::all_machines(fleet, cluster).await
}

/// kubeadm's labels and ConfigMap, and a classic and a network load balancer, whose targets are the machines.
async fn in_tree(fleet: &Fleet, cluster: &InTreeCluster) -> Result<()> {
    let mut objects = Vec::new();
    for (name, kind) in SERVICES.into_iter().zip([
        json!({}),
        json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}),
    ]) {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": kind},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
        }));
    }
    cluster.apply(fleet, objects).await?;

    let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
    let instances = cluster.cloud.account.instances.len();
    for name in SERVICES {
        let served = async || -> Result<()> {
            let status = services.get(name).await?.status.and_then(|status| status.load_balancer);
            let host = status.and_then(|status| status.ingress?.into_iter().next()?.hostname);
            let balancers = load_balancers(&cluster.cloud.moto, &cluster.cloud.proxy).await?;
            let balancer = balancers
                .values()
                .find(|balancer| Some(&balancer.dns_name) == host.as_ref());
            let targets = balancer.map_or(0, |balancer| balancer.targets.len());
            ensure!(targets == instances, "{name}: {targets} targets, host name {host:?}");
            Ok(())
        };
        until("load balancers with all targets", SOON, served).await?;
    }
    Ok(())
}
