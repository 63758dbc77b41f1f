//! Puts the controllers together: what each needs, and how a set of them starts and stops as one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use ipnet::IpNet;
use kube::Client;
use outrigger_aws::limit::Limited;
use outrigger_leader::evidence::Sight;
use outrigger_leader::{ControllerError, Permit, Start, readers};
use outrigger_shared::controller::Controller;
use outrigger_shared::migration::Phase;
use outrigger_shared::tags;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Options;
use crate::cloud_config::{CloudConfig, HealthProbeMode};
use crate::controllers::node::desired::Place;
use crate::controllers::{node, node_ipam, node_lifecycle, route, service, tagging};
use crate::events::Recorder;
use crate::identity::{Cloud, Cluster};
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;
use crate::serving::Health;

/// How long new Nodes are collected before one describe asks for all of them.
const NODE_WINDOW: Duration = Duration::from_millis(100);

/// One identity for all leases of this process, of the form that client-go uses: host name, underscore, random UUID.
#[must_use]
pub fn identity() -> String {
    let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    format!("{host}_{}", uuid::Uuid::new_v4())
}

/// The controllers that start and stop together.
#[derive(Debug, Clone)]
pub struct Set {
    /// Which.
    pub controllers: Vec<Controller>,
}

/// What the controllers are made of.
pub struct Assembly {
    options: Arc<Options>,
    cloud: Cloud,
    node_client: Client,
    lifecycle_client: Client,
    service_client: Client,
    route_client: Client,
    nodes: NodeCache,
    instances: Instances,
    node_ipam: Option<Ipam>,
    tagging_client: Client,
    tagging_counts: tagging::TaggingMetrics,
    kubelets_external: watch::Receiver<bool>,
    metrics: Metrics,
    health: Health,
}

impl Assembly {
    /// Starts the caches, which run on every replica, leader or not.
    ///
    /// # Errors
    /// When a client cannot be made.
    pub fn new(
        options: &Arc<Options>,
        cloud: Cloud,
        cluster: &Cluster,
        management: &Cluster,
        metrics: Metrics,
        health: Health,
        stop: &CancellationToken,
    ) -> Result<Self> {
        tagging_keeps_clusters_apart(options, &cloud.cluster.id)?;
        let nodes = NodeCache::new();
        let (cache, client, until) = (nodes.clone(), cluster.client("shared-informers")?, stop.clone());
        tokio::spawn(async move { cache.run(client, until).await });
        let mut cloud = cloud;
        cloud.clients.ec2 = Arc::new(Limited::new(cloud.clients.ec2, options.general.aws_api_share));
        let instances = Instances::new(
            Arc::clone(&cloud.clients.ec2),
            cloud.cluster.id.clone(),
            cloud.vpc_id.clone(),
        );
        Ok(Self {
            options: Arc::clone(options),
            node_client: cluster.client("node-controller")?,
            // The name that the in-tree controller's client has, too.
            lifecycle_client: cluster.client("cloud-node-lifecycle-controller")?,
            service_client: cluster.client("service-controller")?,
            route_client: cluster.client("route-controller")?,
            node_ipam: Ipam::of(options, &metrics)?,
            tagging_client: cluster.client("tagging-controller")?,
            tagging_counts: tagging::TaggingMetrics::registered(&metrics),
            kubelets_external: kubelets_external(options, management, stop)?,
            cloud,
            nodes,
            instances,
            metrics,
            health,
        })
    }

    /// A readiness check: the Nodes have been listed.
    pub fn nodes_ready(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let nodes = self.nodes.clone();
        move || {
            if nodes.is_ready() {
                Ok(())
            } else {
                Err("the Nodes have not been listed yet".into())
            }
        }
    }

    /// How to start a set.
    #[must_use]
    pub fn start(self: &Arc<Self>, set: Set) -> Start {
        let assembly = Arc::clone(self);
        Box::new(move |permit, stop| {
            let (assembly, set) = (Arc::clone(&assembly), set.clone());
            Box::pin(async move { assembly.run(set, permit, stop).await })
        })
    }

    /// Runs a set until `stop`; if one controller fails, all of them stop. Returns when every one has ended.
    async fn run(self: Arc<Self>, set: Set, permit: Permit, stop: CancellationToken) -> Result<(), ControllerError> {
        let stop = stop.child_token();
        let mut running = JoinSet::new();
        let mut started = Vec::new();
        for controller in set.controllers {
            if let Some(future) = self.controller(controller, permit.clone(), stop.child_token()) {
                let place = u32::try_from(started.len()).unwrap_or(u32::MAX);
                let pause = self.options.general.controller_start_interval.saturating_mul(place);
                let (metrics, health, stop) = (self.metrics.clone(), self.health.clone(), stop.clone());
                started.push(controller);
                running.spawn(async move {
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                    tracing::info!(%controller, "starting");
                    metrics.set_running(short_name(controller), true);
                    // As the incumbent's: it says that the controller was started. One that ends takes the process with it.
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
                (Ok(()), Ok(())) if !told => Err("a controller returned without being told to".into()),
                (Ok(()), ended) => ended,
                (error, _) => error,
            };
        }
        for controller in started {
            self.metrics.set_running(short_name(controller), false);
            self.health.remove(controller.canonical_name());
        }
        result
    }

    fn controller(
        &self,
        controller: Controller,
        permit: Permit,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Result<(), ControllerError>>> {
        match controller {
            Controller::Node => {
                let deps = self.node(permit);
                Some(Box::pin(async move {
                    Box::pin(node::run(deps, stop)).await.map_err(Into::into)
                }))
            }
            Controller::NodeLifecycle => {
                let deps = self.node_lifecycle(permit);
                Some(Box::pin(async move {
                    node_lifecycle::run(deps, stop).await.map_err(Into::into)
                }))
            }
            Controller::Service => {
                let deps = self.service();
                Some(Box::pin(async move {
                    service::run(deps, permit, stop).await.map_err(Into::into)
                }))
            }
            Controller::Route => {
                let deps = self.route(permit)?;
                Some(Box::pin(
                    async move { route::run(deps, stop).await.map_err(Into::into) },
                ))
            }
            Controller::NodeIpam => {
                let deps = self.node_ipam(permit)?;
                Some(Box::pin(async move {
                    Box::pin(node_ipam::run(deps, stop)).await.map_err(Into::into)
                }))
            }
            Controller::Tagging => {
                let deps = self.tagging(permit);
                Some(Box::pin(async move {
                    Box::pin(tagging::run(deps, stop)).await.map_err(Into::into)
                }))
            }
        }
    }

    fn node(&self, permit: Permit) -> node::Deps {
        let client = self.node_client.clone();
        node::Deps {
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&self.cloud.clients.ec2),
            instances: self.instances.clone(),
            topology: self.cloud.config.topology_instance_types.clone().into(),
            place: Place {
                region: self.cloud.region.clone(),
                families: self.cloud.config.ip_families(),
            },
            initializations: self.options.node_sync_concurrency(),
            refreshes: self.options.node_status_concurrency(),
            refresh_period: self.options.nodes.node_status_update_frequency,
            window: NODE_WINDOW,
            kubelets_external: self.kubelets_external.clone(),
            metrics: self.metrics.clone(),
            events: Recorder::new(client.clone(), node::EVENT_COMPONENT),
            client,
            permit,
        }
    }

    fn node_lifecycle(&self, permit: Permit) -> node_lifecycle::Deps {
        let client = self.lifecycle_client.clone();
        node_lifecycle::Deps {
            nodes: self.nodes.clone(),
            instances: self.instances.clone(),
            monitor_period: self.options.nodes.node_monitor_period,
            metrics: self.metrics.clone(),
            events: Recorder::new(client.clone(), node_lifecycle::EVENT_COMPONENT),
            client,
            permit,
        }
    }

    /// `None` where the flags give it nothing to do; a warning at start says so.
    fn route(&self, permit: Permit) -> Option<route::Deps> {
        let cluster_cidr = self.options.routes.managed_range()?;
        let client = self.route_client.clone();
        let cloud = &self.cloud;
        Some(route::Deps {
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&cloud.clients.ec2),
            instances: self.instances.clone(),
            cluster_id: cloud.cluster.id.clone(),
            vpc_id: cloud.vpc_id.clone(),
            route_table_id: cloud.config.route_table_id.clone(),
            cluster_cidr,
            period: self.options.routes.reconciliation_period,
            metrics: self.metrics.clone(),
            events: Recorder::new(client.clone(), route::EVENT_COMPONENT),
            client,
            permit,
        })
    }

    /// `None` where the flags do not let it run; they were warned about at start.
    fn node_ipam(&self, permit: Permit) -> Option<node_ipam::Deps> {
        let ipam = self.node_ipam.as_ref()?;
        // The client of kube-controller-manager's has the node controller's name, too.
        let client = self.node_client.clone();
        Some(node_ipam::Deps {
            nodes: self.nodes.clone(),
            ranges: ipam.ranges.clone(),
            excluded: ipam.excluded.clone(),
            metrics: ipam.metrics.clone(),
            events: Recorder::new(client.clone(), node_ipam::EVENT_COMPONENT),
            client,
            permit,
        })
    }

    fn tagging(&self, permit: Permit) -> tagging::Deps {
        let flags = &self.options.tagging;
        tagging::Deps {
            client: self.tagging_client.clone(),
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&self.cloud.clients.ec2),
            instances: self.instances.clone(),
            tags: flags.tags.clone(),
            label: tagging::label::value(&flags.tags),
            batching: flags.batching,
            calls_at_once: flags.concurrent_node_syncs,
            rate_limit: flags.rate_limit,
            burst_limit: flags.burst_limit,
            metrics: self.metrics.clone(),
            counts: self.tagging_counts.clone(),
            permit,
        }
    }

    fn service(&self) -> service::Deps {
        let config = &self.cloud.config;
        service::Deps {
            client: self.service_client.clone(),
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&self.cloud.clients.ec2),
            elb: Arc::clone(&self.cloud.clients.elb),
            settings: service::desired::Settings {
                cluster_id: self.cloud.cluster.id.clone(),
                legacy_tags: self.cloud.cluster.legacy_tags,
                vpc_id: self.cloud.vpc_id.clone(),
                own_subnet_id: self.cloud.subnet_id.clone(),
                disable_security_group_ingress: config.disable_security_group_ingress,
                elb_security_group: config.elb_security_group.clone(),
                health_probe: health_probe(config),
            },
            concurrent_syncs: self.options.services.concurrent_service_syncs,
            metrics: self.metrics.clone(),
        }
    }
}

/// What node IPAM keeps from one term of leadership to the next.
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
fn tagging_keeps_clusters_apart(options: &Options, cluster_id: &str) -> Result<()> {
    if !options.general.controllers.enabled(Controller::Tagging) {
        return Ok(());
    }
    for (key, value) in &options.tagging.tags {
        let named = tags::cluster_of_key(key).or_else(|| (key == tags::LEGACY_CLUSTER).then_some(value));
        if let Some(other) = named.filter(|other| *other != cluster_id) {
            anyhow::bail!(
                "--tags: {key}={value} names the cluster {other:?}, but this one is {cluster_id:?}; take it away"
            );
        }
    }
    Ok(())
}

fn health_probe(config: &CloudConfig) -> service::HealthProbe {
    match config.health_probe_mode {
        HealthProbeMode::ServiceNodePort => service::HealthProbe::ServiceNodePort,
        HealthProbeMode::Shared => service::HealthProbe::Shared {
            port: config.health_probe_port.unwrap_or(10_256).into(),
            path: config
                .health_probe_path
                .clone()
                .unwrap_or_else(|| "/healthz".to_owned()),
        },
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

/// Whether no kubelet writes addresses any more: always without a migration, with one only once it is complete.
fn kubelets_external(
    options: &Options,
    management: &Cluster,
    stop: &CancellationToken,
) -> Result<watch::Receiver<bool>> {
    let Some(name) = &options.migration.name else {
        return Ok(watch::channel(true).1);
    };
    let mut object = readers::follow_migration(management.client("migration")?, name, stop.clone());
    let (tx, rx) = watch::channel(false);
    let stop = stop.clone();
    tokio::spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(object.changed()).await {
            if let Sight::Known(object) = &*object.borrow_and_update() {
                let complete = object.spec.phase == Phase::Complete;
                tx.send_if_modified(|old| std::mem::replace(old, complete) != complete);
            }
        }
    });
    Ok(rx)
}
