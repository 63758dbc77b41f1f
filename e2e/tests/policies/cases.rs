//! Objects for the API server, and whether a policy changes them: a case without a change would pass without any
//! policy.

use serde_json::{Value, json};

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// One object that is created, or updated from `stored`.
pub struct Case {
    pub name: &'static str,
    pub object: Value,
    /// The object before; with it the case is an update.
    pub stored: Option<Value>,
    pub changes: bool,
}

impl Case {
    /// The path of its collection.
    pub fn collection(&self) -> String {
        match self.object["metadata"]["namespace"].as_str() {
            None => "/api/v1/nodes".to_owned(),
            Some(namespace) => format!("/apis/cluster.k8s.io/v1alpha1/namespaces/{namespace}/machinedeployments"),
        }
    }
}

fn node(name: &'static str, migration: &str, spec: Value, changes: bool) -> Case {
    let metadata = json!({"name": name, "labels": {"case": migration}});
    Case {
        name,
        object: json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}),
        stored: None,
        changes,
    }
}

fn machines(name: &str, namespace: &str, migration: &str, value: Value) -> Value {
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"case": migration}},
        "spec": {"replicas": 1, "template": {"spec": {"providerSpec": {"value": value}}}},
    })
}

fn on_aws(tags: Value) -> Value {
    json!({"cloudProvider": "aws", "cloudProviderSpec": {"region": "us-west-2", "tags": tags}})
}

fn created(name: &'static str, namespace: &str, migration: &str, value: Value, changes: bool) -> Case {
    Case {
        name,
        object: machines(name, namespace, migration, value),
        stored: None,
        changes,
    }
}

fn updated(name: &'static str, change: impl FnOnce(&mut Value), changes: bool) -> Case {
    let stored = machines(name, "machines", "machines", on_aws(json!({})));
    let mut object = stored.clone();
    change(&mut object);
    Case {
        name,
        object,
        stored: Some(stored),
        changes,
    }
}

/// A MachineDeployment that the migration, if it is in force, tags.
pub fn probe(migration: &str) -> Case {
    created("probe", "machines", migration, on_aws(json!({})), true)
}

pub fn nodes() -> Vec<Case> {
    let other = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    let mut by_second_target = node("second-target", "", json!({}), true);
    by_second_target.object["metadata"]["labels"] = json!({"also": "", "case": "migrate"});
    let mut update = node("not-at-an-update", "migrate", json!({}), false);
    update.stored = Some(node("not-at-an-update", "other", json!({}), false).object);
    vec![
        node("no-taints", "migrate", json!({}), true),
        node("empty-taints", "migrate", json!({"taints": []}), true),
        node("joins-other-taints", "migrate", json!({"taints": [other]}), true),
        node("in-complete", "complete", json!({"taints": [other]}), true),
        node("empty-provider-id", "migrate", json!({"providerID": ""}), true),
        by_second_target,
        node(
            "initialized",
            "migrate",
            json!({"providerID": "aws:///us-west-2a/i-1"}),
            false,
        ),
        node(
            "has-the-taint",
            "migrate",
            json!({"taints": [{"key": TAINT, "effect": "NoExecute"}]}),
            false,
        ),
        node("too-early", "prepare", json!({}), false),
        node("only-audited", "audit", json!({}), false),
        node("of-another-api-server", "hosted", json!({}), false),
        node("control-plane-in-kube-system-by-label", "own-by-label", json!({}), true),
        node("control-plane-in-kube-system-by-name", "own-by-name", json!({}), true),
        node("control-plane-also-elsewhere", "own-and-hosted", json!({}), false),
        node("nobodys", "nobody", json!({}), false),
        update,
    ]
}

pub fn machine_deployments() -> Vec<Case> {
    let new = |name, migration, value, changes| created(name, "machines", migration, value, changes);
    let tagged = |key: &str, value: &str| on_aws(json!({"Name": "n", key: value}));
    let aws = |specification: Value| json!({"cloudProvider": "aws", "cloudProviderSpec": specification});
    vec![
        new("no-tags", "machines", aws(json!({"region": "r"})), true),
        new("null-tags", "machines", on_aws(json!(null)), true),
        new("other-tags", "machines", tagged("Team", "a"), true),
        new("own-legacy-tag", "machines", tagged("KubernetesCluster", "a/b.c"), true),
        new("shared-cluster", "others", on_aws(json!({})), true),
        created("named-namespace", "kube-system", "others", on_aws(json!({})), true),
        new("object-selector-only", "anywhere", on_aws(json!({})), true),
        updated("template", |object| object["spec"]["template"]["x"] = json!(1), true),
        updated(
            "asked-for",
            |object| object["metadata"]["annotations"] = json!({"outrigger.dev/apply": "a"}),
            true,
        ),
        new("own-tag", "machines", tagged("kubernetes.io/cluster/a/b.c", "x"), false),
        new(
            "foreign-tag",
            "machines",
            tagged("kubernetes.io/cluster/other", "owned"),
            false,
        ),
        new(
            "foreign-legacy-tag",
            "machines",
            tagged("KubernetesCluster", "other"),
            false,
        ),
        new("tags-are-a-list", "machines", on_aws(json!([])), false),
        new("no-place-for-tags", "machines", aws(json!(null)), false),
        new(
            "another-cloud",
            "machines",
            json!({"cloudProvider": "gce", "cloudProviderSpec": {}}),
            false,
        ),
        new("phase-in-tree", "in-tree", on_aws(json!({})), false),
        new("empty-selector", "nothing", on_aws(json!({})), false),
        created("another-namespace", "elsewhere", "machines", on_aws(json!({})), false),
        created(
            "protected-namespace",
            "kube-system",
            "anywhere",
            on_aws(json!({})),
            false,
        ),
        created(
            "named-but-labelled-otherwise",
            "elsewhere",
            "others",
            on_aws(json!({})),
            false,
        ),
        updated("replicas", |object| object["spec"]["replicas"] = json!(3), false),
        updated(
            "label-goes",
            |object| {
                object["spec"]["template"]["x"] = json!(1);
                object["metadata"]["labels"] = json!({});
            },
            false,
        ),
    ]
}
