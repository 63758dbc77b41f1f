//! The entries of a `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration` that call this webhook, and their
//! `caBundle`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::bundle::{self, BundleError};
use outrigger_decide::registration::client;
use serde_json::{Value, json};

/// An entry that calls this webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// The decoded `caBundle`; empty if there is none or it cannot be decoded.
    pub bundle: String,
}

/// The entries whose Service or URL has one of `names`. API servers verify the certificate for that name.
pub fn entries(registration: &Value, names: &[String]) -> Vec<Entry> {
    let webhooks = registration["webhooks"].as_array();
    let ours = webhooks
        .into_iter()
        .flatten()
        .filter(|entry| client::host(&entry["clientConfig"]).is_some_and(|host| names.contains(&host)));
    ours.filter_map(|entry| {
        Some(Entry {
            name: entry["name"].as_str()?.to_owned(),
            bundle: client::bundle(&entry["clientConfig"]).unwrap_or_default(),
        })
    })
    .collect()
}

/// The strategic merge patch after which each of `entries` holds `wanted`; `None` if they do.
///
/// CAs that an entry holds stay until they expire: a replica that has not seen the newest Secret must not remove the CA
/// of the served certificate.
///
/// # Errors
/// [`BundleError`] if no CA of `wanted` is valid.
pub fn patch(
    entries: &[Entry],
    resource_version: &str,
    wanted: &str,
    now: Timestamp,
) -> Result<Option<Value>, BundleError> {
    let mut webhooks = Vec::new();
    for entry in entries {
        if let Some(bundle) = bundle::extend(&entry.bundle, wanted, now)? {
            webhooks.push(json!({"name": entry.name, "clientConfig": {"caBundle": STANDARD.encode(bundle)}}));
        }
    }

    // The version makes the API server refuse a patch of an object that has changed since.
    let metadata = json!({"resourceVersion": resource_version});
    Ok((!webhooks.is_empty()).then(|| json!({"metadata": metadata, "webhooks": webhooks})))
}
