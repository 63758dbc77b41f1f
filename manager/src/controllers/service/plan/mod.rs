//! Plans: what is to be done at AWS, step by step.
//!
//! A plan is the same after a crash at any of its steps as it would have been further on: every step is found done
//! by its effect at AWS, never by a memory of having done it.

pub mod classic;
mod dependencies;
pub mod health_rules;
pub mod input;
pub mod network;
pub mod own_group;
pub mod quota;
pub mod revoke_first;
pub mod security_groups;
pub mod subnet_changes;
pub mod subnets;
pub mod targets;

use std::collections::BTreeSet;

use outrigger_aws::ec2::{IpPermission, NewSecurityGroup, SecurityGroup};
use outrigger_aws::{InstanceId, Tags};

use super::error::Environment;
use super::settings::Settings;
use security_groups::rules_from;

pub use security_groups::GroupRef;

/// What is to be done, in order, and what is left for later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The steps, each with its reason.
    pub steps: Vec<Planned>,
    /// Targets that look gone but are too many to be taken away on one look.
    pub unconfirmed: BTreeSet<InstanceId>,
    /// Attached subnets that are not chosen, but may not be detached on one observation.
    pub unchosen_subnets: BTreeSet<String>,
    /// The targets after the steps.
    pub targets: BTreeSet<InstanceId>,
    /// Whether it relies on rules that another load balancer has brought, and that may just be going with it.
    pub uses_shared_rules: bool,
    /// What else cannot be had, to be told when the steps are done.
    pub refused: Option<Environment>,
}

/// What was found; or nothing, and why it cannot be had.
pub fn or_refused<T: Default>(found: Result<T, Environment>) -> (T, Option<Environment>) {
    match found {
        Ok(found) => (found, None),
        Err(world) => (T::default(), Some(world)),
    }
}

impl Plan {
    /// Whether the steps change targets only, as they do when nodes come and go.
    #[must_use]
    pub fn changes_targets_only(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|planned| planned.step.is_of_targets())
    }
}

/// One write at AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// About a security group.
    Group(GroupStep),
    /// About a classic load balancer.
    Classic(classic::Step),
    /// About a network load balancer.
    Network(network::Step),
}

/// A write about a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupStep {
    /// Make the load balancer's own group.
    Create(NewSecurityGroup),
    /// Tag a group.
    Tag(String, Tags),
    /// Add ingress rules to a group.
    Authorize(GroupRef, Vec<IpPermission>),
    /// Take ingress rules from a group.
    Revoke(String, Vec<IpPermission>),
    /// Let a node's group take everything from the load balancer's.
    LetIn {
        /// The node's group.
        node_group: String,
        /// The load balancer's.
        from: GroupRef,
    },
    /// Give ingress rules of a group other descriptions: what they say they are for goes, and others need them. EC2 knows a
    /// rule by what it lets in, so that it has to go and come back. One step, so that nothing comes in between.
    HandOver {
        /// The group.
        group: String,
        /// The rules as they are.
        rules: Vec<IpPermission>,
        /// The same rules, as they are to be.
        to: Vec<IpPermission>,
    },
    /// Delete a group.
    Delete(String),
}

/// A step and why it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What to do.
    pub step: Step,
    /// Why, for the log.
    pub reason: String,
}

impl Planned {
    /// A step with its reason.
    #[must_use]
    pub fn new(step: impl Into<Step>, reason: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            reason: reason.into(),
        }
    }
}

impl From<GroupStep> for Step {
    fn from(step: GroupStep) -> Self {
        Self::Group(step)
    }
}

impl From<classic::Step> for Step {
    fn from(step: classic::Step) -> Self {
        Self::Classic(step)
    }
}

impl From<network::Step> for Step {
    fn from(step: network::Step) -> Self {
        Self::Network(step)
    }
}

impl Step {
    /// The AWS action behind the step.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::Group(step) => step.action(),
            Self::Classic(step) => step.action(),
            Self::Network(step) => step.action(),
        }
    }

    /// The action that removes something, and what it is removed from, for people.
    #[must_use]
    pub fn removes(&self) -> String {
        match self {
            Self::Group(GroupStep::Revoke(id, _) | GroupStep::HandOver { group: id, .. }) => {
                format!("RevokeSecurityGroupIngress {id}")
            }
            Self::Group(GroupStep::Delete(id)) | Self::Network(network::Step::DeleteTargetGroup(id)) => {
                format!("{} {id}", self.action())
            }
            other => other.action().to_owned(),
        }
    }

    /// Whether it creates a load balancer.
    #[must_use]
    pub fn creates_balancer(&self) -> bool {
        self.action() == "CreateLoadBalancer"
    }

    /// Whether it deletes a load balancer.
    #[must_use]
    pub fn deletes_balancer(&self) -> bool {
        matches!(
            self,
            Self::Classic(classic::Step::DeleteLoadBalancer) | Self::Network(network::Step::DeleteLoadBalancer(_))
        )
    }

    /// Whether it adds or takes away targets.
    #[must_use]
    pub fn is_of_targets(&self) -> bool {
        match self {
            Self::Group(_) => false,
            Self::Classic(step) => step.is_of_targets(),
            Self::Network(step) => step.is_of_targets(),
        }
    }
}

impl GroupStep {
    /// The AWS action behind the step.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::Create(_) => "CreateSecurityGroup",
            Self::Tag(..) => "CreateTags",
            Self::Authorize(..) | Self::LetIn { .. } | Self::HandOver { .. } => "AuthorizeSecurityGroupIngress",
            Self::Revoke(..) => "RevokeSecurityGroupIngress",
            Self::Delete(_) => "DeleteSecurityGroup",
        }
    }
}

/// Deletes a group that was made for a load balancer, after all rules that name it: EC2 keeps it until none does. Where such
/// a rule is not ours to touch the group stays, as every deletion would fail; the sweep tells of it.
#[must_use]
pub fn group_deletion(group: &str, referencing: &[SecurityGroup], settings: &Settings, reason: &str) -> Vec<Planned> {
    let names = |other: &&SecurityGroup| other.id != group && !rules_from(other, group).is_empty();
    let is_unmanaged = |other: &SecurityGroup| settings.disable_security_group_ingress || settings.is_frozen(&other.id);
    if referencing.iter().filter(names).any(is_unmanaged) {
        return Vec::new();
    }
    let mut steps = references(referencing, group);
    steps.push(Planned::new(GroupStep::Delete(group.to_owned()), reason));
    steps
}

/// Takes away all rules that name a group which is about to be deleted.
fn references(referencing: &[SecurityGroup], group: &str) -> Vec<Planned> {
    let others = referencing.iter().filter(|other| other.id != group);
    let revoke = others.filter_map(|other| {
        let rules = rules_from(other, group);
        let step = GroupStep::Revoke(other.id.clone(), rules.clone());
        (!rules.is_empty()).then(|| Planned::new(step, "the rule names a group that is about to be deleted"))
    });
    revoke.collect()
}
