//! The migration resource: its types, its schema, and what the schema cannot refuse.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, MicroTime, Time};
use kube::Resource;
use outrigger_shared::{
    controller::{Controller, Party},
    leader_migration::{ControllerLeader, LeaderMigrationConfiguration, Warning},
    migration::{
        Adoption, AdoptionChange, Attestation, CloudProviderMigration, CloudProviderMigrationSpec,
        CloudProviderMigrationStatus, ControllerStatus, HistoryEntry, MAX_ADOPTION_CHANGES, MAX_ADOPTION_TEXT,
        MAX_HISTORY, MAX_MESSAGE, MissingFact, Mode, NodeCounts, NodeTaint, Observer, Ownership, Phase, Problem,
        Profile, Target, condition,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

fn crd() -> Value {
    let path = "../manifests/base/crd.yaml";
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn schema(pointer: &str) -> Value {
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties";
    crd()
        .pointer(&format!("{root}{pointer}"))
        .unwrap_or_else(|| panic!("no schema at {pointer}"))
        .clone()
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

fn names<T: Serialize>(values: &[T]) -> Value {
    json!(values)
}

/// With every field set.
fn full_spec() -> CloudProviderMigrationSpec {
    let entry = ControllerLeader {
        name: "service".to_owned(),
        component: "*".to_owned(),
    };
    let selector = || Some(LabelSelector::default());
    CloudProviderMigrationSpec {
        attestation: Some(Attestation {
            phase: Phase::Prepare,
            holders: vec!["kcm-0_1".to_owned()],
        }),
        kubernetes_version: Some("1.26".to_owned()),
        leader_migration: Some(LeaderMigrationConfiguration {
            leader_name: "m".to_owned(),
            controller_leaders: vec![entry],
        }),
        targets: vec![Target {
            profile: Profile::Nodes,
            namespace_selector: selector(),
            object_selector: selector(),
        }],
        ..CloudProviderMigrationSpec::new("prod")
    }
}

fn full_status() -> CloudProviderMigrationStatus {
    let time = || Time("2026-01-02T03:04:05Z".parse().unwrap());
    CloudProviderMigrationStatus {
        observed_generation: Some(3),
        phase: Some(Phase::Prepare),
        observed_by: Some(Observer {
            identity: "ours_1".to_owned(),
            time: time(),
        }),
        missing: vec![MissingFact {
            code: "MainLeaseIdle".to_owned(),
            observation: "it is not renewed".to_owned(),
            consequence: "it is not acquired".to_owned(),
            fix: "start one".to_owned(),
        }],
        conditions: vec![Condition {
            type_: condition::PREPARED.to_owned(),
            status: "True".to_owned(),
            reason: "EvidenceSeen".to_owned(),
            message: "all readable".to_owned(),
            last_transition_time: time(),
            observed_generation: Some(3),
        }],
        controllers: vec![ControllerStatus {
            name: "service-lb-controller".to_owned(),
            owner: Some(Party::KubeControllerManager),
            lease: Some("l".to_owned()),
            holder: Some("h".to_owned()),
            since: Some(time()),
        }],
        nodes: Some(NodeCounts {
            total: 3,
            uninitialized: 1,
            migrated: 2,
        }),
        adoption: Some(Adoption {
            time: time(),
            services: 2,
            nodes: 3,
            changes: 1,
            first: vec![AdoptionChange {
                object: "Service default/web".to_owned(),
                action: "CreateListener".to_owned(),
                reason: "it has none".to_owned(),
            }],
        }),
        history: vec![HistoryEntry {
            time: MicroTime("2026-01-02T03:04:05.678901Z".parse().unwrap()),
            phase: Phase::Migrate,
            holder: Some("h".to_owned()),
            owner: Some(Party::CloudControllerManager),
            alarm: false,
        }],
    }
}

#[test]
fn every_field_of_the_types_is_in_the_schema_and_the_other_way_round() {
    let spec = json!(full_spec());
    let status = json!(full_status());
    for (object, pointer) in [
        (&spec, "/spec"),
        (&spec["attestation"], "/spec/properties/attestation"),
        (&spec["leaderMigration"], "/spec/properties/leaderMigration"),
        (
            &spec["leaderMigration"]["controllerLeaders"][0],
            "/spec/properties/leaderMigration/properties/controllerLeaders/items",
        ),
        (&spec["targets"][0], "/spec/properties/targets/items"),
        (&status, "/status"),
        (&status["observedBy"], "/status/properties/observedBy"),
        (&status["missing"][0], "/status/properties/missing/items"),
        (&status["conditions"][0], "/status/properties/conditions/items"),
        (&status["controllers"][0], "/status/properties/controllers/items"),
        (&status["nodes"], "/status/properties/nodes"),
        (&status["adoption"], "/status/properties/adoption"),
        (
            &status["adoption"]["first"][0],
            "/status/properties/adoption/properties/first/items",
        ),
        (&status["history"][0], "/status/properties/history/items"),
    ] {
        assert_eq!(
            keys(object),
            keys(&schema(&format!("{pointer}/properties"))),
            "{pointer}"
        );
    }
}

#[test]
fn the_schemas_enumerations_are_the_types() {
    let enumeration = |pointer: &str| schema(pointer)["enum"].clone();
    let of_spec = |field: &str| enumeration(&format!("/spec/properties/{field}"));
    assert_eq!(of_spec("phase"), names(&Phase::ALL));
    assert_eq!(of_spec("mode"), names(&[Mode::Enforce, Mode::Audit]));
    assert_eq!(of_spec("ownership"), names(&[Ownership::Owned, Ownership::Shared]));
    assert_eq!(
        of_spec("nodeTaint"),
        names(&[NodeTaint::WhenManagerReady, NodeTaint::Always, NodeTaint::Never])
    );
    assert_eq!(of_spec("targets/items/properties/profile"), names(&Profile::ALL));
    let texts = Profile::ALL.map(|profile| json!(profile.as_str()));
    assert_eq!(of_spec("targets/items/properties/profile"), json!(texts));
    let parties = names(&[Party::KubeControllerManager, Party::CloudControllerManager]);
    assert_eq!(
        enumeration("/status/properties/controllers/items/properties/owner"),
        parties
    );
    assert_eq!(enumeration("/status/properties/phase"), names(&Phase::ALL));
    let of_history = "/status/properties/history/items/properties";
    assert_eq!(enumeration(&format!("{of_history}/owner")), parties);
    assert_eq!(enumeration(&format!("{of_history}/phase")), names(&Phase::ALL));
    assert_eq!(schema("/status/properties/history")["maxItems"], MAX_HISTORY);
    let first = schema("/status/properties/adoption/properties/first");
    assert_eq!(first["maxItems"], MAX_ADOPTION_CHANGES);
    for text in ["object", "action", "reason"] {
        assert_eq!(first["items"]["properties"][text]["maxLength"], MAX_ADOPTION_TEXT);
    }
    let attested = of_spec("attestation/properties/phase");
    assert_eq!(attested, names(&Attestation::PHASES));
    let holders = schema("/spec/properties/attestation/properties/holders");
    assert_eq!(holders["maxItems"], Attestation::MAX_HOLDERS);
    assert_eq!(holders["items"]["maxLength"], Attestation::MAX_HOLDER);
}

#[test]
fn the_schemas_defaults_are_the_types() {
    let minimal: CloudProviderMigrationSpec = serde_json::from_value(json!({"clusterID": "prod"})).unwrap();
    assert_eq!(minimal, CloudProviderMigrationSpec::new("prod"));
    let defaulted = json!(minimal);
    for (field, property) in schema("/spec/properties").as_object().unwrap() {
        let expected = defaulted.get(field).filter(|_| field != "clusterID");
        assert_eq!(property.get("default"), expected, "{field}");
    }
    assert_eq!(schema("/spec")["required"], json!(["clusterID"]));
}

#[test]
fn a_message_is_cut_to_what_the_schema_accepts() {
    // The schema does not limit this name.
    let entry = ControllerLeader {
        name: "x".repeat(MAX_MESSAGE),
        component: "*".to_owned(),
    };
    let mut spec = full_spec();
    spec.leader_migration = Some(LeaderMigrationConfiguration {
        leader_name: "m".to_owned(),
        controller_leaders: vec![entry],
    });
    let problems: Vec<_> = spec.problems().iter().map(ToString::to_string).collect();
    let message = problems.join("; ");
    assert!(message.len() > MAX_MESSAGE, "{}", message.len());

    let status = CloudProviderMigrationStatus::default();
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let condition = status.condition(condition::SPEC_VALID, "False", ("Invalid", message), None, now);
    let accepted = &schema("/status/properties/conditions/items/properties/message")["maxLength"];
    assert_eq!(json!(condition.message.chars().count()), *accepted);
}

#[test]
fn an_attestation_names_a_phase_in_which_it_counts_and_holders() {
    let problems = |phase, holders: &[&str]| {
        let attestation = Attestation {
            phase,
            holders: holders.iter().map(|&holder| holder.to_owned()).collect(),
        };
        let spec = CloudProviderMigrationSpec {
            attestation: Some(attestation),
            ..CloudProviderMigrationSpec::new("prod")
        };
        spec.problems()
    };
    for phase in Phase::ALL {
        let is_possible = Attestation::PHASES.contains(&phase);
        let expected = (!is_possible).then_some(Problem::AttestedPhase(phase));
        assert_eq!(problems(phase, &[]), Vec::from_iter(expected), "{phase}");
    }

    let longest = "a".repeat(Attestation::MAX_HOLDER);
    assert_eq!(problems(Phase::Prepare, &["kcm-0", &longest]), []);
    assert_eq!(problems(Phase::Prepare, &["kcm-0"; 16]), []);
    assert_eq!(problems(Phase::Prepare, &["kcm-0"; 17]), [Problem::AttestedHolders(17)]);
    let too_long = longest + "a";
    let bad = |index, holder: &str| Problem::AttestedHolder {
        index,
        holder: holder.to_owned(),
    };
    assert_eq!(
        problems(Phase::Migrate, &["", "kcm-0", &too_long]),
        [bad(0, ""), bad(2, &too_long)]
    );

    let text = |problem: Problem| problem.to_string();
    assert_eq!(
        text(Problem::AttestedPhase(Phase::Complete)),
        "spec.attestation.phase Complete is not possible; set Prepare, or Migrate, which also counts in phase Complete"
    );
    assert_eq!(
        text(Problem::AttestedHolders(17)),
        "spec.attestation.holders has 17 entries; name at most 16, or leave it out to name every holder"
    );
    assert_eq!(
        text(bad(0, "")),
        "spec.attestation.holders[0] \"\" has 0 characters; name the identity of a holder (HOSTNAME_UUID) or its host name with 1 to 317"
    );
}

/// The rule of the schema lists them.
#[test]
fn the_rule_about_in_tree_names_the_shared_controllers() {
    let crd = crd();
    let rules = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations");
    let rule = rules.and_then(|rules| rules[0]["rule"].as_str()).unwrap();
    for controller in Controller::ALL {
        let is_named = rule.contains(&format!("'{controller}'"));
        assert_eq!(is_named, Controller::SHARED.contains(&controller), "{controller}");
    }
    assert!(rule.contains(&format!("'{}'", Party::CloudControllerManager)), "{rule}");
}

#[test]
fn the_lease_of_the_kube_controller_manager_needs_a_name_of_its_own() {
    let problems = |name: &str| {
        let mut spec = CloudProviderMigrationSpec::new("prod");
        spec.kube_controller_manager_lease = name.to_owned();
        spec.problems()
    };
    assert!(problems("kube-controller-manager").is_empty());
    let ours = "cloud-controller-manager".to_owned();
    assert_eq!(problems(&ours), [Problem::MainLeaseTaken(ours)]);
    assert_eq!(problems("KCM"), [Problem::MainLease("KCM".to_owned())]);
}

#[test]
fn the_definition_names_the_type() {
    let crd = crd();
    let names = &crd["spec"]["names"];
    assert_eq!(crd["spec"]["group"], *CloudProviderMigration::group(&()));
    assert_eq!(
        crd["spec"]["versions"][0]["name"],
        *CloudProviderMigration::version(&())
    );
    assert_eq!(names["kind"], *CloudProviderMigration::kind(&()));
    assert_eq!(names["plural"], *CloudProviderMigration::plural(&()));
    assert_eq!(names["shortNames"], json!(["cpm"]));
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["spec"]["versions"][0]["subresources"], json!({"status": {}}));
}

/// The rule is a disjunction of equalities, so it can be evaluated by looking for its parts.
#[test]
fn the_transition_rule_allows_what_the_type_allows() {
    let rule = schema("/spec/properties/phase")["x-kubernetes-validations"][0]["rule"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(rule.starts_with("self == oldSelf"));
    for from in Phase::ALL {
        let clause = rule
            .split("|| (oldSelf == ")
            .find(|part| part.starts_with(&format!("'{from}'")))
            .unwrap();
        for to in Phase::ALL.into_iter().filter(|to| *to != from) {
            assert_eq!(
                clause.contains(&format!("self == '{to}'")),
                from.may_become(to),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn a_resource_reads_back_as_it_was_written() {
    let mut migration = CloudProviderMigration::new("prod", full_spec());
    migration.status = Some(full_status());
    let text = serde_json::to_string(&migration).unwrap();
    let read: CloudProviderMigration = serde_json::from_str(&text).unwrap();
    assert_eq!(read, migration);
    assert!(read.is_prepared());
    assert!(!read.has_condition(condition::COMPLETED));
}

#[test]
fn explicit_nulls_read_as_absent_and_unknown_fields_are_refused() {
    let nulls = json!({"clusterID": "prod", "attestation": null, "leaderMigration": null, "kubernetesVersion": null});
    let spec: CloudProviderMigrationSpec = serde_json::from_value(nulls).unwrap();
    assert_eq!(spec, CloudProviderMigrationSpec::new("prod"));
    for unknown in [
        json!({"clusterID": "p", "phases": "InTree"}),
        json!({"clusterID": "p", "attestation": {"phase": "Prepare", "holder": "kcm-0"}}),
        json!({"clusterID": "p", "attestation": {"holders": ["kcm-0"]}}),
        json!({"clusterID": "p", "targets": [{"profile": "Nodes", "selector": {}}]}),
    ] {
        assert!(
            serde_json::from_value::<CloudProviderMigrationSpec>(unknown.clone()).is_err(),
            "{unknown}"
        );
    }
}

/// With a name that no Lease can have, an entry for one side only, and one for nobody.
fn own_configuration() -> LeaderMigrationConfiguration {
    let leader = |name: &str, component: &str| ControllerLeader {
        name: name.to_owned(),
        component: component.to_owned(),
    };
    LeaderMigrationConfiguration {
        leader_name: "Prod".to_owned(),
        controller_leaders: vec![
            leader("service", "cloud-controller-manager"),
            leader("services", "*"),
            leader("nodeipam", "kube-controller-manager"),
        ],
    }
}

#[test]
fn the_migration_lease_has_a_name_of_its_own() {
    let problem = |name: &str| {
        let spec = CloudProviderMigrationSpec {
            kube_controller_manager_lease: "kcm".to_owned(),
            leader_migration: Some(LeaderMigrationConfiguration {
                leader_name: name.to_owned(),
                ..LeaderMigrationConfiguration::default()
            }),
            ..CloudProviderMigrationSpec::new("prod")
        };
        let problems = spec.problems();
        assert_eq!(problems.first(), spec.leader_name_problem().as_ref());
        problems
    };
    let long = "a".repeat(254);
    for name in ["", "Prod", "a_b", "-a", "a-", "a..b", "a b", "a\nb", &long] {
        assert_eq!(problem(name), [Problem::LeaderName(name.to_owned())]);
    }
    for name in ["kcm", "cloud-controller-manager"] {
        assert_eq!(problem(name), [Problem::LeaderNameTaken(name.to_owned())]);
    }
    for name in ["prod-migration", "a.b-1", "kube-controller-manager"] {
        assert_eq!(problem(name), []);
    }
}

#[test]
fn settings_that_do_not_do_what_they_seem_to_are_reported() {
    assert_eq!(CloudProviderMigrationSpec::new("prod").problems(), []);
    let target = |profile, namespace_selector, object_selector| Target {
        profile,
        namespace_selector,
        object_selector,
    };
    let invalid: LabelSelector =
        serde_json::from_value(json!({"matchExpressions": [{"key": "a", "operator": "Equals"}]})).unwrap();
    let spec = CloudProviderMigrationSpec {
        kubernetes_version: Some("latest".to_owned()),
        leader_migration: Some(own_configuration()),
        targets: vec![
            target(Profile::Nodes, None, Some(LabelSelector::default())),
            target(Profile::HostedControlPlane, None, None),
            target(Profile::HostedControlPlane, Some(LabelSelector::default()), None),
            target(Profile::Kubermatic, None, Some(invalid)),
        ],
        ..CloudProviderMigrationSpec::new("")
    };
    let problems = spec.problems();
    assert!(
        matches!(
            &problems[..],
            [
                Problem::ClusterIdEmpty,
                Problem::Version(_),
                Problem::LeaderName(_),
                Problem::LeaderMigration(Warning::UnknownController { index: 1, .. }),
                Problem::OneSided {
                    index: 0,
                    component: "cloud-controller-manager",
                    controller: Controller::Service,
                    ..
                },
                Problem::NoSelector { index: 1, .. },
                Problem::EmptySelector {
                    index: 2,
                    field: "namespaceSelector",
                    ..
                },
                Problem::InvalidSelector {
                    index: 3,
                    field: "objectSelector",
                    ..
                },
                Problem::NodesElsewhere {
                    nodes: 0,
                    hosted: 1,
                    ..
                },
            ]
        ),
        "{problems:#?}"
    );
    assert!(problems.iter().all(|problem| problem.to_string().contains("spec.")));
}

#[test]
fn a_target_of_nodes_beside_a_hosted_control_plane_is_reported() {
    let problems = |namespace: serde_json::Value| {
        let targets = json!([
            {"profile": "Nodes"},
            {"profile": "HostedControlPlane", "namespaceSelector": namespace},
        ]);
        let spec = CloudProviderMigrationSpec {
            targets: serde_json::from_value(targets).unwrap(),
            ..CloudProviderMigrationSpec::new("prod")
        };
        spec.problems()
    };
    let name = "kubernetes.io/metadata.name";
    let hosted = problems(json!({"matchLabels": {name: "tenant-prod"}}));
    assert!(
        matches!(
            hosted[..],
            [Problem::NodesElsewhere {
                nodes: 0,
                hosted: 1,
                ..
            }]
        ),
        "{hosted:?}"
    );
    assert_eq!(problems(json!({"matchLabels": {name: "kube-system"}})), []);
    let one_of =
        |names: serde_json::Value| json!({"matchExpressions": [{"key": name, "operator": "In", "values": names}]});
    assert_eq!(problems(one_of(json!(["kube-system"]))), []);
    assert_eq!(problems(one_of(json!(["kube-system", "tenant-prod"]))).len(), 1);
}

#[test]
fn objects_get_the_form_of_the_phase_that_is_followed() {
    let object = |observed: i64, followed: &str| -> CloudProviderMigration {
        serde_json::from_value(json!({
            "metadata": {"name": "prod", "generation": 4},
            "spec": {"clusterID": "prod", "phase": "InTree"},
            "status": {"phase": "Prepare", "conditions": [{
                "type": "PhaseFollowed", "status": followed, "reason": "InTreeNotFollowed", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": observed,
            }]},
        }))
        .unwrap()
    };
    assert_eq!(object(4, "False").followed_phase(), Phase::Prepare);
    assert_eq!(object(4, "True").followed_phase(), Phase::InTree);
    assert_eq!(object(4, "Unknown").followed_phase(), Phase::InTree);
    assert_eq!(object(3, "False").followed_phase(), Phase::InTree, "of an older spec");
}
