//! Real objects of Rancher and Kubermatic, through every phase and back, and the real schemas of what is written.
//!
//! Most of the objects name no cloud provider, so each goes through once as it is and once in-tree.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod shared_data;

use std::{collections::BTreeMap, path::Path};

use outrigger_decide::{Decision, Input, Migration, Outcome, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use serde_json::{Value, json};
use shared_data::{WAY, patched, read};

/// Every object of a folder whose file name begins so, by file name. At least so many.
fn objects(folder_name: &str, prefix: &str, least: usize) -> Vec<(String, Value)> {
    let Some(folder) = shared_data::path(&format!("corpus/{folder_name}")) else {
        return Vec::new();
    };
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut paths = shared_data::list(&folder);
    paths.retain(|path| name(path).starts_with(prefix));
    assert!(
        paths.len() >= least,
        "{prefix:?} begins {} names in corpus/{folder_name}, not {least}",
        paths.len()
    );
    paths.iter().map(|path| (name(path), read(path))).collect()
}

/// Gives an object what every stored one has, and the label that the target selects.
fn stored(mut object: Value, api_version: &str, namespace: Option<&str>) -> Value {
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!("Cluster");
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = json!("prod");
    object["metadata"]["labels"]["cluster"] = json!("prod");
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn review(profile: Profile, phase: Phase, object: &Value, old: Option<&Value>) -> Decision {
    let selector = serde_json::from_value(json!({"matchLabels": {"cluster": "prod"}})).unwrap();
    let spec = CloudProviderMigrationSpec {
        phase,
        downtime: profile == Profile::Kubermatic,
        targets: vec![Target {
            profile,
            object_selector: Some(selector),
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
        namespace_labels: Some(&BTreeMap::new()),
        ..Input::creation(object, &migrations).over(old)
    })
}

/// There and back; returns the object as it is in Migrate, and what came of Migrate.
fn there_and_back(name: &str, profile: Profile, original: &Value) -> (Value, Outcome) {
    let mut object = original.clone();
    let mut migrated = None;
    for phase in WAY {
        let decision = review(profile, phase, &object, None);
        object = patched(&object, &decision);
        let again = review(profile, phase, &object, None);
        assert!(again.patch.is_empty(), "{name} in {phase}: {:?}", again.patch);
        for warning in decision.warnings.iter().chain(&again.warnings) {
            assert!(
                warning.len() <= 256,
                "{name} in {phase}: the API server would cut {warning:?}"
            );
        }
        if phase == Phase::Migrate && migrated.is_none() {
            migrated = Some((object.clone(), decision.outcome));
        }
    }
    assert_eq!(&object, original, "{name} does not come back");
    migrated.unwrap()
}

/// Everything but the parts that the rules write.
fn rest(object: &Value, written: &[&str]) -> Value {
    let mut rest = object.clone();
    for pointer in written {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        if let Some(parent) = rest.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(key);
        }
    }
    rest
}

const WRITTEN: [&str; 4] = [
    "/metadata/annotations",
    "/spec/rkeConfig/additionalManifest",
    "/spec/rkeConfig/machineGlobalConfig",
    "/spec/rkeConfig/machineSelectorConfig",
];

fn check(name: &str, object: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        assert_eq!(object.pointer(pointer), Some(value), "{name}: {pointer}");
    }
}

fn is_k3s(name: &str, object: &Value) -> bool {
    let version = object.pointer("/spec/kubernetesVersion").and_then(Value::as_str);
    name.contains("k3s") || version.is_some_and(|version| version.contains("k3s"))
}

/// The last minor with the in-tree provider; many examples leave a gap here.
fn version(name: &str, object: &Value) -> &'static str {
    if is_k3s(name, object) {
        "v1.26.7+k3s1"
    } else {
        "v1.26.13+rke2r1"
    }
}

/// The same cluster, with the in-tree provider.
fn in_tree(name: &str, object: &Value) -> Value {
    let mut object = object.clone();
    let k3s = is_k3s(name, &object);
    object["spec"]["kubernetesVersion"] = json!(version(name, &object));
    let global = &mut object["spec"]["rkeConfig"]["machineGlobalConfig"];
    if k3s {
        let list = &mut global["kube-controller-manager-arg"];
        if !list.is_array() {
            *list = json!([]);
        }
        list.as_array_mut().unwrap().push(json!("cloud-provider=aws"));
    } else {
        global["cloud-provider-name"] = json!("aws");
    }
    object
}

#[test]
fn clusters_that_name_no_in_tree_provider_are_left_as_they_are() {
    for (name, object) in objects("rancher", "cluster-", 11) {
        let mut object = stored(object, "provisioning.cattle.io/v1", Some("fleet-default"));
        object["spec"]["kubernetesVersion"] = json!(version(&name, &object));
        let (migrated, outcome) = there_and_back(&name, Profile::RancherRKE2, &object);
        assert_eq!(migrated, object, "{name}");
        // Without a provider's name the embedded cloud controller is at work; one of them is external already.
        let is_external = name == "cluster-capa-rke2-tests.yaml";
        let expected = if is_external {
            Outcome::Unchanged
        } else {
            Outcome::Refused
        };
        assert_eq!(outcome, expected, "{name}");
    }
}

#[test]
fn in_tree_clusters_of_rke2_and_k3s_go_and_come_back() {
    const GLOBAL: &str = "/spec/rkeConfig/machineGlobalConfig";
    let external = || json!(["cloud-provider=external"]);
    for (name, object) in objects("rancher", "cluster-", 11) {
        let object = in_tree(
            &name,
            &stored(object, "provisioning.cattle.io/v1", Some("fleet-default")),
        );
        let (migrated, outcome) = there_and_back(&name, Profile::RancherRKE2, &object);
        assert_eq!(outcome, Outcome::Changed, "{name}");
        assert_eq!(rest(&migrated, &WRITTEN), rest(&object, &WRITTEN), "{name}");
        let at = |key: &str| migrated.pointer(&format!("{GLOBAL}/{key}"));
        assert_eq!(at("disable-cloud-controller"), Some(&json!(true)), "{name}");
        assert_eq!(
            at("kube-apiserver-arg"),
            object.pointer(&format!("{GLOBAL}/kube-apiserver-arg")),
            "{name}: Rancher's own key"
        );
        // It also names the Nodes.
        let expected_name = (!is_k3s(&name, &object)).then(|| json!("aws"));
        assert_eq!(at("cloud-provider-name"), expected_name.as_ref(), "{name}");
        let kubelet = "/spec/rkeConfig/machineSelectorConfig/0/config/kubelet-arg";
        let collected = json!(["terminated-pod-gc-threshold=10", "cloud-provider=external"]);
        let chains = json!(["make-iptables-util-chains=true", "cloud-provider=external"]);
        let manager = format!("{GLOBAL}/kube-controller-manager-arg");
        let all = format!("{GLOBAL}/kubelet-arg");
        match name.as_str() {
            "cluster-k3s-hardened.yaml" | "cluster-k3s-hardened-n1.yaml" => {
                check(&name, &migrated, &[(&manager, collected), (kubelet, chains)]);
                assert_eq!(at("kubelet-arg"), None, "{name}: the entry reaches every machine");
            }
            _ => check(&name, &migrated, &[(&manager, external()), (&all, external())]),
        }
    }
}

/// The form of the user interface, in which cluster.yml is written too, to that of the object.
fn camel(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (camel_key(key), camel(value)))
            .collect(),
        Value::Array(list) => list.iter().map(camel).collect(),
        other => other.clone(),
    }
}

fn camel_key(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |key, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        key + &head.to_uppercase() + tail
    })
}

#[test]
fn clusters_of_rke1_go_and_come_back_and_those_of_eks_stay() {
    const CONFIG: &str = "/spec/rancherKubernetesEngineConfig";
    for (name, object) in objects("rancher-rke1", "", 3) {
        let is_form = object.get("rancher_kubernetes_engine_config").is_some();
        let object = if is_form {
            json!({"spec": camel(&object)})
        } else {
            object
        };
        let object = stored(object, "management.cattle.io/v3", None);
        let (migrated, outcome) = there_and_back(&name, Profile::RancherRKE1, &object);
        assert_eq!(migrated, object, "{name} names no provider");
        if !is_form {
            assert_eq!(outcome, Outcome::NotOurs, "{name}");
            continue;
        }
        assert_eq!(outcome, Outcome::Refused, "{name}");
        let mut object = object;
        object["spec"]["rancherKubernetesEngineConfig"]["kubernetesVersion"] = json!("v1.26.8-rancher1-1");
        object["spec"]["rancherKubernetesEngineConfig"]["cloudProvider"] = json!({"name": "aws"});
        let (migrated, outcome) = there_and_back(&name, Profile::RancherRKE1, &object);
        assert_eq!(outcome, Outcome::Changed, "{name}");
        let provider = format!("{CONFIG}/cloudProvider");
        let expected = json!({"name": "external-aws", "useInstanceMetadataHostname": true});
        check(&name, &migrated, &[(&provider, expected)]);
        let written = ["/metadata/annotations", &provider];
        assert_eq!(rest(&migrated, &written), rest(&object, &written), "{name}");
    }
}

#[test]
fn kubermatic_turns_on_what_it_can_and_nothing_comes_back() {
    for (name, object) in objects("kubermatic", "cluster-", 8) {
        let mut object = stored(object, "kubermatic.k8c.io/v1", None);
        let features = object["spec"]["features"].as_object_mut();
        let was_on = features.is_some_and(|features| features.remove("externalCloudProvider").is_some());
        let mut old = object.clone();
        old["spec"]["pause"] = json!("another value, so that the update changes the spec");
        for phase in [Phase::InTree, Phase::Prepare] {
            let decision = review(Profile::Kubermatic, phase, &object, Some(&old));
            assert!(decision.patch.is_empty(), "{name} in {phase}");
        }
        let decision = review(Profile::Kubermatic, Phase::Migrate, &object, Some(&old));
        let migrated = patched(&object, &decision);
        if name != "cluster-aws.yaml" {
            // Other clouds, and a cluster of 1.15.
            assert_eq!(decision.outcome, Outcome::Refused, "{name}");
            assert_eq!(migrated, object, "{name}");
            continue;
        }
        assert!(was_on, "{name} is external in the corpus");
        let on = ("/spec/features/externalCloudProvider", json!(true));
        let recorded = (
            "/metadata/annotations/outrigger.dev~1external-cloud-provider",
            json!("prod/Migrate"),
        );
        check(&name, &migrated, &[on, recorded]);
        let written = ["/metadata/annotations", "/spec/features"];
        assert_eq!(rest(&migrated, &written), rest(&object, &written), "{name}");
        for phase in WAY {
            let decision = review(Profile::Kubermatic, phase, &migrated, Some(&object));
            assert!(decision.patch.is_empty(), "{name} in {phase}: {:?}", decision.patch);
        }
    }
}

/// Whether the schema of a definition knows a path; `[]` stands for the elements of a list, and a part whose schema keeps
/// unknown fields, or has any keys, knows everything below it.
fn knows(schema: &Value, path: &[&str]) -> bool {
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"].is_object();
    match path {
        [] => true,
        _ if keeps => true,
        ["[]", rest @ ..] => knows(&schema["items"], rest),
        [key, rest @ ..] => schema["properties"].get(key).is_some_and(|schema| knows(schema, rest)),
    }
}

#[test]
fn every_path_that_is_read_or_written_is_in_the_real_schemas() {
    let global = "spec rkeConfig machineGlobalConfig kubelet-arg";
    let entry = "spec rkeConfig machineSelectorConfig [] config kubelet-arg";
    let selector = "spec rkeConfig machineSelectorConfig [] machineLabelSelector matchLabels";
    let pools = "spec rkeConfig machinePools [] controlPlaneRole";
    let rancher = [global, entry, selector, pools, "spec kubernetesVersion"];
    let kubermatic = [
        "spec features externalCloudProvider",
        "spec cloud aws vpcID",
        "spec version",
        "status conditions ClusterInitialized kubermaticVersion",
    ];
    for (file, paths) in [
        ("rancher/clusters.provisioning.cattle.io.yaml", &rancher[..]),
        ("kubermatic/clusters.kubermatic.k8c.io.yaml", &kubermatic[..]),
    ] {
        let Some(folder) = shared_data::path("crds") else {
            return;
        };
        let definition = read(&folder.join(file));
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for path in paths {
            let keys: Vec<&str> = path.split(' ').collect();
            assert!(knows(schema, &keys), "{file} does not know {path}");
        }
        assert!(!knows(schema, &["spec", "noSuchField"]), "{file}: the check can fail");
    }
}
