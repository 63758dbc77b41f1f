//! Plans the deletion of a load balancer and its resources.

use super::super::super::model::network::OwnedResources;
use super::super::super::settings::Settings;
use super::super::super::spec::owner::other_owner;
use super::super::classic::is_ours;
use super::super::{Plan, Planned, group_deletion};
use super::Step;
use super::node_rules;

/// Deletes everything. After a crash at any step the plan is made again without the steps that are done.
pub fn plan_deletion(owned_resources: &OwnedResources, settings: &Settings) -> Plan {
    let mut steps = Vec::new();
    // Rules of the Nodes' groups are found by the load balancer's name, which another cluster's load balancer may have
    // too.
    let is_ours_to_delete = other_owner(owned_resources.tags.as_ref(), settings).is_none();
    if let Some(arn) = owned_resources.load_balancer.as_ref().filter(|_| is_ours_to_delete) {
        let step = Step::DeleteLoadBalancer(arn.clone());
        steps.push(Planned::new(step, "the Service does not want a load balancer any more"));
    }

    for group in &owned_resources.target_groups {
        let step = Step::DeleteTargetGroup(group.arn.clone());
        steps.push(Planned::new(step, "it was made for the load balancer"));
    }

    if is_ours_to_delete && !settings.disable_security_group_ingress {
        steps.extend(node_rules::removal(owned_resources, settings));
    }

    let own = owned_resources.own_group.as_ref();
    if let Some(group) = own.filter(|group| is_ours(group, &owned_resources.listed, settings)) {
        let reason = "it was made for the load balancer";
        steps.extend(group_deletion(
            &group.id,
            &owned_resources.referencing,
            settings,
            reason,
        ));
    }

    Plan {
        steps,
        ..Plan::default()
    }
}
