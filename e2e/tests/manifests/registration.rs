//! The registration of the webhook: an outage of it must not keep anything from starting but a
//! kube-controller-manager, nor from being written but Cluster API's control planes and machine configurations, and no call
//! may delay a write for long.

use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::{KUSTOMIZATIONS, rendered};

/// Namespaces that a cluster needs to come back; they never wait for a webhook.
const NEVER: [&str; 3] = ["kube-system", "kube-node-lease", "outrigger-system"];

async fn entries() -> Vec<(String, Value)> {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let mut entries = Vec::new();
    for path in KUSTOMIZATIONS {
        for object in rendered(&tools, path).await {
            if object["kind"] == "MutatingWebhookConfiguration" {
                let webhooks = object["webhooks"].as_array().expect("webhooks").clone();
                entries.extend(
                    webhooks
                        .into_iter()
                        .map(|entry| (format!("{path}: {}", entry["name"]), entry)),
                );
            }
        }
    }
    entries
}

fn expressions<'a>(entry: &'a Value, selector: &str) -> &'a [Value] {
    entry[selector]["matchExpressions"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Whether the entry never asks about objects of this namespace, by the label that every namespace has.
fn excludes(entry: &Value, namespace: &str) -> bool {
    expressions(entry, "namespaceSelector").iter().any(|expression| {
        expression["key"] == "kubernetes.io/metadata.name"
            && expression["operator"] == "NotIn"
            && expression["values"]
                .as_array()
                .is_some_and(|values| values.contains(&json!(namespace)))
    })
}

#[tokio::test]
async fn only_pods_of_a_kube_controller_manager_in_labelled_namespaces_and_cluster_api_may_be_kept_waiting() {
    let (mut failing, mut of_cluster_api) = (0, 0);
    for (name, entry) in entries().await {
        if entry["failurePolicy"] == "Ignore" {
            continue;
        }
        // Left out, it means Fail, so nothing but an explicit Ignore gets past the check above.
        assert_eq!(entry["failurePolicy"], "Fail", "{name}");
        if name.contains(": \"cluster-api-") {
            of_cluster_api += 1;
            let rules = entry["rules"].as_array().expect("rules");
            let groups = ["controlplane.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"];
            let is_own = |rule: &Value| groups.iter().any(|group| rule["apiGroups"] == json!([group]));
            assert!(rules.iter().all(is_own), "{name}: {rules:?}");
            assert!(
                !entry.to_string().contains("aws"),
                "{name}: control planes of EKS never wait"
            );
            continue;
        }
        failing += 1;
        let pods = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced"}]);
        assert_eq!(entry["rules"], pods, "{name}");
        let label = json!({"key": "outrigger.dev/control-plane", "operator": "Exists"});
        assert!(expressions(&entry, "namespaceSelector").contains(&label), "{name}");
        let chosen = expressions(&entry, "objectSelector");
        assert!(
            matches!(chosen, [only] if only["operator"] == "In" && only["values"] == json!(["kube-controller-manager", "controller-manager"])),
            "{name}: {chosen:?}"
        );
    }
    assert_eq!(
        failing,
        3 * outrigger_shared::component::POD_LABELS.len(),
        "one for each label in the base, and as many in its overlays for management clusters and for static Pods"
    );
    assert_eq!(of_cluster_api, 3 * 2, "control planes and configurations of machines");
}

#[tokio::test]
async fn no_call_takes_long_and_none_is_made_for_what_a_cluster_needs_to_come_back() {
    for (name, entry) in entries().await {
        let timeout = entry["timeoutSeconds"]
            .as_u64()
            .expect("a timeout, as the default is 10 s");
        assert!((1..=3).contains(&timeout), "{name}: {timeout} s");
        assert_eq!(entry["sideEffects"], "None", "{name}: dry runs are served");
        assert_eq!(entry["matchPolicy"], "Equivalent", "{name}");
        assert_eq!(entry["reinvocationPolicy"], "IfNeeded", "{name}");
        assert_eq!(entry["matchConditions"], Value::Null, "{name}: 1.26 would drop them");
        let rules = entry["rules"].as_array().expect("rules");
        if rules.iter().all(|rule| rule["scope"] == "Namespaced") {
            for namespace in NEVER {
                assert!(excludes(&entry, namespace), "{name} asks about {namespace}");
            }
        } else {
            // Besides new Nodes only objects of provisioners, AWS resources and classes of volumes have no namespace;
            // nothing that a cluster needs is among them.
            let is_node = rules[0]["resources"] == json!(["nodes"]) && rules[0]["operations"] == json!(["CREATE"]);
            let is_cluster = rules[0]["resources"] == json!(["clusters"]);
            let about_aws = |rule: &Value| rule["apiGroups"].to_string().contains("aws");
            let about_classes = |rule: &Value| rule["apiGroups"].to_string().contains("storage.k8s.io");
            let is_tagged = rules.iter().all(|rule| about_aws(rule) || about_classes(rule));
            assert!(is_node || is_cluster || is_tagged, "{name}: {rules:?}");
        }
        for rule in rules {
            for list in ["apiGroups", "apiVersions", "resources", "operations"] {
                let text = rule[list].to_string();
                assert!(!text.contains('*') && !text.contains('/'), "{name}: {list} {text}");
            }
        }
    }
}

/// Kubermatic's webhook answers to the feature that ours turns on, and is never called twice.
#[tokio::test]
async fn clusters_of_kubermatic_come_here_before_they_come_to_kubermatics_webhook() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let mut found = 0;
    for object in rendered(&tools, "base").await {
        let text = object["webhooks"].to_string();
        if object["kind"] == "MutatingWebhookConfiguration" && text.contains("kubermatic.k8c.io") {
            let name = object["metadata"]["name"].as_str().expect("a name");
            assert!(name < "kubermatic-clusters", "API servers call {name} too late");
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

#[tokio::test]
async fn the_cert_manager_component_asks_for_every_entrys_authority() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let component = manifests::folder()
        .join("components/cert-manager")
        .canonicalize()
        .expect("folder");
    // kustomize wants relative paths, so go up to the root first.
    let home = run.path().join("kustomize/cert-manager");
    std::fs::create_dir_all(&home).expect("folder");
    let up = "../".repeat(home.canonicalize().expect("folder").components().count() - 1);
    let overlay = format!(
        "components:\n- {up}{}\n",
        component.strip_prefix("/").expect("absolute").display()
    );
    let objects = manifests::render(&tools, run.path(), "cert-manager", "base", &overlay)
        .await
        .expect("kustomize accepts it");
    let sources: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "MutatingWebhookConfiguration")
        .map(|registration| &registration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"])
        .collect();
    let (source, others) = sources.split_first().expect("a registration");
    assert!(others.iter().all(|other| other == source), "{sources:?}");
    let (namespace, name) = source
        .as_str()
        .and_then(|text| text.split_once('/'))
        .expect("NAMESPACE/NAME");
    let certificate = objects
        .iter()
        .find(|object| object["kind"] == "Certificate" && object["metadata"]["name"] == name)
        .expect("the certificate is there");
    assert_eq!(certificate["metadata"]["namespace"], namespace);
    let service = "outrigger-webhook.outrigger-system.svc";
    assert!(
        certificate["spec"]["dnsNames"]
            .as_array()
            .is_some_and(|names| names.contains(&json!(service)))
    );
}
