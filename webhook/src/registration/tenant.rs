//! The objects of a tenant: the API server of a hosted control plane, which calls the webhook in the management cluster.

use outrigger_shared::migration::Profile;
use serde_json::{Value, json};

use super::access::{binding, lease_rule, role};
use super::entries::{Configuration, entries};
use super::options::{NAME, Options, labels};
use super::render::webhook;

/// A hosted control plane.
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
    let main = entries()
        .into_iter()
        .filter(|entry| entry.configuration == Configuration::Main);
    let webhooks = main.filter_map(|entry| {
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
