//! The desired load balancer of either kind.

pub mod classic;
pub mod network;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;

use super::super::error::Invalid;
use super::super::settings::Settings;
use super::annotations::{Annotations, Kind};
use super::request;
use super::watched::whole;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    Classic(Box<classic::Desired>),
    Network(Box<network::Desired>),
}

impl Desired {
    pub fn name(&self) -> &str {
        match self {
            Self::Classic(desired) => &desired.name,
            Self::Network(desired) => &desired.name,
        }
    }

    pub fn internal(&self) -> bool {
        match self {
            Self::Classic(desired) => desired.internal,
            Self::Network(desired) => desired.internal,
        }
    }

    /// Tags of the annotation that are set on an existing load balancer: on classic ones only.
    pub fn annotated_tags(&self) -> Tags {
        match self {
            Self::Classic(desired) => desired.annotated_tags.clone(),
            Self::Network(_) => Tags::new(),
        }
    }

    pub fn node_labels(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Classic(desired) => &desired.node_labels,
            Self::Network(desired) => &desired.node_labels,
        }
    }
}

/// The desired load balancer of a Service of type `LoadBalancer`.
/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    whole(service)?;
    let kind = Annotations::of(service).kind();
    request::same_kind(service, kind)?;
    match kind {
        Kind::Network => network::desired(service, settings).map(|desired| Desired::Network(Box::new(desired))),
        Kind::Classic | Kind::External => {
            let desired = classic::desired(service, settings)?;
            Ok(Desired::Classic(Box::new(desired)))
        }
    }
}
