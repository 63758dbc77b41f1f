//! The objects of a hosted control plane, in the shapes that are in use.

use serde_json::{Value, json};

/// The label by which a migration of the bench finds its objects.
pub const CLUSTER_LABEL: &str = "outrigger.dev/cluster";
/// The annotation that asks for the phase to be applied now.
pub const APPLY: &str = "outrigger.dev/apply";
/// The annotation, on the Pod template, that holds the way back.
pub const UNDO: &str = "outrigger.dev/undo";

/// The argument of http-prober after which the command stands as JSON.
pub const WRAPPED: &str = "-command";

/// A Deployment or Pod with one component.
#[derive(Clone)]
pub struct Workload {
    pub namespace: String,
    pub name: String,
    pub app: String,
    pub image: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
}

fn list(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

impl Workload {
    /// A kube-controller-manager 1.26 with the in-tree provider.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            app: "kube-controller-manager".to_owned(),
            image: "registry.k8s.io/kube-controller-manager:v1.26.13".to_owned(),
            command: list(&[
                "kube-controller-manager",
                "--cloud-provider=aws",
                "--cloud-config=/etc/cloud.conf",
                "--leader-elect=true",
            ]),
            args: Vec::new(),
        }
    }

    /// A kube-apiserver 1.26 that still names the in-tree provider.
    pub fn api_server(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: "kube-apiserver".to_owned(),
            app: "kube-apiserver".to_owned(),
            image: "registry.k8s.io/kube-apiserver:v1.26.13".to_owned(),
            command: list(&[
                "kube-apiserver",
                "--cloud-provider=aws",
                "--cloud-config=/etc/cloud.conf",
                "--authorization-mode=Node,RBAC",
            ]),
            args: Vec::new(),
        }
    }

    /// With this command line.
    pub fn running(mut self, command: Vec<String>, args: Vec<String>) -> Self {
        (self.command, self.args) = (command, args);
        self
    }

    fn labels(&self) -> Value {
        json!({"app": self.app, CLUSTER_LABEL: self.namespace})
    }

    fn pod_spec(&self) -> Value {
        let mut container = json!({"name": self.app, "image": self.image});
        for (key, values) in [("command", &self.command), ("args", &self.args)] {
            if !values.is_empty() {
                container[key] = json!(values);
            }
        }
        let sidecar =
            json!({"name": "tunnel", "image": "registry.example.com/tunnel:v2", "args": ["--cloud-provider=aws"]});
        json!({"automountServiceAccountToken": false, "containers": [sidecar, container]})
    }

    /// As a Deployment.
    pub fn deployment(&self) -> Value {
        let template = json!({
            "metadata": {"labels": self.labels(), "annotations": {"prometheus.io/scrape": "true"}},
            "spec": self.pod_spec(),
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": self.labels()},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": self.app}}, "template": template},
        })
    }

    pub fn pod(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": self.labels()},
            "spec": self.pod_spec(),
        })
    }

    /// The component's command line.
    pub fn line(&self) -> Vec<String> {
        line(&self.pod())
    }

    /// The path of the Deployment.
    pub fn path(&self) -> String {
        format!("{}/{}", deployments(&self.namespace), self.name)
    }
}

pub fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

pub fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// The Pod spec in a Deployment or Pod.
fn pod_spec(object: &Value) -> &Value {
    object.pointer("/spec/template/spec").unwrap_or(&object["spec"])
}

/// Command and arguments of the component, in one list. Behind a program that takes the command as JSON in an argument,
/// it is what that JSON says.
pub fn line(object: &Value) -> Vec<String> {
    let words = words(object);
    let wrapped = words.iter().position(|word| word == WRAPPED);
    match wrapped.and_then(|at| serde_json::from_str::<Value>(words.get(at + 1)?).ok()) {
        Some(inner) => texts([&json!([inner["command"]]), &inner["args"]]),
        None => words,
    }
}

fn texts<'a>(lists: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let values = lists.into_iter().filter_map(Value::as_array).flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn words(object: &Value) -> Vec<String> {
    let Some(container) = pod_spec(object)["containers"].as_array().and_then(|all| all.last()) else {
        return Vec::new();
    };
    texts(["command", "args"].map(|key| &container[key]))
}

/// The value of a flag in a line, in either spelling; empty for one that stands alone, none for one that is not there.
pub fn flag<'a>(line: &'a [String], name: &str) -> Option<&'a str> {
    let long = format!("--{name}");
    line.iter().enumerate().find_map(|(index, text)| {
        if let Some(value) = text.strip_prefix(&format!("{long}=")) {
            return Some(value);
        }
        let next = line.get(index + 1).map_or("", String::as_str);
        (*text == long).then(|| if next.starts_with("--") { "" } else { next })
    })
}

/// Whether a boolean flag is on: it stands alone, or with its value.
pub fn is_on(line: &[String], name: &str) -> bool {
    matches!(flag(line, name), Some("" | "true"))
}

/// Whether the way back is written down on a template or Pod.
pub fn has_undo(object: &Value) -> bool {
    let root = object.pointer("/spec/template").unwrap_or(object);
    root["metadata"]["annotations"].get(UNDO).is_some()
}
