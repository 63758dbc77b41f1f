//! The content of the status.

use kube::Client;
use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;

use super::conditions::{control_plane, left, over};
use super::*;
use crate::evidence::tests::{EXTERNAL, GUARDED, UNGUARDED, complete, held, kcm, seen, unreadable};
use crate::evidence::{ControllerManager, LeaseFacts};
use crate::gate::{self, Inputs, MigrationSpec, reason};
use crate::latch::Stored;
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
    let (_, truth, reason, message) = control_plane(&report, None, None);
    assert_eq!((truth, reason), (Some(false), "Acquiring"), "{message}");

    let problem = "update of lease kube-system/m is forbidden: no; grant it in a Role of that namespace";
    let (_, truth, reason, message) = control_plane(&report, Some(problem), None);
    assert_eq!((truth, reason), (Some(false), "LeaseRequestFailed"), "{message}");
    assert!(message.contains(problem), "{message}");
}

#[test]
fn a_refused_request_is_no_reason_while_the_lease_is_not_competed_for() {
    let report = report(beside_unguarded(migrating()));
    let (_, _, reason, _) = control_plane(&report, Some("forbidden"), None);
    assert_eq!(reason, reason::UNGUARDED);
}

#[test]
fn two_allocators_after_the_migration_are_named() {
    let mut inputs = holding();
    let (_, truth, reason, _) = control_plane(&report(inputs.clone()), None, None);
    assert_eq!((truth, reason), (Some(true), "Migrated"));

    inputs.facts.own.node_ipam = Placement::Migrated;
    inputs.facts.controller_managers.seen[0].node_ipam = Placement::Main;
    let (_, truth, reason, message) = control_plane(&report(inputs), None, None);
    assert_eq!((truth, reason), (Some(false), "NodeIpamConflict"));
    assert!(message.contains("add -nodeipam to --controllers there"), "{message}");
}

#[test]
fn a_former_manager_is_no_process_to_roll() {
    let message = |holder: &str| {
        let mut inputs = migrating();
        let latch =
            r#"{"version":1,"uid":"u","generation":4,"phase":"Migrate","basis":"External","heldBy":"former_a"}"#;
        inputs.latch = Stored::read(Some(latch));
        inputs.facts.migration = held(holder);
        let (_, _, reason, message) = control_plane(&report(inputs), None, None);
        assert_eq!(reason, "LeaseHeldByOther");
        message
    };
    assert!(message("former_a").contains("waiting until it expires"));
    assert!(message("other_a").contains("roll or stop that process"));
}

#[test]
fn an_attestation_for_prepare_does_not_state_that_the_control_plane_is_migrated() {
    let of = |phase, attested| {
        let mut inputs = holding();
        let latch =
            format!(r#"{{"version":1,"uid":"u","generation":4,"phase":"{phase}","basis":"Attested","heldBy":"us"}}"#);
        inputs.latch = Stored::read(Some(&latch));
        inputs.facts.controller_managers = unreadable();
        inputs.facts.attested_phase = attested;
        inputs.spec = Reading::Known(MigrationSpec {
            phase,
            ..inputs.spec.known().unwrap().clone()
        });
        let (_, truth, reason, _) = control_plane(&report(inputs), None, None);
        (truth, reason)
    };

    let stepping_back = (Some(false), reason::STEPPING_BACK);
    assert_eq!(of(Phase::Prepare, Some(Phase::Prepare)), stepping_back);
    assert_eq!(of(Phase::Prepare, None), stepping_back);
    for phase in [Phase::Migrate, Phase::Complete] {
        assert_eq!(of(phase, Some(phase)), (Some(true), "Migrated"));
        assert_eq!(of(phase, Some(Phase::Prepare)), (None, "NotReadable"));
    }
}

#[test]
fn a_phase_that_is_not_followed_is_reported_while_the_lease_is_held() {
    let mut inputs = holding();
    let Reading::Known(spec) = &mut inputs.spec else {
        panic!("it can be read");
    };
    spec.phase = Phase::InTree;
    let report = report(inputs);
    let (_, truth, _, message) = control_plane(&report, None, None);
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
    let (_, _, reason, message) = control_plane(&report(inputs), None, None);
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
    let (_, truth, _, message) = control_plane(&report(inputs.clone()), None, None);
    assert_eq!(truth, None);
    assert!(message.contains("spec.attestedPhase: Migrate"), "{message}");

    inputs.facts.attested_phase = Some(Phase::Migrate);
    let (_, truth, _, message) = control_plane(&report(inputs.clone()), None, None);
    assert_eq!(truth, Some(true));
    assert!(message.contains("spec.attestedPhase states"), "{message}");

    inputs.facts.controller_managers.seen[0].must_change = true;
    let (_, truth, _, message) = control_plane(&report(inputs), None, None);
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

#[tokio::test]
async fn a_spec_with_other_leases_is_invalid_and_keeps_the_generation_that_is_followed() {
    let (_listener, client) = silent();
    let mut object: CloudProviderMigration = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "prod", "generation": 5},
        "spec": {"clusterID": "prod", "phase": "Migrate", "targets": [], "kubeControllerManagerLease": "m"},
    }))
    .unwrap();
    object.status = Some(CloudProviderMigrationStatus {
        observed_generation: Some(4),
        ..CloudProviderMigrationStatus::default()
    });
    let mut inputs = holding();
    inputs.spec = Reading::Unreadable("spec.kubeControllerManagerLease is \"m\"".into());
    let report = report(inputs);
    let sources = Sources {
        object: watch::channel(Reading::Known(object.clone())).1,
        reports: watch::channel(None).1,
        changes: watch::channel(Vec::new()).1,
        lease_problem: watch::channel(None).1,
        unlisted_leader: watch::channel(None).1,
        gives_way: watch::channel(false).1,
        version: watch::channel(Version::default()).1,
    };

    let (_, status) = writer(&client, unheard()).status_of(&sources, Some(&object), &report);
    let row = status
        .conditions
        .iter()
        .find(|row| row.type_ == condition::SPEC_VALID)
        .unwrap();
    assert_eq!((row.status.as_str(), row.observed_generation), ("False", Some(5)));
    assert!(
        row.message.contains("spec.kubeControllerManagerLease"),
        "{}",
        row.message
    );
    assert_eq!(status.observed_generation, Some(4));
}

fn unheard() -> Reporter {
    Reporter {
        metrics: Arc::new(|_| {}),
        events: Arc::new(|_, _, _| {}),
    }
}

/// A server that takes connections and answers nothing.
fn silent() -> (std::net::TcpListener, Client) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::try_from(kube::Config::new(uri.parse().unwrap())).unwrap();
    (listener, client)
}

pub(super) fn writer(client: &Client, reporter: Reporter) -> StatusWriter {
    StatusWriter {
        guard: Guard {
            lease: "m".into(),
            migration: "prod".into(),
            cluster_id: "prod".into(),
            management: client.clone(),
            cluster: client.clone(),
            nodes: Arc::new(|| None),
            controllers: vec![Controller::Service, Controller::Route],
            node_ipam: Placement::NotHere,
            reporter,
        },
        own: Own {
            cluster_id: "prod".into(),
            lease: "m".into(),
            main_lease: "c".into(),
        },
        permit: Permit::always(),
        lease_problem: watch::channel(None).1,
    }
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_delays_no_metric() {
    let (_listener, client) = silent();
    let (snapshots, mut received) = tokio::sync::mpsc::unbounded_channel();
    let reporter = Reporter {
        metrics: Arc::new(move |snapshot| drop(snapshots.send(snapshot.clone()))),
        events: Arc::new(|_, _, _| {}),
    };
    let (_object, object) = watch::channel(Reading::Unreadable("no answer".into()));
    let (_reports, reports) = watch::channel(Some(report(holding())));
    let (_all_reports, all_reports) = mpsc::unbounded_channel();
    tokio::spawn(writer(&client, reporter).run(object, (reports, all_reports), CancellationToken::new()));

    let snapshot = timeout(Duration::from_secs(10), received.recv()).await.unwrap();
    assert_eq!(snapshot.unwrap().phase, Some(Phase::Migrate));
}

#[test]
fn the_end_of_the_migration_names_controllers_that_nobody_runs() {
    assert_eq!(over(&Controller::SHARED), "the migration is over");
    let text = over(&[Controller::Service, Controller::NodeLifecycle]);
    assert!(
        text.ends_with("because the flags of this manager turn them off: node-route-controller"),
        "{text}"
    );
}

#[test]
fn each_source_that_cannot_be_read_is_named() {
    let mut report = report(migrating());
    let status = CloudProviderMigrationStatus::default();
    let unreadable = |report: &Report| {
        let all = Snapshot::of("prod", report, &status).unreadable.into_iter();
        all.filter(|(_, unreadable)| *unreadable)
            .map(|(source, _)| source)
            .collect::<Vec<_>>()
    };
    assert!(unreadable(&report).is_empty());

    report.inputs.spec = Reading::Unreadable("gone".into());
    report.inputs.facts.controller_managers.unreadable = vec!["Namespace tenant: forbidden".into()];
    assert_eq!(unreadable(&report), ["migration", "kube-controller-managers"]);

    report.holders.is_main_unreadable = true;
    report.holders.is_migration_unreadable = true;
    let all = Snapshot::of("prod", &report, &status).unreadable;
    assert_eq!(unreadable(&report), all.map(|(source, _)| source));
}

#[tokio::test]
async fn a_row_of_a_controller_has_its_owner_and_since_when_that_owns_it() {
    let (_listener, client) = silent();
    let writer = writer(&client, unheard());
    let at = |second| Timestamp::from_second(second).unwrap();
    let short = |rows: &[ControllerStatus]| -> Vec<_> {
        let row = |row: &ControllerStatus| (row.owner, row.lease.clone(), row.holder.clone());
        rows.iter().map(row).collect()
    };
    let row = |owner, lease: Option<&str>, holder: &str| (owner, lease.map(str::to_owned), Some(holder.to_owned()));
    let (ours, old) = (Some(Party::CloudControllerManager), Some(Party::KubeControllerManager));

    let holding = report(holding());
    let first = writer.controllers(&holding, &[], at(1));
    let names: Vec<&str> = first.iter().map(|row| row.name.as_str()).collect();
    let all = Controller::SHARED.into_iter().chain([Controller::Node]);
    assert_eq!(names, all.clone().map(Controller::canonical_name).collect::<Vec<_>>());
    let expected: Vec<_> = all
        .map(|controller| match controller {
            Controller::Service | Controller::Route => row(ours, Some("m"), "us"),
            Controller::Node => row(ours, Some("c"), "us"),
            // The flags of the manager turn it off.
            _ => row(None, Some("m"), "us"),
        })
        .collect();
    assert_eq!(short(&first), expected);

    let mut in_tree = beside_unguarded(migrating());
    in_tree.facts.main = held("kcm-0_a");
    in_tree.facts.controller_managers.seen[0].routes = true;
    let second = writer.controllers(&report(in_tree), &first, at(2));
    let shared = Controller::SHARED.map(|_| row(old, None, "kcm-0_a"));
    assert_eq!(short(&second)[..shared.len()], shared);

    let third = writer.controllers(&holding, &second, at(3));
    let since = |rows: &[ControllerStatus]| -> Vec<_> { rows.iter().map(|row| row.since.clone()).collect() };
    let [first_since, third_since] = [at(1), at(3)].map(|time| Some(Time(time)));
    let expected = [vec![third_since; Controller::SHARED.len()], vec![first_since]].concat();
    assert_eq!(since(&third), expected, "the last row did not change");
}

#[test]
fn a_snapshot_has_each_condition_and_the_leader_that_is_not_listed() {
    let report = report(holding());
    let snapshot = |rows: &[(&str, &str, &'static str)]| {
        let none = CloudProviderMigrationStatus::default();
        let row = |&(type_, status, reason): &(&str, &str, &'static str)| {
            none.condition(type_, status, (reason, "m".into()), None, Timestamp::UNIX_EPOCH)
        };
        let status = CloudProviderMigrationStatus {
            conditions: rows.iter().map(row).collect(),
            ..none.clone()
        };
        Snapshot::of("prod", &report, &status)
    };
    let (control_plane, nodes) = (condition::CONTROL_PLANE_MIGRATED, condition::NODES_MIGRATED);

    let found = snapshot(&[
        (nodes, "True", "Migrated"),
        (control_plane, "Unknown", LEADER_NOT_LISTED),
    ]);
    let status = |type_| {
        found
            .conditions
            .iter()
            .find(|(found, _)| *found == type_)
            .map(|(_, status)| status.as_str())
    };
    assert_eq!(
        (found.conditions.len(), status(control_plane), status(nodes)),
        (2, Some("Unknown"), Some("True"))
    );
    assert!(found.leader_not_listed);
    assert!(!snapshot(&[(control_plane, "True", "Migrated")]).leader_not_listed);
}
