//! The platform that runs a Node.

use std::sync::Arc;

use outrigger_aws::Instance;
use outrigger_aws::ec2::FargateEni;

#[derive(Debug, Clone)]
pub enum Host {
    /// An EC2 instance.
    Instance(Arc<Instance>),
    /// Fargate, of which EC2 shows the network interface alone.
    Fargate(Arc<FargateEni>),
}

impl Host {
    /// The availability zone.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        let zone = match self {
            Self::Instance(instance) => &instance.availability_zone,
            Self::Fargate(interface) => &interface.availability_zone,
        };
        some(zone)
    }

    /// The instance type. Fargate has none.
    #[must_use]
    pub fn instance_type(&self) -> Option<&str> {
        match self {
            Self::Instance(instance) => some(&instance.instance_type),
            Self::Fargate(_) => None,
        }
    }

    /// The ID at EC2, for people.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Instance(instance) => instance.id.as_str(),
            Self::Fargate(interface) => interface.id.as_deref().unwrap_or("a Fargate interface"),
        }
    }

    /// The provider ID of a Node that has none; one on Fargate always has one.
    #[must_use]
    pub fn provider_id(&self, zone: &str) -> Option<String> {
        match self {
            Self::Instance(instance) => Some(format!("aws:///{zone}/{}", instance.id)),
            Self::Fargate(_) => None,
        }
    }
}

/// Text that says something.
pub(super) fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}
