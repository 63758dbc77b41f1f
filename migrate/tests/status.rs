//! `outrigger status` on documents of facts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use outrigger_migrate::facts::ClusterFacts;
use outrigger_migrate::status::position::{Position, Progress};
use serde_json::{Value, json};

const CLEAN: &str = include_str!("facts/kubeadm-in-tree.json");

/// A cluster in Migrate: one control plane is changed, and the other one still leads.
fn facts() -> Value {
    let mut facts: Value = serde_json::from_str(CLEAN).unwrap();
    let kcm = &mut facts["components"]["known"][1];
    kcm["judgement"]["acts"] = json!("Never");
    kcm["judgement"]["isInTree"] = json!(false);
    let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "Because", "message": message, "lastTransitionTime": "2026-11-30T11:00:00Z"});
    let entry =
        |time: &str, phase: &str, owner: Value| json!({"time": time, "phase": phase, "owner": owner, "alarm": false});
    let old = json!("kube-controller-manager");
    facts["migrations"] = json!({"known": [{
        "name": "cluster", "phase": "Migrate", "generation": 3, "mainLease": "kube-controller-manager",
        "migrationLease": "cloud-provider-extraction-migration", "profiles": ["Nodes"],
        "status": {
            "observedGeneration": 3,
            "observedBy": {"identity": "cp-2_a", "time": "2026-11-30T11:59:30Z"},
            "conditions": [
                condition("Ready", "False", "a kube-controller-manager is in-tree"),
                condition("RollbackPossible", "True", "the API server is at 1.26"),
            ],
            "missing": [{
                "code": "Unguarded", "observation": "cp-1 is in-tree", "consequence": "the manager waits",
                "fix": "change kube-controller-manager.yaml on cp-1",
            }],
            "controllers": [{"name": "service-lb-controller", "owner": old, "lease": "x", "holder": "cp-1_b"}],
            "nodes": {"total": 3, "uninitialized": 0, "migrated": 1},
            "history": [
                entry("2026-11-30T10:00:00.000000Z", "InTree", old.clone()),
                entry("2026-11-30T11:00:00.000000Z", "Prepare", Value::Null),
                entry("2026-11-30T11:00:17.250000Z", "Prepare", old),
                entry("2026-11-30T11:30:00.000000Z", "Migrate", json!("kube-controller-manager")),
            ],
        },
    }]});
    facts
}

fn migration(facts: &mut Value) -> &mut Value {
    &mut facts["migrations"]["known"][0]
}

fn position(facts: &Value) -> Position {
    let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
    Position::of(&facts, None).unwrap()
}

fn text(facts: &Value) -> String {
    let mut out = Vec::new();
    position(facts).write_text(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn one_screen_says_where_it_is_what_it_waits_for_and_what_to_do() {
    insta::assert_snapshot!(text(&facts()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), facts().to_string()).unwrap();
    let run = support::outrigger(&["status", "--facts", file.path().to_str().unwrap()]);
    assert_eq!((run.code, run.stdout), (Some(0), text(&facts())), "{}", run.stderr);
}

#[test]
fn a_phase_that_is_reached_has_the_next_one_as_command() {
    for (phase, part) in [
        ("InTree", "outrigger apply cluster --to=Prepare"),
        ("Prepare", "outrigger apply cluster --to=Migrate"),
        ("Migrate", "outrigger apply cluster --to=Complete"),
        ("Complete", "the migration is complete"),
    ] {
        let mut facts = facts();
        migration(&mut facts)["phase"] = json!(phase);
        let status = &mut migration(&mut facts)["status"];
        status["conditions"][0]["status"] = json!("True");
        status["missing"] = json!([]);
        let text = text(&facts);
        assert!(text.contains(part), "{phase}:\n{text}");
        assert_eq!(position(&facts).progress("Ready"), Progress::Reached);
    }
}

/// An old status says nothing about now.
#[test]
fn an_old_status_is_not_believed() {
    let old: fn(&mut Value) = |facts| migration(facts)["status"]["observedBy"]["time"] = json!("2026-11-30T11:00:00Z");
    let other_spec: fn(&mut Value) = |facts| migration(facts)["generation"] = json!(4);
    let none: fn(&mut Value) = |facts| migration(facts)["status"] = Value::Null;
    for (change, part) in [
        (old, "outrigger check: no manager observes"),
        (other_spec, "the manager has not observed this spec yet"),
        (none, "outrigger check: no manager observes"),
    ] {
        let mut facts = facts();
        migration(&mut facts)["status"]["conditions"][0]["status"] = json!("True");
        change(&mut facts);
        let text = text(&facts);
        assert!(text.contains(part), "{text}");
        assert!(
            text.contains("of load balancers: not known") && !text.contains("waits for"),
            "{text}"
        );
        assert_eq!(position(&facts).progress("Ready"), Progress::Waiting);
    }
}

#[test]
fn a_stalled_migration_ends_the_wait() {
    let mut facts = facts();
    let stalled = json!({"type": "Stalled", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": "2026-11-30T11:00:00Z"});
    migration(&mut facts)["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(stalled);
    assert_eq!(position(&facts).progress("Ready"), Progress::Stalled);
    assert_eq!(position(&facts).progress("RollbackPossible"), Progress::Reached);
}

#[test]
fn a_time_without_an_owner_that_lasts_says_so() {
    let mut facts = facts();
    let entry = json!({"time": "2026-11-30T11:59:50.000000Z", "phase": "Migrate", "alarm": true});
    migration(&mut facts)["status"]["history"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    let text = text(&facts);
    assert!(
        text.contains("17.2 s in Prepare, from 2026-11-30 11:00:00 UTC\n"),
        "{text}"
    );
    assert!(
        text.contains("10.0 s in Migrate, from 2026-11-30 11:59:50 UTC, and lasts"),
        "{text}"
    );
}

#[test]
fn the_migration_is_named_where_there_are_several() {
    let parse = |facts: &Value| serde_json::from_value::<ClusterFacts>(facts.clone()).unwrap();
    let mut two = facts();
    let mut other = migration(&mut two).clone();
    other["name"] = json!("other");
    two["migrations"]["known"].as_array_mut().unwrap().push(other);
    let error = |facts: &Value, name: Option<&str>| Position::of(&parse(facts), name).unwrap_err().to_string();
    assert!(error(&two, None).ends_with("name one of cluster, other"));
    assert!(Position::of(&parse(&two), Some("other")).is_ok());
    assert!(error(&facts(), Some("x")).contains("no CloudProviderMigration \"x\"; there are cluster"));
    let mut none = facts();
    none["migrations"] = json!({"known": []});
    assert!(error(&none, None).contains("not installed"));
    none["migrations"] = json!({"notRead": {"reason": "cloudprovidermigrations: forbidden"}});
    assert!(error(&none, None).contains("forbidden"));
}
