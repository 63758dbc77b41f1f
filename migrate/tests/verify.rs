//! `outrigger verify` on documents of facts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use outrigger_migrate::facts::ClusterFacts;
use outrigger_migrate::verify::figures::{Answer, Evidence, Verdict};
use serde_json::{Value, json};

const CLEAN: &str = include_str!("facts/kubeadm-in-tree.json");

/// A migration that is complete. It took over at 10:40:15.
fn complete() -> Value {
    let mut facts: Value = serde_json::from_str(CLEAN).unwrap();
    for node in facts["nodes"]["known"].as_array_mut().unwrap() {
        node["created"] = json!("2026-11-01T08:00:00Z");
        node["kubelet"] = json!({"known": {"from": "process", "flags": {"cloud-provider": "external"}}});
    }
    facts["services"] = json!({"known": [{
        "name": "default/web", "created": "2026-11-01T08:00:00Z", "hasAddress": true, "hasFinalizer": true,
        "addressed": "2026-11-01T08:01:00Z",
    }]});
    let entry = |time: &str, phase: &str, owner: Value| {
        let time = format!("2026-11-30T{time}.000000Z");
        json!({"time": time, "phase": phase, "owner": owner, "holder": "cp-1_a", "alarm": false})
    };
    let (old, new) = (json!("kube-controller-manager"), json!("cloud-controller-manager"));
    facts["migrations"] = json!({"known": [{
        "name": "cluster", "phase": "Complete", "generation": 3, "mainLease": "kube-controller-manager",
        "migrationLease": "cloud-provider-extraction-migration", "profiles": ["Nodes"],
        "status": {
            "observedGeneration": 3,
            "observedBy": {"identity": "cp-2_a", "time": "2026-11-30T11:59:30Z"},
            "conditions": [{
                "type": "Completed", "status": "True", "reason": "Completed", "message": "the migration is over",
                "lastTransitionTime": "2026-11-30T11:00:00Z",
            }],
            "history": [
                entry("10:00:00", "InTree", old.clone()), entry("10:20:00", "Prepare", Value::Null),
                entry("10:20:17", "Prepare", old), entry("10:40:00", "Migrate", Value::Null),
                entry("10:40:15", "Migrate", new.clone()), entry("11:00:00", "Complete", new),
            ],
        },
    }]});
    facts
}

fn status(facts: &mut Value) -> &mut Value {
    &mut facts["migrations"]["known"][0]["status"]
}

fn evidence(facts: &Value) -> Evidence {
    let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
    let migration = &facts.migrations.get().unwrap()[0];
    Evidence::of(&facts, migration)
}

fn answer(facts: &Value, name: &str) -> (Answer, String) {
    let figures = evidence(facts).figures;
    let figure = figures.into_iter().find(|figure| figure.name == name).unwrap();
    (figure.answer, format!("{} {}", figure.value, figure.from))
}

fn run(facts: &Value, flags: &[&str]) -> support::Run {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), facts.to_string()).unwrap();
    let arguments = [&["verify", "--facts", file.path().to_str().unwrap()], flags].concat();
    support::outrigger(&arguments)
}

#[test]
fn a_migration_that_went_well_is_proven_except_for_what_nobody_recorded() {
    let ran = run(&complete(), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout);

    let json: Value = serde_json::from_str(&run(&complete(), &["-o", "json"]).stdout).unwrap();
    assert_eq!(
        (&json["kind"], &json["verdict"]),
        (&json!("MigrationEvidence"), &json!("proven"))
    );
    assert_eq!(json["figures"][5]["answer"], "notRecorded");
}

/// A change of the facts, the figure that it concerns, and a part of its text.
type Change = (fn(&mut Value), &'static str, &'static str);

#[test]
fn a_long_hand_over_and_an_in_tree_kubelet_refute() {
    let faults: [Change; 2] = [
        (
            |facts| status(facts)["history"][4]["time"] = json!("2026-11-30T10:40:21.000000Z"),
            "no owner",
            "21.0 s in Migrate",
        ),
        (
            |facts| facts["nodes"]["known"][0]["kubelet"]["known"]["flags"]["cloud-provider"] = json!("aws"),
            "kubelets",
            "in-tree: ",
        ),
    ];
    for (fault, name, part) in faults {
        let mut facts = complete();
        fault(&mut facts);
        let evidence = evidence(&facts);
        assert_eq!(evidence.verdict, Verdict::Refuted, "{part}");
        let refuted = evidence
            .figures
            .iter()
            .filter(|figure| figure.answer == Answer::Refuted);
        assert_eq!(refuted.map(|figure| figure.name).collect::<Vec<_>>(), [name]);
        let (_, text) = answer(&facts, name);
        assert!(text.contains(part), "{text}");
        assert_eq!(run(&facts, &[]).code, Some(2));
    }
}

const LOSSES: [Change; 16] = [
    (
        |facts| _ = status(facts)["history"].as_array_mut().unwrap().remove(0),
        "one owner",
        "begins in phase Prepare",
    ),
    (
        |facts| status(facts)["history"] = json!([]),
        "load balancers",
        "status.history is empty",
    ),
    (
        |facts| status(facts)["history"][4]["alarm"] = json!(true),
        "one owner",
        "alarm, at 2026-11-30 10:40:15 UTC;",
    ),
    (
        |facts| status(facts)["history"][5]["holder"] = json!("cp-2_b"),
        "one owner",
        "1 times no manager observed",
    ),
    (
        |facts| facts["migrations"]["known"][0]["isDowntime"] = json!(true),
        "no owner",
        "spec.downtime",
    ),
    (
        |facts| facts["migrations"]["known"][0]["isAttested"] = json!(true),
        "no owner",
        "spec.attestation",
    ),
    (
        |facts| status(facts)["history"][4]["time"] = json!("2026-11-30T10:39:50.000000Z"),
        "no owner",
        "clocks of two managers",
    ),
    (
        |facts| facts["services"]["known"][0]["addressed"] = json!("2026-11-30T10:41:00Z"),
        "load balancers",
        "1 of 1 Services have no address, or one that was written later",
    ),
    (
        |facts| facts["services"]["known"][0]["hasAddress"] = json!(false),
        "load balancers",
        "default/web",
    ),
    (
        |facts| {
            _ = facts["services"]["known"][0]
                .as_object_mut()
                .unwrap()
                .remove("addressed")
        },
        "load balancers",
        "default/web",
    ),
    (
        |facts| facts["services"] = json!({"known": []}),
        "load balancers",
        "no Service is older",
    ),
    (
        |facts| facts["services"] = json!({"notRead": {"reason": "services: forbidden"}}),
        "load balancers",
        "services: forbidden",
    ),
    (
        |facts| facts["nodes"]["known"][0]["created"] = json!("2026-11-30T10:50:00Z"),
        "Nodes",
        "2 of 3 are older than the hand-over; the others are new",
    ),
    (
        |facts| facts["migrations"]["known"][0]["profiles"] = json!(["HostedControlPlane"]),
        "Nodes",
        "in another cluster",
    ),
    (
        |facts| facts["nodes"]["known"][0]["kubelet"] = json!({"notRead": {"reason": "nodes/proxy: forbidden"}}),
        "kubelets",
        "nothing is known of the others",
    ),
    (
        |facts| facts["nodes"]["known"][0]["kubelet"]["known"]["flags"] = json!({}),
        "kubelets",
        "2 of 3 are external; nothing is known",
    ),
];

/// Whatever may have another meaning proves nothing, and refutes nothing.
#[test]
fn a_record_that_is_missing_or_unclear_is_said() {
    for (loss, name, part) in LOSSES {
        let mut facts = complete();
        loss(&mut facts);
        let (found, text) = answer(&facts, name);
        assert_eq!(found, Answer::NotRecorded, "{text}");
        assert!(text.contains(part), "{text}");
        let expected = match name {
            "one owner" | "no owner" => Verdict::NotRecorded,
            _ if part.contains("history") => Verdict::NotRecorded,
            _ => Verdict::Proven,
        };
        assert_eq!(evidence(&facts).verdict, expected, "{part}");
    }
}

/// An attempt that was rolled back is another migration.
#[test]
fn the_last_migration_counts() {
    let mut facts = complete();
    let mut first = status(&mut facts)["history"].as_array().unwrap().clone();
    first[4]["alarm"] = json!(true);
    first[4]["time"] = json!("2026-11-30T10:50:00.000000Z");
    let history = status(&mut facts)["history"].as_array_mut().unwrap();
    history.splice(0..0, first);
    assert_eq!(evidence(&facts).verdict, Verdict::Proven);
    assert_eq!(evidence(&facts).history.len(), 6);
}

#[test]
fn a_migration_that_goes_on_or_that_nobody_observes_is_not_over() {
    let changes: [fn(&mut Value); 3] = [
        |facts| status(facts)["conditions"][0]["status"] = json!("False"),
        |facts| status(facts)["observedBy"]["time"] = json!("2026-11-30T11:00:00Z"),
        |facts| facts["migrations"]["known"][0]["generation"] = json!(4),
    ];
    for change in changes {
        let mut facts = complete();
        change(&mut facts);
        assert_eq!(evidence(&facts).verdict, Verdict::NotOver);
        assert_eq!(run(&facts, &[]).code, Some(3));
    }
}

#[test]
fn the_page_has_the_figures_and_no_markup_of_the_cluster() {
    let mut facts = complete();
    for at in [4, 5] {
        status(&mut facts)["history"][at]["holder"] = json!("<script>alert(1)</script>");
    }
    facts["context"] = json!("prod & \"test\"");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proof.html");
    let ran = run(&facts, &["--html", path.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;") && page.contains("prod &amp; &quot;test&quot;, migration cluster: PROVEN"));
    for figure in evidence(&facts).figures {
        assert!(page.contains(&format!("<td>{}<td", figure.name)), "{page}");
    }
    // A lane for the phases and an owner at each time.
    assert_eq!(page.matches("<rect").count(), 12);

    let ran = run(&complete(), &["--html", folder.path().to_str().unwrap()]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("--html: cannot write"), "{}", ran.stderr);
}
