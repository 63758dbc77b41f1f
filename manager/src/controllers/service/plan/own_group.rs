//! Steps about the security group that is made for a load balancer. Pure.

use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup, SecurityGroup};

use super::super::error::Environment;
use super::security_groups;
use super::{GroupRef, GroupStep, Planned};

/// The group that a load balancer is to have.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// As it is made.
    pub new: &'a NewSecurityGroup,
    /// The tags that it must not lack.
    pub cluster_tags: &'a Tags,
    /// Its ingress, exactly.
    pub ingress: &'a [IpPermission],
}

/// What is done about it.
#[derive(Debug, Default)]
pub struct Steps {
    /// It is made, and tagged.
    pub made: Vec<Planned>,
    /// It gets the rules that it lacks.
    pub opened: Vec<Planned>,
    /// It loses those that nobody asks for.
    pub closed: Vec<Planned>,
}

/// The way from the group that is there, if one is, to the wanted one.
///
/// # Errors
/// When the group that is there belongs to another cluster.
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
