//! Steps that create and update target groups.

use outrigger_aws::elbv2::{Attributes, HealthCheckChange, NewTargetGroup, TargetHealthCheck};

use super::super::super::error::Environment;
use super::super::super::model::network::Group;
use super::super::super::spec::network::attributes;
use super::super::super::spec::network::ports::Port;
use super::super::Planned;
use super::super::input::NetworkInput;
use super::targets::{self, Goal};
use super::{Step, TargetGroupRef};

/// A group is created with all its targets before a listener forwards to it.
pub(super) fn creation(port: &Port, vpc: &str, goal: &Goal, reason: &str) -> Vec<Planned> {
    let new = NewTargetGroup {
        vpc_id: vpc.to_owned(),
        ..port.target_group.clone()
    };
    let created = TargetGroupRef::Created(new.name.clone());
    let mut steps = vec![Planned::new(Step::CreateTargetGroup(new), reason)];
    steps.extend(targets::of_new(goal, created, port.target_group.port));

    steps
}

/// The attributes of all groups of a new load balancer.
pub(super) fn attributes_of_new(input: NetworkInput<'_>) -> Vec<Planned> {
    let made = input.desired.ports.iter().filter(|port| spare(input, port).is_none());
    made.filter_map(|port| attributes_of_created(input, port)).collect()
}

/// The attributes of a new group.
pub(super) fn attributes_of_created(input: NetworkInput<'_>, port: &Port) -> Option<Planned> {
    let created = TargetGroupRef::Created(port.target_group.name.clone());
    changed_attributes(input, created, Some(&attributes::of_new_target_group()))
}

/// Updates of a kept group: targets, health check, attributes.
pub(super) fn upkeep(input: NetworkInput<'_>, port: &Port, group: &Group, goal: &Goal) -> Vec<Planned> {
    let arn = &group.described.arn;
    let mut steps: Vec<Planned> = targets::of_kept(goal, group, port.target_group.port)
        .into_iter()
        .collect();
    if let Some(change) = health_check_change(&port.target_group.health_check, &group.described.health_check) {
        steps.push(Planned::new(
            Step::ModifyTargetGroup(arn.clone(), change),
            "the health check is another one",
        ));
    }

    let of_group = TargetGroupRef::Arn(arn.clone());
    steps.extend(changed_attributes(input, of_group, group.attributes.as_ref()));

    steps
}

fn changed_attributes(input: NetworkInput<'_>, group: TargetGroupRef, actual: Option<&Attributes>) -> Option<Planned> {
    let wanted = input.desired.target_group_attributes.as_ref()?;
    let differences = attributes::target_group_differences(wanted, actual?);
    let names: Vec<&str> = differences.keys().map(String::as_str).collect();
    let reason = format!("attributes differ: {}", names.join(", "));
    (!differences.is_empty()).then(|| Planned::new(Step::ModifyTargetGroupAttributes(group, differences), reason))
}

/// The differences of the changeable part of a health check. AWS does not distinguish an empty path from its default.
fn health_check_change(wanted: &TargetHealthCheck, actual: &TargetHealthCheck) -> Option<HealthCheckChange> {
    let path = wanted
        .path
        .as_ref()
        .filter(|path| !path.is_empty() && actual.path.as_ref() != Some(*path));
    let number = |wanted: i32, actual: i32| (wanted != actual).then_some(wanted);
    let change = HealthCheckChange {
        port: (wanted.port != actual.port).then(|| wanted.port.clone()),
        path: path.cloned(),
        healthy_threshold: number(wanted.healthy_threshold, actual.healthy_threshold),
        unhealthy_threshold: number(wanted.unhealthy_threshold, actual.unhealthy_threshold),
    };

    (change != HealthCheckChange::default()).then_some(change)
}

/// An unused target group that can serve a port.
pub(super) fn spare<'a>(input: NetworkInput<'a>, port: &Port) -> Option<&'a Group> {
    let usable =
        |group: &&Group| group.described.name == port.target_group.name && is_free(group) && group.serves(port);
    input.observed.spare.iter().find(usable)
}

/// Whether no load balancer uses a target group.
pub(super) fn is_free(group: &Group) -> bool {
    group.described.load_balancers.is_empty()
}

/// Whether a target group has the name of one that the plan creates, so that it is deleted before.
pub(super) fn is_wanted_name(input: NetworkInput<'_>, group: &Group) -> bool {
    let named = |port: &Port| port.target_group.name == group.described.name;
    input.desired.ports.iter().any(named)
}

/// An unused target group with the name of a new one, which cannot serve its port.
pub(super) fn in_the_way_of_new<'a>(input: NetworkInput<'a>, port: &Port) -> Result<Option<&'a Group>, Environment> {
    let named = |group: &&Group| group.described.name == port.target_group.name;
    match input.observed.spare.iter().find(named) {
        Some(group) if !is_free(group) => Err(Environment::TargetGroupTaken {
            name: group.described.name.clone(),
            load_balancer: group
                .described
                .load_balancers
                .iter()
                .next()
                .cloned()
                .unwrap_or_default(),
        }),
        found => Ok(found),
    }
}

pub(super) fn deletion(group: &Group) -> Planned {
    let step = Step::DeleteTargetGroup(group.described.arn.clone());
    Planned::new(step, "no listener uses this target group any more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_of_a_health_check_is_sent() {
        let check = TargetHealthCheck {
            protocol: "HTTP".into(),
            port: "10256".into(),
            path: Some("/healthz".into()),
            interval: 30,
            healthy_threshold: 3,
            unhealthy_threshold: 3,
        };
        assert_eq!(health_check_change(&check, &check), None);
        let tired = TargetHealthCheck {
            unhealthy_threshold: 5,
            ..check.clone()
        };
        let change = health_check_change(&tired, &check).unwrap();
        assert_eq!(change.unhealthy_threshold, Some(5));
        assert_eq!((change.port, change.path, change.healthy_threshold), (None, None, None));
        let moved = TargetHealthCheck {
            path: Some("/ready".into()),
            ..check.clone()
        };
        let change = health_check_change(&moved, &check).unwrap();
        assert_eq!((change.path.as_deref(), change.port), (Some("/ready"), None));
        let tcp = TargetHealthCheck {
            path: None,
            ..check.clone()
        };
        assert_eq!(health_check_change(&tcp, &check), None);
    }
}
