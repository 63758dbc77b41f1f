//! Steps about the load balancer's own security groups.

use std::collections::BTreeSet;

use outrigger_aws::ec2::SecurityGroup;

use super::super::super::error::World;
use super::super::super::plan::{GroupRef, GroupStep, Planned, references};
use super::super::super::security_groups;
use super::super::Step;
use super::super::desired::Groups;
use super::super::observe::Existing;
use super::Question;

/// What is done about the group that is made for the load balancer.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// It is made, and tagged.
    pub made: Vec<Planned>,
    /// It gets the rules that it lacks.
    pub opened: Vec<Planned>,
    /// It loses those that nobody asks for.
    pub closed: Vec<Planned>,
}

/// AWS lets nobody add groups to a load balancer that was made without any.
fn takes_groups(question: Question<'_>) -> bool {
    let existing = question.observed.load_balancer.as_ref();
    existing.is_none_or(|existing| !existing.described.security_groups.is_empty())
}

/// The load balancer's groups in order; none: it keeps what it has.
pub(super) fn wanted(question: Question<'_>) -> Vec<GroupRef> {
    if !takes_groups(question) {
        return Vec::new();
    }
    match &question.desired.groups {
        Groups::Kept => Vec::new(),
        Groups::Given(ids) => ids.iter().cloned().map(GroupRef::Id).collect(),
        Groups::Managed => vec![reference(question.observed.own_group.as_ref())],
    }
}

fn reference(own: Option<&SecurityGroup>) -> GroupRef {
    own.map_or(GroupRef::Created, |group| GroupRef::Id(group.id.clone()))
}

/// The group that is made for the load balancer: with its tags and exactly the wanted ingress.
pub(super) fn own(question: Question<'_>) -> Result<Own, World> {
    let desired = question.desired;
    let mut steps = Own::default();
    if desired.groups != Groups::Managed || !takes_groups(question) {
        return Ok(steps);
    }
    let Some(group) = &question.observed.own_group else {
        let create = GroupStep::Create(desired.own_group.clone());
        steps
            .made
            .push(Planned::new(create, "the VPC has no group of this name"));
        let open = GroupStep::Authorize(GroupRef::Created, desired.ingress.clone());
        steps.opened.push(Planned::new(open, "the group is new"));
        return Ok(steps);
    };
    let missing = security_groups::missing_tags(group, &desired.cluster_tags)?;
    if !missing.is_empty() {
        let reason = "the group lacks tags of the cluster: its creation was cut off";
        steps
            .made
            .push(Planned::new(GroupStep::Tag(group.id.clone(), missing), reason));
    }
    let difference = security_groups::difference(&desired.ingress, &group.ingress);
    if !difference.add.is_empty() {
        let step = GroupStep::Authorize(GroupRef::Id(group.id.clone()), difference.add);
        steps
            .opened
            .push(Planned::new(step, "ports or client networks are missing"));
    }
    if !difference.remove.is_empty() {
        let step = GroupStep::Revoke(group.id.clone(), difference.remove);
        steps
            .closed
            .push(Planned::new(step, "the Service does not ask for these"));
    }
    Ok(steps)
}

/// Gives a load balancer the wanted groups, if there are any and it has others.
pub(super) fn attachment(existing: &Existing, wanted: Vec<GroupRef>) -> Option<Planned> {
    let described = &existing.described;
    let now: BTreeSet<GroupRef> = described.security_groups.iter().cloned().map(GroupRef::Id).collect();
    if wanted.is_empty() || now == wanted.iter().cloned().collect() {
        return None;
    }
    let reason = format!("the load balancer has {} other security groups", now.len());
    Some(Planned::new(
        Step::SetSecurityGroups(described.arn.clone(), wanted),
        reason,
    ))
}

/// The own group of a load balancer that has been given others: nothing uses it any more.
pub(super) fn leftover(question: Question<'_>) -> Vec<Planned> {
    let Question {
        desired,
        settings,
        observed,
        ..
    } = question;
    let (Groups::Given(given), Some(own)) = (&desired.groups, &observed.own_group) else {
        return Vec::new();
    };
    let foreign = security_groups::missing_tags(own, &desired.cluster_tags).is_err();
    if given.contains(&own.id) || foreign || !takes_groups(question) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    if !settings.disable_security_group_ingress {
        steps.extend(references(&observed.referencing, &own.id));
    }
    let reason = "the annotations give the load balancer other groups";
    steps.push(Planned::new(GroupStep::Delete(own.id.clone()), reason));
    steps
}
