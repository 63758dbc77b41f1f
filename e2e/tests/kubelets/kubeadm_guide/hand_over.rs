//! `kubectl delete pod` of the leading manager: the kubelet sends SIGTERM, the manager releases both of its leases, and the
//! manager of another machine acquires them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use outrigger_cluster_harness::leases::{Lease, LeaseChange, LeaseName, Recorder};
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::wait::until;
use outrigger_machines::Fleet;
use outrigger_timeline::Limits;

use super::operator::{Operator, say};
use super::processes::{NEW, Processes};
use outrigger_e2e::test_nodes::{InTreeCluster, SOON};

const MAIN_LEASE: &str = "cloud-controller-manager";
const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";

pub async fn by_deletion(fleet: &Fleet, cluster: &InTreeCluster, operator: &Operator) -> Result<()> {
    say("== deletion of the leading manager's Pod");
    let old = leader(fleet, cluster).await?;
    let processes = Processes::start(fleet);
    let leases = Recorder::start(&cluster.client, LeaseName::defaults());
    let both_seen = async || {
        let changes = leases.changes();
        let known = [Lease::C, Lease::M].map(|lease| changes.iter().any(|change| change.lease == lease));
        let runs = processes.spans().iter().any(|span| is_of(span, &old));
        (known == [true; 2] && runs)
            .then_some(())
            .ok_or_else(|| format!("leases {known:?}, process {runs}"))
    };
    until("both leases and the process in the record", SOON, both_seen).await?;

    let pod = format!(
        "kubectl -n kube-system get pods -l app.kubernetes.io/name={NEW} --field-selector=spec.nodeName={old} -o name"
    );
    let pod = operator.run(&pod).await?;
    let asked = Timestamp::now();
    operator
        .run(&format!("kubectl -n kube-system delete {}", pod.trim()))
        .await?;
    leader_other_than(&old, &leases).await?;

    let ended = ended(&processes, &old).await?;
    for lease in [Lease::C, Lease::M] {
        judge(lease, &leases.changes(), &old, (asked, ended))?;
    }

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

fn is_of(span: &ProcessSpan, node: &str) -> bool {
    span.pod == format!("{NEW}-{node}")
}

fn is_held_by(change: &LeaseChange, node: &str) -> bool {
    let holder = change.holder.as_deref();
    holder.is_some_and(|holder| holder.rsplit_once('_').is_some_and(|(host, _)| host == node))
}

async fn leader_other_than(old: &str, leases: &Recorder) -> Result<()> {
    let taken = async || {
        let changes = leases.changes();
        let last = [Lease::C, Lease::M].map(|lease| changes.iter().rfind(|change| change.lease == lease));
        let other = last.map(|change| change.is_some_and(|it| it.holder.is_some() && !is_held_by(it, old)));
        (other == [true; 2]).then_some(()).ok_or_else(|| format!("{last:?}"))
    };
    Ok(until("both leases in the hands of another manager", SOON, taken).await?)
}

/// The end of the first process of the recorder on this machine.
async fn ended(processes: &Processes, node: &str) -> Result<Timestamp> {
    let ended = async || {
        let spans = processes.spans();
        let first = spans.iter().find(|span| is_of(span, node));
        first
            .and_then(|span| span.ended)
            .map(Some)
            .ok_or_else(|| format!("{first:?}"))
    };
    Ok(until("the end of the process", SOON, ended).await?)
}

/// The old manager released the lease, and the next one acquired it within the limit of `make prove` beside other work.
fn judge(lease: Lease, changes: &[LeaseChange], old: &str, (asked, ended): (Timestamp, Timestamp)) -> Result<()> {
    let of_lease = || changes.iter().filter(|change| change.lease == lease);
    let released = of_lease().any(|change| !change.deleted && change.holder.is_none());
    let next = of_lease().find(|change| change.holder.is_some() && !is_held_by(change, old));
    let acquired = next
        .and_then(|change| change.acquired)
        .with_context(|| format!("nobody acquired {lease:?}: {changes:#?}"))?;

    // The next manager may acquire the lease before the old process has ended.
    let gap = Duration::try_from(acquired.duration_since(ended)).unwrap_or_default();
    let since_asked = acquired.duration_since(asked);
    say(&format!(
        "{lease:?}: released {released}, acquired {gap:?} after the end of the process, {since_asked:#} after the command"
    ));
    let limit = Limits::default().beside_other_work().new_to_new_released;
    ensure!(released, "{old} did not release {lease:?}: {changes:#?}");
    ensure!(gap <= limit, "{lease:?} had no holder for {gap:?}, limit {limit:?}");
    Ok(())
}
