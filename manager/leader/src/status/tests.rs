//! The content of the status.

use super::*;
use crate::evidence::LeaseFacts;
use crate::evidence::tests::{EXTERNAL, GUARDED, UNGUARDED, complete, kcm, seen};
use crate::gate::{Inputs, MigrationSpec};
use crate::steward::Holders;

/// Phase Migrate with external kube-controller-managers and a latch, and M free.
pub(super) fn migrating() -> Inputs {
    let mut facts = complete();
    facts.controller_managers = seen(vec![kcm(EXTERNAL)]);
    facts.migration = LeaseFacts {
        read: true,
        idle: true,
        ..LeaseFacts::default()
    };
    let spec = MigrationSpec {
        uid: "u".into(),
        generation: 4,
        phase: Phase::Migrate,
        attested_phase: None,
    };
    let latch = r#"{"version":1,"uid":"u","generation":4,"phase":"Migrate","basis":"External"}"#;
    Inputs {
        spec: Reading::Known(spec),
        latch: Stored::read(Some(latch)),
        facts,
        identity: "us".into(),
        acquired: None,
        service_write: None,
        services_read: true,
        holding: false,
        main_holder_changed: false,
        offer_again: false,
        yielded: true,
    }
}

pub(super) fn holding() -> Inputs {
    let mut inputs = migrating();
    inputs.holding = true;
    inputs
}

pub(super) fn beside_unguarded(mut inputs: Inputs) -> Inputs {
    inputs.facts.controller_managers = seen(vec![kcm(UNGUARDED)]);
    inputs
}

pub(super) fn report(inputs: Inputs) -> Report {
    Report {
        decision: gate::decide(&inputs),
        latch: inputs.latch.clone(),
        inputs,
        offer: None,
        holders: Holders {
            known: true,
            ..Holders::default()
        },
    }
}

#[test]
fn a_refused_request_for_the_lease_is_the_reason_of_the_condition() {
    let report = report(migrating());
    let (_, truth, reason, message) = control_plane(&report, None);
    assert_eq!((truth, reason), (Some(false), "Acquiring"), "{message}");

    let problem = "update of lease kube-system/m is forbidden: no; grant it in a Role of that namespace";
    let (_, truth, reason, message) = control_plane(&report, Some(problem));
    assert_eq!((truth, reason), (Some(false), "LeaseRequestFailed"), "{message}");
    assert!(message.contains(problem), "{message}");
}

#[test]
fn a_refused_request_is_no_reason_while_the_lease_is_not_competed_for() {
    let report = report(beside_unguarded(migrating()));
    let (_, _, reason, _) = control_plane(&report, Some("forbidden"));
    assert_eq!(reason, reason::UNGUARDED);
}

#[test]
fn a_phase_that_is_not_followed_is_reported_while_the_lease_is_held() {
    let mut inputs = holding();
    let Reading::Known(spec) = &mut inputs.spec else {
        panic!("it can be read");
    };
    spec.phase = Phase::InTree;
    let report = report(inputs);
    let (_, truth, _, message) = control_plane(&report, None);
    assert_eq!(truth, Some(true));
    assert!(message.contains("phase InTree is not followed"), "{message}");
    assert!(left(&report, truth, Some(true)).contains("from InTree to Complete"));
}

#[test]
fn a_step_back_with_an_external_leader_says_which_one_to_roll() {
    let mut inputs = holding();
    let Reading::Known(spec) = &mut inputs.spec else {
        panic!("it can be read");
    };
    spec.phase = Phase::Prepare;
    let guarded = ControllerManager {
        object: "Pod tenant/kcm-1".into(),
        host_names: vec!["kcm-1".into()],
        ..kcm(GUARDED)
    };
    inputs.facts.controller_managers = seen(vec![kcm(EXTERNAL), guarded]);
    let (_, _, reason, message) = control_plane(&report(inputs), None);
    assert_eq!(reason, reason::STEPPING_BACK);
    assert!(
        message.contains("Pod tenant/kcm-0, which is external: roll it"),
        "{message}"
    );
}

#[test]
fn a_shell_script_is_undecided_without_the_operators_word() {
    let mut inputs = holding();
    inputs.facts.controller_managers = seen(vec![kcm(Form::Unreadable {
        reason: "a shell script".into(),
    })]);
    let (_, truth, _, message) = control_plane(&report(inputs.clone()), None);
    assert_eq!(truth, None);
    assert!(message.contains("spec.attestedPhase: Migrate"), "{message}");

    inputs.facts.attested_phase = Some(Phase::Migrate);
    let (_, truth, _, message) = control_plane(&report(inputs.clone()), None);
    assert_eq!(truth, Some(true));
    assert!(message.contains("spec.attestedPhase states"), "{message}");

    inputs.facts.controller_managers.seen[0].rolling_out = true;
    let (_, truth, _, message) = control_plane(&report(inputs), None);
    assert_eq!(truth, None);
    assert!(!message.contains("attestedPhase"), "{message}");
}

#[test]
fn a_condition_of_the_webhook_causes_no_write() {
    let row = |type_: &str| {
        serde_json::json!({
            "type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let status = |types: &[&str]| -> CloudProviderMigrationStatus {
        let rows: Vec<_> = types.iter().map(|type_| row(type_)).collect();
        serde_json::from_value(serde_json::json!({"conditions": rows})).unwrap()
    };
    let own = status(&[condition::PREPARED, condition::COMPLETED]);
    let stored = status(&[condition::OBJECTS_APPLIED, condition::COMPLETED, condition::PREPARED]);
    assert!(is_same(&stored, &own));
    assert!(!is_same(&stored, &status(&[condition::PREPARED])));
}
