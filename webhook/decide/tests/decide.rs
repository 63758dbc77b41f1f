//! Rules of decisions that no single example shows: matching, and properties over many objects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;

use outrigger_decide::{Decision, Input, Migration, Operation, Outcome, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMESPACE: &str = "cluster-prod";

fn target(profile: Profile, namespace: Option<Value>, object: Option<Value>) -> Target {
    let selector = |value: Value| serde_json::from_value(value).unwrap();
    Target {
        profile,
        namespace_selector: namespace.map(selector),
        object_selector: object.map(selector),
    }
}

fn spec(phase: Phase) -> CloudProviderMigrationSpec {
    let by_name = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    CloudProviderMigrationSpec {
        phase,
        targets: vec![target(Profile::HostedControlPlane, Some(by_name), None)],
        ..CloudProviderMigrationSpec::new("prod")
    }
}

fn labels(namespace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("kubernetes.io/metadata.name".to_owned(), namespace.to_owned()),
        ("tier".to_owned(), "control-plane".to_owned()),
    ])
}

/// A review that changes the spec, so that it always may act.
fn review(spec: &CloudProviderMigrationSpec, object: &Value) -> Decision {
    in_namespace(spec, object, NAMESPACE)
}

fn in_namespace(spec: &CloudProviderMigrationSpec, object: &Value, namespace: &str) -> Decision {
    let labels = labels(namespace);
    let migrations = [Migration {
        name: "prod",
        spec,
        prepared: true,
    }];
    decide(&Input {
        namespace: Some(namespace),
        namespace_labels: Some(&labels),
        own_namespace: Some("outrigger-system"),
        ..Input::creation(object, &migrations)
    })
}

fn patched(object: &Value, decision: &Decision) -> Value {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &decision.patch).unwrap();
    patched
}

fn move_to(phase: Phase, object: &Value) -> Value {
    patched(object, &review(&spec(phase), object))
}

fn deployment(container: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kcm", "labels": {"app": "kcm"}},
        "spec": {"template": {"metadata": {"labels": {"component": "kube-controller-manager"}}, "spec": {"containers": [container]}}},
    })
}

fn controller_manager(flags: &[&str]) -> Value {
    let command: Vec<&str> = std::iter::once("kube-controller-manager")
        .chain(flags.iter().copied())
        .collect();
    deployment(
        json!({"name": "kube-controller-manager", "image": "r/kube-controller-manager:v1.26.13", "command": command}),
    )
}

/// One migration selects the object for certain, and another one may: an object of two migrations is never changed.
#[test]
fn an_object_that_a_second_migration_may_select_is_not_changed_before_that_is_known() {
    let first = spec(Phase::Prepare);
    let by_tier = json!({"matchLabels": {"tier": "control-plane"}});
    let second = CloudProviderMigrationSpec {
        targets: vec![target(Profile::HostedControlPlane, Some(by_tier), None)],
        ..first.clone()
    };
    let object = controller_manager(&["--cloud-provider=aws"]);
    let migrations = [("first", &first), ("second", &second)].map(|(name, spec)| Migration {
        name,
        spec,
        prepared: true,
    });
    let outcome = |labels: Option<&BTreeMap<String, String>>| {
        let decision = decide(&Input {
            namespace: Some(NAMESPACE),
            namespace_labels: labels,
            ..Input::creation(&object, &migrations)
        });
        assert!(decision.outcome == Outcome::Changed || decision.patch.is_empty());
        decision.outcome
    };

    let both = labels(NAMESPACE);
    let mut one = both.clone();
    one.remove("tier");
    assert_eq!(outcome(Some(&one)), Outcome::Changed);
    assert_ne!(outcome(Some(&both)), Outcome::Changed);
    assert_ne!(outcome(None), Outcome::Changed);
}

#[test]
fn subresources_deletions_and_other_kinds_are_never_changed() {
    let spec = spec(Phase::Prepare);
    let object = controller_manager(&["--cloud-provider=aws"]);
    let labels = labels(NAMESPACE);
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    let base = Input {
        namespace: Some(NAMESPACE),
        namespace_labels: Some(&labels),
        ..Input::creation(&object, &migrations)
    };
    assert_eq!(decide(&base).outcome, Outcome::Changed);
    for other in [
        Input {
            operation: Operation::Other,
            ..base
        },
        Input {
            subresource: "scale",
            ..base
        },
        Input {
            subresource: "status",
            ..base
        },
        Input {
            kind: "ReplicaSet",
            ..base
        },
        Input { group: "", ..base },
        Input {
            group: "coordination.k8s.io",
            kind: "Lease",
            ..base
        },
        Input {
            path_migration: Some("another"),
            ..base
        },
        Input {
            migrations: &[],
            ..base
        },
    ] {
        assert_eq!(decide(&other), Decision::default(), "{other:?}");
    }
    assert_eq!(
        decide(&Input {
            path_migration: Some("prod"),
            ..base
        })
        .outcome,
        Outcome::Changed
    );
}

/// Of a tenant all Nodes are the migration's, without a target of profile Nodes: on the path of the migration only.
#[test]
fn nodes_of_a_tenant_need_no_target() {
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"pool": "x"}}, "spec": {}});
    let outcome = |targets: &[Target], path: Option<&str>| {
        let mut spec = spec(Phase::Migrate);
        spec.targets.extend(targets.iter().cloned());
        let migrations = [Migration {
            name: "prod",
            spec: &spec,
            prepared: true,
        }];
        decide(&Input {
            path_migration: path,
            manager_fresh: Some(true),
            ..Input::creation(&node, &migrations)
        })
        .outcome
    };
    let pool = |name: &str| target(Profile::Nodes, None, Some(json!({"matchLabels": {"pool": name}})));

    assert_eq!(outcome(&[], Some("prod")), Outcome::Changed);
    assert_eq!(outcome(&[pool("x")], Some("prod")), Outcome::Changed);
    for (targets, path) in [
        (&[][..], None),
        (&[], Some("other")),
        (&[pool("x")], None),
        (&[pool("y")], Some("prod")),
    ] {
        assert_ne!(outcome(targets, path), Outcome::Changed, "{targets:?} on {path:?}");
    }
}

#[test]
fn an_object_that_is_going_away_is_left_alone() {
    let mut object = controller_manager(&["--cloud-provider=aws"]);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(review(&spec(Phase::Prepare), &object).outcome, Outcome::Unchanged);
}

#[test]
fn selectors_match_as_in_kubernetes_but_empty_ones_match_nothing() {
    let object = controller_manager(&["--cloud-provider=aws"]);
    let name = || Some(json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}));
    let expression = |key: &str, operator: &str, values: Value| {
        Some(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    let app = || Some(json!({"matchLabels": {"app": "kcm"}}));
    for (namespace, object_selector, expected) in [
        (name(), None, true),
        (name(), app(), true),
        (None, app(), true),
        (None, None, false),
        (Some(json!({})), None, false),
        (Some(json!({})), app(), false),
        (name(), Some(json!({})), false),
        (Some(json!({"matchLabels": {"tier": "other"}})), None, false),
        (name(), Some(json!({"matchLabels": {"app": "other"}})), false),
        (expression("tier", "In", json!(["x", "control-plane"])), None, true),
        (expression("tier", "NotIn", json!(["control-plane"])), None, false),
        (expression("missing", "NotIn", json!(["x"])), None, true),
        (expression("tier", "Exists", json!(null)), None, true),
        (expression("tier", "DoesNotExist", json!(null)), None, false),
        (expression("tier", "In", json!(null)), None, false),
        (expression("tier", "Equals", json!(["control-plane"])), None, false),
    ] {
        let mut spec = spec(Phase::Prepare);
        spec.targets = vec![target(
            Profile::HostedControlPlane,
            namespace.clone(),
            object_selector.clone(),
        )];
        let changed = review(&spec, &object).outcome == Outcome::Changed;
        assert_eq!(changed, expected, "{namespace:?} {object_selector:?}");
    }
}

#[test]
fn a_target_of_another_profile_does_not_match() {
    let object = controller_manager(&["--cloud-provider=aws"]);
    for profile in [
        Profile::Nodes,
        Profile::ClusterAPI,
        Profile::RancherRKE2,
        Profile::KubeadmConfig,
        Profile::AwsResources,
    ] {
        let mut spec = spec(Phase::Prepare);
        spec.targets[0].profile = profile;
        assert_eq!(review(&spec, &object).outcome, Outcome::NotOurs, "{profile:?}");
    }
}

#[test]
fn protected_namespaces_are_reached_by_their_name_only() {
    let object = controller_manager(&["--cloud-provider=aws"]);
    for namespace in ["kube-system", "kube-node-lease", "outrigger-system"] {
        let outcome = |selector: Option<Value>, object_selector: Option<Value>| {
            let mut spec = spec(Phase::Prepare);
            spec.targets = vec![target(Profile::HostedControlPlane, selector, object_selector)];
            in_namespace(&spec, &object, namespace).outcome
        };
        let key = "kubernetes.io/metadata.name";
        let by_label = json!({"matchLabels": {key: namespace}});
        let by_expression = json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["x", namespace]}]});
        assert_eq!(outcome(Some(by_label), None), Outcome::Changed, "{namespace}");
        assert_eq!(outcome(Some(by_expression), None), Outcome::Changed, "{namespace}");
        assert_eq!(
            outcome(Some(json!({"matchLabels": {"tier": "control-plane"}})), None),
            Outcome::NotOurs,
            "{namespace}"
        );
        assert_eq!(
            outcome(None, Some(json!({"matchLabels": {"app": "kcm"}}))),
            Outcome::NotOurs,
            "{namespace}"
        );
    }
}

#[test]
fn malformed_objects_are_decided_without_a_panic() {
    let odd = [
        json!(null),
        json!([]),
        json!(7),
        json!("x"),
        json!({}),
        json!([1]),
        json!([[]]),
        json!({"a": 1}),
    ];
    let whole = controller_manager(&["--cloud-provider=aws"]);
    let pointers = [
        "",
        "/metadata",
        "/metadata/labels",
        "/spec",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/metadata/labels",
        "/spec/template/spec",
        "/spec/template/spec/containers",
        "/spec/template/spec/containers/0",
        "/spec/template/spec/containers/0/name",
        "/spec/template/spec/containers/0/image",
        "/spec/template/spec/containers/0/command",
        "/spec/template/spec/containers/0/command/0",
    ];
    for pointer in pointers {
        for value in &odd {
            let mut object = whole.clone();
            *object.pointer_mut(pointer).unwrap() = value.clone();
            for phase in Phase::ALL {
                let decision = review(&spec(phase), &object);
                let _ = patched(&object, &decision);
            }
        }
    }
}

#[test]
fn a_command_line_of_100001_arguments_is_refused() {
    let flags = vec!["--cloud-config=/c"; 100_000];
    let decision = review(&spec(Phase::Migrate), &controller_manager(&flags));
    assert_eq!(decision.outcome, Outcome::Refused);
    assert!(
        decision.warnings[0].contains("100001 arguments"),
        "{:?}",
        decision.warnings
    );
}

fn words<'a>(program: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(program).chain(flags.iter().copied()).collect()
}

fn flag() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "--cloud-provider=aws",
        "--cloud_provider=aws",
        "--cloud-provider=external",
        "--cloud-config=/a",
        "--enable-leader-migration",
        "--enable-leader-migration=false",
        "--leader-elect=true",
        "--leader-migration-config=/m",
        "--feature-gates=CSIMigrationAWS=false",
        "--external-cloud-volume-plugin=aws",
        "--controllers=*,-x",
        "--profiling",
        "--v=2",
        "word",
        "--",
    ])
}

/// Deployments with a kube-controller-manager, sometimes a kube-apiserver beside it, and fields nobody knows.
fn any_deployment() -> impl Strategy<Value = Value> {
    let flags = || proptest::collection::vec(flag(), 0..7);
    (
        flags(),
        proptest::option::of(flags()),
        proptest::option::of(flags()),
        20_u32..34,
        any::<bool>(),
    )
        .prop_map(|(command, args, api_server, minor, annotated)| {
            let mut container = json!({
                "name": "kube-controller-manager",
                "image": format!("r/kube-controller-manager:v1.{minor}.1"),
                "command": words("kube-controller-manager", &command),
                "x-unknown": {"kept": [1, null, "a/b~c"]},
            });
            if let Some(args) = args {
                container["args"] = json!(args);
            }
            let mut object = deployment(container);
            if let Some(flags) = api_server {
                let container = json!({
                    "name": "kube-apiserver",
                    "image": format!("r/kube-apiserver:v1.{minor}.1"),
                    "command": words("kube-apiserver", &flags),
                });
                object["spec"]["template"]["spec"]["containers"]
                    .as_array_mut()
                    .unwrap()
                    .push(container);
            }
            if annotated {
                object["spec"]["template"]["metadata"]["annotations"] = json!({"own/er": "x"});
            }
            object
        })
}

fn any_phase() -> impl Strategy<Value = Phase> {
    proptest::sample::select(Phase::ALL.to_vec())
}

/// The object without what a migration may change.
fn rest(object: &Value) -> Value {
    let mut rest = object.clone();
    for container in rest["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap() {
        let container = container.as_object_mut().unwrap();
        container.remove("command");
        container.remove("args");
    }
    let metadata = rest["spec"]["template"]["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("outrigger.dev/undo");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    rest
}

proptest! {
    #[test]
    fn deciding_twice_is_deciding_once(object in any_deployment(), phase in any_phase()) {
        let once = move_to(phase, &object);
        let again = review(&spec(phase), &once);
        prop_assert_eq!(again.patch, vec![]);
    }

    #[test]
    fn a_way_through_phases_and_back_gives_the_original(
        object in any_deployment(),
        way in proptest::collection::vec(any_phase(), 1..6),
    ) {
        let there = way.iter().fold(object.clone(), |object, phase| move_to(*phase, &object));
        let back = review(&spec(Phase::InTree), &there);
        // An original that does not start in its version is not brought back.
        prop_assume!(!back.reasons.iter().any(|reason| reason.contains("the original does not start any more")));
        prop_assert_eq!(patched(&there, &back), object);
    }

    #[test]
    fn the_form_of_a_phase_does_not_depend_on_the_way(object in any_deployment(), by in any_phase(), phase in any_phase()) {
        let straight = review(&spec(phase), &object);
        prop_assume!(straight.outcome != Outcome::Refused);
        let over = move_to(phase, &move_to(by, &object));
        // Where some container is refused it stays as it was, so only complete decisions compare.
        prop_assume!(straight.warnings.is_empty() && review(&spec(by), &object).warnings.is_empty());
        prop_assert_eq!(over, patched(&object, &straight));
    }

    #[test]
    fn nothing_else_is_touched(object in any_deployment(), phase in any_phase()) {
        prop_assert_eq!(rest(&move_to(phase, &object)), rest(&object));
    }

    #[test]
    fn auditing_changes_nothing_and_tells_what_it_would(object in any_deployment(), phase in any_phase()) {
        use outrigger_shared::migration::Mode;
        let enforced = review(&spec(phase), &object);
        let audited = review(&CloudProviderMigrationSpec { mode: Mode::Audit, ..spec(phase) }, &object);
        prop_assert_eq!(&audited.patch, &vec![]);
        prop_assert_eq!(audited.outcome == Outcome::Audited, enforced.outcome == Outcome::Changed);
        prop_assert!(audited.outcome != Outcome::Audited || !audited.warnings.is_empty());
    }
}

#[test]
fn audit_annotations_name_rule_version_and_decision() {
    let decision = review(&spec(Phase::Prepare), &controller_manager(&["--cloud-provider=aws"]));
    let noted = &decision.audit_annotations;
    assert_eq!(noted["rule"], "Deployment.apps");
    assert_eq!(noted["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (noted["decision"].as_str(), noted["phase"].as_str()),
        ("changed", "Prepare")
    );
}
