//! `spec.leaderMigration` in Pod templates, as properties: nothing of the owner's is lost, whatever was there before and
//! whatever way is gone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;

use outrigger_decide::{Decision, Input, Migration, Outcome, decide};
use outrigger_shared::{
    leader_migration::LeaderMigrationConfiguration,
    migration::{CloudProviderMigrationSpec, Phase, Profile, Target},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMESPACE: &str = "cluster-prod";
const TEXT: &str = "/spec/template/metadata/annotations/outrigger.dev~1leader-migration";

/// A phase, and a configuration of the migration's own.
#[derive(Clone, Debug)]
struct Step {
    phase: Phase,
    lease: Option<&'static str>,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = proptest::option::of(proptest::sample::select(vec!["one", "two", "No Lease"]));
    (proptest::sample::select(Phase::ALL.to_vec()), lease).prop_map(|(phase, lease)| Step { phase, lease })
}

fn review(step: &Step, object: &Value) -> Decision {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    let spec = CloudProviderMigrationSpec {
        phase: step.phase,
        leader_migration: step.lease.map(|lease| LeaderMigrationConfiguration {
            leader_name: lease.to_owned(),
            controller_leaders: Vec::new(),
        }),
        targets: vec![Target {
            profile: Profile::HostedControlPlane,
            namespace_selector: serde_json::from_value(selector).unwrap(),
            object_selector: None,
        }],
        ..CloudProviderMigrationSpec::new("prod")
    };
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), NAMESPACE.to_owned())]);
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    decide(&Input {
        namespace: Some(NAMESPACE),
        namespace_labels: Some(&labels),
        own_namespace: Some("outrigger-system"),
        ..Input::creation(object, &migrations)
    })
}

fn after(step: &Step, object: &Value) -> Value {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &review(step, object).patch).unwrap();
    patched
}

/// The previous value of a field: absent, or one that counts as absent, or one of `values`.
fn place(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    proptest::option::of(proptest::sample::select(values))
}

fn any_deployment() -> impl Strategy<Value = Value> {
    let volumes = vec![
        json!(null),
        json!([]),
        json!([{"name": "a", "emptyDir": {}}]),
        json!([{"name": "outrigger-leader-migration", "emptyDir": {}}]),
        json!("no list"),
    ];
    let mounts = vec![
        json!(null),
        json!([]),
        json!([{"name": "a", "mountPath": "/a"}]),
        json!([{"name": "a", "mountPath": "/etc/outrigger"}]),
        json!([{"name": "a", "mountPath": "/etc/"}]),
        json!([{"name": "a", "mountPath": "/etc/outriggers"}]),
    ];
    let annotations = vec![
        json!(null),
        json!({"own/er": "x"}),
        json!({"own/er": "x", "outrigger.dev/leader-migration": "the owner's"}),
    ];
    let flags = vec![
        vec!["--cloud-provider=aws"],
        vec!["--cloud-provider=aws", "--leader-migration-config", "/m", "--v=2"],
        vec![
            "--cloud-provider=aws",
            "--enable-leader-migration=true",
            "--leader-migration-config=/m",
        ],
        vec!["--cloud-provider=external"],
        vec![],
    ];
    let flags = proptest::sample::select(flags);
    (place(volumes), place(mounts), place(annotations), flags, 20_u32..28).prop_map(
        |(volumes, mounts, annotations, flags, minor)| {
            let command: Vec<&str> = std::iter::once("kube-controller-manager").chain(flags).collect();
            let mut container = json!({
                "name": "kube-controller-manager",
                "image": format!("r/kube-controller-manager:v1.{minor}.1"),
                "command": command,
            });
            let (mut metadata, mut spec) = (json!({"labels": {"app": "kcm"}}), json!({}));
            for (object, key, value) in [
                (&mut container, "volumeMounts", mounts),
                (&mut metadata, "annotations", annotations),
                (&mut spec, "volumes", volumes),
            ] {
                if let Some(value) = value {
                    object[key] = value;
                }
            }
            spec["containers"] = json!([{"name": "first", "image": "r/tunnel:v1"}, container]);
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kcm"},
                "spec": {"template": {"metadata": metadata, "spec": spec}},
            })
        },
    )
}

/// Whether a step keeps what is there, as the original does not start in its version.
fn keeps(step: &Step, object: &Value) -> bool {
    let reasons = review(step, object).reasons;
    reasons
        .iter()
        .any(|reason| reason.contains("the original does not start any more"))
}

/// A null map of annotations is as good as none; what was there is not noted for it.
fn without_null_annotations(mut object: Value) -> Value {
    let metadata = object["spec"]["template"]["metadata"].as_object_mut().unwrap();
    if metadata.get("annotations") == Some(&Value::Null) {
        metadata.remove("annotations");
    }
    object
}

proptest! {
    #[test]
    fn every_way_back_gives_the_original(object in any_deployment(), way in proptest::collection::vec(step(), 1..6)) {
        let there = way.iter().fold(object.clone(), |object, step| after(step, &object));
        for lease in [None, Some("one")] {
            let step = Step { phase: Phase::InTree, lease };
            let back = after(&step, &there);
            prop_assume!(!keeps(&step, &there));
            prop_assert_eq!(without_null_annotations(back), without_null_annotations(object.clone()));
        }
    }

    #[test]
    fn every_step_is_settled_at_once(object in any_deployment(), way in proptest::collection::vec(step(), 1..6)) {
        let mut object = object;
        for step in &way {
            object = after(step, &object);
            prop_assert_eq!(review(step, &object).patch, vec![]);
        }
    }

    #[test]
    fn the_form_does_not_depend_on_the_way(object in any_deployment(), by in step(), step in step()) {
        let straight = review(&step, &object);
        prop_assume!(straight.outcome != Outcome::Refused);
        let between = after(&by, &object);
        prop_assume!(!keeps(&step, &between));
        let over = without_null_annotations(after(&step, &between));
        prop_assert_eq!(over, without_null_annotations(after(&step, &object)));
    }

    #[test]
    fn flag_and_file_stand_together_or_not_at_all(object in any_deployment(), way in proptest::collection::vec(step(), 1..6)) {
        let there = way.iter().fold(object, |object, step| after(step, &object));
        let template = &there["spec"]["template"];
        let command = template.pointer("/spec/containers/1/command").unwrap().to_string();
        let is_named = command.contains("/etc/outrigger/leader-migration.yaml");
        let text = there.pointer(TEXT).and_then(Value::as_str).filter(|text| *text != "the owner's");
        prop_assert_eq!(is_named, text.is_some(), "{}", &there);
        let volumes = template.pointer("/spec/volumes").cloned().unwrap_or_default().to_string();
        prop_assert_eq!(is_named, volumes.contains("metadata.annotations['outrigger.dev/leader-migration']"), "{}", volumes);
        let mounts = template.pointer("/spec/containers/1/volumeMounts").cloned().unwrap_or_default().to_string();
        prop_assert_eq!(is_named, mounts.contains("outrigger-leader-migration"), "{}", mounts);
        if let Some(text) = text {
            prop_assert!(LeaderMigrationConfiguration::from_text("annotation", text).is_ok(), "{}", text);
        }
    }
}

#[test]
fn a_note_that_nobody_of_ours_wrote_stops_everything() {
    for note in [
        r#"[{"made":"house"}]"#,
        r#"[{"made":"mount"}]"#,
        r#"[{"made":"volume","before":"x"}]"#,
    ] {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kcm"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "kube-controller-manager"}, "annotations": {"outrigger.dev/undo": note}},
                "spec": {"containers": [{
                    "name": "kube-controller-manager", "image": "r/kube-controller-manager:v1.26.1",
                    "command": ["kube-controller-manager", "--cloud-provider=aws"],
                }]},
            }},
        });
        let step = Step {
            phase: Phase::Prepare,
            lease: Some("one"),
        };
        let decision = review(&step, &object);
        assert_eq!(
            (decision.outcome, decision.patch.len()),
            (Outcome::Refused, 0),
            "{note}"
        );
    }
}
