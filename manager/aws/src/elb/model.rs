//! Plain types of classic load balancers.

use std::collections::{BTreeMap, BTreeSet};

use crate::{InstanceId, Tags};

/// A listener. Protocols are `http`, `https`, `tcp` or `ssl`; AWS answers in upper case and takes either, so
/// they are lower case here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Port that clients use, 1–65535.
    pub port: i32,
    /// Protocol towards clients.
    pub protocol: String,
    /// Port on the instances.
    pub instance_port: i32,
    /// Protocol towards the instances; AWS takes the front's when absent.
    pub instance_protocol: String,
    /// ARN of the server certificate of an `https` or `ssl` listener.
    pub certificate: Option<String>,
}

/// A health check of a classic load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthCheck {
    /// `TCP:port`, `SSL:port`, `HTTP:port/path` or `HTTPS:port/path`.
    pub target: String,
    /// Seconds between checks, 5–300.
    pub interval: i32,
    /// Seconds that a check may take, 2–60, below the interval.
    pub timeout: i32,
    /// Consecutive failures after which an instance is unhealthy, 2–10.
    pub unhealthy_threshold: i32,
    /// Consecutive successes after which it is healthy again, 2–10.
    pub healthy_threshold: i32,
}

/// The attributes of a load balancer that the controller sets. `None`: missing in AWS's response, or not to be set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Whether each node serves the instances of all zones.
    pub cross_zone: Option<bool>,
    /// Where access logs go.
    pub access_log: Option<AccessLog>,
    /// Whether deregistered instances finish their requests.
    pub connection_draining: Option<bool>,
    /// Seconds that draining may take, 1–3600.
    pub connection_draining_timeout: Option<i32>,
    /// Seconds after which an idle connection is closed, 1–4000.
    pub idle_timeout: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessLog {
    pub enabled: bool,
    /// Minutes between two log files, 5 or 60.
    pub emit_interval: Option<i32>,
    pub bucket: Option<String>,
    /// Prefix of the log objects' keys.
    pub prefix: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancer {
    /// Name, unique in account and region.
    pub name: String,
    /// Empty until AWS assigns a name.
    pub dns_name: String,
    /// `internet-facing` or `internal`.
    pub scheme: Option<String>,
    pub vpc_id: Option<String>,
    pub listeners: Vec<Listener>,
    /// Policies of each listener, by load balancer port; ports without one are absent.
    pub listener_policies: BTreeMap<i32, BTreeSet<String>>,
    /// Policies of each backend, by instance port; backends without one are absent.
    pub backend_policies: BTreeMap<i32, BTreeSet<String>>,
    /// Names of all policies that are no stickiness policies.
    pub policies: BTreeSet<String>,
    pub subnets: BTreeSet<String>,
    /// Security groups, in AWS's order.
    pub security_groups: Vec<String>,
    pub instances: BTreeSet<InstanceId>,
    /// Health check; AWS always has one, other implementations may not.
    pub health_check: Option<HealthCheck>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLoadBalancer {
    /// Name, 1–32 characters.
    pub name: String,
    /// `true`: only reachable within the VPC. Cannot be changed later.
    pub internal: bool,
    /// Listeners, at least one.
    pub listeners: Vec<Listener>,
    /// Subnets, at most one in a zone.
    pub subnets: Vec<String>,
    pub security_groups: Vec<String>,
    /// Tags, set in the same call.
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPolicy {
    /// Name, unique within the load balancer.
    pub name: String,
    /// For example `ProxyProtocolPolicyType`.
    pub type_name: String,
    pub attributes: BTreeMap<String, String>,
}
