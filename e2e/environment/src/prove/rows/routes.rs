//! The route controller on the old side alone, and on both sides.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use outrigger_cluster_harness::leases::Lease;
use serde_json::{Value, json};

use super::Cluster;
use crate::CONTROL_PLANE;
use crate::demo::migrate::QUIET;
use crate::operator::{NEW_MANAGER, OLD_MANAGER, has_flag};
use crate::prove::cluster::TAKEN;

const REFUSED: Duration = Duration::from_secs(30);
const NO_ROUTES: &str = "--configure-cloud-routes=false";
/// The old side allocates the ranges of Nodes.
const ALLOCATES: &str = "--allocate-node-cidrs=true";
const RANGE: &str = "--cluster-cidr=10.244.0.0/16";
const ROUTES: &str = "--configure-cloud-routes=true";

/// Scenario 18: the old manager runs the route controller, and ours does not; node IPAM in the list.
pub(super) async fn of_old_manager(cluster: &mut Cluster) -> Result<()> {
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
    let original = cluster.environment.old_manager_flags()?;
    let flags = original.into_iter().filter(|flag| flag != NO_ROUTES);
    let flags = flags.chain([ALLOCATES, RANGE].map(str::to_owned));
    let flags = flags.chain((!routes).then(|| NO_ROUTES.to_owned()));
    cluster.environment.deploy_flags(flags).await?;
    let (allocates, no_routes) = (has_flag(ALLOCATES), has_flag(NO_ROUTES));
    let wanted = |argv: &[String]| allocates(argv) && no_routes(argv) != routes;
    cluster.wait_rolled(OLD_MANAGER, what, wanted).await?;
    Ok(())
}

/// The phases go on, and M is not acquired.
async fn routes_are_refused(cluster: &mut Cluster) -> Result<()> {
    let changed = Timestamp::now();
    cluster.environment.set_phase("Prepare").await?;
    cluster.environment.apply_phase("Prepare").await?;
    let words = [OLD_MANAGER, "runs the route controller"];
    let said = cluster
        .wait_message("Prepared", &words, "the status names the routes")
        .await?;
    cluster.measured("routes: named in Prepared", changed, Timestamp::now(), REFUSED);
    let named = said.split("; ").find(|part| part.contains("runs the route controller"));
    cluster.notes.push(format!("routes: {}", named.unwrap_or(&said)));

    let holder = cluster.wait_holder(Lease::M, None).await?;
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

    let api: Api<Deployment> = Api::namespaced(cluster.environment.management_admin.clone(), CONTROL_PLANE);
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

/// Scenario 25: both sides run the route controller, and the routes of the Nodes stay the same.
pub(super) async fn of_both(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster
        .progress
        .step("Both managers are rolled with the route controller");
    let environment = &cluster.environment;
    let flags = environment.old_manager_flags()?.into_iter();
    let flags = flags.chain([ALLOCATES.to_owned()]);
    environment.deploy_flags(with_routes(flags)).await?;
    cluster
        .wait_rolled(OLD_MANAGER, "the old manager runs routes", has_flag(ALLOCATES))
        .await?;
    let flags = with_routes(environment.manager_arguments()?.into_iter()).collect();
    environment.install_manager_with(flags).await?;
    cluster
        .wait_rolled(NEW_MANAGER, "our manager would run routes", has_flag(ROUTES))
        .await?;

    let routed = async || {
        let routes = environment.routes().await?;
        Ok(if routes.len() == 2 {
            Ok(())
        } else {
            Err(format!("{routes:?}"))
        })
    };
    cluster.progress.wait("both Nodes have a route", TAKEN, routed).await?;
    environment.snapshot().await?;

    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.roll_back().await?;
    cluster.migrate().await?;
    let count = cluster.environment.routes().await?.len();
    cluster.expect(count == 2, &format!("there are two routes: {count}"));
    Ok(())
}

fn with_routes(flags: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    flags
        .filter(|flag| flag != NO_ROUTES)
        .chain([ROUTES, RANGE].map(str::to_owned))
}
