//! The comparison of the registration in a cluster with what the migrations need: the manifests have no difference, and
//! each planted fault is named by field and value.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outrigger_decide::Migration;
use outrigger_decide::registration::{
    Configuration, Difference, FailurePolicy, Field, Needs, Options, configurations, differences, fix,
};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Labels, Profile};
use serde_json::{Value, json};

const NAME: &str = "kubernetes.io/metadata.name";

fn options() -> Options {
    Options {
        validation: true,
        ca_bundle: Some(STANDARD.encode("right CA")),
        ..Options::new(&Profile::ALL)
    }
}

fn registered() -> BTreeMap<Configuration, Value> {
    let all = configurations(&options());
    let of = |one: Configuration| {
        let is_it = |object: &&Value| object["kind"] == one.kind() && object["metadata"]["name"] == one.name();
        (one, all.iter().find(is_it).unwrap().clone())
    };
    Configuration::ALL.map(of).into()
}

fn spec(targets: &Value) -> CloudProviderMigrationSpec {
    serde_json::from_value(json!({"clusterID": "prod", "targets": targets})).unwrap()
}

fn namespaces() -> BTreeMap<String, Labels> {
    ["kube-system", "default", "tenant-a", "tenant-b"]
        .map(|name| {
            let mut labels: Labels = [(NAME.to_owned(), name.to_owned())].into();
            if name.starts_with("tenant") {
                labels.insert("tenant".to_owned(), "yes".to_owned());
                labels.insert("outrigger.dev/control-plane".to_owned(), "hosted".to_owned());
            }
            (name.to_owned(), labels)
        })
        .into()
}

fn compare(targets: &Value, found: &BTreeMap<Configuration, Value>) -> Vec<Difference> {
    let spec = spec(targets);
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: false,
    }];
    let needs = Needs {
        options: options(),
        migrations: &migrations,
        namespaces: &namespaces(),
        server_names: &["outrigger-webhook.outrigger-system.svc".to_owned()],
        trusts: &|bundle| bundle == "right CA",
    };
    let all = Configuration::ALL.into_iter();
    all.flat_map(|one| differences(one, found.get(&one), &needs)).collect()
}

fn everything() -> Value {
    let tenants = json!({"matchLabels": {"tenant": "yes"}});
    let system = json!({"matchLabels": {NAME: "kube-system"}});
    let mut targets = vec![
        json!({"profile": "Nodes"}),
        json!({"profile": "KubeadmConfig", "namespaceSelector": system}),
    ];
    for profile in &Profile::ALL[1..] {
        if *profile != Profile::KubeadmConfig {
            let objects = json!({"matchLabels": {"cluster": "prod"}});
            targets.push(json!({"profile": profile, "namespaceSelector": tenants, "objectSelector": objects}));
        }
    }
    json!(targets)
}

/// The part of a difference that the operator searches for.
fn texts(differences: &[Difference]) -> Vec<String> {
    let text = |one: &Difference| format!("{} {}: {} / {}", one.entry, one.field.as_str(), one.found, one.wanted);
    differences.iter().map(text).collect()
}

#[test]
fn the_printed_registration_has_no_difference() {
    assert_eq!(texts(&compare(&everything(), &registered())), [""; 0]);
    assert_eq!(texts(&compare(&json!([]), &registered())), [""; 0]);
    // Exactly these profiles.
    for profile in Profile::ALL {
        let printed = Options {
            profiles: vec![profile],
            ..options()
        };
        let found = configurations(&printed);
        let found = Configuration::ALL.into_iter().filter_map(|one| {
            let is_it = |object: &&Value| object["kind"] == one.kind() && object["metadata"]["name"] == one.name();
            Some((one, found.iter().find(is_it)?.clone()))
        });
        let found: BTreeMap<Configuration, Value> = found.collect();
        let namespace = if profile == Profile::KubeadmConfig {
            "kube-system"
        } else {
            "tenant-a"
        };
        let target = json!([{"profile": profile, "namespaceSelector": {"matchLabels": {NAME: namespace}}}]);
        assert_eq!(texts(&compare(&target, &found)), [""; 0], "{profile:?}");
    }
}

#[test]
fn without_migrations_nothing_is_needed_and_what_is_there_is_checked() {
    assert_eq!(texts(&compare(&json!([]), &BTreeMap::new())), [""; 0]);
    let mut found = registered();
    found.get_mut(&Configuration::Main).unwrap()["webhooks"][0]["failurePolicy"] = json!("Fail");
    assert_eq!(
        texts(&compare(&json!([]), &found)),
        ["nodes.outrigger.dev failurePolicy: Fail / Ignore"]
    );
}

#[test]
fn an_absent_registration_is_named_with_its_entries() {
    let nodes = json!([{"profile": "Nodes"}]);
    assert_eq!(
        texts(&compare(&nodes, &BTreeMap::new())),
        [" object: MutatingWebhookConfiguration outrigger does not exist / entries nodes.outrigger.dev"]
    );
    let kubeadm = json!([{"profile": "KubeadmConfig", "namespaceSelector": {"matchLabels": {NAME: "kube-system"}}}]);
    let mut found = registered();
    found.remove(&Configuration::KubeSystem);
    found.remove(&Configuration::Validating);
    assert_eq!(
        texts(&compare(&kubeadm, &found)),
        [
            " object: MutatingWebhookConfiguration outrigger-kube-system does not exist / entries kubeadm-configmaps.outrigger.dev"
        ]
    );
}

/// A fault at `pointer` of the main configuration's entry `entry`, and the text that names it.
fn planted(entry: &str, change: impl Fn(&mut Value)) -> Vec<String> {
    let mut found = registered();
    let entries = found.get_mut(&Configuration::Main).unwrap()["webhooks"]
        .as_array_mut()
        .unwrap();
    let entry = entries
        .iter_mut()
        .find(|one| one["name"] == format!("{entry}.outrigger.dev"))
        .unwrap();
    change(entry);
    texts(&compare(&everything(), &found))
}

/// Entry, pointer to the changed field, its wrong value, and the beginning of the text.
fn faults() -> [(&'static str, &'static str, Value, &'static str); 13] {
    let manager = "kube-controller-manager-pods-by-app";
    let cluster_api = "cluster-api-bootstrap";
    let opened = "failurePolicy: Ignore / Fail";
    [
        ("nodes", "/failurePolicy", json!("Fail"), "failurePolicy: Fail / Ignore"),
        (manager, "/failurePolicy", json!("Ignore"), opened),
        (cluster_api, "/failurePolicy", json!("Ignore"), opened),
        ("nodes", "/timeoutSeconds", json!(10), "timeoutSeconds: 10 / at most 3"),
        (
            "nodes",
            "/matchPolicy",
            json!("Exact"),
            "matchPolicy: Exact / Equivalent",
        ),
        (
            "nodes",
            "/reinvocationPolicy",
            json!("Never"),
            "reinvocationPolicy: Never / IfNeeded",
        ),
        (
            "nodes",
            "/clientConfig/caBundle",
            json!(STANDARD.encode("old CA")),
            "caBundle: other CAs only / the CA that signs",
        ),
        (
            "nodes",
            "/clientConfig/caBundle",
            json!(""),
            "caBundle: empty / the CA that signs",
        ),
        (
            "nodes",
            "/clientConfig/service/name",
            json!("other"),
            "clientConfig: other.outrigger-system.svc/mutate / ",
        ),
        (
            "nodes",
            "/clientConfig/service/path",
            json!("/"),
            "clientConfig: outrigger-webhook.outrigger-system.svc/ / ",
        ),
        (
            "pods-in-control-planes",
            "/rules/0/resources",
            json!(["nodes"]),
            "rules: incomplete / CREATE of pods",
        ),
        (
            "workloads",
            "/rules/0/operations",
            json!(["CREATE"]),
            "rules: incomplete / UPDATE of deployments.apps; UPDATE of statefulsets.apps",
        ),
        (
            "workloads",
            "/rules/0/scope",
            json!("Cluster"),
            "rules: incomplete / CREATE and UPDATE of deployments.apps",
        ),
    ]
}

#[test]
fn each_fault_is_named_by_field_and_value() {
    for (entry, pointer, value, text) in faults() {
        let seen = planted(entry, |webhook| *webhook.pointer_mut(pointer).unwrap() = value.clone());
        let [only] = &seen[..] else {
            panic!("{entry} {pointer}: {seen:?}")
        };
        assert!(only.starts_with(&format!("{entry}.outrigger.dev {text}")), "{only}");
    }
}

#[test]
fn a_selector_that_hides_a_target_is_named() {
    let seen = planted("rancher-rke1-clusters", |webhook| {
        webhook["objectSelector"] = json!({"matchLabels": {"a": "b"}})
    });
    assert_eq!(
        seen,
        [r#"rancher-rke1-clusters.outrigger.dev objectSelector: {"matchLabels":{"a":"b"}} / none"#]
    );
    let seen = planted("workloads", |webhook| {
        webhook["namespaceSelector"] = json!({"matchLabels": {NAME: "tenant-a"}})
    });
    assert!(
        seen[0].contains("hides tenant-b / every namespace that a target of the migration prod selects"),
        "{seen:?}"
    );
}

#[test]
fn an_entry_that_is_missing_is_named_only_if_a_target_needs_it() {
    let mut found = registered();
    let entries = found.get_mut(&Configuration::Main).unwrap()["webhooks"]
        .as_array_mut()
        .unwrap();
    entries.retain(|entry| entry["name"] != "rancher-clusters.outrigger.dev");
    let rancher =
        |namespace: &str| json!([{"profile": "RancherRKE2", "namespaceSelector": {"matchLabels": {NAME: namespace}}}]);
    assert_eq!(
        texts(&compare(&rancher("fleet"), &found)),
        ["rancher-clusters.outrigger.dev entry: missing / CREATE and UPDATE of clusters.provisioning.cattle.io"]
    );
    // A cluster without Rancher's management: only its own chart, in kube-system.
    assert_eq!(texts(&compare(&rancher("kube-system"), &found)), [""; 0]);
    assert_eq!(texts(&compare(&json!([{"profile": "Nodes"}]), &found)), [""; 0]);
}

/// The targets in kube-system need the configuration for it, and its selector must not hide that namespace.
#[test]
fn a_selector_that_hides_kube_system_is_named() {
    let mut found = registered();
    let entry = &mut found.get_mut(&Configuration::KubeSystem).unwrap()["webhooks"][1];
    assert_eq!(entry["name"], "kubeadm-configmaps.outrigger.dev");
    entry["namespaceSelector"]["matchExpressions"][0]["operator"] = json!("NotIn");
    let seen = texts(&compare(&everything(), &found));
    let [only] = &seen[..] else { panic!("{seen:?}") };
    assert!(
        only.contains("namespaceSelector: ") && only.contains("hides kube-system"),
        "{only}"
    );
}

/// More is no fault: wildcards, and a selector that selects everything.
#[test]
fn a_wider_registration_has_no_difference() {
    let seen = planted("workloads", |webhook| {
        webhook["rules"] = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "*"}]);
        webhook["namespaceSelector"] = json!({});
        webhook["objectSelector"] = json!({});
        webhook["timeoutSeconds"] = json!(1);
        webhook["clientConfig"] = json!({
            "url": "https://outrigger-webhook.outrigger-system.svc:8443/mutate", "caBundle": STANDARD.encode("right CA"),
        });
    });
    assert_eq!(seen, [""; 0]);
    // A URL may have a certificate of a public authority.
    let seen = planted("nodes", |webhook| {
        webhook["clientConfig"] = json!({"url": "https://outrigger-webhook.outrigger-system.svc/mutate"});
    });
    assert_eq!(seen, [""; 0]);
}

#[test]
fn nodes_of_a_hosted_control_plane_are_registered_elsewhere() {
    let tenants = json!({"matchLabels": {"tenant": "yes"}});
    let hosted = json!([{"profile": "Nodes"}, {"profile": "HostedControlPlane", "namespaceSelector": tenants}]);
    let mut found = registered();
    let entries = found.get_mut(&Configuration::Main).unwrap()["webhooks"]
        .as_array_mut()
        .unwrap();
    entries.retain(|entry| entry["name"] != "nodes.outrigger.dev");
    assert_eq!(texts(&compare(&hosted, &found)), [""; 0]);
}

#[test]
fn the_fix_is_a_command_with_the_profiles() {
    let mut options = options();
    assert_eq!(
        fix(&[Profile::Nodes, Profile::KubeadmConfig], &options),
        "run: outrigger webhook register --profiles=Nodes,KubeadmConfig | kubectl apply --server-side --force-conflicts -f -"
    );
    options.control_plane_policy = FailurePolicy::Ignore;
    assert!(fix(&[Profile::Nodes], &options).contains("--failure-policy=ignore"));
}

#[test]
fn every_field_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Field::ALL.iter().map(|field| field.as_str()).collect();
    assert_eq!(names.len(), Field::ALL.len());
}
