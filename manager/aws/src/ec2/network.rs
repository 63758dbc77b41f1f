//! Zones, subnets, route tables and security groups.

use super::Route;
use crate::Tags;

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
    /// The subnet's ID.
    pub id: String,
    pub vpc_id: Option<String>,
    /// Name of the zone.
    pub availability_zone: Option<String>,
    /// Primary IPv4 range.
    pub cidr_block: Option<String>,
    pub tags: Tags,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteTable {
    /// The table's ID.
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

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityGroup {
    /// The group's ID.
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

/// A security group to be made.
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
    /// IPv4 sources.
    pub ranges: Vec<IpRange>,
    /// IPv6 sources, as CIDR text.
    pub ipv6_ranges: Vec<String>,
    /// Security groups as sources.
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
    /// The source group's ID.
    pub group_id: Option<String>,
    /// The account that owns the source group.
    pub user_id: Option<String>,
}
