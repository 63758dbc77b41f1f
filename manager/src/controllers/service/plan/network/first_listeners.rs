//! The listeners of a new load balancer, in the order of the in-tree provider.

use std::collections::BTreeSet;

use outrigger_aws::ec2::Subnet;

use super::super::super::error::Environment;
use super::super::super::spec::network::ports::Port;
use super::super::Planned;
use super::super::input::NetworkInput;
use super::target_groups;
use super::target_groups::{deletion, in_the_way_of_new, is_free, is_wanted_name, spare};
use super::targets::Goal;
use super::{BalancerRef, Step, TargetGroupRef};

pub(super) fn of_new(input: NetworkInput<'_>, subnets: &[Subnet], goal: &Goal) -> Result<Vec<Planned>, Environment> {
    let vpc = subnets.iter().find_map(|subnet| subnet.vpc_id.as_deref());
    let vpc = vpc.unwrap_or(&input.settings.vpc_id);
    let mut steps = Vec::new();

    for port in &input.desired.ports {
        let group = match spare(input, port) {
            Some(group) => {
                steps.extend(target_groups::upkeep(input, port, group, goal));
                TargetGroupRef::Arn(group.described.arn.clone())
            }
            None => {
                steps.extend(in_the_way_of_new(input, port)?.map(deletion));
                steps.extend(target_groups::creation(port, vpc, goal, "the load balancer is new"));
                TargetGroupRef::Created(port.target_group.name.clone())
            }
        };
        steps.push(listener_creation(
            input,
            BalancerRef::Created,
            port,
            group,
            "the load balancer is new",
        ));
    }

    let used: BTreeSet<&str> = input
        .desired
        .ports
        .iter()
        .filter_map(|port| Some(spare(input, port)?.described.arn.as_str()))
        .collect();
    let unused = input
        .observed
        .spare
        .iter()
        .filter(|group| !used.contains(group.described.arn.as_str()));

    steps.extend(
        unused
            .filter(|group| is_free(group) && !is_wanted_name(input, group))
            .map(deletion),
    );

    Ok(steps)
}

pub(super) fn listener_creation(
    input: NetworkInput<'_>,
    balancer: BalancerRef,
    port: &Port,
    group: TargetGroupRef,
    reason: &str,
) -> Planned {
    let step = Step::CreateListener {
        balancer,
        listener: port.listener.clone(),
        group,
        tags: input.desired.tags.clone(),
    };
    Planned::new(step, reason)
}
