//! Nodes with Pod ranges and the routes that lead to them, for tests of the route controller.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::{AwsError, Instance, Moto, Proxy, SeededAccount, Service};
use outrigger_cluster_harness::cluster::ApiServer;
use outrigger_cluster_harness::process::Process;

/// The range of all Pods.
pub const CLUSTER_CIDR: &str = "10.200.0.0/16";

/// The name of a Node by its number.
#[must_use]
pub fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The Pod range of a Node by its number, below 256.
#[must_use]
pub fn range(number: usize) -> String {
    format!("10.200.{number}.0/24")
}

/// Creates the Node of an instance.
///
/// # Errors
/// When the API server refuses it.
pub async fn create(nodes: &Api<Node>, number: usize, instance: &Instance) -> Result<()> {
    let node = json!({
        "metadata": {"name": name(number)},
        "spec": {"providerID": instance.provider_id(), "podCIDR": range(number), "podCIDRs": [range(number)]},
    });
    let node = serde_json::from_value(node)?;
    let created = nodes.create(&PostParams::default(), &node).await;
    created.map(drop).with_context(|| format!("creating {}", name(number)))
}

/// The routes of a table that lead to instances: range and instance. Moto does not know blackholes.
///
/// # Errors
/// When moto refuses the call.
pub async fn to_instances(moto: &Moto, table: &str) -> Result<BTreeMap<String, String>, AwsError> {
    let call = Parameters::from_iter([("RouteTableId.1", table)]);
    let answer = moto.call(&Service::Ec2, "DescribeRouteTables", call).await?;
    let routes = answer.find("routeSet").into_iter().flat_map(|set| &set.children);
    let routes = routes.filter(|route| !route.value("instanceId").is_empty());
    let pair = |field: &str, route: &outrigger_aws_sim::xml::Element| route.value(field).to_owned();

    Ok(routes
        .map(|route| (pair("destinationCidrBlock", route), pair("instanceId", route)))
        .collect())
}

/// Deletes a route by hand.
///
/// # Errors
/// When moto refuses the call, as where the table has no such route.
pub async fn delete(moto: &Moto, table: &str, range: &str) -> Result<(), AwsError> {
    let call = Parameters::from_iter([("RouteTableId", table), ("DestinationCidrBlock", range)]);
    moto.call(&Service::Ec2, "DeleteRoute", call).await.map(drop)
}

/// Starts our manager with the route controller alone, and the whole of the simulated account's budget.
///
/// # Errors
/// As [`crate::single_cluster::start_manager`].
pub fn start_manager(
    run: &Path,
    api: &ApiServer,
    account: &SeededAccount,
    proxy: &Proxy,
    period: Duration,
) -> Result<Process> {
    let cidr = format!("--cluster-cidr={CLUSTER_CIDR}");
    let period = format!("--route-reconciliation-period={}s", period.as_secs());
    let flags = [
        "--controllers=node-route-controller",
        "--aws-api-budget-share=1",
        &cidr,
        &period,
    ];

    crate::single_cluster::start_manager(run, api, account, proxy, &flags)
}
