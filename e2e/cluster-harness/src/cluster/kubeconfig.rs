//! Kubeconfig files for certificate users, with everything inline so that a file can be moved or mounted alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authority::Credentials;

/// One cluster, one user, one current context. JSON, which every YAML reader takes.
#[must_use]
pub fn kubeconfig(cluster: &str, server: &str, authority: &str, user: &str, credentials: &Credentials) -> Value {
    let context = format!("{user}@{cluster}");
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(&credentials.certificate),
            "client-key-data": STANDARD.encode(&credentials.key),
        }}],
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
        "current-context": context,
    })
}
