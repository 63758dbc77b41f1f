//! Steps that change targets.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;

use super::super::super::targets;
use super::super::observe::Existing;
use super::{Planned, Question, Step};

/// Changes of targets: first those that come, then those that go.
#[derive(Debug, Default)]
pub(super) struct TargetChange {
    pub steps: Vec<Planned>,
    pub unconfirmed: BTreeSet<InstanceId>,
    pub after: BTreeSet<InstanceId>,
}

pub(super) fn change(question: Question<'_>, existing: &Existing) -> TargetChange {
    let registered = &existing.described.instances;
    let wanted = targets::wanted(question.candidates, registered, &question.observed.instances);
    let change = targets::change(&wanted, registered, question.seen_gone);
    let mut steps = Vec::new();
    if !change.add.is_empty() {
        let reason = "these nodes are Ready and no targets";
        steps.push(Planned::new(Step::Register(change.add.into_iter().collect()), reason));
    }
    if !change.remove.is_empty() {
        let reason = "these targets belong to no node that may be one";
        steps.push(Planned::new(
            Step::Deregister(change.remove.into_iter().collect()),
            reason,
        ));
    }
    let after = wanted.union(&change.unconfirmed).cloned().collect();
    TargetChange {
        steps,
        unconfirmed: change.unconfirmed,
        after,
    }
}
