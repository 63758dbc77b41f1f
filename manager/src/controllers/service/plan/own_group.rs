//! Steps for a load balancer's own security group.

use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup, SecurityGroup};

use super::super::error::Environment;
use super::security_groups;
use super::{GroupRef, GroupStep, Planned};

#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The group to create.
    pub new: &'a NewSecurityGroup,
    /// Required tags.
    pub cluster_tags: &'a Tags,
    /// All ingress rules.
    pub ingress: &'a [IpPermission],
}

#[derive(Debug, Default)]
pub struct Steps {
    /// Creation and tags.
    pub made: Vec<Planned>,
    /// Added rules.
    pub opened: Vec<Planned>,
    /// Revoked rules.
    pub closed: Vec<Planned>,
}

/// The steps from the existing group, if there is one, to the wanted one.
/// Fails when the existing group belongs to another cluster.
pub fn steps(wanted: Wanted<'_>, actual: Option<&SecurityGroup>) -> Result<Steps, Environment> {
    let mut steps = Steps::default();
    let Some(group) = actual else {
        let create = GroupStep::Create(wanted.new.clone());
        let reason = "the VPC has no group of this name";
        steps.made.push(Planned::new(create, reason));
        let open = GroupStep::Authorize(GroupRef::Created, wanted.ingress.to_vec());
        steps.opened.push(Planned::new(open, "the group is new"));
        return Ok(steps);
    };

    let missing = security_groups::missing_tags(group, wanted.cluster_tags)?;
    if !missing.is_empty() {
        let reason = "the group lacks tags of the cluster: its creation was cut off";
        let tag = GroupStep::Tag(group.id.clone(), missing);
        steps.made.push(Planned::new(tag, reason));
    }

    let difference = security_groups::difference(wanted.ingress, &group.ingress);
    if !difference.add.is_empty() {
        let step = GroupStep::Authorize(GroupRef::Id(group.id.clone()), difference.add);
        let reason = "ports or client networks are missing";
        steps.opened.push(Planned::new(step, reason));
    }

    if !difference.remove.is_empty() {
        let step = GroupStep::Revoke(group.id.clone(), difference.remove);
        let reason = "the Service does not ask for these";
        steps.closed.push(Planned::new(step, reason));
    }

    Ok(steps)
}
