//! aws-cloud-controller-manager's objects: its published DaemonSet, and all objects by the names of its publications, in
//! our words:
//! <https://github.com/kubernetes/cloud-provider-aws/tree/v1.37.1/examples/existing-cluster/base> and
//! <https://github.com/kubernetes/cloud-provider-aws/tree/v1.37.1/charts/aws-cloud-controller-manager>

use std::path::Path;

use anyhow::{Context, Result};
use outrigger_cluster_harness::tools::INCUMBENT_VERSION;
use serde_json::{Value, json};

use super::{INCUMBENT, published_data};

pub const IMAGE: &str = "registry.k8s.io/provider-aws/cloud-controller-manager";
pub const ACCOUNT: &str = "cloud-controller-manager";
pub const ROLE: &str = "system:cloud-controller-manager";
const READER: &str = "cloud-controller-manager:apiserver-authentication-reader";

/// Its rights that the manifests and the chart have in common.
fn rules() -> Vec<Value> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    vec![
        rule("", "events", &["create", "patch", "update"]),
        rule("", "nodes", &["*"]),
        rule("", "nodes/status", &["patch"]),
        rule("", "services", &["list", "patch", "update", "watch"]),
        rule("", "services/status", &["list", "patch", "update", "watch"]),
        rule("", "persistentvolumes", &["get", "list", "update", "watch"]),
        rule("", "endpoints", &["create", "get", "list", "watch", "update"]),
        rule(
            "coordination.k8s.io",
            "leases",
            &["create", "get", "list", "watch", "update"],
        ),
        rule("", "serviceaccounts/token", &["create"]),
    ]
}

/// The rights by default of the chart.
pub fn chart_rules() -> Vec<Value> {
    let create =
        |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
    let mut rules = rules();
    rules.extend([
        create("", "serviceaccounts"),
        create("authentication.k8s.io", "tokenreviews"),
        create("authorization.k8s.io", "subjectaccessreviews"),
    ]);
    rules
}

fn access(rules: &[Value]) -> Vec<Value> {
    let (version, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
    let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}]);
    let reader = json!({"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "kube-system"}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE}, "subjects": subjects}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": READER, "namespace": "kube-system"},
            "roleRef": reader, "subjects": subjects}),
    ]
}

/// The DaemonSet with what both forms have in common.
fn daemon_set(args: &[String]) -> Value {
    let labels = json!({"k8s-app": INCUMBENT});
    let tolerations = json!([
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
    ]);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": INCUMBENT, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {
                "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
                "tolerations": tolerations,
                "serviceAccountName": ACCOUNT,
                "hostNetwork": true,
                "containers": [{
                    "name": INCUMBENT, "image": format!("{IMAGE}:{INCUMBENT_VERSION}"), "args": args,
                    "resources": {"requests": {"cpu": "200m"}},
                }],
            }},
        },
    })
}

/// The file of its base, which the published manifests of each version have.
const PUBLISHED: &str = "corpus/cloud-providers/aws-ccm-daemonset-base.yaml";

/// The published DaemonSet, with `flags` after its own; the image's name selects the program that runs. Its published
/// roles are not part of the data. `None` without the data.
pub fn published(flags: &[String]) -> Result<Option<Vec<Value>>> {
    let Some(path) = published_data::find(PUBLISHED) else {
        return Ok(None);
    };
    let mut daemon_set: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let args = daemon_set.pointer_mut("/spec/template/spec/containers/0/args");
    let args = args.and_then(Value::as_array_mut).context("no args")?;
    args.extend(flags.iter().map(|flag| json!(flag)));

    let mut objects = manifests(flags);
    objects.retain(|object| object["kind"] != "DaemonSet");
    objects.push(daemon_set);
    Ok(Some(objects))
}

/// Its manifests. `flags` follow theirs.
pub fn manifests(flags: &[String]) -> Vec<Value> {
    let own = [
        "--v=2",
        "--cloud-provider=aws",
        "--use-service-account-credentials=true",
        "--configure-cloud-routes=false",
    ];
    let args: Vec<String> = own
        .map(str::to_owned)
        .into_iter()
        .chain(flags.iter().cloned())
        .collect();
    let accounts =
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "get", "list", "watch"]});
    let mut rules = rules();
    rules.push(accounts);

    let mut objects = access(&rules);
    objects.push(daemon_set(&args));
    objects
}

/// Values that an operator of its chart has.
pub fn values(flags: &[String], folder: &Path) -> Value {
    // With routes, which are its default, the program ends without a --cluster-cidr.
    let own = ["--v=2", "--cloud-provider=aws", "--configure-cloud-routes=false"].map(str::to_owned);
    let args: Vec<String> = own.into_iter().chain(flags.iter().cloned()).collect();
    json!({
        "image": {"tag": INCUMBENT_VERSION},
        "args": args,
        "hostNetworking": true,
        "env": [{"name": "GOMAXPROCS", "value": "2"}],
        "podAnnotations": {"example.com/team": "platform"},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/ccm"}},
        "extraVolumes": [{"name": "cloud", "hostPath": {"path": folder}}],
        "extraVolumeMounts": [{"name": "cloud", "mountPath": folder}],
    })
}

/// Writes a chart of its chart's name and version, which renders what that one renders for these values.
pub fn write_chart(folder: &Path, values: &Value) -> Result<()> {
    let label = "aws-cloud-controller-manager-0.0.11";
    let mut objects = access(&chart_rules());
    objects[0]["metadata"]["annotations"] = values["serviceAccount"]["annotations"].clone();

    let mut daemon_set = daemon_set(&[]);
    let template = &mut daemon_set["spec"]["template"];
    template["metadata"]["name"] = INCUMBENT.into();
    template["metadata"]["annotations"] = values["podAnnotations"].clone();
    let spec = &mut template["spec"];
    let master = json!({"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"});
    spec["tolerations"]
        .as_array_mut()
        .into_iter()
        .for_each(|list| list.push(master.clone()));
    spec["dnsPolicy"] = "Default".into();
    spec["priorityClassName"] = "system-node-critical".into();
    spec["securityContext"] = json!({});
    spec["volumes"] = values["extraVolumes"].clone();
    let container = &mut spec["containers"][0];
    container["args"] = values["args"].clone();
    container["env"] = values["env"].clone();
    container["securityContext"] = json!({});
    container["volumeMounts"] = values["extraVolumeMounts"].clone();
    objects.push(daemon_set);

    let mut text = String::new();
    for object in &mut objects {
        object["metadata"]["labels"]["helm.sh/chart"] = label.into();
        text += &format!("---\n{object}\n");
    }
    std::fs::create_dir_all(folder.join("templates"))?;
    let chart = "apiVersion: v1\nname: aws-cloud-controller-manager\nversion: 0.0.11\nappVersion: v1.35.0\n";
    std::fs::write(folder.join("Chart.yaml"), chart)?;
    std::fs::write(folder.join("values.yaml"), "{}\n")?;
    std::fs::write(folder.join("templates/objects.yaml"), text)?;
    Ok(())
}
