//! Real objects of Cluster API through every phase and back: what they become, that nothing else changes, that twice is
//! once, and that the way back ends at the original.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod shared_data;

use std::collections::BTreeMap;

use outrigger_decide::{Decision, Input, Migration, Outcome, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use serde_json::{Value, json};
use shared_data::{patched, read};

fn spec(phase: Phase, version: &str) -> CloudProviderMigrationSpec {
    let by_name = json!({"matchLabels": {"kubernetes.io/metadata.name": "capi"}});
    CloudProviderMigrationSpec {
        phase,
        kubernetes_version: Some(version.to_owned()),
        targets: vec![Target {
            profile: Profile::ClusterAPI,
            namespace_selector: Some(serde_json::from_value(by_name).unwrap()),
            object_selector: None,
        }],
        ..CloudProviderMigrationSpec::new("prod")
    }
}

fn review(object: &Value, phase: Phase) -> Decision {
    let spec = spec(phase, "1.26");
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "capi".to_owned())]);
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    decide(&Input {
        namespace: Some("capi"),
        namespace_labels: Some(&labels),
        name: "object",
        ..Input::creation(object, &migrations)
    })
}

const KINDS: [&str; 9] = [
    "KubeadmControlPlane",
    "KubeadmControlPlaneTemplate",
    "KubeadmConfig",
    "KubeadmConfigTemplate",
    "RKE2ControlPlane",
    "RKE2ControlPlaneTemplate",
    "RKE2Config",
    "RKE2ConfigTemplate",
    "ClusterClass",
];

fn objects() -> Option<BTreeMap<String, Value>> {
    let folder = shared_data::path("corpus")?;
    let mut found = BTreeMap::new();
    for part in ["cluster-api", "cluster-api-aws", "cluster-api-rke2"] {
        for path in shared_data::list(&folder.join(part)) {
            let object = read(&path);
            if KINDS.contains(&object["kind"].as_str().unwrap_or_default()) {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                found.insert(name, object);
            }
        }
    }
    Some(found)
}

const MANAGER: &str = "clusterConfiguration/controllerManager/extraArgs";
const API_SERVER: &str = "clusterConfiguration/apiServer/extraArgs";
const INIT: &str = "initConfiguration/nodeRegistration/kubeletExtraArgs";
const JOIN: &str = "joinConfiguration/nodeRegistration/kubeletExtraArgs";

/// The result for an object in Migrate: the path of its fields, and the value of `cloud-provider` in them. A cross
/// stands for an argument list without it.
type Expected = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PLANE: &str = "/spec/kubeadmConfigSpec";
const TEMPLATE: &str = "/spec/template/spec/kubeadmConfigSpec";
const ALL: &[(&str, &str)] = &[
    (MANAGER, "external"),
    (INIT, "external"),
    (JOIN, "external"),
    (API_SERVER, "-"),
];
/// A kube-controller-manager without a cloud provider runs no cloud controllers and is given none.
const WITHOUT_PROVIDER: &[(&str, &str)] = &[
    (MANAGER, "-"),
    (INIT, "external"),
    (JOIN, "external"),
    (API_SERVER, "-"),
];
const WORKER: &[(&str, &str)] = &[(JOIN, "external"), (MANAGER, "-"), (API_SERVER, "-"), (INIT, "-")];
/// kube-apiserver moves in Complete.
const WITH_API_SERVER: &[(&str, &str)] = &[
    (MANAGER, "external"),
    (INIT, "external"),
    (JOIN, "external"),
    (API_SERVER, "aws"),
];

const IN_MIGRATE: &[Expected] = &[
    ("kcp-csimigration-off", PLANE, WITH_API_SERVER),
    ("kcp-default-template", PLANE, ALL),
    ("kcp-external-cloud-provider", PLANE, ALL),
    ("kcp-flatcar-ignition", PLANE, ALL),
    ("kcp-intree-cloud-provider", PLANE, WITH_API_SERVER),
    ("kcp-taints-v1beta2", PLANE, WITHOUT_PROVIDER),
    ("kcptemplate-capa-topology-v1beta2", TEMPLATE, ALL),
    ("kcptemplate-clusterclass", TEMPLATE, ALL),
    ("kcptemplate-turtles-v1beta2", TEMPLATE, WITHOUT_PROVIDER),
    ("kcptemplate-v1beta1", TEMPLATE, WITHOUT_PROVIDER),
    ("kcptemplate-v1beta2", TEMPLATE, WITHOUT_PROVIDER),
    (
        "kubeadmconfig-cp0-v1beta2",
        "/spec",
        &[(MANAGER, "-"), (INIT, "external"), (JOIN, "-")],
    ),
    ("kubeadmconfig-machinepool", "/spec", WORKER),
    (
        "kubeadmconfigtemplate-external-cloud-provider",
        "/spec/template/spec",
        WORKER,
    ),
    (
        "kubeadmconfigtemplate-intree-cloud-provider",
        "/spec/template/spec",
        WORKER,
    ),
    ("kubeadmconfigtemplate-v1beta2", "/spec/template/spec", WORKER),
    (
        "rke2configtemplate-aws",
        "/spec/template/spec",
        &[("agentConfig/kubelet/extraArgs", "external")],
    ),
    (
        "rke2configtemplate-sample",
        "/spec/template/spec",
        &[("agentConfig/kubelet/extraArgs", "external")],
    ),
    (
        "rke2controlplane-aws",
        "/spec",
        &[("agentConfig/kubelet/extraArgs", "external")],
    ),
    (
        "rke2controlplane-aws-v1beta1",
        "/spec",
        &[("agentConfig/kubelet/extraArgs", "-")],
    ),
];

/// Machines of another cloud, or for tests.
const REFUSED: [&str; 5] = [
    "kcp-capo-v1beta2",
    "kubeadmconfigtemplate-capo-v1beta2",
    "kcp-v1beta1",
    "kcp-v1beta2",
    "rke2controlplane-openstack",
];

fn provider(list: Option<&Value>) -> String {
    let item = |item: &Value| {
        let text = item.as_str()?.trim_start_matches('-');
        text.strip_prefix("cloud-provider=").map(str::to_owned)
    };
    let named = |item: &Value| (item["name"] == "cloud-provider").then(|| item["value"].as_str().unwrap().to_owned());
    let found = match list {
        Some(Value::Object(fields)) => fields
            .get("cloud-provider")
            .map(|value| value.as_str().unwrap().to_owned()),
        Some(Value::Array(items)) => items.iter().find_map(|one| named(one).or_else(|| item(one))),
        _ => None,
    };
    found.unwrap_or_else(|| "-".to_owned())
}

#[test]
fn real_objects_have_the_expected_values_in_migrate() {
    let Some(objects) = objects() else { return };
    for (name, home, fields) in IN_MIGRATE {
        let object = &objects[*name];
        let decision = review(object, Phase::Migrate);
        assert_ne!(decision.outcome, Outcome::Refused, "{name}: {:?}", decision.warnings);
        let after = patched(object, &decision);
        for (field, value) in *fields {
            assert_eq!(
                provider(after.pointer(&format!("{home}/{field}"))),
                *value,
                "{name} {field}"
            );
        }
        if name.starts_with("rke2controlplane") {
            // The name gives kubelet and kube-controller-manager `external`, and disables RKE2's own cloud controller.
            assert_eq!(
                object["spec"]["serverConfig"]["cloudProviderName"], "external",
                "{name}"
            );
            assert_eq!(after, *object, "{name}: external already, so nothing is added");
        }
    }
    for name in REFUSED {
        for phase in [Phase::Prepare, Phase::Migrate, Phase::Complete] {
            let decision = review(&objects[name], phase);
            assert_eq!(decision.outcome, Outcome::Refused, "{name} {phase}");
        }
    }
    let class = review(&objects["clusterclass-v1beta2"], Phase::Prepare);
    assert_eq!(
        (class.outcome, class.warnings.len()),
        (Outcome::Unchanged, 2),
        "{class:?}"
    );
    let known = IN_MIGRATE.iter().map(|(name, ..)| *name).chain(REFUSED);
    let mut known: Vec<&str> = known.chain(["clusterclass-v1beta2"]).collect();
    known.sort_unstable();
    assert_eq!(objects.keys().map(String::as_str).collect::<Vec<_>>(), known);
}

#[test]
fn real_objects_go_every_way_and_come_back() {
    use Phase::{Complete, InTree, Migrate, Prepare};
    let Some(objects) = objects() else { return };
    assert!(objects.len() >= 26, "only {} objects", objects.len());
    for (name, object) in &objects {
        let mut object = object.clone();
        // Nobody knows these fields; they have to live on.
        object["spec"]["x-unknown"] = json!({"list": [1, null], "": "x"});
        let mut now = object.clone();
        for phase in [
            InTree, Prepare, Migrate, Complete, Migrate, Prepare, InTree, Complete, InTree,
        ] {
            now = patched(&now, &review(&now, phase));
            assert_eq!(now["spec"]["x-unknown"], object["spec"]["x-unknown"], "{name} {phase}");
            let again = review(&now, phase);
            assert!(again.patch.is_empty(), "{name} {phase}: {:?}", again.patch);
            let direct = patched(&object, &review(&object, phase));
            assert_eq!(now, direct, "{name} {phase}: another way, another form");
            for warning in &again.warnings {
                assert!(warning.len() <= 256, "{name} {phase}: {warning}");
            }
        }
        assert_eq!(now, object, "{name}");
    }
}

/// The part of an object's schema at a path; none if the API does not know it.
fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/')
        .filter(|key| !key.is_empty())
        .try_fold(schema, |schema, key| schema.get("properties")?.get(key))
}

#[test]
fn every_field_that_is_written_is_in_the_apis_schema() {
    let Some(folder) = shared_data::path("crds") else {
        return;
    };
    let kubeadm = [(MANAGER, true), (API_SERVER, true), (INIT, true), (JOIN, true)];
    let machine = [("agentConfig/kubelet/extraArgs", false)];
    let server = [
        ("agentConfig/kubelet/extraArgs", false),
        ("serverConfig/kubeControllerManager/extraArgs", false),
        ("serverConfig/kubeAPIServer/extraArgs", false),
        ("serverConfig/disableComponents/kubernetesComponents", false),
    ];
    let template = "spec/template/spec";
    let plane = "controlplane.cluster.x-k8s.io";
    let bootstrap = "bootstrap.cluster.x-k8s.io";
    for (release, name, group, home, fields) in [
        ("cluster-api", "kubeadmcontrolplanes", plane, PLANE, &kubeadm[..]),
        ("cluster-api", "kubeadmcontrolplanetemplates", plane, TEMPLATE, &kubeadm),
        ("cluster-api", "kubeadmconfigs", bootstrap, "spec", &kubeadm),
        ("cluster-api", "kubeadmconfigtemplates", bootstrap, template, &kubeadm),
        ("cluster-api-v1.11", "kubeadmcontrolplanes", plane, PLANE, &kubeadm),
        (
            "cluster-api-v1.11",
            "kubeadmconfigtemplates",
            bootstrap,
            template,
            &kubeadm,
        ),
        ("cluster-api-rke2", "rke2controlplanes", plane, "spec", &server),
        (
            "cluster-api-rke2",
            "rke2controlplanetemplates",
            plane,
            template,
            &server,
        ),
        ("cluster-api-rke2", "rke2configs", bootstrap, "spec", &machine),
        ("cluster-api-rke2", "rke2configtemplates", bootstrap, template, &machine),
    ] {
        let crd = read(&folder.join(release).join(format!("{name}.{group}.yaml")));
        for version in ["v1beta1", "v1beta2"] {
            let versions = crd["spec"]["versions"].as_array().unwrap();
            let found = versions.iter().find(|found| found["name"] == version).unwrap();
            let schema = at(&found["schema"]["openAPIV3Schema"], home).unwrap();
            for (field, by_name) in fields {
                let place = format!("{release} {name} {version} {field}");
                let field = at(schema, field).unwrap_or_else(|| panic!("{place}"));
                let is_map = *by_name && version == "v1beta1";
                assert_eq!(field["type"], if is_map { "object" } else { "array" }, "{place}");
            }
            if name.starts_with("rke2controlplane") {
                assert_eq!(at(schema, "serverConfig/cloudProviderName").unwrap()["type"], "string");
                let disabled = at(schema, "serverConfig/disableComponents/kubernetesComponents").unwrap();
                assert!(
                    disabled["items"]["enum"]
                        .as_array()
                        .unwrap()
                        .contains(&json!("cloudController"))
                );
            }
        }
    }
}
