//! By what a Node's instance is found.

use outrigger_aws::InstanceId;
use outrigger_shared::provider_id::{self, ProviderId};

use crate::node_cache::NodeView;

/// By what a Node's instance is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its ID, from the provider ID or from the Node's name.
    Id(InstanceId),
    /// By the Node's name as its private DNS name.
    PrivateDns(String),
    /// Not at all: the Node is not an EC2 instance; why.
    Foreign(String),
}

impl Target {
    /// The provider ID decides. Without one, a name that starts with `i-` is an instance ID up to the first dot
    /// (resource-based naming, with or without a domain), and any other name is a private DNS name.
    #[must_use]
    pub fn of(node: &NodeView) -> Self {
        match node.provider_id().map(ProviderId::parse) {
            Some(Ok(ProviderId::Instance(id))) => Self::Id(InstanceId::new(id.as_str())),
            Some(Ok(ProviderId::Fargate(id))) => {
                Self::Foreign(format!("{id} is a Fargate node; those are not served yet"))
            }
            Some(Err(error)) => Self::Foreign(error.to_string()),
            None => Self::of_name(node.name()),
        }
    }

    fn of_name(name: &str) -> Self {
        let first = name.split('.').next().unwrap_or_default();
        match provider_id::InstanceId::parse(first) {
            Some(id) => Self::Id(InstanceId::new(id.as_str())),
            None => Self::PrivateDns(name.to_owned()),
        }
    }

    /// The instance ID, where it is known.
    #[must_use]
    pub fn id(&self) -> Option<&InstanceId> {
        if let Self::Id(id) = self { Some(id) } else { None }
    }

    /// The private DNS name, where that is what finds it.
    #[must_use]
    pub fn private_dns(&self) -> Option<&str> {
        if let Self::PrivateDns(name) = self {
            Some(name)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(name: &str, provider_id: &str) -> Target {
        let json = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}});
        Target::of(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn every_shape_of_name_has_its_target() {
        let id = |id: &str| Target::Id(InstanceId::new(id));
        let dns = |name: &str| Target::PrivateDns(name.into());
        for (name, provider_id, wanted) in [
            ("anything", "aws:///us-east-1a/i-1", id("i-1")),
            ("i-2", "aws:///us-east-1a/i-1", id("i-1")),
            ("anything", "i-1", id("i-1")),
            ("i-0123", "", id("i-0123")),
            ("i-0123.ec2.internal", "", id("i-0123")),
            ("i-0123.us-west-2.compute.internal", "", id("i-0123")),
            ("ip-10-0-0-1.ec2.internal", "", dns("ip-10-0-0-1.ec2.internal")),
            ("ip-10-0-0-1", "", dns("ip-10-0-0-1")),
            ("node-1", "", dns("node-1")),
        ] {
            assert_eq!(target(name, provider_id), wanted, "{name} {provider_id}");
        }
        for provider_id in [
            "aws:///z/fargate-ip-1-2-3-4.internal",
            "gce://p/z/n",
            "aws:///z/mi-1",
            "kind://docker/k/n",
        ] {
            assert!(matches!(target("n", provider_id), Target::Foreign(_)), "{provider_id}");
        }
    }
}
