//! Real objects that carry YAML as text, through every phase and back, and the real schemas of what is written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod shared_data;

use std::{collections::BTreeMap, fs};

use outrigger_decide::{Decision, Input, Migration, Outcome, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use serde_json::{Value, json};
use shared_data::WAY;

fn read(file: &str) -> Option<String> {
    shared_data::path(file).map(|path| fs::read_to_string(path).unwrap())
}

fn object(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn review(profile: Profile, phase: Phase, object: &Value) -> Decision {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())]);
    let spec = CloudProviderMigrationSpec {
        phase,
        targets: vec![Target {
            profile,
            namespace_selector: Some(serde_json::from_value(json!({ "matchLabels": labels })).unwrap()),
            ..Target::default()
        }],
        ..CloudProviderMigrationSpec::new("prod")
    };
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    decide(&Input {
        namespace: Some(namespace),
        namespace_labels: Some(&labels),
        ..Input::creation(object, &migrations).over(Some(&json!({})))
    })
}

/// There and back; returns the object as it is in each phase on the way there.
fn there_and_back(profile: Profile, original: &Value) -> Vec<Value> {
    let mut object = original.clone();
    let mut forms = Vec::new();
    for phase in WAY {
        let decision = review(profile, phase, &object);
        assert_ne!(decision.outcome, Outcome::Refused, "{phase}: {:?}", decision.warnings);
        json_patch::patch(&mut object, &decision.patch).unwrap();
        let again = review(profile, phase, &object);
        assert!(again.patch.is_empty(), "{phase}: {:?}", again.patch);
        for warning in &decision.warnings {
            assert!(warning.len() <= 256, "{phase}: the API server would cut {warning:?}");
        }
        forms.push(object.clone());
    }
    assert_eq!(&object, original, "it does not come back");
    forms
}

/// The lines of a text that are not in another, in order.
fn new_lines<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let known: Vec<&str> = before.lines().collect();
    text.lines()
        .filter(|line| !known.contains(line))
        .map(str::trim)
        .collect()
}

#[test]
fn the_configuration_that_kubeadm_keeps() {
    let Some(text) = read("corpus/kubeadm/kubeadm-config-configmap-kubespray.yaml") else {
        return;
    };
    let mut original = object(&text);
    let config = original["data"]["ClusterConfiguration"].as_str().unwrap();
    let in_tree = config.replace("  extraArgs:\n    a", "  extraArgs:\n    cloud-provider: aws\n    a");
    let in_tree = in_tree.replace(
        "  extraArgs:\n    bind-address: 0.0.0.0\n    cluster-cidr",
        "  extraArgs:\n    cloud-provider: aws\n    cloud-config: /etc/aws.conf\n    bind-address: 0.0.0.0\n    cluster-cidr",
    );
    assert_eq!(in_tree.matches("cloud-provider: aws").count(), 2, "{in_tree}");
    original["data"]["ClusterConfiguration"] = json!(in_tree);
    let forms = there_and_back(Profile::KubeadmConfig, &original);
    let text = |form: usize| forms[form]["data"]["ClusterConfiguration"].as_str().unwrap();
    assert_eq!(new_lines(text(1), &in_tree), ["enable-leader-migration: \"true\""]);
    assert_eq!(new_lines(text(2), &in_tree), ["cloud-provider: external"]);
    assert_eq!(
        text(2).matches("cloud-provider: aws").count(),
        1,
        "the API server's stays"
    );
    assert_eq!(
        new_lines(&in_tree, text(3)),
        [
            "cloud-provider: aws",
            "cloud-provider: aws",
            "cloud-config: /etc/aws.conf"
        ]
    );
    assert_eq!(text(3).matches("cloud-provider: external").count(), 2);
    for (phase, form) in WAY.iter().zip(&forms) {
        let undo = form["metadata"]["annotations"]["outrigger.dev/undo"]
            .as_str()
            .unwrap_or_default();
        assert!(undo.len() < 600, "{phase}: {}", undo.len());
    }
}

#[test]
fn the_manager_s_chart_in_a_cluster_s_manifests() {
    let Some(text) = read("corpus/rancher/cluster-config-additional-manifest-aws-ccm.yaml") else {
        return;
    };
    let mut original = object(&text);
    original["apiVersion"] = json!("provisioning.cattle.io/v1");
    original["kind"] = json!("Cluster");
    original["metadata"] = json!({"name": "prod", "namespace": "fleet-default"});
    original["spec"]["kubernetesVersion"] = json!("v1.26.13+rke2r1");
    original["spec"]["rkeConfig"]["machineGlobalConfig"] = json!({"cloud-provider-name": "aws"});
    let manifest = |object: &Value| {
        object["spec"]["rkeConfig"]["additionalManifest"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // Without an image tag a version runs that leader migration does not guard by flags alone.
    for form in there_and_back(Profile::RancherRKE2, &original) {
        assert_eq!(manifest(&form), manifest(&original));
    }
    let tagged = format!("{}\n    image: {{tag: v1.27.9}}", manifest(&original));
    original["spec"]["rkeConfig"]["additionalManifest"] = json!(tagged);
    let forms = there_and_back(Profile::RancherRKE2, &original);
    let added = ["- --enable-leader-migration=true"];
    for (form, lines) in [(0, &[][..]), (1, &added), (2, &added), (3, &[])] {
        assert_eq!(
            new_lines(&manifest(&forms[form]), &manifest(&original)),
            lines,
            "{}",
            WAY[form]
        );
    }
    // The same chart as an object of its own.
    let chart = object(&manifest(&original));
    let forms = there_and_back(Profile::RancherRKE2, &chart);
    let content = |object: &Value| object["spec"]["valuesContent"].as_str().unwrap().to_owned();
    assert_eq!(new_lines(&content(&forms[2]), &content(&chart)), added);
    assert_eq!(content(&forms[3]), content(&chart));
}

#[test]
fn other_charts_are_left_alone() {
    for name in [
        "helmchart-auth",
        "helmchart-example",
        "helmchart-gpu-operator",
        "helmchartconfig-canal",
    ] {
        let Some(text) = read(&format!("corpus/helm/{name}.yaml")) else {
            return;
        };
        for phase in WAY {
            let decision = review(Profile::RancherRKE2, phase, &object(&text));
            assert_eq!(decision.outcome, Outcome::NotOurs, "{name} in {phase}");
        }
    }
}

#[test]
fn what_is_written_is_in_the_schema() {
    for (plural, fields) in [
        ("helmcharts", &["chart", "set", "values", "valuesContent"][..]),
        ("helmchartconfigs", &["values", "valuesContent"]),
    ] {
        let Some(text) = read(&format!("crds/helm-controller/{plural}.helm.cattle.io.yaml")) else {
            return;
        };
        let definition = object(&text);
        let spec = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties");
        for field in fields {
            assert!(spec.unwrap().get(field).is_some(), "{plural} have no spec.{field}");
        }
    }
}
