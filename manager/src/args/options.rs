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

/// The manager's options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cluster, cloud and API server.
    pub general: General,
    /// The main Lease.
    pub leader_election: LeaderElection,
    /// Leader migration.
    pub migration: Migration,
    /// Node controller and node lifecycle controller.
    pub nodes: Nodes,
    /// Service controller.
    pub services: Services,
    /// Route controller and node IPAM.
    pub routes: Routes,
    pub node_ipam: NodeIpam,
    /// Tagging controller.
    pub tagging: Tagging,
    pub serving: Serving,
    pub authentication: Authentication,
    pub logs: Logs,
    /// `--profiling`: whether `/debug` is served.
    pub profiling: bool,
    /// The response of `/configz`.
    pub configz: serde_json::Value,
    /// To be logged once at start.
    pub warnings: Vec<String>,
    /// Names of the flags that the user set.
    pub(super) set: BTreeSet<&'static str>,
}

impl Options {
    /// Whether the user set this flag (named without dashes), to whatever value.
    #[must_use]
    pub fn explicitly_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Whether controllers are divided between the main and the migration Lease.
    #[must_use]
    pub fn leader_migration_effective(&self) -> bool {
        self.leader_election.leader_elect && self.migration.enable_leader_migration
    }

    /// How many nodes may be initialized at the same time. Upstream's default of 1 is what its users raise first;
    /// since one describe serves a whole batch here, an untouched flag means 32.
    #[must_use]
    pub fn node_sync_concurrency(&self) -> usize {
        if self.explicitly_set("concurrent-node-syncs") {
            self.nodes.concurrent_node_syncs
        } else {
            32
        }
    }

    /// How many Services may be worked on at the same time. Upstream's default of 1 lets one slow call of AWS hold up all
    /// others; an untouched flag means 8, which AWS's limits still bear.
    #[must_use]
    pub fn service_sync_concurrency(&self) -> usize {
        if self.explicitly_set("concurrent-service-syncs") {
            self.services.concurrent_service_syncs
        } else {
            8
        }
    }

    /// How many nodes' addresses may be written at the same time.
    #[must_use]
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
    /// `--cloud-config`.
    pub cloud_config: Option<PathBuf>,
    /// `--cloud-config-strict`.
    pub cloud_config_strict: bool,
    /// `--cluster-name`: not the cluster ID.
    pub cluster_name: String,
    /// `--cluster-id`.
    pub cluster_id: Option<String>,
    pub region: Option<String>,
    /// `--aws-api-budget-share`.
    pub aws_api_share: Share,
    pub vpc_id: Option<String>,
    /// `--controllers`.
    pub controllers: Selection,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    pub master: Option<String>,
    /// `--feature-gates`.
    pub feature_gates: BTreeMap<String, bool>,
    /// `--kube-api-qps`.
    pub kube_api_qps: f64,
    /// `--kube-api-burst`.
    pub kube_api_burst: u32,
    /// `--min-resync-period`: for the view of the configuration only.
    pub min_resync_period: Duration,
    /// `--controller-start-interval`.
    pub controller_start_interval: Duration,
    /// `--use-service-account-credentials`.
    pub use_service_account_credentials: bool,
}

/// The main Lease, and the timing of both.
#[derive(Debug, Clone)]
pub struct LeaderElection {
    /// `--leader-elect`.
    pub leader_elect: bool,
    /// `--leader-elect-lease-duration`; whole seconds go on the wire.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`, less than the lease duration.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`, less than the renew deadline / 1.2.
    pub retry_period: Duration,
    /// `--leader-elect-resource-name`.
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
    #[must_use]
    pub fn tcp_user_timeout(&self) -> Option<Duration> {
        let between = self.lease_duration.saturating_sub(self.renew_deadline);
        self.leader_elect.then_some(between)
    }
}

/// Leader migration.
#[derive(Debug, Clone)]
pub struct Migration {
    /// `--enable-leader-migration`; on with `--migration`.
    pub enable_leader_migration: bool,
    /// `--leader-migration-config`.
    pub leader_migration_config: Option<PathBuf>,
    /// `--migration`.
    pub name: Option<String>,
    /// `--migration-kubeconfig`; the cluster of the Services if unset.
    pub cluster: Option<MigrationCluster>,
}

/// The cluster that holds the migration object, where it is not the cluster of the Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationCluster {
    /// The cluster that this Pod runs in.
    InCluster,
    /// That of a kubeconfig.
    Kubeconfig(PathBuf),
}

/// Node controller and node lifecycle controller.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// `--concurrent-node-syncs`; see [`Options::node_sync_concurrency`].
    pub concurrent_node_syncs: usize,
    /// `--concurrent-node-status-updates`; 0 means as node syncs.
    pub concurrent_node_status_updates: usize,
    /// `--node-status-update-frequency`.
    pub node_status_update_frequency: Duration,
    /// `--node-monitor-period`.
    pub node_monitor_period: Duration,
    /// `--node-deletion-breaker-*`.
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
    /// `--node-deletion-breaker-window`.
    pub window: Duration,
    /// `--node-deletion-breaker-hold`: how long an open breaker allows no deletion.
    pub hold: Duration,
}

impl DeletionBreaker {
    /// How many deletions a window allows in a cluster of this many Nodes.
    #[must_use]
    pub fn limit(&self, nodes: usize) -> usize {
        self.minimum.max(nodes.saturating_mul(self.percent) / 100)
    }
}

/// Service controller.
#[derive(Debug, Clone)]
pub struct Services {
    /// `--concurrent-service-syncs`; see [`Options::service_sync_concurrency`].
    pub concurrent_service_syncs: usize,
    /// `--load-balancer-resync-period`; `None`: off.
    pub resync_period: Option<Duration>,
    /// `--load-balancer-sweep`.
    pub sweep: Sweep,
    /// `--load-balancer-sweep-period`.
    pub sweep_period: Duration,
    /// `--security-group-rules-quota`.
    pub security_group_rules: usize,
    /// Whether that was set.
    pub security_group_rules_set: bool,
}

/// Handling of orphaned AWS resources of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// They are not looked for.
    Off,
    /// They are logged and counted.
    Report,
    /// They are deleted.
    Delete,
}

/// Route controller and node IPAM.
#[derive(Debug, Clone)]
pub struct Routes {
    /// `--configure-cloud-routes`.
    pub configure_cloud_routes: bool,
    /// `--allocate-node-cidrs`.
    pub allocate_node_cidrs: bool,
    /// `--cluster-cidr`.
    pub cluster_cidr: Vec<String>,
    /// `--route-reconciliation-period`.
    pub reconciliation_period: Duration,
}

impl Routes {
    /// The range whose routes the route controller manages; `None` where it stays off.
    #[must_use]
    pub fn managed_range(&self) -> Option<Ipv4Net> {
        let mut ranges = self.cluster_cidr.iter().filter_map(|text| text.parse::<Ipv4Net>().ok());
        ranges
            .next()
            .filter(|_| self.configure_cloud_routes)
            .map(|range| range.trunc())
    }
}

/// Tagging controller.
#[derive(Debug, Clone)]
pub struct Tagging {
    pub tags: BTreeMap<String, String>,
    /// `--resources`.
    pub resources: Vec<String>,
    /// `--tagging-controller-rate-limit`, nodes per second.
    pub rate_limit: f64,
    /// `--tagging-controller-burst-limit`.
    pub burst_limit: u32,
    /// `--tagging-controller-concurrent-node-syncs`.
    pub concurrent_node_syncs: usize,
    /// `--tagging-controller-enable-batching`.
    pub batching: bool,
    /// `--tag-resync-period`; `None`: off.
    pub resync_period: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Serving {
    /// `--bind-address`.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 serves nothing.
    pub secure_port: u16,
    /// `--tls-cert-file`.
    pub tls_cert_file: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub tls_private_key_file: Option<PathBuf>,
    /// `--cert-dir`.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-min-version`.
    pub tls_min_version: TlsVersion,
    /// `--disable-http2-serving` turned around.
    pub http2: bool,
    /// `--http2-max-streams-per-connection`; `None` means the library's.
    pub http2_max_streams: Option<u32>,
    /// `--permit-port-sharing`.
    pub share_port: bool,
    /// `--tls-cipher-suites`; empty means all.
    pub tls_cipher_suites: Vec<CipherSuite>,
    /// `--tls-curve-preferences`; empty means the library's.
    pub tls_curves: Vec<NamedGroup>,
    /// `--tls-sni-cert-key`.
    pub tls_sni_certificates: Vec<NamedCertificate>,
}

/// The least TLS version served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 and newer.
    Tls12,
    /// TLS 1.3 and newer.
    Tls13,
}

/// Authentication and authorization of HTTPS requests.
#[derive(Debug, Clone)]
pub struct Authentication {
    /// `--authorization-always-allow-paths`.
    pub always_allow_paths: Vec<String>,
    /// `--authentication-kubeconfig`: of the API server that reviews tokens.
    pub token_kubeconfig: Option<PathBuf>,
    /// `--authorization-kubeconfig`: of the API server that reviews access.
    pub access_kubeconfig: Option<PathBuf>,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_cache_ttl: Duration,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub authorized_cache_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub unauthorized_cache_ttl: Duration,
    /// `--client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-*`.
    pub request_header: RequestHeader,
    /// `--authentication-skip-lookup`.
    pub skip_lookup: bool,
}

/// Front proxies, which name the user in headers.
#[derive(Debug, Clone, Default)]
pub struct RequestHeader {
    /// `--requestheader-client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`.
    pub allowed_names: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_headers_prefix: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-username-headers`.
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
