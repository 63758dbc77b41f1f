//! The configurations of an API server, from the table of the entries.

use outrigger_shared::annotations::NAMESPACE_NAME_LABEL;
use outrigger_shared::migration::Profile;
use serde_json::{Value, json};

use super::access::{binding, lease_rule, role};
use super::conditions::{SINCE, match_conditions};
use super::entries::{Configuration, Entry, Namespaces, entries};
use super::options::{Certificates, NAME, Options, labels};

/// An API server waits no longer. Answers take well under a millisecond.
pub const TIMEOUT_SECONDS: u64 = 3;

/// The label of namespaces with control planes of other clusters.
pub(super) const CONTROL_PLANE: &str = "outrigger.dev/control-plane";

/// The configurations that have an entry for these profiles.
pub fn configurations(options: &Options) -> Vec<Value> {
    let all = Configuration::ALL.into_iter();
    let wanted = all.filter(|configuration| options.validation || *configuration != Configuration::Validating);
    wanted.filter_map(|one| configuration(one, options)).collect()
}

pub(super) fn of_configuration(configuration: Configuration) -> impl Iterator<Item = Entry> {
    entries()
        .into_iter()
        .filter(move |entry| entry.configuration == configuration)
}

fn configuration(configuration: Configuration, options: &Options) -> Option<Value> {
    let webhooks: Vec<Value> = of_configuration(configuration)
        .filter_map(|entry| webhook(&entry, options))
        .collect();
    if webhooks.is_empty() {
        return None;
    }

    let mut metadata = json!({"name": configuration.name(), "labels": labels()});
    if options.certificates == Certificates::CertManager {
        let source = format!("{}/{}", options.namespace, NAME);
        metadata["annotations"] = json!({"cert-manager.io/inject-ca-from": source});
    }

    Some(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": configuration.kind(),
        "metadata": metadata,
        "webhooks": webhooks,
    }))
}

/// An entry for the profiles; none if they need no resource of it.
pub fn webhook(entry: &Entry, options: &Options) -> Option<Value> {
    let profiles = &options.profiles;
    let rules: Vec<Value> = entry.rules.iter().filter_map(|rule| rule.rule(profiles)).collect();
    if rules.is_empty() {
        return None;
    }

    let mut webhook = json!({
        "name": entry.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {
            "name": NAME, "namespace": options.namespace, "path": entry.configuration.path(), "port": 443,
        }},
        "rules": rules,
        "failurePolicy": failure_policy(entry, options),
        "timeoutSeconds": TIMEOUT_SECONDS,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
    });
    if entry.configuration != Configuration::Validating {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    if let Some(bundle) = &options.ca_bundle {
        webhook["clientConfig"]["caBundle"] = json!(bundle);
    }

    let expressions = namespace_expressions(entry.namespaces, &options.namespace);
    if !expressions.is_empty() {
        webhook["namespaceSelector"] = json!({"matchExpressions": expressions});
    }
    if let Some(label) = &entry.pod_label {
        let expression = json!({"key": label.key, "operator": "In", "values": label.values});
        webhook["objectSelector"] = json!({"matchExpressions": [expression]});
    }

    let conditions = match_conditions(entry);
    if options.kubernetes_version.is_some_and(|version| version >= SINCE) && !conditions.is_empty() {
        webhook["matchConditions"] = json!(conditions);
    }

    Some(webhook)
}

/// `Ignore`: an unavailable webhook must not keep anything from starting, except where the original of the owner is worse
/// than no write.
fn failure_policy(entry: &Entry, options: &Options) -> &'static str {
    if entry.blocks {
        options.control_plane_policy.as_str()
    } else {
        "Ignore"
    }
}

fn namespace_expressions(namespaces: Namespaces, own: &str) -> Vec<Value> {
    let ordinary = || {
        let excluded = ["kube-system", "kube-node-lease", own];
        json!({"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": excluded})
    };
    match namespaces {
        Namespaces::None => Vec::new(),
        Namespaces::Ordinary => vec![ordinary()],
        Namespaces::ControlPlanes => vec![json!({"key": CONTROL_PLANE, "operator": "Exists"}), ordinary()],
        Namespaces::OutsideControlPlanes => vec![json!({"key": CONTROL_PLANE, "operator": "DoesNotExist"}), ordinary()],
        Namespaces::KubeSystem => {
            vec![json!({"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": ["kube-system"]})]
        }
    }
}

/// The API server of a hosted control plane, which calls the webhook in the management cluster.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The migration.
    pub name: String,
    /// The address of the webhook for the tenant's API server, without a path.
    pub url: String,
}

/// The entry for new Nodes, and the right to read the manager's lease. A review of a Node does not identify the cluster,
/// so the path names the migration.
#[must_use]
pub fn tenant(tenant: &Tenant, options: &Options) -> Vec<Value> {
    let options = Options {
        profiles: vec![Profile::Nodes],
        ..options.clone()
    };
    let url = format!("{}/mutate/{}", tenant.url.trim_end_matches('/'), tenant.name);
    let webhooks = of_configuration(Configuration::Main).filter_map(|entry| {
        let mut webhook = webhook(&entry, &options)?;
        let mut client = json!({"url": url});
        if let Some(bundle) = &options.ca_bundle {
            client["caBundle"] = json!(bundle);
        }
        webhook["clientConfig"] = client;
        Some(webhook)
    });
    let webhooks: Vec<Value> = webhooks.collect();

    let lease = format!("{NAME}:manager-lease");
    let user = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": NAME});
    vec![
        role("Role", &lease, Some("kube-system"), vec![lease_rule()]),
        binding("Role", &lease, Some("kube-system"), &user),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": Configuration::Main.name(), "labels": labels()},
            "webhooks": webhooks,
        }),
    ]
}
