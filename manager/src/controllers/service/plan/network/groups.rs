//! Steps for the load balancer's own security groups.

use std::collections::BTreeSet;

use outrigger_aws::ec2::SecurityGroup;

use super::super::super::error::Environment;
use super::super::super::model::network::Existing;
use super::super::super::spec::network::desired::Groups;
use super::super::classic::is_ours;
use super::super::input::NetworkInput;
use super::super::{GroupRef, Planned, group_deletion};
use super::super::{own_group, security_groups};
use super::Step;

/// AWS allows no groups on a load balancer that was created without any.
fn takes_groups(input: NetworkInput<'_>) -> bool {
    let existing = input.observed.load_balancer.as_ref();
    existing.is_none_or(|existing| !existing.described.security_groups.is_empty())
}

/// The load balancer's groups in order; empty: it keeps its groups.
pub(super) fn wanted(input: NetworkInput<'_>) -> Vec<GroupRef> {
    if !takes_groups(input) {
        return Vec::new();
    }
    match &input.desired.groups {
        Groups::Kept => Vec::new(),
        Groups::Given(ids) => ids.iter().cloned().map(GroupRef::Id).collect(),
        Groups::Managed => vec![reference(input.observed.own_group.as_ref())],
    }
}

fn reference(own: Option<&SecurityGroup>) -> GroupRef {
    own.map_or(GroupRef::Created, |group| GroupRef::Id(group.id.clone()))
}

/// The load balancer's own group, with tags and exactly the wanted ingress.
pub(super) fn own(input: NetworkInput<'_>) -> Result<own_group::Steps, Environment> {
    let desired = input.desired;
    if desired.groups != Groups::Managed || !takes_groups(input) {
        return Ok(own_group::Steps::default());
    }

    let wanted = own_group::Wanted {
        new: &desired.own_group,
        cluster_tags: &desired.cluster_tags,
        ingress: &desired.ingress,
    };

    own_group::steps(wanted, input.observed.own_group.as_ref())
}

/// Sets the wanted groups, if there are any and the load balancer has others.
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

/// The own group of a load balancer that uses given groups now.
pub(super) fn leftover(input: NetworkInput<'_>) -> Vec<Planned> {
    let NetworkInput {
        desired,
        settings,
        observed,
        ..
    } = input;
    let (Groups::Given(given), Some(own)) = (&desired.groups, &observed.own_group) else {
        return Vec::new();
    };

    let foreign = security_groups::missing_tags(own, &desired.cluster_tags).is_err();
    if foreign || !is_ours(own, given, settings) || !takes_groups(input) {
        return Vec::new();
    }

    let reason = "the annotations give the load balancer other groups";
    group_deletion(&own.id, &observed.referencing, settings, reason)
}
