//! The webhook's rights: it reads, and writes only reports.

use serde_json::{Value, json};

use super::entries::{Configuration, Resources};
use super::options::{NAME, Options, labels};
use super::rules::unique;

/// The value of `--self-signed-secret` in the manifests.
const SELF_SIGNED_SECRET: &str = "outrigger-webhook-self-signed";
/// The type of that Secret.
pub const SECRET_TYPE: &str = "outrigger.dev/self-signed";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The kinds that the background check lists ([`crate::stored_objects::is_checked`]).
const LISTED: [Resources; 14] = [
    of(&[""], &["pods"]),
    of(&["apps"], &["deployments", "statefulsets", "daemonsets"]),
    of(&["cluster.k8s.io"], &["machinedeployments", "machinesets", "machines"]),
    of(&["machine.openshift.io"], &["machinesets", "controlplanemachinesets"]),
    of(
        &["ec2.services.k8s.aws"],
        &["instances", "subnets", "routetables", "securitygroups"],
    ),
    of(
        &["ec2.aws.upbound.io"],
        &["instances", "ebsvolumes", "subnets", "routetables", "securitygroups"],
    ),
    of(&["autoscaling.aws.upbound.io"], &["autoscalinggroups"]),
    of(
        &["ec2.aws.crossplane.io"],
        &["instances", "volumes", "subnets", "routetables", "securitygroups"],
    ),
    of(&["helm.cattle.io"], &["helmcharts", "helmchartconfigs"]),
    of(&["kamaji.clastix.io"], &["tenantcontrolplanes"]),
    of(
        &["controlplane.cluster.x-k8s.io"],
        &[
            "kamajicontrolplanes",
            "kthreescontrolplanes",
            "kubeadmcontrolplanes",
            "rke2controlplanes",
            "rke2controlplanetemplates",
        ],
    ),
    of(
        &["bootstrap.cluster.x-k8s.io"],
        &[
            "kubeadmconfigs",
            "kubeadmconfigtemplates",
            "rke2configs",
            "rke2configtemplates",
        ],
    ),
    of(&["cluster.x-k8s.io"], &["clusterclasses"]),
    of(
        &[
            "provisioning.cattle.io",
            "management.cattle.io",
            "kubermatic.k8c.io",
            "kubermatic.k8s.io",
        ],
        &["clusters"],
    ),
];

const fn of(groups: &'static [&'static str], resources: &'static [&'static str]) -> Resources {
    Resources { groups, resources }
}

/// The service account and its rights for these profiles.
#[must_use]
pub fn access(options: &Options) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": options.namespace, "labels": labels()},
    });
    let lease = format!("{NAME}:manager-lease");
    vec![
        account,
        role("ClusterRole", NAME, None, rules(options)),
        binding("ClusterRole", NAME, None, &service_account(options)),
        role("Role", &lease, Some("kube-system"), vec![lease_rule()]),
        binding("Role", &lease, Some("kube-system"), &service_account(options)),
    ]
}

fn rules(options: &Options) -> Vec<Value> {
    let mut rules = vec![
        json!({"apiGroups": ["outrigger.dev"], "resources": ["cloudprovidermigrations"], "verbs": ["get", "list", "watch"]}),
        // Labels only (metadata requests), for a target's namespaceSelector.
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}),
        // Reports of the background check.
        json!({"apiGroups": ["outrigger.dev"], "resources": ["cloudprovidermigrations/status"], "verbs": ["patch"]}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}),
    ];
    // Its own registration is compared with what the migrations need.
    rules.extend(registrations(&["list", "watch"]));

    for row in LISTED {
        let pairs: Vec<(&str, &str)> = row.pairs(&options.profiles).collect();
        if !pairs.is_empty() {
            let groups = unique(pairs.iter().map(|(group, _)| *group));
            let resources = unique(pairs.iter().map(|(_, plural)| *plural));
            rules.push(json!({"apiGroups": groups, "resources": resources, "verbs": ["list"]}));
        }
    }

    rules
}

/// `nodeTaint: WhenManagerReady` checks whether a cloud-controller-manager renews its main lease.
pub(super) fn lease_rule() -> Value {
    json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["cloud-controller-manager"], "verbs": ["get", "list", "watch"],
    })
}

/// Further rights of a webhook that issues its certificate itself, and its Secret.
#[must_use]
pub fn self_signed(options: &Options) -> Vec<Value> {
    let secrets = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SELF_SIGNED_SECRET],
        "verbs": ["get", "list", "watch", "update"],
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
