//! Decides the targets of all target groups, and the changes of one group.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::Target;

use super::super::super::model::network::{Group, Observed};
use super::super::super::plan::{self, Planned};
use super::super::input::NetworkInput;
use super::super::targets;
use super::{Step, TargetGroupRef};

/// The wanted targets. All target groups of a load balancer have the same instances.
#[derive(Debug, Default)]
pub(super) struct Goal {
    /// Targets of every group.
    pub wanted: BTreeSet<InstanceId>,
    /// Lost targets that are too many to be removed after one observation; they stay.
    pub unconfirmed: BTreeSet<InstanceId>,
    pub after: BTreeSet<InstanceId>,
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

    /// Targets to register with a group that does not have them yet, at this port.
    fn joining(&self, port: i32) -> impl Iterator<Item = Target> {
        at(self.wanted.difference(&self.dead), port)
    }
}

/// Whether a step removes this target from this group: a user may have registered it with another port.
fn leaves(planned: &Planned, group: &Group, target: &Target) -> bool {
    match &planned.step {
        plan::Step::Network(Step::ChangeTargets { group: of, remove, .. }) => {
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
        wanted,
    }
}

/// All targets of a new group.
pub(super) fn of_new(goal: &Goal, group: TargetGroupRef, port: i32) -> Option<Planned> {
    let add: Vec<Target> = goal.joining(port).collect();
    let step = Step::ChangeTargets {
        group,
        add: add.clone(),
        remove: Vec::new(),
        needed: true,
    };

    (!add.is_empty()).then(|| Planned::new(step, "the target group is new"))
}

/// The changes of a kept group.
pub(super) fn of_kept(goal: &Goal, group: &Group, port: i32) -> Option<Planned> {
    let missing = goal.joining(port).filter(|target| !group.targets.contains(target));
    let stays = |target: &Target| target.port == port && goal.after.contains(&target.id);
    let leaving = group.targets.iter().filter(|target| !stays(target));
    let (add, remove): (Vec<Target>, Vec<Target>) = (missing.collect(), leaving.cloned().collect());
    let reason = match (add.is_empty(), remove.is_empty()) {
        (true, true) => return None,
        (false, true) => "nodes are Ready and no targets",
        (true, false) => "targets belong to no node that may be one",
        (false, false) => "nodes are Ready and no targets, and targets belong to no node that may be one",
    };
    let step = Step::ChangeTargets {
        group: TargetGroupRef::Arn(group.described.arn.clone()),
        add,
        remove,
        needed: !group.targets.iter().any(stays),
    };

    Some(Planned::new(step, reason))
}

fn at<'a>(instances: impl Iterator<Item = &'a InstanceId>, port: i32) -> impl Iterator<Item = Target> {
    instances.map(move |id| Target { id: id.clone(), port })
}
