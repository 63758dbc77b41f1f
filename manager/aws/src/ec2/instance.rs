//! Instances.

use std::fmt;

use crate::Tags;

/// An EC2 instance ID, for example `i-0123456789abcdef0`. EC2 itself is the judge of its form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(String);

impl InstanceId {
    /// Takes the text as it is.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The ID as text.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The instance's ID.
    pub id: InstanceId,
    /// Private DNS name; EC2 sends an empty one before the instance has an address, which reads as `None`.
    pub private_dns_name: Option<String>,
    /// Public DNS name.
    pub public_dns_name: Option<String>,
    /// Primary private IPv4 address, as text.
    pub private_ip: Option<String>,
    /// Public IPv4 address, as text.
    pub public_ip: Option<String>,
    /// Name of the availability zone, for example `eu-central-1a`.
    pub availability_zone: Option<String>,
    /// For example `m5.large`.
    pub instance_type: Option<String>,
    /// State, where EC2 told one.
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
    /// Whether packets that are neither from nor to the instance are dropped, where EC2 told.
    pub source_dest_check: Option<bool>,
}

impl Instance {
    /// An instance of which nothing but its ID is known.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: InstanceId::new(id),
            private_dns_name: None,
            public_dns_name: None,
            private_ip: None,
            public_ip: None,
            availability_zone: None,
            instance_type: None,
            state: None,
            launched: None,
            vpc_id: None,
            subnet_id: None,
            tags: Tags::new(),
            security_groups: Vec::new(),
            network_interfaces: Vec::new(),
            source_dest_check: None,
        }
    }
}

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
    /// The interface's ID.
    pub id: Option<String>,
    pub vpc_id: Option<String>,
    /// Name of the availability zone.
    pub availability_zone: Option<String>,
    /// Primary private IPv4 address, as text.
    pub private_ip: Option<String>,
    /// Private DNS name.
    pub private_dns_name: Option<String>,
    /// IPv6 addresses in EC2's order, as text.
    pub ipv6: Vec<String>,
}
