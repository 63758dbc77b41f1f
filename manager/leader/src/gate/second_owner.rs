//! The rule for a second owner that only its writes show.

use std::time::Duration;

use jiff::Timestamp;

use super::decision::{Inputs, LatchChange, LeaseAction, Why, changed, reason};
use crate::latch::Latch;
use crate::service_write::ServiceWrite;

/// A write this long after our acquisition of M is no sign yet: a client-go elector that was stopped and continued writes
/// for up to its renew deadline (10 s), the clocks of two API servers may differ, and the times are whole seconds. An old
/// manager that still runs writes again.
const GRACE: Duration = Duration::from_secs(15);

/// How long M stays free after the last such write. An old manager writes only when a Service changes, so a shorter time
/// would start both again and again.
pub const QUIET: Duration = Duration::from_secs(300);

/// The newest write of a kube-controller-manager, if this process or its predecessor owned the controllers then.
pub(super) fn write<'a>(inputs: &'a Inputs, bound: Option<&Latch>) -> Option<&'a ServiceWrite> {
    let acquired = held_since(inputs, bound)?;
    let write = inputs.service_write.as_ref()?;
    (write.time > acquired + GRACE).then_some(write)
}

/// Since when a manager of ours owned the controllers, by the API server's clock. None if another process had M since.
pub(super) fn held_since(inputs: &Inputs, bound: Option<&Latch>) -> Option<Timestamp> {
    if inputs.holding {
        return inputs.acquired;
    }

    let latch = bound?;
    let last = inputs.facts.migration.named_holder.as_ref();
    let other_had_it = last.is_some_and(|last| *last != inputs.identity && Some(last) != latch.held_by.as_ref());
    latch.held_since.filter(|_| !other_had_it)
}

pub(super) fn rule(inputs: &Inputs, write: &ServiceWrite, bound: Option<&Latch>) -> (LatchChange, LeaseAction) {
    let why = Why::new(
        reason::SECOND_OWNER,
        format!(
            "kube-controller-manager wrote the status of Service {} at {}, while this manager owned the controllers: find the kube-controller-manager that runs in-tree without leader migration, and stop it; the migration lease is acquired again {} minutes after the last such write",
            write.service,
            write.time,
            QUIET.as_secs() / 60
        ),
    );
    if !inputs.holding {
        return (LatchChange::Keep, LeaseAction::StandBy(why));
    }

    // The successor needs the time of the acquisition, or it would follow the latch at once.
    let latch = bound.map(|latch| Latch {
        held_by: Some(inputs.identity.clone()),
        held_since: inputs.acquired,
        ..latch.clone()
    });
    let latch = latch.map_or(LatchChange::Keep, |latch| changed(inputs, latch));

    (latch, LeaseAction::Alarm(why))
}
