//! Settings that apply to all Services of the cluster.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    pub cluster_id: String,
    /// The UID of the namespace `kube-system`, for a tag of new resources; `None`: it could not be read.
    pub cluster_uid: Option<String>,
    /// Whether resources carry the legacy cluster tag too.
    pub legacy_tags: bool,
    pub vpc_id: String,
    /// The manager's own subnet, the last resort of subnet discovery.
    pub own_subnet_id: Option<String>,
    /// Rules of the Nodes' groups are not managed (`DisableSecurityGroupIngress`).
    pub disable_security_group_ingress: bool,
    /// One group for all load balancers (`ElbSecurityGroup`); it is never changed or deleted.
    pub elb_security_group: Option<String>,
    /// The cluster's name on the command line (`--cluster-name`), part of the name of the groups that are created for
    /// network load balancers.
    pub cluster_name: String,
    /// Whether a network load balancer gets security groups (`NLBSecurityGroupMode=Managed`).
    pub nlb_security_groups_managed: bool,
    pub health_probe: HealthProbe,
    /// Time between two full observations of an unchanged Service, which find drift (`--load-balancer-resync-period`).
    /// The period of each Service differs from it by up to 10 %. `None`: never.
    pub resync_period: Option<Duration>,
    /// `--security-group-rules-quota`.
    pub rules_quota: Quota,
}

impl Settings {
    /// Whether a group is the configured one, whose rules are never changed.
    #[must_use]
    pub fn is_frozen(&self, group: &str) -> bool {
        self.elb_security_group.as_deref() == Some(group)
    }
}

/// The default health check of Nodes (`ClusterServiceLoadBalancerHealthProbeMode`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HealthProbe {
    /// The Service's own first node port.
    #[default]
    ServiceNodePort,
    /// One endpoint of each Node, kube-proxy's, for all Services.
    Shared {
        /// Its port, 1–65535; 10256 by default.
        port: i32,
        /// Its path; `/healthz` by default.
        path: String,
    },
}

/// The quota of rules of one security group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub rules: usize,
    /// Whether more rules are refused before any call. The account's quota may be higher than AWS's default, so only a
    /// configured number is enforced.
    pub enforced: bool,
}

/// AWS's default.
impl Default for Quota {
    fn default() -> Self {
        Self {
            rules: 60,
            enforced: false,
        }
    }
}
