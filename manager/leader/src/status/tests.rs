//! The content of the status.

use kube::Client;
use outrigger_evidence::facts::{Basis, ControllerManager, LeaseFacts, Proven};
use outrigger_evidence::gate::{self, Inputs};
use outrigger_evidence::samples::{
    EXTERNAL, GUARDED, attest, beside_unguarded, forbidden, held, holding, in_phase, kcm, latch, migrating, seen,
    standby, unreadable,
};
use outrigger_evidence::why::code;
use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::conditions::{control_plane, over, phase_left};
use super::*;
use crate::steward::Holders;

pub(super) fn report(inputs: Inputs) -> Report {
    Report {
        decision: gate::decide(&inputs),
        inputs,
        offer: None,
        holders: Holders {
            known: true,
            ..Holders::default()
        },
    }
}

/// Truth, reason and message of the condition ControlPlaneMigrated.
fn shown(report: &Report, lease_problem: Option<&str>) -> (Option<bool>, &'static str, String) {
    let state = control_plane(report, lease_problem);
    (state.truth, state.reason, state.message())
}

#[test]
fn a_refused_request_for_the_lease_is_the_reason_of_the_condition() {
    let report = report(migrating());
    let (truth, reason, message) = shown(&report, None);
    assert_eq!((truth, reason), (Some(false), "Acquiring"), "{message}");

    let problem = "update of lease kube-system/m is forbidden: no; grant it in a Role of that namespace";
    let (truth, reason, message) = shown(&report, Some(problem));
    assert_eq!((truth, reason), (Some(false), "LeaseRequestFailed"), "{message}");
    assert!(message.contains(problem), "{message}");
}

#[test]
fn a_refused_request_is_no_reason_while_the_lease_is_not_competed_for() {
    let report = report(beside_unguarded(migrating()));
    let (_, reason, _) = shown(&report, Some("forbidden"));
    assert_eq!(reason, code::UNGUARDED);
}

#[test]
fn while_nothing_is_written_the_condition_is_unknown_with_its_reason() {
    let mut inputs = holding();
    inputs.facts.controller_managers.seen.push(standby());
    inputs.facts.main = LeaseFacts {
        read: true,
        idle: true,
        ..LeaseFacts::default()
    };
    let (truth, reason, message) = shown(&report(inputs), None);
    assert_eq!((truth, reason), (None, code::MAIN_LEASE_NOT_HELD));
    assert!(
        message.contains("this manager holds the migration lease, but no process holds"),
        "{message}"
    );

    let mut listing = holding();
    listing.facts.main = held("kcm-1_b");
    listing.facts.controller_managers.current = false;
    let (truth, reason, _) = shown(&report(listing), None);
    assert_eq!((truth, reason), (None, code::LISTING));
}

#[test]
fn an_alarm_is_the_reason_of_the_condition() {
    let (truth, reason, message) = shown(&report(beside_unguarded(holding())), None);
    assert_eq!((truth, reason), (Some(false), code::UNGUARDED));
    assert!(
        message.starts_with("this manager is releasing the migration lease"),
        "{message}"
    );
}

#[test]
fn two_allocators_after_the_migration_are_named() {
    let mut inputs = holding();
    let (truth, reason, _) = shown(&report(inputs.clone()), None);
    assert_eq!((truth, reason), (Some(true), "Migrated"));

    inputs.facts.own.node_ipam = Placement::Migrated;
    inputs.facts.controller_managers.seen[0].node_ipam = Placement::Main;
    let (truth, reason, message) = shown(&report(inputs), None);
    assert_eq!((truth, reason), (Some(false), "NodeIpamConflict"));
    assert!(message.contains("add -nodeipam to --controllers there"), "{message}");
}

#[test]
fn the_holder_of_the_lease_is_named_with_the_time_until_it_is_acquired() {
    let message = |migration: LeaseFacts| {
        let mut inputs = migrating();
        inputs.latch = latch(Phase::Migrate, r#","heldBy":"former_a""#);
        inputs.facts.migration = migration;
        let (truth, reason, message) = shown(&report(inputs), None);
        assert_eq!((truth, reason), (Some(false), "LeaseHeldByOther"));
        message
    };
    // A record that was found may be a dead process's: no message claims that it is alive.
    let found = |holder: &str| LeaseFacts {
        live_holder: None,
        ..held(holder)
    };
    for migration in [held("former_a"), found("former_a")] {
        let message = message(migration);
        assert!(message.contains("waiting until it expires"), "{message}");
    }
    for migration in [held("other_a"), found("other_a")] {
        let message = message(migration);
        assert!(
            message.contains(r#""other_a" holds it: roll or stop that process"#),
            "{message}"
        );
        assert!(message.contains("or 15 s after its last renewal"), "{message}");
    }
}

/// The watch of the lease shows the acquisition before the answer to the request.
#[test]
fn this_manager_is_never_the_other_process_that_holds_the_lease() {
    let mut inputs = migrating();
    inputs.facts.migration = held("us");
    let (_, reason, message) = shown(&report(inputs), None);
    assert_eq!(reason, "Acquiring", "{message}");
}

#[test]
fn an_attestation_for_prepare_does_not_state_that_the_control_plane_is_migrated() {
    let of = |phase, attested: Option<Phase>| {
        let mut inputs = in_phase(holding(), phase);
        inputs.latch = latch(
            phase,
            r#","heldBy":"us","proven":[{"identity":"kcm-0_a","by":"Guarded"}]"#,
        );
        inputs.facts.proven = vec![Proven {
            identity: "kcm-0_a".into(),
            by: Basis::Guarded,
        }];
        inputs.facts.controller_managers = unreadable();
        inputs.facts.attestation = attested.and_then(attest);
        let (truth, reason, _) = shown(&report(inputs), None);
        (truth, reason)
    };

    let stepping_back = (Some(false), code::STEPPING_BACK);
    assert_eq!(of(Phase::Prepare, Some(Phase::Prepare)), stepping_back);
    assert_eq!(of(Phase::Prepare, None), stepping_back);
    for phase in [Phase::Migrate, Phase::Complete] {
        assert_eq!(of(phase, Some(Phase::Migrate)), (Some(true), "Migrated"));
        assert_eq!(of(phase, None), (None, "NotReadable"));
    }
}

#[test]
fn a_phase_that_is_not_followed_is_reported_while_the_lease_is_held() {
    let report = report(in_phase(holding(), Phase::InTree));
    let (truth, _, message) = shown(&report, None);
    assert_eq!(truth, Some(true));
    assert!(message.contains("phase InTree is not followed"), "{message}");
    assert!(phase_left(&report).unwrap().observation.contains("the phase is InTree"));
}

#[test]
fn a_step_back_with_an_external_leader_says_which_one_to_roll() {
    let mut inputs = in_phase(holding(), Phase::Prepare);
    let guarded = ControllerManager {
        object: "Pod tenant/kcm-1".into(),
        host_names: vec!["kcm-1".into()],
        ..kcm(GUARDED)
    };
    inputs.facts.controller_managers = seen(vec![kcm(EXTERNAL), guarded]);
    let (_, reason, message) = shown(&report(inputs), None);
    assert_eq!(reason, code::STEPPING_BACK);
    assert!(
        message.contains("Pod tenant/kcm-0, which is external: roll it"),
        "{message}"
    );
}

#[test]
fn a_shell_script_is_undecided_without_an_attestation() {
    let mut inputs = holding();
    let script = Form::Unreadable {
        reason: "a shell script".into(),
    };
    inputs.facts.controller_managers.seen.push(ControllerManager {
        form: script,
        ..standby()
    });
    let (truth, reason, message) = shown(&report(inputs.clone()), None);
    assert_eq!((truth, reason), (None, "Undecided"));
    assert!(message.contains("spec.attestation.phase: Migrate"), "{message}");

    inputs.facts.attestation = attest(Phase::Migrate);
    let (truth, _, message) = shown(&report(inputs.clone()), None);
    assert_eq!(truth, Some(true));
    assert!(message.contains("spec.attestation states"), "{message}");

    inputs.facts.controller_managers.seen[1].must_change = true;
    let (truth, _, message) = shown(&report(inputs), None);
    assert_eq!(truth, None);
    assert!(!message.contains("attestation"), "{message}");
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
async fn a_spec_with_other_leases_is_observed_and_not_followed() {
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
        version: watch::channel(Version::default()).1,
        dry_run: watch::channel(DryRun::Pending).1,
    };

    let status = writer(&client, unheard())
        .change(&sources, Some(&object), &report, &mut Lasting::default())
        .new;
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
    assert_eq!(status.observed_generation, Some(5));
    let of = |type_: &str| status.conditions.iter().find(|row| row.type_ == type_).unwrap();
    let ready = of(condition::READY);
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "SpecNotFollowed")
    );
    assert_eq!(of(condition::CONTROL_PLANE_MIGRATED).observed_generation, Some(4));
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
            dry_run: watch::channel(DryRun::Pending).1,
            controllers: vec![Controller::Service, Controller::Route],
            node_ipam: Placement::NotHere,
            reporter,
        },
        own: Own {
            namespace: "kube-system".into(),
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

    report.inputs.facts.main.failure = Some(forbidden());
    report.inputs.facts.migration.failure = Some(forbidden());
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
fn a_snapshot_has_each_condition() {
    let none = CloudProviderMigrationStatus::default();
    let row = |type_, status: &str| none.condition(type_, status, ("Reason", "m".into()), None, Timestamp::UNIX_EPOCH);
    let status = CloudProviderMigrationStatus {
        conditions: vec![
            row(condition::NODES_MIGRATED, "True"),
            row(condition::OBJECTS_APPLIED, "True"),
            row(condition::CONTROL_PLANE_MIGRATED, "Unknown"),
        ],
        ..none.clone()
    };
    let mut conditions = Snapshot::of("prod", &report(holding()), &status).conditions;
    conditions.sort_unstable();
    let expected = [
        (condition::CONTROL_PLANE_MIGRATED, "Unknown".to_owned()),
        (condition::NODES_MIGRATED, "True".to_owned()),
    ];
    assert_eq!(conditions, expected, "another one is the webhook's");
}

/// An API server with an older CustomResourceDefinition: it refuses a status with the field. With the statuses that it got.
async fn with_older_definition() -> (Client, Arc<std::sync::Mutex<Vec<serde_json::Value>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let body: serde_json::Value = body_of(&mut stream).await;
            let is_refused = !body["status"]["adoption"].is_null();
            seen.lock().unwrap().push(body["status"].clone());
            let (code, answer) = if is_refused {
                let message = "failed to create typed patch object: .status.adoption: field not declared in schema";
                let refusal =
                    json!({"kind": "Status", "status": "Failure", "message": message, "reason": "x", "code": 500});
                (500, refusal)
            } else {
                let spec = json!({"clusterID": "prod", "kubernetesVersion": "1.26"});
                let object = json!({"kind": "CloudProviderMigration", "metadata": {"name": "prod"}, "spec": spec});
                (200, object)
            };
            let (answer, type_) = (answer.to_string(), "content-type: application/json");
            let head = format!(
                "HTTP/1.1 {code} x\r\n{type_}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes()).await.unwrap();
        }
    });
    let client = Client::try_from(kube::Config::new(uri.parse().unwrap())).unwrap();

    (client, sent)
}

/// The JSON of a request with a length.
async fn body_of(stream: &mut tokio::net::TcpStream) -> serde_json::Value {
    let mut all = Vec::new();
    loop {
        stream.read_buf(&mut all).await.unwrap();
        let text = String::from_utf8_lossy(&all);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if let Ok(body) = serde_json::from_str(body) {
            return body;
        }
    }
}

#[tokio::test]
async fn an_older_definition_costs_only_the_field_that_it_lacks() {
    let (client, sent) = with_older_definition().await;
    let status = CloudProviderMigrationStatus {
        observed_generation: Some(3),
        adoption: Some(Adoption {
            time: Time(Timestamp::UNIX_EPOCH),
            services: 1,
            nodes: 1,
            changes: 0,
            first: Vec::new(),
        }),
        ..CloudProviderMigrationStatus::default()
    };
    let (api, mut older) = (Api::all(client), OlderDefinition::default());
    older.patch(&api, "prod", &status).await.unwrap();
    assert_eq!(older.known(status).adoption, None, "the next write has it no more");

    let sent = sent.lock().unwrap();
    let shown: Vec<bool> = sent.iter().map(|status| status["adoption"].is_null()).collect();
    assert_eq!(shown, [false, true]);
    assert_eq!(sent[1]["observedGeneration"], 3);
}
