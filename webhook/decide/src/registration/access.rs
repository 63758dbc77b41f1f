//! The webhook's rights (it reads, and writes only reports), and the connections to it and from it.

use serde_json::{Value, json};

use super::entries::Configuration;
use super::options::{API_SERVERS, NAME, Options, labels};
use super::rules::{is_needed, unique};
use crate::{Kind, is_checked, kinds};

/// The value of `--self-signed-secret` in the manifests.
const SELF_SIGNED_SECRET: &str = "outrigger-webhook-self-signed";
pub const SECRET_TYPE: &str = "outrigger.dev/self-signed";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The groups of the kinds that the background check lists, by rule.
const LISTED: [&[&str]; 14] = [
    &[""],
    &["apps"],
    &["cluster.k8s.io"],
    &["machine.openshift.io"],
    &["ec2.services.k8s.aws"],
    &["ec2.aws.upbound.io"],
    &["autoscaling.aws.upbound.io"],
    &["ec2.aws.crossplane.io"],
    &["helm.cattle.io"],
    &["kamaji.clastix.io"],
    &["controlplane.cluster.x-k8s.io"],
    &["bootstrap.cluster.x-k8s.io"],
    &["cluster.x-k8s.io"],
    &[
        "provisioning.cattle.io",
        "management.cattle.io",
        "kubermatic.k8c.io",
        "kubermatic.k8s.io",
    ],
];

/// The service account and its rights for these profiles.
pub fn access(options: &Options) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": options.namespace, "labels": labels()},
    });
    let (servers, lease) = (format!("{NAME}:api-servers"), format!("{NAME}:manager-lease"));
    vec![
        account,
        role("ClusterRole", NAME, None, rules(options)),
        binding("ClusterRole", NAME, None, &service_account(options)),
        role("Role", &servers, Some(API_SERVERS.0), vec![api_servers_rule()]),
        binding("Role", &servers, Some(API_SERVERS.0), &service_account(options)),
        role("Role", &lease, Some("kube-system"), vec![lease_rule()]),
        binding("Role", &lease, Some("kube-system"), &service_account(options)),
    ]
}

/// The addresses of the API servers.
fn api_servers_rule() -> Value {
    json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "resourceNames": [API_SERVERS.1],
        "verbs": ["list", "watch"]})
}

fn rules(options: &Options) -> Vec<Value> {
    let mut rules = vec![
        json!({"apiGroups": ["outrigger.dev"], "resources": ["cloudprovidermigrations"], "verbs": ["list", "watch"]}),
        // Labels only (metadata requests), for a target's namespaceSelector.
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}),
        // Reports of the background check.
        json!({"apiGroups": ["outrigger.dev"], "resources": ["cloudprovidermigrations/status"], "verbs": ["patch"]}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}),
    ];
    // Its own registration is compared with what the migrations need.
    rules.extend(registrations(&["list", "watch"]));

    for groups in LISTED {
        let checked = kinds().filter(|kind| groups.contains(&kind.group) && is_checked(kind));
        let listed: Vec<&Kind> = checked
            .filter(|kind| is_needed(kind.group, kind.plural, &options.profiles))
            .collect();
        if !listed.is_empty() {
            let groups = unique(listed.iter().map(|kind| kind.group));
            let resources = unique(listed.iter().map(|kind| kind.plural));
            rules.push(json!({"apiGroups": groups, "resources": resources, "verbs": ["list"]}));
        }
    }

    rules
}

/// `nodeTaint: WhenManagerReady` checks whether a cloud-controller-manager renews its main lease.
pub(super) fn lease_rule() -> Value {
    json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["cloud-controller-manager"], "verbs": ["list", "watch"],
    })
}

/// Further rights of a webhook that issues its certificate itself, and its Secret.
pub fn self_signed(options: &Options) -> Vec<Value> {
    let secrets = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SELF_SIGNED_SECRET],
        "verbs": ["list", "watch", "update"],
    });
    // The webhook fills it. RBAC cannot limit the right to create Secrets to one name.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(SELF_SIGNED_SECRET, Some(&options.namespace)),
        "type": SECRET_TYPE,
    });
    let name = format!("{NAME}:self-signed");
    let namespace = Some(options.namespace.as_str());
    vec![
        secret,
        role("Role", &name, namespace, vec![secrets]),
        binding("Role", &name, namespace, &service_account(options)),
        role("ClusterRole", &name, None, registrations(&["list", "watch", "patch"])),
        binding("ClusterRole", &name, None, &service_account(options)),
    ]
}

/// The registrations, by name.
fn registrations(verbs: &[&str]) -> Vec<Value> {
    let kinds = [
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ];
    let rule = |(resource, kind)| {
        let all = Configuration::ALL.into_iter();
        let names: Vec<&str> = all.filter(|one| one.kind() == kind).map(Configuration::name).collect();
        json!({
            "apiGroups": ["admissionregistration.k8s.io"], "resources": [resource],
            "resourceNames": names, "verbs": verbs,
        })
    };
    kinds.map(rule).to_vec()
}

pub(super) fn role(kind: &str, name: &str, namespace: Option<&str>, rules: Vec<Value>) -> Value {
    json!({"apiVersion": RBAC, "kind": kind, "metadata": metadata(name, namespace), "rules": rules})
}

pub(super) fn binding(kind: &str, name: &str, namespace: Option<&str>, subject: &Value) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": format!("{kind}Binding"),
        "metadata": metadata(name, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    })
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn service_account(options: &Options) -> Value {
    json!({"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace})
}

/// API servers run on the host network or outside of the cluster, so only their addresses select them.
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
