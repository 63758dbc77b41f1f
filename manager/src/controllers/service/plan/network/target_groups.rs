//! Steps that create and update target groups.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::{Attributes, HealthCheckChange, NewTargetGroup, Target, TargetHealthCheck};

use super::super::super::error::Environment;
use super::super::super::model::network::{Group, Observed};
use super::super::super::spec::desired::network::{Port, attributes_of_new_target_group, target_group_differences};
use super::super::{NetworkInput, NetworkStep as Step, Planned, Step as PlanStep, TargetGroupRef, targets};

/// A group is created with all its targets before a listener forwards to it.
pub(super) fn creation(port: &Port, vpc: &str, goal: &Goal, reason: &str) -> Vec<Planned> {
    let new = NewTargetGroup {
        vpc_id: vpc.to_owned(),
        ..port.target_group.clone()
    };
    let group = TargetGroupRef::Created(new.name.clone());
    let add: Vec<Target> = goal.joining(new.port).collect();
    let mut steps = vec![Planned::new(Step::CreateTargetGroup(new), reason)];

    if !add.is_empty() {
        let step = Step::ChangeTargets {
            group,
            add,
            remove: Vec::new(),
            needed: true,
        };
        steps.push(Planned::new(step, "the target group is new"));
    }

    steps
}

/// The attributes of all groups of a new load balancer.
pub(super) fn attributes_of_new(input: NetworkInput<'_>) -> Vec<Planned> {
    let made = input.desired.ports.iter().filter(|port| spare(input, port).is_none());
    made.filter_map(|port| attributes_of_created(input, port)).collect()
}

pub(super) fn attributes_of_created(input: NetworkInput<'_>, port: &Port) -> Option<Planned> {
    let created = TargetGroupRef::Created(port.target_group.name.clone());
    changed_attributes(input, created, Some(&attributes_of_new_target_group()))
}

/// Updates of a kept group: targets, health check, attributes.
pub(super) fn upkeep(input: NetworkInput<'_>, port: &Port, group: &Group, goal: &Goal) -> Vec<Planned> {
    let arn = &group.described.arn;
    let change = targets_of_kept(goal, group, port.target_group.port);
    let mut steps: Vec<Planned> = change.into_iter().collect();
    if let Some(change) = health_check_change(&port.target_group.health_check, &group.described.health_check) {
        let step = Step::ModifyTargetGroup(arn.clone(), change);
        steps.push(Planned::new(step, "the health check differs"));
    }

    let of_group = TargetGroupRef::Arn(arn.clone());
    steps.extend(changed_attributes(input, of_group, group.attributes.as_ref()));

    steps
}

fn changed_attributes(input: NetworkInput<'_>, group: TargetGroupRef, actual: Option<&Attributes>) -> Option<Planned> {
    let wanted = input.desired.target_group_attributes.as_ref()?;
    let differences = target_group_differences(wanted, actual?);
    let names: Vec<&str> = differences.keys().map(String::as_str).collect();
    let reason = format!("attributes differ: {}", names.join(", "));
    (!differences.is_empty()).then(|| Planned::new(Step::ModifyTargetGroupAttributes(group, differences), reason))
}

/// The differences of the changeable part of a health check. AWS does not distinguish an empty path from its default.
fn health_check_change(wanted: &TargetHealthCheck, actual: &TargetHealthCheck) -> Option<HealthCheckChange> {
    let path = wanted.path.as_ref().filter(|path| !path.is_empty());
    let path = path.filter(|path| actual.path.as_ref() != Some(*path));
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

pub(super) fn is_free(group: &Group) -> bool {
    group.described.load_balancers.is_empty()
}

/// Whether a target group has the name of one that a port needs: it is used, or deleted before that one is created.
pub(super) fn is_wanted_name(input: NetworkInput<'_>, group: &Group) -> bool {
    let named = |port: &Port| port.target_group.name == group.described.name;
    input.desired.ports.iter().any(named)
}

/// An unused target group with the name of a new one, which cannot serve its port.
pub(super) fn in_the_way_of_new<'a>(input: NetworkInput<'a>, port: &Port) -> Result<Option<&'a Group>, Environment> {
    let named = |group: &&Group| group.described.name == port.target_group.name;
    let found = input.observed.spare.iter().find(named);
    match found.and_then(|group| group.described.load_balancers.first()) {
        Some(load_balancer) => Err(Environment::TargetGroupTaken {
            name: port.target_group.name.clone(),
            load_balancer: load_balancer.clone(),
        }),
        None => Ok(found),
    }
}

pub(super) fn deletion(group: &Group) -> Planned {
    let step = Step::DeleteTargetGroup(group.described.arn.clone());
    Planned::new(step, "no listener uses this target group any more")
}

/// The wanted targets. All target groups of a load balancer have the same instances.
#[derive(Debug, Default)]
pub(super) struct Goal {
    pub wanted: BTreeSet<InstanceId>,
    /// Lost targets that are too many to be removed after one observation; they stay.
    pub unconfirmed: BTreeSet<InstanceId>,
    pub after: BTreeSet<InstanceId>,
    /// The instances that are targets now.
    pub registered: BTreeSet<InstanceId>,
    /// Terminating instances: existing registrations stay until the Node is deleted, and there are no new ones.
    pub dead: BTreeSet<InstanceId>,
}

impl Goal {
    /// Removes terminating instances that lose their last group by these steps. `gone`: ARNs that the load balancer
    /// does not have any more.
    pub(super) fn without_lost(mut self, steps: &[Planned], gone: &BTreeSet<String>, observed: &Observed) -> Self {
        let goes = |group: &&Group| {
            let deletion = Step::DeleteTargetGroup(group.described.arn.clone()).into();
            gone.contains(&group.described.arn) || steps.iter().any(|planned| planned.step == deletion)
        };
        let groups = observed.target_groups().filter(|group| !goes(group));
        let targets = groups.flat_map(|group| group.targets.iter().map(move |target| (group, target)));
        let left = targets.filter(|(group, target)| !steps.iter().any(|planned| leaves(planned, group, target)));
        let left: BTreeSet<&InstanceId> = left.map(|(_, target)| &target.id).collect();
        self.after.retain(|id| !self.dead.contains(id) || left.contains(id));

        self
    }

    /// Targets to register with a group that does not have them yet, at this port. Instances that serve now come first: a
    /// quota may not allow all.
    fn joining(&self, port: i32) -> impl Iterator<Item = Target> {
        let living = self.wanted.difference(&self.dead);
        let (serving, others): (Vec<_>, Vec<_>) = living.partition(|id| self.registered.contains(*id));
        let ordered = serving.into_iter().chain(others);
        ordered.map(move |id| Target { id: id.clone(), port })
    }
}

/// Whether a step removes this target from this group: a user may have registered it with another port.
fn leaves(planned: &Planned, group: &Group, target: &Target) -> bool {
    match &planned.step {
        PlanStep::Network(Step::ChangeTargets { group: of, remove, .. }) => {
            *of == TargetGroupRef::Arn(group.described.arn.clone()) && remove.contains(target)
        }
        _ => false,
    }
}

pub(super) fn goal<D>(input: NetworkInput<'_, D>) -> Goal {
    let registered = input.observed.registered();
    let wanted = targets::wanted(input.candidates, &registered, &input.observed.instances);
    let change = targets::change(&wanted, &registered, input.seen_gone);
    let dead = input.observed.instances.iter().filter(|(_, instance)| !instance.living);

    Goal {
        dead: dead.map(|(id, _)| id.clone()).collect(),
        after: wanted.union(&change.unconfirmed).cloned().collect(),
        unconfirmed: change.unconfirmed,
        registered,
        wanted,
    }
}

pub(super) fn targets_of_kept(goal: &Goal, group: &Group, port: i32) -> Option<Planned> {
    let missing = goal.joining(port).filter(|target| !group.targets.contains(target));
    let stays = |target: &Target| target.port == port && goal.after.contains(&target.id);
    let leaving = group.targets.iter().filter(|target| !stays(target));
    let (add, remove): (Vec<Target>, Vec<Target>) = (missing.collect(), leaving.cloned().collect());
    let reason = match (add.is_empty(), remove.is_empty()) {
        (true, true) => return None,
        (false, true) => "Nodes are Ready and not registered as targets",
        (true, false) => "targets belong to no Node that qualifies",
        (false, false) => "Nodes are Ready and not registered as targets, and targets belong to no Node that qualifies",
    };
    let step = Step::ChangeTargets {
        group: TargetGroupRef::Arn(group.described.arn.clone()),
        add,
        remove,
        needed: !group.targets.iter().any(stays),
    };

    Some(Planned::new(step, reason))
}

#[cfg(test)]
mod tests {
    use outrigger_aws::elbv2::ListenerSettings;

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

    /// Listed subnets can be in another VPC than the configured one, and AWS allows only target groups of the same VPC.
    #[test]
    fn a_target_group_is_created_in_the_vpc_of_its_load_balancer() {
        let port = Port {
            listener: ListenerSettings::default(),
            target_group: NewTargetGroup {
                vpc_id: "vpc-configured".to_owned(),
                ..NewTargetGroup::default()
            },
        };
        let steps = creation(&port, "vpc-2", &Goal::default(), "the port is new");
        let [Planned { step, .. }] = steps.as_slice() else {
            panic!("{steps:?}")
        };
        let PlanStep::Network(Step::CreateTargetGroup(new)) = step else {
            panic!("{step:?}")
        };
        assert_eq!(new.vpc_id, "vpc-2");
    }
}
