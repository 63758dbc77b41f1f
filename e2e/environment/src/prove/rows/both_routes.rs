//! Scenario 25: both sides run the route controller, and the routes of the Nodes stay the same.

use anyhow::Result;

use super::Cluster;
use crate::demo::migrate::ROLL;
use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::prove::cluster::TAKEN;

const NO_ROUTES: &str = "--configure-cloud-routes=false";
const ROUTES: [&str; 2] = ["--configure-cloud-routes=true", "--cluster-cidr=10.244.0.0/16"];
/// Of the old side, which also allocates the ranges.
const ALLOCATES: &str = "--allocate-node-cidrs=true";

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    let progress = cluster.progress.clone();
    progress.step("Both managers are rolled with the route controller");
    let environment = &cluster.environment;
    let flags = environment
        .old_manager()?
        .arguments()
        .into_iter()
        .chain([ALLOCATES.to_owned()]);
    environment.deploy_flags(with_routes(flags)).await?;
    let allocates = |argv: &[String]| argv.iter().any(|flag| flag == ALLOCATES);
    environment
        .wait_rolled(OLD_MANAGER, "the old manager runs routes", ROLL, &progress, allocates)
        .await?;
    let flags = with_routes(environment.manager_arguments()?.into_iter()).collect();
    environment.install_manager_with(flags).await?;
    let routes = |argv: &[String]| argv.iter().any(|flag| flag == ROUTES[0]);
    environment
        .wait_rolled(NEW_MANAGER, "our manager would run routes", ROLL, &progress, routes)
        .await?;

    let routed = async || {
        let routes = environment.routes().await?;
        Ok(if routes.len() == 2 {
            Ok(())
        } else {
            Err(format!("{routes:?}"))
        })
    };
    progress.wait("both Nodes have a route", TAKEN, routed).await?;
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
    flags.filter(|flag| flag != NO_ROUTES).chain(ROUTES.map(str::to_owned))
}
