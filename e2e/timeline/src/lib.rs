//! The proof: from what was recorded on one clock to who owned what, and whether anything was lost.
//!
//! ```text
//! AWS calls ─┐                        ┌─ attribute: whose call, for which controller
//! audit log ─┼─▶ Inputs ─▶ analyse ──┤─ tenure:    who held K, C, M
//! leases ────┤      +                 ├─ interval:  from when until when a process owned a controller
//! processes ─┤    Rules               ├─ overlap, handover, aws_effects: the five figures
//! snapshots ─┤                        ├─ ownerless, status_record, claim: the status, and whether it is true
//! status ────┘                        └▶ Report ─▶ table, picture, proof line, verdict; measurement of a scenario
//! ```
//!
//! Everything here is pure: no clock, no IO. A controller's interval in a process spans all its calls, reads
//! included, so that an owner that only looks is an owner too. Where a record may belong to several processes it
//! counts for none against itself, and against everyone else.

mod attribute;
mod aws_effects;
mod claim;
mod handover;
mod input;
mod interval;
mod measurement;
mod overlap;
mod ownerless;
mod picture;
mod report;
mod rules;
#[cfg(test)]
mod samples;
mod spans;
mod status_record;
mod table;
mod tenure;
mod truth;
mod verdict;

use std::collections::BTreeSet;

use jiff::Timestamp;

pub use self::attribute::Actor;
pub use self::aws_effects::{Joined, LateEffect, registered};
pub use self::claim::Claim;
pub use self::handover::HandOver;
pub use self::input::{
    AwsCall, Condition, Inputs, Join, LoadBalancer, MANAGEMENT_ANSWERS, MANAGEMENT_SILENT, Marker, NEW_WORK_BEGINS,
    ObservedBy, Pause, Snapshot, Statement,
};
pub use self::interval::Interval;
pub use self::measurement::{Bounds, Gaps, Measurement};
pub use self::overlap::Overlap;
pub use self::ownerless::{Owned, Ownerless};
pub use self::report::{ControllerTimeline, Figures, Report};
pub use self::rules::{Component, Controller, Limits, Rules, Side};
pub use self::status_record::Contradiction;
pub use self::tenure::Tenure;
pub use self::verdict::Verdict;

pub fn analyse(inputs: &Inputs, rules: &Rules) -> Report {
    let tenures = tenure::tenures(inputs, rules);
    let controllers = Controller::ALL.map(|controller| {
        let intervals = interval::intervals(controller, &tenures, inputs, rules);
        let overlaps = overlap::overlaps(controller, &intervals, &tenures, inputs, rules);
        ControllerTimeline {
            controller,
            intervals,
            overlaps,
        }
    });

    Report {
        start: start(inputs),
        until: inputs.until,
        hand_overs: handover::hand_overs(&tenures, inputs, rules),
        controllers,
        owners: Controller::ALL.map(|controller| ownerless::owned(controller, &tenures, inputs, rules)),
        ownerless: ownerless::ownerless(&tenures, inputs, rules),
        contradictions: status_record::contradictions(&tenures, inputs, rules),
        writes_without_lease: aws_effects::writes_without_lease(inputs, &tenures, rules),
        late_effects: aws_effects::late_effects(inputs, &tenures, rules),
        joined: aws_effects::joined(inputs, &tenures),
        tenures,
        writes_by_switch: aws_effects::writes_by_switch(inputs, rules),
        recreated: aws_effects::recreated(inputs, rules),
        lost_targets: aws_effects::lost_targets(inputs, rules),
        lost_routes: aws_effects::lost_routes(inputs),
        overlooked: overlooked(inputs, rules),
        markers: inputs.markers.clone(),
        snapshots: inputs.snapshots.clone(),
        rules: rules.clone(),
    }
}

fn overlooked(inputs: &Inputs, rules: &Rules) -> BTreeSet<String> {
    let writes = inputs
        .audit_events
        .iter()
        .filter(|event| event.request_received_timestamp <= inputs.until);
    writes
        .filter(|event| attribute::is_overlooked(event, rules))
        .map(|event| event.user_agent.clone())
        .collect()
}

/// Zero of the table's clock: the earliest of everything that was recorded.
fn start(inputs: &Inputs) -> Timestamp {
    let processes = inputs.processes.iter().map(|process| process.started);
    let markers = inputs.markers.iter().map(|marker| marker.at);
    let calls = inputs.aws_calls.iter().map(|call| call.at);
    processes.chain(markers).chain(calls).min().unwrap_or(inputs.until)
}
