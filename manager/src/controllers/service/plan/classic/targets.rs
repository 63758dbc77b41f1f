//! Steps that change targets.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;

use super::super::super::model::classic::Existing;
use super::super::Planned;
use super::super::input::ClassicInput;
use super::super::targets;
use super::Step;

/// Changes of targets: first added, then removed ones.
#[derive(Debug, Default)]
pub(super) struct TargetChange {
    pub steps: Vec<Planned>,
    pub unconfirmed: BTreeSet<InstanceId>,
    pub after: BTreeSet<InstanceId>,
}

pub(super) fn change<D>(input: ClassicInput<'_, D>, existing: &Existing) -> TargetChange {
    let registered = &existing.described.instances;
    let wanted = targets::wanted(input.candidates, registered, &input.observed.instances);
    let change = targets::change(&wanted, registered, input.seen_gone);
    let after: BTreeSet<InstanceId> = wanted.union(&change.unconfirmed).cloned().collect();
    let mut steps = Vec::new();

    if !change.add.is_empty() {
        let reason = "these nodes are Ready and no targets";
        let step = Step::Register {
            instances: change.add.into_iter().collect(),
            needed: registered.is_disjoint(&after),
        };
        steps.push(Planned::new(step, reason));
    }

    if !change.remove.is_empty() {
        let reason = "these targets belong to no node that may be one";
        steps.push(Planned::new(
            Step::Deregister(change.remove.into_iter().collect()),
            reason,
        ));
    }

    TargetChange {
        steps,
        unconfirmed: change.unconfirmed,
        after,
    }
}
