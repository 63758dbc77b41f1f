//! Network interfaces of Fargate nodes, which have no instance.

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
