//! The construction of each controller.

use std::sync::Arc;

use futures::TryFutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use outrigger_aws::Clients;
use outrigger_leader::{ControllerError, Permit};
use outrigger_shared::controller::Controller;
use tokio_util::sync::CancellationToken;

use super::{Assembly, NODE_WINDOW, cluster_uid};
use crate::cloud_config::{CloudConfig, HealthProbeMode};
use crate::controllers::node::desired::ClusterSettings;
use crate::controllers::{node, node_ipam, node_lifecycle, route, service, tagging};
use crate::events::Recorder;
use crate::pod_range;

type Running = BoxFuture<'static, Result<(), ControllerError>>;

fn boxed<E: Into<ControllerError> + 'static>(
    run: impl Future<Output = Result<(), E>> + Send + 'static,
) -> Option<Running> {
    Some(Box::pin(run.map_err(Into::into)))
}

impl Assembly {
    /// The future of a controller; `None` where the flags give it nothing to do.
    pub(super) fn controller(
        &self,
        controller: Controller,
        permit: Permit,
        stop: CancellationToken,
    ) -> Option<Running> {
        match controller {
            Controller::Node => boxed(node::run(self.node(permit), stop)),
            Controller::NodeLifecycle => boxed(node_lifecycle::run(self.node_lifecycle(permit), stop)),
            Controller::Service => boxed(run_service(
                self.cluster_client.clone(),
                self.service(&self.cloud.clients),
                permit,
                stop,
            )),
            Controller::Route => boxed(route::run(self.route(permit)?, stop)),
            Controller::NodeIpam => boxed(node_ipam::run(self.node_ipam(permit)?, stop)),
            Controller::Tagging => boxed(tagging::run(self.tagging(permit), stop)),
        }
    }

    fn node(&self, permit: Permit) -> node::Deps {
        let client = self.node_client.clone();
        node::Deps {
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&self.cloud.clients.ec2),
            instances: self.instances.clone(),
            topology: self.cloud.config.topology_instance_types.clone().into(),
            place: ClusterSettings {
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
            breaker: self.options.nodes.deletion_breaker,
            metrics: self.metrics.clone(),
            events: Recorder::new(client.clone(), node_lifecycle::EVENT_COMPONENT),
            client,
            permit,
        }
    }

    /// `None` where the flags give it nothing to do; a warning at start says so.
    pub(super) fn route(&self, permit: Permit) -> Option<route::Deps> {
        let cidr = self.options.routes.managed_range()?;
        let (_, node_prefix) = self.options.node_ipam.prefix(&cidr.into());
        let client = self.route_client.clone();
        let cloud = &self.cloud;

        Some(route::Deps {
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&cloud.clients.ec2),
            instances: self.instances.clone(),
            cluster_id: cloud.cluster.id.clone(),
            vpc_id: cloud.vpc_id.clone(),
            route_table_id: cloud.config.route_table_id.clone(),
            cluster: route::plan::ClusterRange {
                cidr,
                shortest_prefix: pod_range::shortest_prefix(node_prefix, cidr.prefix_len()),
            },
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
        let client = self.tagging_client.clone();
        tagging::Deps {
            events: Recorder::new(client.clone(), tagging::EVENT_COMPONENT),
            client,
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&self.cloud.clients.ec2),
            instances: self.instances.clone(),
            tags: flags.tags.clone(),
            label: tagging::label::value(&flags.tags),
            batching: flags.batching,
            calls_at_once: flags.concurrent_node_syncs,
            rate_limit: flags.rate_limit,
            burst_limit: flags.burst_limit,
            resync_period: flags.resync_period,
            metrics: self.metrics.clone(),
            counts: self.tagging_counts.clone(),
            permit,
        }
    }

    /// `clients`: those of AWS, with their limits.
    pub(super) fn service(&self, clients: &Clients) -> service::Deps {
        let config = &self.cloud.config;
        service::Deps {
            client: self.service_client.clone(),
            nodes: self.nodes.clone(),
            ec2: Arc::clone(&clients.ec2),
            instances: self.instances.clone(),
            elb: Arc::clone(&clients.elb),
            elbv2: Arc::clone(&clients.elbv2),
            settings: service::settings::Settings {
                cluster_id: self.cloud.cluster.id.clone(),
                cluster_uid: None,
                legacy_tags: self.cloud.cluster.legacy_tags,
                vpc_id: self.cloud.vpc_id.clone(),
                own_subnet_id: self.cloud.subnet_id.clone(),
                disable_security_group_ingress: config.disable_security_group_ingress,
                elb_security_group: config.elb_security_group.clone(),
                cluster_name: self.options.general.cluster_name.clone(),
                nlb_security_groups_managed: config.nlb_security_groups_managed,
                health_probe: health_probe(config),
                resync_period: self.options.services.resync_period,
                rules_quota: service::settings::Quota {
                    rules: self.options.services.security_group_rules,
                    enforced: self.options.services.security_group_rules_set,
                },
            },
            sweep: service::orphans::sweep::SweepSettings {
                mode: self.options.services.sweep,
                period: self.options.services.sweep_period,
                metrics: self.sweep_counts.clone(),
            },
            concurrent_syncs: self.options.service_sync_concurrency(),
            metrics: self.metrics.clone(),
        }
    }
}

/// `cluster`: the API server, with the manager's own identity. With service accounts for controllers, none of them may
/// read a Namespace.
async fn run_service(
    cluster: Client,
    mut deps: service::Deps,
    permit: Permit,
    stop: CancellationToken,
) -> Result<(), service::Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        uid = cluster_uid::read(&cluster) => deps.settings.cluster_uid = uid,
    }

    service::run(deps, permit, stop).await
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
