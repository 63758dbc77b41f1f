//! Scenario 18: the old manager runs the route controller, and ours does not; node IPAM in the list.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use outrigger_cluster_harness::leases::Lease;
use serde_json::{Value, json};

use super::Cluster;
use crate::demo::migrate::{QUIET, ROLL};
use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::prove::cluster::TAKEN;

const REFUSED: Duration = Duration::from_secs(30);
const NO_ROUTES: &str = "--configure-cloud-routes=false";
const CIDRS: [&str; 2] = ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16"];

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    roll(cluster, "the old manager runs routes", true).await?;
    routes_are_refused(cluster).await?;
    roll(cluster, "the old manager runs no routes", false).await?;
    cluster.prepare().await?;
    node_ipam_has_one_owner(cluster).await?;
    cluster.migrate().await
}

async fn roll(cluster: &Cluster, what: &str, routes: bool) -> Result<()> {
    cluster.progress.step(what);
    let original = cluster.environment.old_manager()?.arguments();
    let flags = original.into_iter().filter(|flag| flag != NO_ROUTES);
    let flags = flags.chain(CIDRS.map(str::to_owned));
    let flags = flags.chain((!routes).then(|| NO_ROUTES.to_owned()));
    cluster.environment.deploy_flags(flags).await?;
    let wanted = |argv: &[String]| {
        argv.iter().any(|flag| flag == CIDRS[0]) && argv.iter().any(|flag| flag == NO_ROUTES) != routes
    };
    cluster
        .environment
        .wait_rolled(OLD_MANAGER, what, ROLL, &cluster.progress, wanted)
        .await?;
    Ok(())
}

/// The phases go on, and M is not acquired.
async fn routes_are_refused(cluster: &mut Cluster) -> Result<()> {
    let changed = Timestamp::now();
    let progress = cluster.progress.clone();
    cluster.environment.set_phase("Prepare").await?;
    cluster.environment.apply_phase("Prepare").await?;
    let seen = &*cluster;
    let named = async || {
        let said = seen.condition("Prepared").await?;
        let is_named = said.contains(OLD_MANAGER) && said.contains("runs the route controller");
        Ok(if is_named { Ok(said) } else { Err(said) })
    };
    let said = progress.wait("the status names the routes", TAKEN, named).await?;
    cluster.measured("routes: named in Prepared", changed, Timestamp::now(), REFUSED);
    let named = said.split("; ").find(|part| part.contains("runs the route controller"));
    cluster.notes.push(format!("routes: {}", named.unwrap_or(&said)));

    let holder = cluster
        .environment
        .wait_holder(Lease::M, None, TAKEN, &progress)
        .await?;
    cluster.environment.set_phase("Migrate").await?;
    tokio::time::sleep(QUIET * 2).await;
    let ours = cluster.process(&holder)?.component == NEW_MANAGER;
    cluster.expect(!ours, "routes: M is not acquired by ours");
    let prepared = cluster.condition_is_true("Prepared").await?;
    cluster.expect(!prepared, "routes: the condition Prepared is not True");
    cluster.environment.set_phase("Prepare").await
}

/// An external manager must not allocate CIDRs that the other side allocates under M. A dry run: the file of the list
/// is a volume, which the processes here cannot have.
async fn node_ipam_has_one_owner(cluster: &mut Cluster) -> Result<()> {
    cluster.progress.step("Node IPAM in the list of leader migration");
    let names = ["service", "route", "cloud-node-lifecycle", "nodeipam"];
    let entries: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "component": "*"}))
        .collect();
    let own = json!({"leaderName": "cloud-provider-extraction-migration", "controllerLeaders": entries});
    cluster
        .environment
        .change_migration(&json!({"leaderMigration": own, "phase": "Migrate"}))
        .await?;
    tokio::time::sleep(QUIET).await;

    let api: Api<Deployment> = Api::namespaced(cluster.environment.management_admin.clone(), crate::CONTROL_PLANE);
    let apply = json!({"metadata": {"annotations": {"outrigger.dev/apply": "prod/node-ipam"}}});
    let parameters = PatchParams::default().dry_run();
    let stored = api.patch(OLD_MANAGER, &parameters, &Patch::Merge(apply)).await?;
    let template = stored.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    let containers = template.containers.into_iter();
    let command: Vec<String> = containers.filter_map(|one| one.command).flatten().collect();
    let without = command.iter().any(|flag| flag == "--controllers=*,-nodeipam");
    cluster.expect(
        without,
        &format!("the external form runs without node IPAM: {command:?}"),
    );

    cluster
        .environment
        .change_migration(&json!({"leaderMigration": null, "phase": "Prepare"}))
        .await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}
