//! The registration and the rights in the manifests say the same as the table of kinds: what has rules is sent to the
//! webhook, and what the background check looks at can be read by it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::BTreeSet;
use std::{fs, path::Path};

use clap::Parser;
use outrigger_decide::{Kind, is_checked, kinds};
use outrigger_shared::component::{Component, POD_LABELS};
use outrigger_webhook::args::Args;
use serde_json::Value;

fn documents() -> Vec<Value> {
    let manifests = Path::new("../manifests");
    let folders = ["base/webhook", "components/kube-system"].map(|folder| manifests.join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    texts
        .flat_map(|path| serde_saphyr::from_multiple::<Value>(&fs::read_to_string(path).unwrap()).unwrap())
        .collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    documents()
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

fn holds(list: &Value, word: &str) -> bool {
    list.as_array().unwrap().iter().any(|item| item == word || item == "*")
}

/// Whether a rule of the registration sends every version of the kind, in every operation that can change it.
fn sends(rule: &Value, kind: &Kind) -> bool {
    holds(&rule["apiGroups"], kind.group)
        && kind.versions.iter().all(|version| holds(&rule["apiVersions"], version))
        && holds(&rule["resources"], kind.plural)
        && kind
            .operations()
            .iter()
            .all(|operation| holds(&rule["operations"], operation))
        && rule["scope"] == if kind.namespaced { "Namespaced" } else { "Cluster" }
}

#[test]
fn every_kind_with_rules_is_registered() {
    let configurations = of_kind("MutatingWebhookConfiguration");
    let entries = configurations
        .iter()
        .flat_map(|object| object["webhooks"].as_array().unwrap());
    let rules: Vec<&Value> = entries.flat_map(|entry| entry["rules"].as_array().unwrap()).collect();
    let missing: Vec<&str> = kinds()
        .filter(|kind| !rules.iter().any(|rule| sends(rule, kind)))
        .map(|kind| kind.kind)
        .collect();
    assert!(
        missing.is_empty(),
        "not registered, or not in every version or operation: {missing:?}"
    );
}

#[test]
fn nothing_is_registered_that_has_no_rules() {
    for configuration in of_kind("MutatingWebhookConfiguration") {
        for rule in configuration["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|entry| entry["rules"].as_array().unwrap())
        {
            for (group, plural) in pairs(rule) {
                let known = kinds().any(|kind| kind.group == group && kind.plural == plural);
                assert!(known, "{plural} of {group:?} would be sent for nothing");
            }
        }
    }
}

#[test]
fn the_background_check_may_list_what_it_looks_at_and_nothing_more() {
    let roles = of_kind("ClusterRole");
    let rules: Vec<&Value> = roles
        .iter()
        .flat_map(|role| role["rules"].as_array().unwrap())
        .collect();
    let lists = |rule: &&&Value| rule["verbs"] == serde_json::json!(["list"]);
    let allowed: Vec<(String, String)> = rules.iter().filter(lists).flat_map(|rule| pairs(rule)).collect();
    let wanted = |kind: &&Kind| is_checked(kind);
    let missing: Vec<&str> = kinds()
        .filter(wanted)
        .filter(|kind| {
            !allowed
                .iter()
                .any(|(group, plural)| group == kind.group && plural == kind.plural)
        })
        .map(|kind| kind.plural)
        .collect();
    assert!(
        missing.is_empty(),
        "the ClusterRole does not let the check list {missing:?}"
    );
    for (group, plural) in allowed {
        let known = kinds()
            .filter(wanted)
            .any(|kind| kind.group == group && kind.plural == plural);
        assert!(known, "the check does not look at {plural} of {group:?}");
    }
}

fn pairs(rule: &Value) -> Vec<(String, String)> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let (groups, resources) = (texts(&rule["apiGroups"]), texts(&rule["resources"]));
    groups
        .iter()
        .flat_map(|group| resources.iter().map(|plural| (group.clone(), plural.clone())))
        .collect()
}

#[test]
fn the_validating_component_sends_every_kind_with_tags_and_keeps_nothing_waiting() {
    let manifests = Path::new("../manifests");
    let path = manifests.join("components/validation/validating-webhook-configuration.yaml");
    let configuration: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let entries = configuration["webhooks"].as_array().unwrap();
    for entry in entries {
        let name = &entry["name"];
        assert_eq!(entry["failurePolicy"], "Ignore", "{name}");
        assert_eq!(entry["sideEffects"], "None", "{name}");
        assert_eq!(entry["clientConfig"]["service"]["path"], "/validate", "{name}");
        assert!(
            entry["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 3),
            "{name}"
        );
        let namespaced = entry["rules"][0]["scope"] == "Namespaced";
        let excluded = &entry["namespaceSelector"]["matchExpressions"][0]["values"];
        assert!(!namespaced || holds(excluded, "kube-system"), "{name}");
    }
    let rules: Vec<&Value> = entries
        .iter()
        .flat_map(|entry| entry["rules"].as_array().unwrap())
        .collect();
    for row in outrigger_decide::tags::tag_rows() {
        let kind = kinds()
            .find(|kind| kind.group == row.group && kind.kind == row.kind)
            .unwrap();
        assert!(rules.iter().any(|rule| sends(rule, kind)), "{} {}", row.group, row.kind);
    }
    let migrations = |rule: &&&Value| holds(&rule["resources"], "cloudprovidermigrations");
    assert_eq!(
        rules.iter().find(migrations).unwrap()["operations"],
        serde_json::json!(["UPDATE"])
    );
}

const REGISTRATION: &str = "base/webhook/mutating-webhook-configuration.yaml";
const RENDERED: &str = "  # Rendered from that table, up to the end mark: UPDATE_MANIFESTS=1 cargo test -p outrigger-webhook --test manifests\n";
const END: &str = "  # End of the rendered entries.\n";

/// An entry for Pods whose label `key` has one of `values`. With `Fail` it is for namespaces of control planes only.
fn pod_entry(prefix: &str, key: &str, values: &[&str], failure_policy: &str) -> String {
    let name = key.replace(['.', '/'], "-");
    let in_control_planes = if failure_policy == "Fail" {
        "Exists"
    } else {
        "DoesNotExist"
    };
    format!(
        "  - name: {prefix}-{name}.outrigger.dev
    admissionReviewVersions: [v1]
    clientConfig:
      service:
        name: outrigger-webhook
        namespace: outrigger-system
        path: /mutate
        port: 443
    rules:
      - apiGroups: [\"\"]
        apiVersions: [v1]
        resources: [pods]
        operations: [CREATE]
        scope: Namespaced
    failurePolicy: {failure_policy}
    timeoutSeconds: 3
    reinvocationPolicy: IfNeeded
    matchPolicy: Equivalent
    sideEffects: None
    namespaceSelector:
      matchExpressions:
        - key: outrigger.dev/control-plane
          operator: {in_control_planes}
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: [kube-system, kube-node-lease, outrigger-system]
    objectSelector:
      matchExpressions:
        - key: {key}
          operator: In
          values: [{}]
",
        values.join(", ")
    )
}

/// The entries for Pods: those that let a Pod pass when the webhook is away, and those that keep it waiting.
fn pod_entries() -> [String; 2] {
    let old_manager = Component::KubeControllerManager.names();
    let both: Vec<&str> = [old_manager.clone(), Component::KubeApiserver.names()].concat();
    let entries = |prefix, values: &[&str], policy| -> String {
        POD_LABELS
            .iter()
            .map(|key| pod_entry(prefix, key, values, policy))
            .collect()
    };
    [
        entries("pods-by", &both, "Ignore"),
        entries("kube-controller-manager-pods-by", &old_manager, "Fail"),
    ]
}

/// The API server must send each Pod that the webhook recognises: a Pod of an old kube-controller-manager that no entry
/// selects would start with the in-tree provider while the webhook is unavailable.
#[test]
fn pods_are_registered_by_every_label_that_recognises_a_component() {
    let path = Path::new("../manifests").join(REGISTRATION);
    let text = fs::read_to_string(&path).unwrap();
    let mut parts = text.split(RENDERED);
    let mut wanted = parts.next().unwrap().to_owned();
    let mut rendered = 0;
    for (entries, part) in pod_entries().iter().zip(parts) {
        let (_, rest) = part.split_once(END).expect("an end mark");
        wanted.extend([RENDERED, entries, END, rest]);
        rendered += 1;
    }
    assert_eq!(rendered, 2, "two places with rendered entries in {REGISTRATION}");
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    assert!(
        text == wanted,
        "{REGISTRATION} is not what the table of labels says; render it: UPDATE_MANIFESTS=1 cargo test -p outrigger-webhook --test manifests"
    );
}

fn read(file: &str) -> Vec<Value> {
    let manifests = Path::new("../manifests");
    serde_saphyr::from_multiple(&fs::read_to_string(manifests.join(file)).unwrap()).unwrap()
}

/// A registration that the flags do not name would never get a `caBundle`.
#[test]
fn self_signed_certificates_reach_every_registration_and_need_no_other_right() {
    let args = Args::parse_from(["outrigger-webhook", "--self-signed-secret=s", "--server-name=n"]).self_signed;
    let validating = read("components/validation/validating-webhook-configuration.yaml");
    let registrations = [
        (
            "mutating",
            of_kind("MutatingWebhookConfiguration"),
            args.mutating_webhook_configurations,
        ),
        ("validating", validating, args.validating_webhook_configurations),
    ];
    for (kind, objects, flags) in registrations {
        let sorted = |names: Vec<&str>| -> BTreeSet<String> { names.into_iter().map(str::to_owned).collect() };
        let flags = sorted(flags.iter().map(String::as_str).collect());
        let names = objects
            .iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap());
        assert_eq!(sorted(names.collect()), flags, "{kind}");
        for component in ["self-signed", "self-signed-tenant"] {
            let roles = read(&format!("components/{component}/rbac.yaml"));
            let rules = roles
                .iter()
                .filter(|role| role["kind"] == "ClusterRole")
                .flat_map(|role| role["rules"].as_array().unwrap());
            let resource = format!("{kind}webhookconfigurations");
            let rules: Vec<&Value> = rules.filter(|rule| holds(&rule["resources"], &resource)).collect();
            let [rule] = rules[..] else {
                panic!("{component}: {rules:?}")
            };
            let allowed = rule["resourceNames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap());
            assert_eq!(sorted(allowed.collect()), flags, "{component}: {kind}");
        }
    }
}
