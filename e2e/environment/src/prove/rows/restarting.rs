//! Scenario 34: a step back to an old manager that cannot acquire M and restarts again and again under one host name.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::DeleteParams;
use outrigger_cluster_harness::leases::{Lease, LeaseChange};

use super::Cluster;
use crate::operator::{OLD_MANAGER, has_flag};

/// The right of the old manager to M.
const RIGHT: &str = "outrigger:kube-controller-manager:migration-lease";
/// From the acquisition of K to the next end: with the expiry of K about 24 s between two ends.
const LED: Duration = Duration::from_secs(8);
const MEASURED: SignedDuration = SignedDuration::from_mins(3);
/// The least part of the time in which ours owns, in percent.
const OWNED: u64 = 80;

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    cluster
        .progress
        .step("Back to Prepare: the old manager has no right to the migration lease");
    let environment = &cluster.environment;
    let bindings: Api<RoleBinding> = Api::namespaced(environment.tenant_admin.clone(), "kube-system");
    let binding = bindings.get(RIGHT).await?;
    bindings.delete(RIGHT, &DeleteParams::default()).await?;
    environment.set_phase("Prepare").await?;
    environment.apply_phase("Prepare").await?;
    let guarded = has_flag("--enable-leader-migration");
    let what = "the old manager runs with leader migration";
    let pod = cluster.wait_rolled(OLD_MANAGER, what, guarded).await?;

    let offered = environment
        .leases
        .wait_until(Lease::M, Duration::from_secs(90), |change| change.holder.is_none())
        .await;
    let from = offered.context("M was not offered")?.at;
    environment.mark("M is offered");
    restarts(cluster, &pod, from + MEASURED).await?;
    owned(cluster, from);
    right_again(cluster, binding).await
}

async fn restarts(cluster: &Cluster, pod: &str, until: Timestamp) -> Result<()> {
    while Timestamp::now() < until {
        let before = cluster.environment.holder(Lease::K);
        tokio::time::sleep(LED).await;
        cluster.environment.mark("the old manager ends");
        cluster.environment.runner.kill(pod).await?;
        cluster.wait_holder(Lease::K, before.as_deref()).await?;
    }
    Ok(())
}

fn owned(cluster: &mut Cluster, from: Timestamp) {
    let until = from + MEASURED;
    let changes = cluster.environment.leases.changes();
    let held = held(&changes, from, until, |holder| cluster.is_ours(holder));
    let percent = held.as_millis().unsigned_abs() * 100 / MEASURED.as_millis().unsigned_abs();
    let note = format!("ours owns the controllers for {percent} % of 3 min after the first offer (bound {OWNED} %)");
    cluster.progress.say(&note);
    cluster.notes.push(note.clone());
    cluster.expect(percent >= u128::from(OWNED), &note);
}

/// How long such a holder held M in this time.
fn held(changes: &[LeaseChange], from: Timestamp, until: Timestamp, is_ours: impl Fn(&str) -> bool) -> SignedDuration {
    let of_m: Vec<_> = changes.iter().filter(|change| change.lease == Lease::M).collect();
    let ends = of_m.iter().skip(1).map(|next| next.at).chain([Timestamp::MAX]);
    let by_ours = of_m
        .iter()
        .zip(ends)
        .filter(|(change, _)| change.holder.as_deref().is_some_and(&is_ours));
    let parts = by_ours.map(|(change, end)| end.min(until).duration_since(change.at.max(from)));
    parts.filter(|part| part.is_positive()).sum()
}

/// The step back comes to its end.
async fn right_again(cluster: &mut Cluster, mut binding: RoleBinding) -> Result<()> {
    cluster.progress.step("The old manager gets the right");
    binding.metadata.resource_version = None;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.environment.tenant_admin.clone(), "kube-system");
    bindings.create(&kube::api::PostParams::default(), &binding).await?;
    let old_holds = async || {
        let holder = cluster.environment.holder(Lease::M);
        let ours = holder.as_ref().is_none_or(|holder| cluster.is_ours(holder));
        Ok(if ours { Err(format!("{holder:?}")) } else { Ok(()) })
    };
    let what = "the old manager holds M at a later offer";
    cluster.progress.wait(what, Duration::from_secs(330), old_holds).await?;
    cluster.settle().await
}
