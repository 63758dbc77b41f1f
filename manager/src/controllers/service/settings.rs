//! What holds for all Services of the cluster, whatever their load balancers.

use std::time::Duration;

/// What holds for all Services of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The cluster ID in tags.
    pub cluster_id: String,
    /// The UID of the namespace `kube-system`, for a tag of new resources; `None`: it could not be read.
    pub cluster_uid: Option<String>,
    /// Whether resources carry the legacy cluster tag too.
    pub legacy_tags: bool,
    /// The VPC.
    pub vpc_id: String,
    /// The subnet of this program, the last resort of subnet discovery.
    pub own_subnet_id: Option<String>,
    /// No rules in the nodes' groups (`DisableSecurityGroupIngress`): none is made and none is taken away.
    pub disable_security_group_ingress: bool,
    /// One group for all load balancers (`ElbSecurityGroup`); it is never changed or deleted.
    pub elb_security_group: Option<String>,
    /// The cluster's name on the command line (`--cluster-name`), part of the name of the groups made for network load
    /// balancers.
    pub cluster_name: String,
    /// Whether a network load balancer gets security groups (`NLBSecurityGroupMode=Managed`).
    pub nlb_security_groups_managed: bool,
    /// What nodes are checked by.
    pub health_probe: HealthProbe,
    /// After about this time a Service that nobody changed is looked at for drift at AWS (`--load-balancer-resync-period`);
    /// `None`: never.
    pub resync_period: Option<Duration>,
    /// How many rules a security group may have (`--security-group-rules-quota`).
    pub rules_quota: Quota,
}

impl Settings {
    /// Whether a group is the configured one, whose rules are left alone whatever it is used for.
    #[must_use]
    pub fn is_frozen(&self, group: &str) -> bool {
        self.elb_security_group.as_deref() == Some(group)
    }
}

/// What nodes are checked by, unless the Service says otherwise (`ClusterServiceLoadBalancerHealthProbeMode`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HealthProbe {
    /// The Service's own first node port.
    #[default]
    ServiceNodePort,
    /// One endpoint of each node, that of kube-proxy, for all Services.
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
    /// So many rules.
    pub rules: usize,
    /// Whether more are refused here. AWS's default may have been raised for the account, which nobody here can see; so
    /// only a number that the operator has given is enforced, and AWS is asked otherwise.
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
