//! The values of the flags, grouped by their users.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::limit::Share;
use rustls::{CipherSuite, NamedGroup};

use super::controllers::Selection;
use super::node_ipam::NodeIpam;
use super::tls::NamedCertificate;
use crate::confirmation::LossLimit;

#[derive(Debug, Clone)]
pub struct Options {
    pub general: General,
    pub leader_election: LeaderElection,
    pub migration: Migration,
    pub nodes: Nodes,
    pub services: Services,
    pub routes: Routes,
    pub node_ipam: NodeIpam,
    pub tagging: Tagging,
    pub serving: Serving,
    pub authentication: Authentication,
    pub logs: Logs,
    /// `--profiling`: whether `/debug` is served.
    pub profiling: bool,
    pub configz: serde_json::Value,
    /// To be logged once at start.
    pub warnings: Vec<String>,
    pub(super) set: BTreeSet<&'static str>,
}

impl Options {
    /// Whether the user set this flag (named without dashes), to whatever value.
    pub fn explicitly_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Whether controllers are divided between the main and the migration Lease.
    pub fn leader_migration_effective(&self) -> bool {
        self.leader_election.leader_elect && self.migration.enable_leader_migration
    }

    /// How many nodes may be initialized at the same time. Upstream's default of 1 is what its users raise first;
    /// since one describe serves a whole batch here, an untouched flag means 32.
    pub fn node_sync_concurrency(&self) -> usize {
        if self.explicitly_set("concurrent-node-syncs") {
            self.nodes.concurrent_node_syncs
        } else {
            32
        }
    }

    /// How many Services may be worked on at the same time. Upstream's default of 1 lets one slow call of AWS hold up all
    /// others; an untouched flag means 8, which AWS's limits still bear.
    pub fn service_sync_concurrency(&self) -> usize {
        if self.explicitly_set("concurrent-service-syncs") {
            self.services.concurrent_service_syncs
        } else {
            8
        }
    }

    pub fn node_status_concurrency(&self) -> usize {
        match self.nodes.concurrent_node_status_updates {
            0 => self.node_sync_concurrency(),
            count => count,
        }
    }
}

/// Cluster, cloud and API server.
#[derive(Debug, Clone)]
pub struct General {
    /// `--aws-keys-file`.
    pub aws_keys_file: Option<PathBuf>,
    pub cloud_config: Option<PathBuf>,
    pub cloud_config_strict: bool,
    /// `--cluster-name`: not the cluster ID.
    pub cluster_name: String,
    pub cluster_id: Option<String>,
    pub region: Option<String>,
    pub aws_api_share: Share,
    pub vpc_id: Option<String>,
    pub controllers: Selection,
    pub kubeconfig: Option<PathBuf>,
    pub master: Option<String>,
    pub feature_gates: BTreeMap<String, bool>,
    pub kube_api_qps: f64,
    pub kube_api_burst: u32,
    /// `--min-resync-period`: for the view of the configuration only.
    pub min_resync_period: Duration,
    pub controller_start_interval: Duration,
    pub use_service_account_credentials: bool,
}

/// The main Lease, and the timing of both.
#[derive(Debug, Clone)]
pub struct LeaderElection {
    pub leader_elect: bool,
    /// `--leader-elect-lease-duration`; whole seconds go on the wire.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`, less than the lease duration.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`, less than the renew deadline / 1.2.
    pub retry_period: Duration,
    pub resource_name: String,
    /// `--leader-elect-resource-namespace`, also of the migration Lease.
    pub resource_namespace: String,
}

impl LeaderElection {
    /// How long a byte that was sent may be unacknowledged before the kernel discards it; `None` without leader election.
    ///
    /// The permit to write ends `renew_deadline` after the start of the last successful renewal. No other process
    /// acquires the lease until `lease_duration` after it observed that renewal. The kernel may send the bytes of the last
    /// write again in the time between the two, and not later.
    pub fn tcp_user_timeout(&self) -> Option<Duration> {
        let between = self.lease_duration.saturating_sub(self.renew_deadline);
        self.leader_elect.then_some(between)
    }
}

#[derive(Debug, Clone)]
pub struct Migration {
    /// `--enable-leader-migration`; on with `--migration`.
    pub enable_leader_migration: bool,
    pub leader_migration_config: Option<PathBuf>,
    pub name: Option<String>,
    /// `--migration-kubeconfig`; the cluster of the Services if unset.
    pub cluster: Option<MigrationCluster>,
}

/// The cluster that holds the migration object, where it is not the cluster of the Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationCluster {
    /// The cluster that this Pod runs in.
    InCluster,
    Kubeconfig(PathBuf),
}

/// Node controller and node lifecycle controller.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// `--concurrent-node-syncs`; see [`Options::node_sync_concurrency`].
    pub concurrent_node_syncs: usize,
    /// `--concurrent-node-status-updates`; 0 means as node syncs.
    pub concurrent_node_status_updates: usize,
    pub node_status_update_frequency: Duration,
    pub node_monitor_period: Duration,
    pub deletion_breaker: DeletionBreaker,
}

/// Circuit breaker for the deletion of Nodes whose instances EC2 does not list. It opens when more than both limits
/// would be deleted within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionBreaker {
    /// `--node-deletion-breaker-minimum`: Nodes, whatever the size of the cluster.
    pub minimum: usize,
    /// `--node-deletion-breaker-percent`, of all Nodes.
    pub percent: usize,
    pub window: Duration,
    /// `--node-deletion-breaker-hold`: how long an open breaker allows no deletion.
    pub hold: Duration,
}

impl DeletionBreaker {
    /// How many deletions a window allows in a cluster of this many Nodes.
    pub fn limit(&self, nodes: usize) -> usize {
        let limit = LossLimit {
            few: self.minimum,
            percent: self.percent,
        };
        limit.of(nodes)
    }
}

#[derive(Debug, Clone)]
pub struct Services {
    /// `--concurrent-service-syncs`; see [`Options::service_sync_concurrency`].
    pub concurrent_service_syncs: usize,
    /// `--load-balancer-resync-period`; `None`: off.
    pub resync_period: Option<Duration>,
    pub sweep: Sweep,
    pub sweep_period: Duration,
    pub security_group_rules: usize,
    pub security_group_rules_set: bool,
}

/// Handling of orphaned AWS resources of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// They are not looked for.
    Off,
    /// They are logged and counted.
    Report,
    Delete,
}

/// Route controller and node IPAM.
#[derive(Debug, Clone)]
pub struct Routes {
    pub configure_cloud_routes: bool,
    pub allocate_node_cidrs: bool,
    pub cluster_cidr: Vec<String>,
    pub reconciliation_period: Duration,
}

impl Routes {
    /// The range whose routes the route controller manages; `None` where it stays off.
    pub fn managed_range(&self) -> Option<Ipv4Net> {
        let mut ranges = self.cluster_cidr.iter().filter_map(|text| text.parse::<Ipv4Net>().ok());
        ranges
            .next()
            .filter(|_| self.configure_cloud_routes)
            .map(|range| range.trunc())
    }
}

#[derive(Debug, Clone)]
pub struct Tagging {
    pub tags: BTreeMap<String, String>,
    pub resources: Vec<String>,
    /// `--tagging-controller-rate-limit`, nodes per second.
    pub rate_limit: f64,
    pub burst_limit: u32,
    pub concurrent_node_syncs: usize,
    pub batching: bool,
    /// `--tag-resync-period`; `None`: off.
    pub resync_period: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Serving {
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 serves nothing.
    pub secure_port: u16,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub cert_dir: Option<PathBuf>,
    pub tls_min_version: TlsVersion,
    /// `--disable-http2-serving` turned around.
    pub http2: bool,
    /// `--http2-max-streams-per-connection`; `None` means the library's.
    pub http2_max_streams: Option<u32>,
    pub share_port: bool,
    /// `--tls-cipher-suites`; empty means all.
    pub tls_cipher_suites: Vec<CipherSuite>,
    /// `--tls-curve-preferences`; empty means the library's.
    pub tls_curves: Vec<NamedGroup>,
    pub tls_sni_certificates: Vec<NamedCertificate>,
}

/// The least TLS version served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// Authentication and authorization of HTTPS requests.
#[derive(Debug, Clone)]
pub struct Authentication {
    pub always_allow_paths: Vec<String>,
    /// `--authentication-kubeconfig`: of the API server that reviews tokens.
    pub token_kubeconfig: Option<PathBuf>,
    /// `--authorization-kubeconfig`: of the API server that reviews access.
    pub access_kubeconfig: Option<PathBuf>,
    pub token_cache_ttl: Duration,
    pub authorized_cache_ttl: Duration,
    pub unauthorized_cache_ttl: Duration,
    pub client_ca_file: Option<PathBuf>,
    pub request_header: RequestHeader,
    pub skip_lookup: bool,
}

/// Front proxies, which name the user in headers.
#[derive(Debug, Clone, Default)]
pub struct RequestHeader {
    pub client_ca_file: Option<PathBuf>,
    pub allowed_names: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
    pub group_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub username_headers: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Logs {
    pub verbosity: u32,
    /// `--logging-format=json`.
    pub json: bool,
}

/// The value of `--bind-address` when it is not an address; the error is reported beside it.
pub(super) const ANY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
