//! The load balancer that a Service asks for, whatever its kind.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;

use super::super::error::Invalid;
use super::super::settings::Settings;
use super::annotations::{Annotations, Kind};
use super::{classic, hostname, network};

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// A classic load balancer.
    Classic(Box<classic::Desired>),
    /// A network load balancer.
    Network(Box<network::Desired>),
}

impl Desired {
    /// The load balancer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Classic(desired) => &desired.name,
            Self::Network(desired) => &desired.name,
        }
    }

    /// Whether the Service asks for a load balancer that is only reachable within the VPC.
    #[must_use]
    pub fn internal(&self) -> bool {
        match self {
            Self::Classic(desired) => desired.internal,
            Self::Network(desired) => desired.internal,
        }
    }

    /// The tags of the annotation that are set on a load balancer that exists: on classic ones only.
    #[must_use]
    pub fn annotated_tags(&self) -> Tags {
        match self {
            Self::Classic(desired) => desired.annotated_tags.clone(),
            Self::Network(_) => Tags::new(),
        }
    }

    /// Labels that a Node must have to be a target.
    #[must_use]
    pub fn node_labels(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Classic(desired) => &desired.node_labels,
            Self::Network(desired) => &desired.node_labels,
        }
    }
}

/// The model for a Service of type `LoadBalancer` whose load balancer is made here.
///
/// # Errors
/// The first thing that cannot be met, in the order in which the in-tree provider looks.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let kind = Annotations::of(service).kind();
    hostname::same_kind(service, kind)?;
    match kind {
        Kind::Network => {
            let desired = network::desired::desired(service, settings)?;
            Ok(Desired::Network(Box::new(desired)))
        }
        Kind::Classic | Kind::External => Ok(Desired::Classic(Box::new(classic::desired::desired(
            service, settings,
        )?))),
    }
}
