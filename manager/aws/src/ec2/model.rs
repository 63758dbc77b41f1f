//! Plain types of EC2.

use std::fmt;

use crate::Tags;

/// An EC2 instance ID, for example `i-0123456789abcdef0`. EC2 itself is the judge of its form.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(String);

impl InstanceId {
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.0
    }
}

/// The state of an instance's life, as EC2 names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    Pending,
    Running,
    /// On its way to terminated.
    ShuttingDown,
    /// Gone; EC2 lists it for about an hour more.
    Terminated,
    /// On its way to stopped.
    Stopping,
    /// Stopped; it can be started again.
    Stopped,
    /// A state that this version does not know, as sent by EC2.
    Other(String),
}

/// An instance as described by EC2. Any field but the ID may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instance {
    pub id: InstanceId,
    /// Private DNS name; EC2 sends an empty one before the instance has an address, which reads as `None`.
    pub private_dns_name: Option<String>,
    pub public_dns_name: Option<String>,
    /// Primary private IPv4 address, as text.
    pub private_ip: Option<String>,
    /// Public IPv4 address, as text.
    pub public_ip: Option<String>,
    /// Name of the availability zone, for example `eu-central-1a`.
    pub availability_zone: Option<String>,
    /// For example `m5.large`.
    pub instance_type: Option<String>,
    pub state: Option<InstanceState>,
    /// When it was started last, in seconds since 1970.
    pub launched: Option<i64>,
    pub vpc_id: Option<String>,
    /// The primary interface's subnet.
    pub subnet_id: Option<String>,
    pub tags: Tags,
    /// IDs of the primary interface's security groups.
    pub security_groups: Vec<String>,
    /// Network interfaces, in EC2's order.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether packets that are neither from nor to the instance are dropped, if EC2 reports it.
    pub source_dest_check: Option<bool>,
}

impl Instance {
    /// An instance of which nothing but its ID is known.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: InstanceId::new(id),
            ..Self::default()
        }
    }
}

/// An instance, and the network nodes above it, the outermost first: how near instances are to each other.
pub type InstanceLayers = (InstanceId, Vec<String>);

/// A network interface of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkInterface {
    /// `available`, `associated`, `attaching`, `in-use` or `detaching`, as EC2 names it.
    pub status: Option<String>,
    /// Position of the attachment; `None` without an attachment.
    pub device_index: Option<i32>,
    /// Private IPv4 addresses, primary and secondary, in EC2's order, as text.
    pub private_ips: Vec<String>,
    /// IPv6 addresses in EC2's order, as text.
    pub ipv6: Vec<String>,
}

/// The network interface of a Fargate node, as described by EC2. Any field may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FargateEni {
    pub id: Option<String>,
    pub vpc_id: Option<String>,
    /// Name of the availability zone.
    pub availability_zone: Option<String>,
    /// Primary private IPv4 address, as text.
    pub private_ip: Option<String>,
    pub private_dns_name: Option<String>,
    /// IPv6 addresses in EC2's order, as text.
    pub ipv6: Vec<String>,
}

/// An availability zone, local zone or wavelength zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilityZone {
    /// Name in this account, for example `eu-central-1a`.
    pub name: String,
    /// ID that is the same in all accounts, for example `euc1-az2`.
    pub id: Option<String>,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub zone_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subnet {
    pub id: String,
    pub vpc_id: Option<String>,
    /// Name of the zone.
    pub availability_zone: Option<String>,
    /// Primary IPv4 range.
    pub cidr_block: Option<String>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteTable {
    pub id: String,
    /// Whether it is the VPC's main table, which serves subnets without a table of their own.
    pub main: bool,
    /// Subnets that are associated with it explicitly.
    pub subnet_ids: Vec<String>,
    /// Gateways that its routes name, in EC2's order.
    pub gateway_ids: Vec<String>,
    /// All its routes, in EC2's order.
    pub routes: Vec<Route>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityGroup {
    pub id: String,
    /// Name, unique within the VPC.
    pub name: Option<String>,
    /// Description, fixed at creation.
    pub description: Option<String>,
    pub vpc_id: Option<String>,
    /// Ingress rules, grouped by EC2 per protocol and ports.
    pub ingress: Vec<IpPermission>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecurityGroup {
    /// Name, unique within the VPC.
    pub name: String,
    /// Description; cannot be changed later.
    pub description: String,
    pub vpc_id: String,
    /// Tags, set in the same call.
    pub tags: Tags,
}

/// A set of ingress rules that share protocol and ports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpPermission {
    /// `tcp`, `udp`, `icmp`, a protocol number, or `-1` for all.
    pub protocol: String,
    /// First port, or ICMP type; `None` for protocol `-1`.
    pub from_port: Option<i32>,
    /// Last port, or ICMP code.
    pub to_port: Option<i32>,
    pub ranges: Vec<IpRange>,
    /// IPv6 sources, as CIDR text.
    pub ipv6_ranges: Vec<String>,
    pub groups: Vec<GroupPair>,
    /// IDs of prefix lists as sources.
    pub prefix_lists: Vec<String>,
}

/// An IPv4 source of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpRange {
    /// The range in CIDR notation, without host bits.
    pub cidr: String,
    /// Free text kept with the rule.
    pub description: Option<String>,
}

/// A security group as a source of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupPair {
    pub group_id: Option<String>,
    /// The account that owns the source group.
    pub user_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// IPv4 destination in CIDR notation; `None` for an IPv6 range or a prefix list.
    pub destination: Option<String>,
    pub target: RouteTarget,
    /// The state `blackhole`: the target does not exist or cannot forward traffic.
    pub blackhole: bool,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum RouteTarget {
    Instance(InstanceId),
    /// To a network interface whose instance EC2 does not name; so look routes to terminated instances.
    NetworkInterface(String),
    /// To a gateway, `local`, a peering connection or the like, by its ID.
    Other(String),
    /// EC2 names nothing.
    #[default]
    Unknown,
}
