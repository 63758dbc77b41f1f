//! Plain types of network load balancers.

use std::collections::{BTreeMap, BTreeSet};

use crate::{InstanceId, Tags};

/// Attributes of a load balancer or target group, by AWS's keys.
pub type Attributes = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkLoadBalancer {
    /// Its ARN, which every other call takes.
    pub arn: String,
    /// Name, unique in account and region among load balancers of this API.
    pub name: String,
    /// Empty until AWS assigns a name.
    pub dns_name: String,
    /// `provisioning`, `active`, `active_impaired` or `failed`.
    pub state: Option<String>,
    /// `internet-facing` or `internal`.
    pub scheme: Option<String>,
    pub vpc_id: Option<String>,
    /// Its subnets, one in each of its zones.
    pub subnets: BTreeSet<String>,
    /// Security groups, in AWS's order; a load balancer made without any can never get one.
    pub security_groups: Vec<String>,
}

/// A subnet of a load balancer to be made, with the address it gets there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubnetMapping {
    pub subnet_id: String,
    /// Allocation ID of an elastic address, for internet-facing ones.
    pub allocation_id: Option<String>,
    /// Address within the subnet, for internal ones.
    pub private_ipv4_address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewNetworkLoadBalancer {
    /// Name, 1–32 characters.
    pub name: String,
    /// `true`: only reachable within the VPC. Cannot be changed later.
    pub internal: bool,
    /// Subnets, at most one in a zone.
    pub subnets: Vec<SubnetMapping>,
    /// Security groups; none: it never gets any.
    pub security_groups: Vec<String>,
    /// Tags, set in the same call.
    pub tags: Tags,
}

/// The settings of a listener. Protocols are `TCP`, `UDP`, `TLS` or `TCP_UDP`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ListenerSettings {
    /// Port that clients use, 1–65535. AWS allows one listener for each, whatever its protocol.
    pub port: i32,
    /// Protocol towards clients.
    pub protocol: String,
    /// ARN of the target group that traffic is forwarded to; `None` where the default action is another one.
    pub target_group_arn: Option<String>,
    /// ARN of the server certificate of a `TLS` listener.
    pub certificate: Option<String>,
    /// Name of the security policy of a `TLS` listener; AWS chooses one if none is requested.
    pub ssl_policy: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listener {
    pub arn: String,
    pub settings: ListenerSettings,
}

/// How a target group checks its targets. `None`: missing in AWS's response, or AWS's default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TargetHealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`. Cannot be changed later.
    pub protocol: String,
    /// A port number, or `traffic-port`.
    pub port: String,
    /// Path of `HTTP` and `HTTPS` checks; none for `TCP`.
    pub path: Option<String>,
    /// Seconds between checks, 5–300.
    pub interval: i32,
    /// Consecutive successes after which a target is healthy, 2–10.
    pub healthy_threshold: i32,
    /// Consecutive failures after which it is unhealthy, 2–10.
    pub unhealthy_threshold: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetGroup {
    pub arn: String,
    /// Name, unique in account and region.
    pub name: String,
    /// Port on the targets.
    pub port: i32,
    /// `TCP`, `UDP`, `TLS` or `TCP_UDP`.
    pub protocol: String,
    /// `instance`, `ip`, `alb` or `lambda`.
    pub target_type: Option<String>,
    pub vpc_id: Option<String>,
    pub health_check: TargetHealthCheck,
    /// ARNs of the load balancers that use it; at most one.
    pub load_balancers: BTreeSet<String>,
}

/// A target group to be made; its targets are instances.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewTargetGroup {
    /// Name, 1–32 characters.
    pub name: String,
    /// Port on the targets.
    pub port: i32,
    /// Protocol towards the targets.
    pub protocol: String,
    pub vpc_id: String,
    pub health_check: TargetHealthCheck,
    /// Tags, set in the same call.
    pub tags: Tags,
}

/// Changes of a target group's health check; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthCheckChange {
    pub port: Option<String>,
    pub path: Option<String>,
    pub healthy_threshold: Option<i32>,
    pub unhealthy_threshold: Option<i32>,
}

/// A target: an instance and its port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub id: InstanceId,
    pub port: i32,
}

/// A registered target as AWS sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetHealth {
    pub target: Target,
    /// `initial`, `healthy`, `unhealthy`, `unused`, `draining`, `unavailable`.
    pub state: Option<String>,
    /// Reason code, for example `Target.DeregistrationInProgress`: such a target is on its way out.
    pub reason: Option<String>,
}
