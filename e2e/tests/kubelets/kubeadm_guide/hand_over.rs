//! The deletion of the leading manager's Pod, with a standby on each other machine.

use anyhow::{Result, ensure};
use outrigger_cluster_harness::leases::Lease;
use outrigger_e2e::test_nodes::InTreeCluster;
use outrigger_machines::Fleet;

use super::operator::{Operator, say};
use crate::hand_over;
use crate::processes::{NEW, Processes};

const MAIN_LEASE: &str = "cloud-controller-manager";
const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";

pub async fn by_deletion(fleet: &Fleet, cluster: &InTreeCluster, operator: &Operator) -> Result<()> {
    say("== deletion of the leading manager's Pod");
    let old = leader(fleet, cluster).await?;
    let pod = format!(
        "kubectl -n kube-system get pods -l app.kubernetes.io/name={NEW} --field-selector=spec.nodeName={old} -o name"
    );
    let pod = operator.run(&pod).await?;
    let delete = format!("kubectl -n kube-system delete {}", pod.trim());

    let processes = Processes::start(fleet);
    let leases = [Lease::C, Lease::M];
    let delete = async || operator.run(&delete).await.map(drop);
    hand_over::by_deletion(&cluster.client, &processes, &old, &leases, delete).await?;

    // The Pod that replaces it is a standby, so this needs a standby to become ready.
    operator
        .run("kubectl -n kube-system rollout status daemonset/outrigger-manager --timeout=10m")
        .await
        .map(drop)
}

/// The name of the machine whose manager holds both leases.
async fn leader(fleet: &Fleet, cluster: &InTreeCluster) -> Result<String> {
    let main = cluster.holder(fleet, MAIN_LEASE).await?;
    let migration = cluster.holder(fleet, MIGRATION_LEASE).await?;
    ensure!(
        main == migration,
        "machine {main} holds the main lease, machine {migration} the migration lease"
    );
    Ok(fleet.machines()[main].name().to_owned())
}
