//! Small records for the tests of this crate.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;

use super::attribute::Actor;
use super::handover::HandOver;
use super::input::AwsCall;
use super::rules::Side;
use super::tenure::Tenure;

/// Seconds into the run.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn actor(names: &[&str], side: Side) -> Actor {
    Actor {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        component: String::new(),
        side,
    }
}

pub(super) fn process(name: &str, component: &str, flags: &[&str], from: i64, until: Option<i64>) -> ProcessSpan {
    ProcessSpan {
        process: name.into(),
        component: component.into(),
        namespace: String::new(),
        pod: name.into(),
        uid: name.into(),
        pid: 1,
        program: PathBuf::new(),
        argv: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        started: at(from),
        ended: until.map(at),
        exit: None,
    }
}

/// The time of one process with a lease.
pub(super) fn tenure(lease: Lease, name: &str, side: Side, (from, until): (i64, i64)) -> Tenure {
    Tenure {
        lease,
        holder: format!("{name}_a"),
        actor: actor(&[name], side),
        from: at(from),
        until: at(until),
        released: None,
        emptied: None,
        expires: at(until),
        process_ended: None,
    }
}

/// A call of the process `x` at the start of the run that AWS accepted.
pub(super) fn call(service: &str, action: &str, parameters: &[(&str, &str)]) -> AwsCall {
    AwsCall {
        at: at(0),
        caller: "x".into(),
        service: service.into(),
        action: action.into(),
        preflight: false,
        is_write: false,
        parameters: parameters
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect(),
        status: 200,
        done: at(0),
    }
}

/// M passes from one process to another after `gap`, without a release.
pub(super) fn hand_over(from: Side, to: Side, gap: Option<Duration>) -> HandOver {
    HandOver {
        from: actor(&["a"], from),
        to: actor(&["b"], to),
        ended: None,
        released: false,
        found: None,
        offered: false,
        emptied: false,
        expired: false,
        acquired: at(0),
        gap,
        first_sync: None,
        all_observed: None,
    }
}
