//! Steps that change security groups.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::SecurityGroup;

use super::super::super::error::Environment;
use super::super::super::model::classic::Observed;
use super::super::super::spec::classic::desired::{Desired, Groups};
use super::super::super::spec::names;
use super::super::input::ClassicInput;
use super::super::{GroupRef, GroupStep, Planned, group_deletion};
use super::super::{own_group, security_groups};
use super::deletion::is_ours;

/// The load balancer's groups in order. Nodes allow traffic from the first.
pub(super) fn wanted(desired: &Desired, own: Option<&SecurityGroup>) -> Vec<GroupRef> {
    let listed = |ids: &[String]| ids.iter().cloned().map(GroupRef::Id).collect::<Vec<_>>();
    let mut groups = match &desired.groups {
        Groups::Given(given) => listed(given),
        Groups::Own { extra } => {
            let first = own.map_or(GroupRef::Created, |group| GroupRef::Id(group.id.clone()));
            [vec![first], listed(extra)].concat()
        }
    };
    let mut seen = BTreeSet::new();
    groups.retain(|group| seen.insert(group.clone()));

    groups
}

/// The load balancer's own group, with tags and exactly the wanted ingress; missing rules are added first.
pub(super) fn own(desired: &Desired, observed: &Observed) -> Result<Vec<Planned>, Environment> {
    if matches!(desired.groups, Groups::Given(_)) {
        return Ok(Vec::new());
    }

    let wanted = own_group::Wanted {
        new: &desired.own_group,
        cluster_tags: &desired.cluster_tags,
        ingress: &desired.ingress,
    };
    let steps = own_group::steps(wanted, observed.own_group.as_ref())?;
    Ok([steps.made, steps.opened, steps.closed].concat())
}

/// Changes of the Nodes' groups: added before targets are registered, removed after targets are deregistered.
#[derive(Debug, Default)]
pub(super) struct NodeRules {
    pub add: Vec<Planned>,
    pub remove: Vec<Planned>,
}

/// Rules of the targets' groups that allow traffic from the load balancer.
///
/// Rules are revoked only in groups of the cluster, only in the form created here, and only if every target's groups
/// are known.
pub(super) fn of_nodes<D>(
    input: ClassicInput<'_, D>,
    source: Option<&GroupRef>,
    targets: &BTreeSet<InstanceId>,
) -> Result<NodeRules, Environment> {
    let ClassicInput { settings, observed, .. } = input;
    let Some(source) = source.filter(|_| !settings.disable_security_group_ingress) else {
        return Ok(NodeRules::default());
    };

    let wanted = security_groups::of_targets(targets, &observed.instances, &observed.groups, &settings.cluster_id)?;
    let known = match source {
        GroupRef::Id(id) => Some(id.as_str()),
        GroupRef::Created => None,
    };
    let open = |id: &String| {
        let group = observed.groups.get(id);
        group
            .zip(known)
            .is_some_and(|(group, source)| security_groups::lets_in_all_from(group, source))
    };
    let missing = wanted.iter().filter(|id| !open(id) && !settings.is_frozen(id));
    let add = missing.map(|id| {
        let step = GroupStep::LetIn {
            node_group: id.clone(),
            from: source.clone(),
        };
        Planned::new(step, "targets of this group cannot be reached from the load balancer")
    });
    let all_described = targets.iter().all(|target| observed.instances.contains_key(target));
    // Others may depend on rules that name a shared group.
    let is_own = observed
        .own_group
        .as_ref()
        .is_some_and(|own| known == Some(own.id.as_str()));
    let removable = |group: &&SecurityGroup| {
        all_described
            && is_own
            && known != Some(group.id.as_str())
            && !settings.is_frozen(&group.id)
            && !wanted.contains(&group.id)
            && names::in_cluster(&group.tags, &settings.cluster_id)
    };

    let remove = observed.referencing.iter().filter(removable).filter_map(|group| {
        let mut rules = security_groups::rules_from(group, known?);
        rules.retain(|rule| rule.protocol == "-1");
        let step = GroupStep::Revoke(group.id.clone(), rules.clone());
        (!rules.is_empty()).then(|| Planned::new(step, "no target has this group any more"))
    });

    Ok(NodeRules {
        add: add.collect(),
        remove: remove.collect(),
    })
}

/// The own group of a load balancer that uses given groups now.
pub(super) fn leftover(input: ClassicInput<'_>) -> Vec<Planned> {
    let ClassicInput {
        desired,
        settings,
        observed,
        ..
    } = input;
    let (Groups::Given(given), Some(own)) = (&desired.groups, &observed.own_group) else {
        return Vec::new();
    };

    let foreign = security_groups::missing_tags(own, &desired.cluster_tags).is_err();
    if foreign || !is_ours(own, given, settings) {
        return Vec::new();
    }
    // If the Nodes' groups are not managed, a rule there may name the group, and EC2 would refuse each deletion.
    if settings.disable_security_group_ingress {
        return Vec::new();
    }

    let reason = "the annotations give the load balancer other groups";
    group_deletion(&own.id, &observed.referencing, settings, reason)
}
