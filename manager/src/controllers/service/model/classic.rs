//! A classic load balancer and what belongs to it, as AWS describes them.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elb::{Attributes, LoadBalancer};
use outrigger_aws::{InstanceId, Tags};

use super::{NodeInstance, Vpc};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    pub described: LoadBalancer,
    pub attributes: Option<Attributes>,
    pub tags: KnownTags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    pub load_balancer: Option<Existing>,
    /// The group that was created for it.
    pub own_group: Option<SecurityGroup>,
    pub vpc: Vpc,
    /// The instances of the candidates, as far as EC2 lists them.
    pub instances: BTreeMap<InstanceId, NodeInstance>,
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Groups with a rule that names a group of the load balancer.
    pub referencing: Vec<SecurityGroup>,
    /// Attached subnets that an earlier observation, long enough ago, has not chosen.
    pub unchosen_before: BTreeSet<String>,
}

impl Observed {
    pub fn scheme(&self) -> Option<&str> {
        self.load_balancer.as_ref()?.described.scheme.as_deref()
    }

    pub fn has_listeners(&self) -> bool {
        let existing = self.load_balancer.as_ref();
        existing.is_some_and(|existing| !existing.described.listeners.is_empty())
    }

    pub fn attached(&self) -> BTreeSet<String> {
        let subnets = self.load_balancer.as_ref().map(|existing| &existing.described.subnets);
        subnets.cloned().unwrap_or_default()
    }
}

/// The AWS resources of a Service that is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnedResources {
    pub load_balancer: bool,
    /// That load balancer's tags; `None`: they are not known.
    pub tags: Option<Tags>,
    /// The group that was created for it, found by name: also when the load balancer is gone or was never created.
    pub own_group: Option<SecurityGroup>,
    /// Groups with a rule that names that group.
    pub referencing: Vec<SecurityGroup>,
    /// Groups that the Service's annotations list; they have other owners.
    pub listed: Vec<String>,
}

/// Tags of a load balancer, which the role may be unable to read. Unknown tags are not absent ones: they are not
/// repaired, and never prove that a resource is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownTags {
    Read(Tags),
    Unknown {
        /// Tags of the Service's annotation that this process has set.
        set: Tags,
    },
}

impl Default for KnownTags {
    fn default() -> Self {
        Self::Read(Tags::new())
    }
}

impl KnownTags {
    /// `None`: AWS denied the read.
    pub fn of(read: Option<Tags>) -> Self {
        match read {
            Some(tags) => Self::Read(tags),
            None => Self::Unknown { set: Tags::new() },
        }
    }

    /// Adds the tags that this process has set, if the others are unknown.
    pub fn or_set(self, by_this_process: &Tags) -> Self {
        match self {
            Self::Read(tags) => Self::Read(tags),
            Self::Unknown { .. } => Self::Unknown {
                set: by_this_process.clone(),
            },
        }
    }
}
