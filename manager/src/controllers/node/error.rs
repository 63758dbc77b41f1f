//! Errors of a Node's initialization, and errors that end the controller.

use std::net::IpAddr;

use outrigger_leader::NotLeader;

use crate::node_cache::Address;
use crate::node_write::WriteError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}

/// Why a Node is not initialized yet.
#[derive(Debug, thiserror::Error)]
pub enum Waiting {
    #[error("EC2 lists no instance for this Node, or a terminated one; searched for {0}")]
    InstanceNotFound(String),
    #[error("{0} instances have the private DNS name {1:?}; give the kubelet a --provider-id or make the name unique")]
    Ambiguous(usize, String),
    #[error("{0}")]
    Foreign(String),
    /// The instance that was found is not the Node's own.
    #[error("{0}")]
    Refused(String),
    #[error("EC2 reports no availability zone for {0}")]
    NoZone(String),
    #[error("EC2 does not list the zone {0:?}, so the label topology.k8s.aws/zone-id has no value")]
    UnknownZone(String),
    #[error("EC2 reports the invalid IP address {0:?}")]
    BadAddress(String),
    #[error("the annotation {annotation} is {text:?}: expected one IP address, or two of different families")]
    ProvidedIpUnreadable { annotation: &'static str, text: String },
    #[error(
        "the kubelet's --node-ip is {provided}, but {missing} is not an address of the instance, which has {}{}",
        list(.have),
        hint(*.missing, .have)
    )]
    ProvidedIpNotFound {
        /// All that the kubelet was given.
        provided: String,
        /// The first of them that is not the instance's.
        missing: IpAddr,
        have: Vec<Address>,
    },
    #[error("the call to AWS failed: {0}")]
    Cloud(outrigger_aws::Error),
    #[error("the Node could not be written: {0}")]
    Write(WriteError),
}

impl Waiting {
    /// The reason as a label of a metric: one of a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InstanceNotFound(_) => "InstanceNotFound",
            Self::Ambiguous(..) => "AmbiguousName",
            Self::Foreign(_) => "NotAnInstance",
            Self::Refused(_) => "ProviderIDRefused",
            Self::NoZone(_) => "NoZone",
            Self::UnknownZone(_) => "UnknownZone",
            Self::BadAddress(_) => "BadAddress",
            Self::ProvidedIpUnreadable { .. } => "ProvidedNodeIPUnreadable",
            Self::ProvidedIpNotFound { .. } => "ProvidedNodeIPNotFound",
            Self::Cloud(error) if error.kind() == outrigger_aws::Kind::AccessDenied => "AccessDenied",
            Self::Cloud(error) if error.kind() == outrigger_aws::Kind::Throttled => "Throttled",
            Self::Cloud(_) => "CloudError",
            Self::Write(WriteError::Conflict(_)) => "Conflict",
            Self::Write(_) => "WriteError",
        }
    }
}

/// The usual reason why a family has no address.
fn hint(missing: IpAddr, have: &[Address]) -> &'static str {
    let family_is_there = have
        .iter()
        .filter_map(|address| address.address.parse::<IpAddr>().ok())
        .any(|ip| ip.is_ipv4() == missing.is_ipv4());
    if family_is_there {
        ""
    } else if missing.is_ipv6() {
        "; IPv6 addresses are read only with NodeIPFamilies=ipv6 in the cloud configuration"
    } else {
        "; IPv4 addresses are read only with NodeIPFamilies=ipv4 in the cloud configuration, or without that key"
    }
}

fn list(addresses: &[Address]) -> String {
    if addresses.is_empty() {
        return "none".into();
    }
    addresses
        .iter()
        .map(|address| format!("{} {}", address.kind, address.address))
        .collect::<Vec<_>>()
        .join(", ")
}
