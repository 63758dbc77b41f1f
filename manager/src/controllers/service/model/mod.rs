//! Observed AWS resources of a Service. No IO.

pub mod classic;
pub mod network;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use outrigger_aws::ec2::{AvailabilityZone, RouteTable, Subnet};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vpc {
    /// Candidates and attached subnets.
    pub subnets: Vec<Subnet>,
    /// IDs that EC2 has found by the names of the annotation, which may contain wildcards.
    pub named: BTreeSet<String>,
    /// The VPC's route tables; empty if the annotation lists subnets.
    pub route_tables: Vec<RouteTable>,
    /// The region's zones; empty if the annotation lists subnets.
    pub zones: Vec<AvailabilityZone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInstance {
    pub in_cluster: bool,
    /// Whether it is not terminated or terminating.
    pub living: bool,
    /// By which its machine may be named.
    pub addresses: Vec<Ipv4Addr>,
    pub security_groups: Vec<String>,
}
