//! Steps that delete what a Service has at AWS.

use super::super::super::model::network::Doomed;
use super::super::super::settings::Settings;
use super::super::super::spec::owner::other_owner;
use super::super::classic::is_ours;
use super::super::{Plan, Planned, group_deletion};
use super::Step;
use super::node_rules;

/// The plan that leaves nothing. It can be made again after a crash at any step: each step that was done is no
/// longer seen.
#[must_use]
pub fn plan_deletion(doomed: &Doomed, settings: &Settings) -> Plan {
    let mut steps = Vec::new();
    // The rules of nodes are for the load balancer of this name, and so another cluster's as well.
    let is_ours_to_delete = other_owner(doomed.tags.as_ref(), settings).is_none();
    if let Some(arn) = doomed.load_balancer.as_ref().filter(|_| is_ours_to_delete) {
        let step = Step::DeleteLoadBalancer(arn.clone());
        steps.push(Planned::new(step, "the Service does not want a load balancer any more"));
    }
    for group in &doomed.target_groups {
        let step = Step::DeleteTargetGroup(group.arn.clone());
        steps.push(Planned::new(step, "it was made for the load balancer"));
    }
    if is_ours_to_delete && !settings.disable_security_group_ingress {
        steps.extend(node_rules::removal(doomed, settings));
    }
    let own = doomed.own_group.as_ref();
    if let Some(group) = own.filter(|group| is_ours(group, &doomed.listed, settings)) {
        let reason = "it was made for the load balancer";
        steps.extend(group_deletion(&group.id, &doomed.referencing, settings, reason));
    }
    Plan {
        steps,
        ..Plan::default()
    }
}
