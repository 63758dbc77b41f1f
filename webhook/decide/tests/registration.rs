//! The registration, the rights and the NetworkPolicy have one source: the tables of `src/registration/`. Here the
//! manifests are compared with it, both ways. `e2e/tests/chart` does the same with the chart, rendered by Helm.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use outrigger_decide::registration::{
    Certificates, FailurePolicy, Options, Tenant, access, configurations, entries, network_policy, objects,
    self_signed, tenant,
};
use outrigger_decide::{Kind, is_checked, kinds};
use outrigger_shared::migration::Profile;
use serde_json::{Value, json};

/// Kustomizations add them.
const LABELS: [&str; 2] = ["app.kubernetes.io/part-of", "app.kubernetes.io/component"];

fn read(file: &str) -> Vec<Value> {
    let path = Path::new("../../manifests").join(file);
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

fn all() -> Options {
    Options {
        validation: true,
        ..Options::new(&Profile::ALL)
    }
}

fn name(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

/// Objects by kind and name, entries of configurations apart, without the labels of kustomizations.
fn parts(objects: &[Value]) -> BTreeMap<String, Value> {
    let mut parts = BTreeMap::new();
    for object in objects {
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|label, _| !LABELS.contains(&label.as_str()));
        }
        metadata.retain(|key, value| key != "labels" || *value != json!({}));

        let of = name(&object);
        for (index, entry) in object
            .get_mut("webhooks")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .enumerate()
        {
            parts.insert(format!("{of} {index} {}", entry["name"]), entry.take());
        }
        assert!(parts.insert(of.clone(), object).is_none(), "{of} twice");
    }
    parts
}

/// The names of the parts that are not equal, or are on one side only.
fn differences(found: &[Value], wanted: &[Value]) -> Vec<String> {
    let (found, wanted) = (parts(found), parts(wanted));
    let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differ = names.into_iter().filter(|name| found.get(*name) != wanted.get(*name));
    differ
        .map(|name| {
            format!(
                "{name}\nmanifests: {:?}\ntable: {:?}",
                found.get(name),
                wanted.get(name)
            )
        })
        .collect()
}

#[track_caller]
fn assert_same(files: &[&str], wanted: &[Value]) {
    let found: Vec<Value> = files.iter().flat_map(|file| read(file)).collect();
    let differences = differences(&found, wanted);
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

const CONFIGURATIONS: [&str; 4] = [
    "base/webhook/mutating-webhook-configuration-early.yaml",
    "base/webhook/mutating-webhook-configuration.yaml",
    "components/kube-system/mutating-webhook-configuration.yaml",
    "components/validation/validating-webhook-configuration.yaml",
];

#[test]
fn the_configurations_of_the_manifests_are_those_of_the_table_with_all_profiles() {
    assert_same(&CONFIGURATIONS, &configurations(&all()));
}

#[test]
fn the_rights_of_the_manifests_are_those_of_the_table_with_all_profiles() {
    assert_same(&["base/webhook/rbac-webhook.yaml"], &access(&all()));
    let options = Options {
        certificates: Certificates::SelfSigned,
        ..all()
    };
    let component = ["rbac", "secret"].map(|file| format!("components/self-signed/{file}.yaml"));
    assert_same(&component.each_ref().map(String::as_str), &self_signed(&options));
}

/// The base is for a cluster with its own control plane; its overlay for management clusters adds a range of ports.
#[test]
fn the_network_policy_of_the_manifests_is_that_of_the_table() {
    let policy = network_policy(&Options::new(&[
        Profile::Nodes,
        Profile::KubeadmConfig,
        Profile::AwsResources,
    ]));
    assert_same(&["base/webhook/network-policy.yaml"], &[policy]);

    let hosted = network_policy(&Options {
        hosted: true,
        ..Options::new(&[Profile::AwsResources])
    });
    let overlay = read("overlays/hosted/management/kustomization.yaml").remove(0);
    let patches = overlay["patches"].as_array().unwrap().iter();
    let patch = patches
        .into_iter()
        .find(|patch| patch["target"]["kind"] == "NetworkPolicy");
    let operations: Vec<Value> = serde_saphyr::from_str(patch.unwrap()["patch"].as_str().unwrap()).unwrap();
    let mut patched = read("base/webhook/network-policy.yaml").remove(0);
    let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();
    assert_eq!(differences(&[patched], &[hosted]), [""; 0]);
}

#[test]
fn the_objects_of_a_tenant_are_those_of_its_overlay() {
    let prod = Tenant {
        name: "prod".to_owned(),
        url: "https://outrigger-webhook.invalid/".to_owned(),
    };
    let files = [
        "overlays/hosted/tenant/rbac-webhook.yaml",
        "overlays/hosted/tenant/mutating-webhook-configuration.yaml",
    ];
    assert_same(&files, &tenant(&prod, &Options::new(&[])));
}

/// The comparison above is worth something only if it sees each difference: one planted on either side, in each part.
#[test]
fn drift_on_either_side_is_seen() {
    let options = all();
    let wanted = [
        configurations(&options),
        access(&options),
        vec![network_policy(&options)],
    ]
    .concat();
    assert_eq!(differences(&wanted, &wanted), [""; 0]);

    let mut planted = 0;
    for at in 0..wanted.len() {
        let mut pointers = Vec::new();
        leaves(&wanted[at], String::new(), &mut pointers);
        for pointer in pointers {
            let is_label = pointer.contains("/metadata/labels/");
            let mut drifted = wanted.clone();
            *drifted[at].pointer_mut(&pointer).unwrap() = json!("drift");
            let seen = !differences(&drifted, &wanted).is_empty() && !differences(&wanted, &drifted).is_empty();
            assert_ne!(seen, is_label, "{} {pointer}", name(&wanted[at]));
            planted += usize::from(!is_label);
        }

        let mut missing = wanted.clone();
        missing.remove(at);
        assert!(!differences(&missing, &wanted).is_empty() && !differences(&wanted, &missing).is_empty());
    }
    assert!(planted > 500, "{planted}");
}

fn leaves(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                leaves(
                    value,
                    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(value, format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at),
    }
}

/// Group and resource of each rule.
fn pairs<'a>(rules: impl Iterator<Item = &'a Value>) -> BTreeSet<(String, String)> {
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    rules
        .flat_map(|rule| {
            let plurals = texts(&rule["resources"]);
            let groups = texts(&rule["apiGroups"]).into_iter();
            groups.flat_map(move |group| plurals.clone().into_iter().map(move |plural| (group.clone(), plural)))
        })
        .collect()
}

fn wanted(profile: Profile, is_wanted: fn(&Kind) -> bool) -> BTreeSet<(String, String)> {
    let own = kinds().filter(|kind| kind.profiles.contains(&profile) && is_wanted(kind));
    own.map(|kind| (kind.group.to_owned(), kind.plural.to_owned()))
        .collect()
}

/// Each kind of the table of kinds is registered for its profiles, may be listed if it is checked, and nothing else.
#[test]
fn each_profile_has_what_it_needs_and_no_more() {
    for profile in Profile::ALL {
        let options = Options::new(&[profile]);
        let mutating = configurations(&options);
        let entries = mutating
            .iter()
            .flat_map(|object| object["webhooks"].as_array().unwrap());
        let sent = pairs(entries.flat_map(|entry| entry["rules"].as_array().unwrap()));
        assert_eq!(sent, wanted(profile, |_| true), "{profile:?}");

        let rights = access(&options);
        let rules = rights[1]["rules"].as_array().unwrap().iter();
        let listed = pairs(rules.filter(|rule| rule["verbs"] == json!(["list"])));
        assert!(
            wanted(profile, is_checked).is_subset(&listed),
            "{profile:?}: {listed:?}"
        );
        assert!(listed.is_subset(&sent), "{profile:?}: {listed:?}");
    }
}

#[test]
fn nothing_waits_for_the_webhook_but_what_gets_the_in_tree_provider_without_it() {
    for profile in Profile::ALL {
        for policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            let options = Options {
                control_plane_policy: policy,
                validation: true,
                ..Options::new(&[profile])
            };
            for object in configurations(&options) {
                for entry in object["webhooks"].as_array().unwrap() {
                    let name = entry["name"].as_str().unwrap();
                    let may_fail = name.starts_with("kube-controller-manager-pods-by-")
                        || name == "cluster-api-control-planes.outrigger.dev"
                        || name == "cluster-api-bootstrap.outrigger.dev";
                    let fails = may_fail && policy == FailurePolicy::Fail;
                    assert_eq!(entry["failurePolicy"], if fails { "Fail" } else { "Ignore" }, "{name}");
                }
            }
        }
    }
}

#[test]
fn the_choices_arrive_in_the_objects() {
    let options = Options {
        namespace: "elsewhere".to_owned(),
        api_servers: vec!["192.0.2.1/32".to_owned()],
        certificates: Certificates::CertManager,
        ca_bundle: Some("QUJD".to_owned()),
        ..all()
    };
    let text = json!(objects(&options)).to_string();
    assert!(!text.contains("outrigger-system"), "{text}");
    let configuration = &configurations(&options)[0];
    let source = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(source, "elsewhere/outrigger-webhook");
    assert_eq!(configuration["webhooks"][0]["clientConfig"]["caBundle"], "QUJD");
    let from = &network_policy(&options)["spec"]["ingress"][0]["from"];
    assert_eq!(*from, json!([{"ipBlock": {"cidr": "192.0.2.1/32"}}]));
}

#[test]
fn names_of_entries_are_unique_as_api_servers_demand() {
    let all = entries();
    let names: BTreeSet<&String> = all.iter().map(|entry| &entry.name).collect();
    assert_eq!(names.len(), all.len());
}

/// Every golden object that the webhook recognises passes the conditions: those of containers and of ConfigMaps, here by
/// their words. `e2e/tests/golden_api` evaluates the expressions on a real API server.
#[test]
fn the_words_of_the_conditions_are_in_every_golden_object_that_changes() {
    let (mut workloads, mut maps) = (0, 0);
    let folders = |path: &Path| -> Vec<std::path::PathBuf> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    for case in folders(Path::new("tests/golden")).iter().flat_map(|kind| folders(kind)) {
        let read =
            |file: &str| -> Value { serde_saphyr::from_str(&fs::read_to_string(case.join(file)).unwrap()).unwrap() };
        let (input, expected) = (read("input.yaml"), read("expected.yaml"));
        if expected["outcome"] != "changed" && expected["warnings"].is_null() {
            continue;
        }

        let object = &input["object"];
        let containers = match object["kind"].as_str().unwrap() {
            "Pod" => &object["spec"]["containers"],
            "Deployment" | "StatefulSet" | "DaemonSet" => &object["spec"]["template"]["spec"]["containers"],
            "ConfigMap" => {
                let name = object["metadata"]["name"].as_str().unwrap();
                assert!(name == "kubeadm-config" || name.starts_with("kubelet-config"), "{name}");
                maps += 1;
                continue;
            }
            _ => continue,
        };
        let texts = containers.to_string();
        let words = outrigger_shared::component::WORDS.iter().chain(&["aws-ebs-csi-driver"]);
        assert!(words.clone().any(|word| texts.contains(word)), "{}", case.display());
        workloads += 1;
    }
    assert!(workloads > 30 && maps > 5, "{workloads} workloads, {maps} ConfigMaps");
}
