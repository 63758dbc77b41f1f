//! Scenario 19: many Services and Nodes with AWS's request limits, from the old manager to ours, and on to the incumbent
//! in the same state. A Node joins in each change of hands.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::ListParams;
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::kubelets::{self, NodeSpec};
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::{AwsCall, Join, LoadBalancer, NEW_WORK_BEGINS, registered};

use super::Cluster;
use crate::Environment;
use crate::demo::incumbent::{arguments, image};
use crate::demo::migrate::{self, QUIET, ROLL};
use crate::observe::identifiers;
use crate::operator::{OLD_MANAGER, has_flag};
use crate::prove::options::Size;

/// Nodes have no heartbeats here, and the simulated AWS serves several workers better than one.
const OLD_FLAGS: [&str; 2] = ["--node-monitor-grace-period=24h", "--concurrent-service-syncs=8"];
/// Rules for hundreds of load balancers do not fit into one security group.
const CLOUD_CONFIG: &str = "DisableSecurityGroupIngress = true\n";
/// Until the old manager has created all load balancers, and until the incumbent has read them.
const PATIENCE: Duration = Duration::from_secs(1200);
/// It is slower than the usual load, because its reads count against the limit of ours.
const LOAD: Duration = Duration::from_secs(10);
/// The old manager has reconciled all Services when it sends only the calls of the load in this time.
const WINDOW: Duration = Duration::from_secs(8);
/// Two reconciliations of a classic load balancer.
const CALLS_OF_LOAD: usize = 24;

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.observed = Some(cluster.size.bound());
    let Size { services, nodes } = cluster.size;
    cluster.progress.step(&format!(
        "{services} Services and {nodes} Nodes, AWS without request limits"
    ));
    cluster.environment.proxy.set_limits(false);
    in_tree(cluster).await?;
    let load = migrate::start_load_on(&cluster.environment, &name(0), LOAD).await?;
    cluster.loads.push(load);
    migrate::install(&mut cluster.environment, &cluster.progress).await?;
    cluster.prepare().await?;
    reconciled(&cluster.environment).await?;

    let balancers = cluster.environment.take_snapshot().await?.load_balancers;
    cluster.unchanged = identifiers(&balancers);
    to_ours(cluster, &balancers).await?;
    to_incumbent(cluster, &balancers).await?;

    let (classic, network) = (cluster.size.classic(), cluster.size.network());
    cluster.notes.push(format!(
        "{classic} Services with classic and {network} with network load balancers, which the old manager created \
         without AWS's request limits; {nodes} Nodes without kubelets, two of which joined in the changes of hands"
    ));
    Ok(())
}

fn name(index: usize) -> String {
    format!("service-{index:03}")
}

/// Nodes, but for the two that join later, and the Services, whose load balancers the old manager creates.
async fn in_tree(cluster: &mut Cluster) -> Result<()> {
    let Size { services, nodes } = cluster.size;
    let Environment { account, moto, .. } = &mut cluster.environment;
    account.cloud_config_lines = CLOUD_CONFIG.to_owned();
    let missing = nodes.saturating_sub(account.instances.len());
    account.add_instances(moto, missing).await?;

    let (environment, progress) = (&cluster.environment, &cluster.progress);
    let config = kubelets::config(&environment.tenant.kubeconfig(&User::admin())?).await?;
    let specs: Vec<NodeSpec> = environment.account.instances[..nodes - 2]
        .iter()
        .map(NodeSpec::in_tree)
        .collect();
    kubelets::register_all(&config, &specs).await?;
    progress.say(&format!("{} Nodes are registered", specs.len()));

    environment.deploy_old_manager(&OLD_FLAGS).await?;
    cluster
        .wait_rolled(OLD_MANAGER, "the old kube-controller-manager runs", |_| true)
        .await?;
    cluster.wait_holder(Lease::K, None).await?;
    for index in 0..services {
        let name = name(index);
        match Size::is_network(index) {
            true => environment.create_network_load_balancer_service(&name, 443).await?,
            false => environment.create_load_balancer_service(&name, 80).await?,
        }
    }

    let addressed = async || {
        let done = addressed(environment).await?;
        Ok(if done == services {
            Ok(())
        } else {
            Err(format!("{done} have one"))
        })
    };
    progress.wait("every Service has an address", PATIENCE, addressed).await
}

async fn addressed(environment: &Environment) -> Result<usize> {
    let api: Api<Service> = Api::namespaced(environment.tenant_admin.clone(), "default");
    let list = api.list(&ListParams::default()).await?;
    let has_address = |service: &&Service| {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        status.is_some_and(|balancer| balancer.ingress.is_some())
    };
    Ok(list.iter().filter(has_address).count())
}

/// Waits until the old manager has reconciled all Services after its start.
async fn reconciled(environment: &Environment) -> Result<()> {
    let begun = tokio::time::Instant::now();
    loop {
        let mark = environment.proxy.mark();
        tokio::time::sleep(WINDOW).await;
        if environment.proxy.calls_since(mark).len() <= CALLS_OF_LOAD {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "the old manager reconciles without end");
    }
}

/// Phase Migrate. The Node joins when the old process has ended.
async fn to_ours(cluster: &mut Cluster, balancers: &BTreeMap<String, LoadBalancer>) -> Result<()> {
    cluster.progress.step("Migrate, with AWS's request limits");
    let environment = &cluster.environment;
    let before = environment.holder(Lease::M);
    environment.proxy.set_limits(true);
    environment.set_phase("Migrate").await?;
    environment.apply_phase("Migrate").await?;
    let external = has_flag("--cloud-provider=external");
    cluster
        .wait_rolled(OLD_MANAGER, "the old manager is external", external)
        .await?;

    environment.mark(NEW_WORK_BEGINS);
    let mark = environment.proxy.mark();
    let join = join(cluster, 2).await?;
    cluster.wait_holder(Lease::M, before.as_deref()).await?;
    wait_registered(cluster, balancers, &join, mark).await?;
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await
}

/// The incumbent replaces our manager, as in scenario 15. The Node joins when ours has released M.
async fn to_incumbent(cluster: &mut Cluster, balancers: &BTreeMap<String, LoadBalancer>) -> Result<()> {
    cluster
        .progress
        .step("Our manager is replaced by the incumbent, with AWS's request limits");
    let environment = &cluster.environment;
    environment.mark("incumbent");
    let before = environment.holder(Lease::M).context("nobody holds M")?;
    environment.proxy.set_limits(true);
    let mark = environment.proxy.mark();
    let flags = arguments(environment, true)?;
    environment.replace_manager(&image(), flags).await?;
    let released = async || {
        let holder = environment.holder(Lease::M);
        Ok(if holder.as_ref() == Some(&before) {
            Err("ours holds it".to_owned())
        } else {
            Ok(())
        })
    };
    cluster.progress.wait("our manager released M", ROLL, released).await?;

    let join = join(cluster, 1).await?;
    cluster.wait_holder(Lease::M, Some(&before)).await?;
    if let Err(error) = wait_registered(cluster, balancers, &join, mark).await {
        cluster.notes.push(format!("aws-cloud-controller-manager: {error:#}"));
    }
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// The last instance but `from_end` joins, with a kubelet.
async fn join(cluster: &mut Cluster, from_end: usize) -> Result<Join> {
    let index = cluster.size.nodes - from_end;
    let target = cluster.environment.account.instances[index].id.clone();
    let join = Join {
        at: Timestamp::now(),
        target,
    };
    cluster.environment.mark("a Node joins");
    cluster.environment.join_in_tree(index).await?;
    cluster.joins.push(join.clone());
    Ok(join)
}

async fn wait_registered(
    cluster: &Cluster,
    balancers: &BTreeMap<String, LoadBalancer>,
    join: &Join,
    mark: u64,
) -> Result<()> {
    let everywhere = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let calls = cluster.environment.proxy.calls_since(mark);
        let calls: Vec<AwsCall> = calls.iter().map(Into::into).collect();
        let registrations = calls.iter().filter(|call| call.action.starts_with("Register")).count();
        Ok(registered(&calls, balancers, join).ok_or_else(|| format!("{registrations} registrations")))
    };
    let what = "the Node that joined is a target of every load balancer";
    cluster.progress.wait(what, PATIENCE, everywhere).await?;
    Ok(())
}
