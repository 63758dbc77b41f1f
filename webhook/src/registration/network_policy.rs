//! The connections to the webhook and from it.

use serde_json::{Value, json};

use super::options::{NAME, Options, labels};

/// API servers run on the host network or outside of the cluster, so only their addresses select them.
#[must_use]
pub fn network_policy(options: &Options) -> Value {
    let mut admission = json!({"ports": [port(8443, "TCP")]});
    if !options.api_servers.is_empty() {
        let blocks = options.api_servers.iter();
        admission["from"] = blocks.map(|cidr| json!({"ipBlock": {"cidr": cidr}})).collect();
    }

    let mut api_servers = vec![port(443, "TCP"), port(6443, "TCP")];
    if options.hosted || options.profiles.iter().any(|profile| profile.in_management_cluster()) {
        // API servers of tenants, on a NodePort or any other unprivileged port.
        api_servers.push(json!({"port": 1024, "endPort": 65535, "protocol": "TCP"}));
    }

    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": options.namespace, "labels": labels()},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                admission,
                // Scrapers in this cluster. A NetworkPolicy never blocks the kubelet's probes.
                {"from": [{"namespaceSelector": {}}], "ports": [port(8081, "TCP")]},
            ],
            "egress": [
                {"ports": api_servers},
                {"ports": [port(53, "UDP"), port(53, "TCP")]},
            ],
        },
    })
}

fn port(number: u16, protocol: &str) -> Value {
    json!({"port": number, "protocol": protocol})
}
