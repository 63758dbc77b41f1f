//! The AWS resources of a case. The names of the fields are EC2's.

use std::collections::BTreeMap;

use serde::Deserialize;

use outrigger_aws_sim::LOCAL_ZONE;

/// The ID of the cases' cluster.
pub const CLUSTER_ID: &str = "parity";
pub const VPC_ID: &str = "vpc-00000000000000001";
/// A subnet of it.
pub const SUBNET_ID: &str = "subnet-00000000000000001";
/// Zones of the region and their IDs. The last is a local zone.
pub const ZONES: [(&str, &str, &str); 4] = [
    ("us-east-1a", "use1-az1", "availability-zone"),
    ("us-east-1b", "use1-az2", "availability-zone"),
    ("us-east-1c", "use1-az3", "availability-zone"),
    (LOCAL_ZONE, "use1-bos1-az1", "local-zone"),
];

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Account {
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// Network nodes of instances that have a topology, outermost first, by instance ID.
    #[serde(default)]
    pub topology: BTreeMap<String, Vec<String>>,
    /// Interfaces without an instance: those of Fargate.
    #[serde(default)]
    pub network_interfaces: Vec<NetworkInterface>,
    #[serde(default)]
    pub faults: Vec<Fault>,
}

impl Account {
    /// Adds the resources of another account. Faults are the same in all accounts of a group.
    pub fn merge(&mut self, other: &Self) {
        self.instances.extend(other.instances.iter().cloned());
        self.topology.extend(other.topology.clone());
        self.network_interfaces.extend(other.network_interfaces.iter().cloned());
    }
}

/// An instance of DescribeInstances. `null` omits an element of the answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Instance {
    pub instance_id: String,
    #[serde(default = "running")]
    pub state: Option<String>,
    /// Empty for terminated instances.
    #[serde(default)]
    pub private_dns_name: String,
    pub private_ip_address: Option<String>,
    pub public_ip_address: Option<String>,
    #[serde(default)]
    pub public_dns_name: String,
    #[serde(default = "m5_large")]
    pub instance_type: Option<String>,
    #[serde(default = "first_zone")]
    pub availability_zone: Option<String>,
    #[serde(default = "cluster_vpc")]
    pub vpc_id: String,
    /// Tags; left out: the cluster's.
    #[serde(default = "cluster_tags")]
    pub tags: BTreeMap<String, String>,
    /// Interfaces in EC2's order; left out: one with the primary private address.
    pub network_interfaces: Option<Vec<AttachedInterface>>,
}

/// An interface of DescribeInstances.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AttachedInterface {
    #[serde(default = "in_use")]
    pub status: String,
    /// Index of the device; `null`: no attachment at all.
    #[serde(default = "primary")]
    pub device_index: Option<i32>,
    /// Private IPv4 addresses, the primary one first.
    #[serde(default)]
    pub private_ip_addresses: Vec<String>,
    #[serde(default)]
    pub ipv6_addresses: Vec<String>,
}

/// An interface of DescribeNetworkInterfaces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetworkInterface {
    pub network_interface_id: String,
    pub private_ip_address: String,
    #[serde(default)]
    pub private_dns_name: String,
    #[serde(default)]
    pub ipv6_addresses: Vec<String>,
    #[serde(default = "first_zone")]
    pub availability_zone: Option<String>,
    #[serde(default = "cluster_vpc")]
    pub vpc_id: String,
    #[serde(default = "attached")]
    pub attachment_status: String,
}

/// A refusal of every call of an action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The action, or `*` for all.
    pub action: String,
    pub status: u16,
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl Fault {
    pub fn hits(&self, action: &str) -> bool {
        self.action == "*" || self.action == action
    }
}

fn running() -> Option<String> {
    Some("running".to_owned())
}

fn m5_large() -> Option<String> {
    Some("m5.large".to_owned())
}

fn first_zone() -> Option<String> {
    Some(ZONES[0].0.to_owned())
}

fn cluster_vpc() -> String {
    VPC_ID.to_owned()
}

fn cluster_tags() -> BTreeMap<String, String> {
    BTreeMap::from([(format!("kubernetes.io/cluster/{CLUSTER_ID}"), "owned".to_owned())])
}

fn in_use() -> String {
    "in-use".to_owned()
}

fn attached() -> String {
    "attached".to_owned()
}

fn primary() -> Option<i32> {
    Some(0)
}
