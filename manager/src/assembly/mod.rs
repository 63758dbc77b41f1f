//! Puts the controllers together: what each needs, and how a set of them starts and stops as one.

mod cluster_uid;
mod controllers;
mod dry_run;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ipnet::IpNet;
use kube::Client;
use outrigger_aws::Clients;
use outrigger_aws::limit::Limited;
use outrigger_evidence::facts::Reading;
use outrigger_leader::{ControllerError, CountNodes, DryRun, Permit, Start, readers};
use outrigger_serving::Tasks;
use outrigger_shared::controller::Controller;
use outrigger_shared::migration::Phase;
use outrigger_shared::tags;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Options;
use crate::controllers::service::orphans::sweep::SweepMetrics;
use crate::controllers::{node_ipam, tagging};
use crate::identity::{Cloud, Cluster};
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;
use crate::serving::Health;

/// How long new Nodes are collected before one describe asks for all of them.
const NODE_WINDOW: Duration = Duration::from_millis(100);
/// A watch without an answer for longer is broken. API servers send a bookmark each minute, and those that send none end a
/// watch after the 290 s that kube asks for
/// (<https://docs.rs/kube-runtime/5.0.0/kube_runtime/watcher/struct.Config.html>).
const SILENT: Duration = Duration::from_secs(330);

/// One identity for all leases of this process, of the form that client-go uses: host name, underscore, random UUID.
pub fn identity() -> String {
    let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    format!("{host}_{}", uuid::Uuid::new_v4())
}

pub struct Assembly {
    options: Arc<Options>,
    cloud: Cloud,
    node_client: Client,
    lifecycle_client: Client,
    service_client: Client,
    cluster_client: Client,
    route_client: Client,
    nodes: NodeCache,
    instances: Instances,
    node_ipam: Option<Ipam>,
    tagging_client: Client,
    tagging_counts: tagging::TaggingMetrics,
    sweep_counts: SweepMetrics,
    kubelets_external: watch::Receiver<bool>,
    /// Of the migration of this cluster; `None` while it is not known, or there is none.
    phase: watch::Receiver<Option<Phase>>,
    /// Whether the controllers of the migration lease run in this process.
    runs: watch::Sender<bool>,
    dry_run: watch::Sender<DryRun>,
    /// The clients for dry runs.
    limited: Clients,
    metrics: Metrics,
    health: Health,
}

impl Assembly {
    /// Starts the caches, which run on every replica, leader or not.
    pub fn new(
        options: &Arc<Options>,
        cloud: Cloud,
        cluster: &Cluster,
        management: &Cluster,
        metrics: Metrics,
        health: Health,
        tasks: &Tasks,
    ) -> Result<Self> {
        if options.general.controllers.enabled(Controller::Tagging) {
            clusters_stay_apart(&options.tagging.tags, &cloud.cluster.id)?;
        }

        let nodes = NodeCache::new();
        let (cache, client, stop) = (nodes.clone(), cluster.client("shared-informers")?, tasks.stop().clone());
        tasks.spawn("watch of the Nodes", async move { cache.run(client, stop).await });

        let mut cloud = cloud;
        let share = options.general.aws_api_share;
        cloud.clients.ec2 = Arc::new(Limited::new(cloud.clients.ec2, share));
        cloud.clients.elb = Arc::new(Limited::elb(cloud.clients.elb, share));
        cloud.clients.elbv2 = Arc::new(Limited::elbv2(cloud.clients.elbv2, share));

        let instances = Instances::new(
            Arc::clone(&cloud.clients.ec2),
            cloud.cluster.id.clone(),
            cloud.vpc_id.clone(),
        );

        let phase = follow_phase(options, management, &cloud.cluster.id, tasks)?;

        Ok(Self {
            options: Arc::clone(options),
            node_client: cluster.client("node-controller")?,
            // The name that the in-tree controller's client has, too.
            lifecycle_client: cluster.client("cloud-node-lifecycle-controller")?,
            service_client: cluster.client("service-controller")?,
            cluster_client: cluster.client("cluster-uid")?,
            route_client: cluster.client("route-controller")?,
            node_ipam: Ipam::of(options, &metrics)?,
            tagging_client: cluster.client("tagging-controller")?,
            tagging_counts: tagging::TaggingMetrics::registered(&metrics),
            sweep_counts: SweepMetrics::registered(&metrics),
            kubelets_external: kubelets_external(phase.clone(), options, tasks),
            phase,
            runs: watch::Sender::new(false),
            dry_run: watch::Sender::default(),
            limited: dry_run::limited(&cloud.clients),
            cloud,
            nodes,
            instances,
            metrics,
            health,
        })
    }

    /// A readiness check: the Nodes have been listed, and their watch has an answer from time to time.
    pub fn nodes_ready(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let (nodes, watches) = (self.nodes.clone(), self.metrics.rest_client());
        move || match watches.age("nodes") {
            _ if !nodes.is_ready() => Err("the Nodes have not been listed yet".into()),
            Some(age) if age > SILENT => Err(format!("the watch of Nodes has had no answer for {} s", age.as_secs())),
            _ => Ok(()),
        }
    }

    pub fn node_counts(&self) -> CountNodes {
        let nodes = self.nodes.clone();
        Arc::new(move || nodes.counts())
    }

    /// The dry runs of the controllers under the migration lease.
    pub fn dry_run(&self) -> watch::Receiver<DryRun> {
        self.dry_run.subscribe()
    }

    /// How to start controllers that start and stop together.
    pub fn start(self: &Arc<Self>, controllers: Vec<Controller>) -> Start {
        let assembly = Arc::clone(self);
        Box::new(move |permit, stop| Box::pin(Arc::clone(&assembly).run(controllers.clone(), permit, stop)))
    }

    /// Runs a set until `stop`; if one controller fails, all of them stop. Returns when every one has ended.
    async fn run(
        self: Arc<Self>,
        controllers: Vec<Controller>,
        permit: Permit,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let stop = stop.child_token();
        let mut running = JoinSet::new();
        let mut started = Started {
            controllers: Vec::new(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
        };

        for controller in controllers {
            if let Some(future) = self.controller(controller, permit.clone(), stop.child_token()) {
                let place = u32::try_from(started.controllers.len()).unwrap_or(u32::MAX);
                let pause = self.options.general.controller_start_interval.saturating_mul(place);
                let (metrics, health, stop) = (self.metrics.clone(), self.health.clone(), stop.clone());
                started.controllers.push(controller);
                running.spawn(async move {
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }

                    tracing::info!(%controller, "starting");
                    metrics.set_running(short_name(controller), true);
                    // As in the incumbent, the check shows that the controller was started. If it ends, the process
                    // ends.
                    health.register(controller.canonical_name(), || Ok(()));

                    future.await
                });
            }
        }

        let mut result = Ok(());
        if running.is_empty() {
            stop.cancelled().await;
        }

        while let Some(ended) = running.join_next().await {
            let ended = ended.unwrap_or_else(|panic| Err(panic.into()));
            let told = stop.is_cancelled();
            stop.cancel();
            result = match (result, ended) {
                (Ok(()), Ok(())) if !told => Err("a controller returned before it was stopped".into()),
                (Ok(()), ended) => ended,
                (error, _) => error,
            };
        }

        result
    }
}

/// The controllers of a set that were started. Dropped when the set has ended, or was ended while it read.
struct Started {
    controllers: Vec<Controller>,
    metrics: Metrics,
    health: Health,
}

impl Drop for Started {
    fn drop(&mut self) {
        for controller in &self.controllers {
            self.metrics.set_running(short_name(*controller), false);
            self.health.remove(controller.canonical_name());
        }
    }
}

/// The name in the metric `running_managed_controllers`.
fn short_name(controller: Controller) -> &'static str {
    match controller {
        Controller::Node => "cloud-node",
        Controller::NodeLifecycle => "cloud-node-lifecycle",
        Controller::Service => "service",
        Controller::Route => "route",
        Controller::NodeIpam => "node-ipam",
        Controller::Tagging => "tagging",
    }
}

/// The phase of the migration of this cluster; `None` while it is not known, or without `--migration`.
fn follow_phase(
    options: &Options,
    management: &Cluster,
    cluster_id: &str,
    tasks: &Tasks,
) -> Result<watch::Receiver<Option<Phase>>> {
    let (tx, rx) = watch::channel(None);
    let Some(name) = &options.migration.name else {
        return Ok(rx);
    };

    let mut object = readers::follow_migration(management.client("migration")?, name, tasks);
    let (cluster_id, stop) = (cluster_id.to_owned(), tasks.stop().clone());
    tasks.spawn("phase of the migration", async move {
        while let Some(Ok(())) = stop.run_until_cancelled(object.changed()).await {
            if let Reading::Known(object) = &*object.borrow_and_update() {
                let phase = (object.spec.cluster_id == cluster_id).then_some(object.spec.phase);
                tx.send_if_modified(|old| std::mem::replace(old, phase) != phase);
            }
        }
    });

    Ok(rx)
}

/// Whether no kubelet writes addresses any more: always without a migration, with one only once it is complete.
fn kubelets_external(
    mut phase: watch::Receiver<Option<Phase>>,
    options: &Options,
    tasks: &Tasks,
) -> watch::Receiver<bool> {
    if options.migration.name.is_none() {
        return watch::channel(true).1;
    }

    let (tx, rx) = watch::channel(false);
    let stop = tasks.stop().clone();
    tasks.spawn("kubelets", async move {
        while let Some(Ok(())) = stop.run_until_cancelled(phase.changed()).await {
            let complete = *phase.borrow_and_update() == Some(Phase::Complete);
            tx.send_if_modified(|old| std::mem::replace(old, complete) != complete);
        }
    });

    rx
}

/// The state of node IPAM that is kept between terms of leadership.
struct Ipam {
    ranges: Vec<node_ipam::ClusterRange>,
    excluded: Vec<IpNet>,
    metrics: node_ipam::IpamMetrics,
}

impl Ipam {
    fn of(options: &Options, metrics: &Metrics) -> Result<Option<Self>> {
        if !options.allocates_node_cidrs() {
            return Ok(None);
        }

        let ranges = options
            .node_ranges()
            .map_err(|problems| anyhow::anyhow!("{}", problems.join("\n")))?;
        let cluster = ranges.cluster.into_iter();
        Ok(Some(Self {
            ranges: cluster
                .map(|(cluster, node_prefix)| node_ipam::ClusterRange { cluster, node_prefix })
                .collect(),
            excluded: ranges.excluded,
            metrics: node_ipam::IpamMetrics::registered(metrics),
        }))
    }
}

/// Tags that would put this cluster's instances into another one are refused.
fn clusters_stay_apart<'a>(flags: impl IntoIterator<Item = (&'a String, &'a String)>, cluster_id: &str) -> Result<()> {
    for (key, value) in flags {
        if let Some(other) = tags::cluster_named(key, value).filter(|other| *other != cluster_id) {
            bail!(
                "--tags: {key}={value} names the cluster {other:?}, but this one is {cluster_id:?}; remove this tag from the flag"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_may_name_this_cluster_only() {
        let refused = |key: &str, value: &str| {
            let (key, value) = (key.to_owned(), value.to_owned());
            clusters_stay_apart([(&key, &value)], "prod")
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refused("team", "test"), None);
        assert_eq!(refused("kubernetes.io/cluster/prod", "owned"), None);
        assert_eq!(refused("KubernetesCluster", "prod"), None);
        for (key, value) in [("kubernetes.io/cluster/test", "owned"), ("KubernetesCluster", "test")] {
            let error = refused(key, value).unwrap();
            assert!(
                error.contains(key) && error.contains("\"test\"") && error.contains("\"prod\""),
                "{error}"
            );
        }
    }
}
