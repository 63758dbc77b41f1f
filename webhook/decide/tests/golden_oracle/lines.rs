//! The command lines in an object: of which component, and its flags.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::case::{Version, version};

pub const MANAGER: &str = "kube-controller-manager";
pub const API_SERVER: &str = "kube-apiserver";
pub const KUBELET: &str = "kubelet";
pub const CLOUD: &str = "aws-cloud-controller-manager";
pub const EBS: &str = "ebs-plugin";

pub type Flags = BTreeMap<String, String>;

#[derive(Debug, Clone)]
pub struct Line {
    pub component: &'static str,
    pub flags: Flags,
    /// Of the container's image.
    pub version: Option<Version>,
}

/// By the place in the object.
pub fn of(object: &Value) -> BTreeMap<String, Line> {
    let kind = object["kind"].as_str().unwrap();
    let mut found = BTreeMap::new();
    if let Some(pod) = pod(object) {
        let containers = pod["containers"].as_array().into_iter().flatten().enumerate();
        found.extend(containers.filter_map(|(number, one)| Some((format!("container {number}"), container(one)?))));
    }
    for (component, place) in places(object) {
        let list = object.pointer(&place);
        if list.is_some() || is_required(kind, &place) {
            found.insert(place, line(component, list.unwrap_or(&Value::Null)));
        }
    }
    found.extend(in_texts(object));
    found
}

pub fn pod(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => object.get("spec"),
        "Deployment" | "StatefulSet" | "DaemonSet" => object.pointer("/spec/template/spec"),
        _ => None,
    }
}

/// kubeadm's control planes need both, workers the second, whether the object has them or not.
fn is_required(kind: &str, place: &str) -> bool {
    match kind {
        "KubeadmControlPlane" | "KubeadmControlPlaneTemplate" => place.contains("kubeletExtraArgs"),
        "KubeadmConfigTemplate" => place.contains("joinConfiguration"),
        _ => false,
    }
}

fn container(container: &Value) -> Option<Line> {
    let words: Vec<&str> = ["command", "args"]
        .iter()
        .flat_map(|list| container[list].as_array().into_iter().flatten())
        .map(|word| word.as_str().unwrap())
        .collect();
    let image = container["image"].as_str().unwrap_or_default();
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let components = [MANAGER, API_SERVER, KUBELET, CLOUD];
    let programs = words.iter().take_while(|word| !word.starts_with('-'));
    let component = programs
        .filter_map(|word| components.into_iter().find(|one| base(word) == *one))
        .next()
        .or_else(|| components.into_iter().find(|one| container["name"] == *one))
        .or_else(|| image.contains("cloud-controller-manager").then_some(CLOUD))
        .or_else(|| (image.contains("ebs-csi") && words.first() != Some(&"node")).then_some(EBS))?;
    let start = words
        .iter()
        .position(|word| base(word) == component)
        .map_or(0, |at| at + 1);
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let mut line = from_words(component, &words[start..]);
    line.version = version(tag);
    Some(line)
}

fn line(component: &'static str, list: &Value) -> Line {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match list {
        Value::Object(fields) => Line {
            component,
            flags: fields.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            version: None,
        },
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            let flag = |item: &Value| format!("{}={}", text(&item["name"]), text(&item["value"]));
            let words: Vec<String> = items.iter().map(flag).collect();
            from_words(component, &words.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Value::Array(words) => {
            let words: Vec<String> = words.iter().map(text).collect();
            from_words(component, &words.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Value::String(word) => from_words(component, &[word]),
        _ => from_words(component, &[]),
    }
}

fn from_words(component: &'static str, words: &[&str]) -> Line {
    let mut flags = Flags::new();
    let mut all = words.iter().peekable();
    while let Some(word) = all.next() {
        let name = word.trim_start_matches('-');
        let (name, value) = if let Some((name, value)) = name.split_once('=') {
            (name, value)
        } else {
            let value = all.next_if(|next| word.starts_with('-') && !next.starts_with('-'));
            (name, value.map_or("true", |value| *value))
        };
        flags.insert(name.replace('_', "-"), value.to_owned());
    }
    Line {
        component,
        flags,
        version: None,
    }
}

/// The argument lists of the provisioners' kinds.
pub fn places(object: &Value) -> Vec<(&'static str, String)> {
    let at = |home: &str, all: &[(&'static str, &str)]| {
        let all = all
            .iter()
            .map(|(component, place)| (*component, format!("{home}/{place}")));
        all.collect::<Vec<_>>()
    };
    let kubeadm = [
        (MANAGER, "clusterConfiguration/controllerManager/extraArgs"),
        (API_SERVER, "clusterConfiguration/apiServer/extraArgs"),
        (KUBELET, "initConfiguration/nodeRegistration/kubeletExtraArgs"),
        (KUBELET, "joinConfiguration/nodeRegistration/kubeletExtraArgs"),
    ];
    let rke2 = [
        (MANAGER, "serverConfig/kubeControllerManager/extraArgs"),
        (API_SERVER, "serverConfig/kubeAPIServer/extraArgs"),
        (KUBELET, "agentConfig/kubelet/extraArgs"),
    ];
    let rke1 = [
        (MANAGER, "kubeController/extraArgs"),
        (API_SERVER, "kubeApi/extraArgs"),
        (KUBELET, "kubelet/extraArgs"),
    ];
    let kamaji = [(MANAGER, "controllerManager"), (API_SERVER, "apiServer")];
    let capi_kamaji = [
        (MANAGER, "controllerManager/extraArgs"),
        (API_SERVER, "apiServer/extraArgs"),
    ];
    let rancher = [
        (MANAGER, "kube-controller-manager-arg"),
        (API_SERVER, "kube-apiserver-arg"),
        (KUBELET, "kubelet-arg"),
    ];
    match object["kind"].as_str().unwrap() {
        "KubeadmControlPlane" => at("/spec/kubeadmConfigSpec", &kubeadm),
        "KubeadmControlPlaneTemplate" => at("/spec/template/spec/kubeadmConfigSpec", &kubeadm),
        "KubeadmConfig" => at("/spec", &kubeadm),
        "KubeadmConfigTemplate" => at("/spec/template/spec", &kubeadm),
        "RKE2ControlPlane" | "RKE2Config" => at("/spec", &rke2),
        "RKE2ControlPlaneTemplate" | "RKE2ConfigTemplate" => at("/spec/template/spec", &rke2),
        "TenantControlPlane" => at("/spec/controlPlane/deployment/extraArgs", &kamaji),
        "KamajiControlPlane" => at("/spec", &capi_kamaji),
        "Cluster" if object["spec"]["rkeConfig"].is_object() => {
            let selectors = object["spec"]["rkeConfig"]["machineSelectorConfig"].as_array();
            let mut all = at("/spec/rkeConfig/machineGlobalConfig", &rancher);
            for number in 0..selectors.map_or(0, Vec::len) {
                all.extend(at(
                    &format!("/spec/rkeConfig/machineSelectorConfig/{number}/config"),
                    &rancher,
                ));
            }
            all
        }
        "Cluster" => at("/spec/rancherKubernetesEngineConfig/services", &rke1),
        _ => Vec::new(),
    }
}

/// Fields that are YAML in a text: kubeadm's configuration, the values of the chart of aws-cloud-controller-manager.
pub const TEXTS: [&str; 3] = [
    "/data/ClusterConfiguration",
    "/spec/valuesContent",
    "/spec/rkeConfig/additionalManifest",
];

fn in_texts(object: &Value) -> BTreeMap<String, Line> {
    let mut found = BTreeMap::new();
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let parse = |text: &str| serde_saphyr::from_multiple::<Value>(text).unwrap_or_default();
    for config in parse(text(TEXTS[0])) {
        for (component, key) in [(MANAGER, "controllerManager"), (API_SERVER, "apiServer")] {
            let list = config.get(key).and_then(|part| part.get("extraArgs"));
            found.extend(list.map(|list| (key.to_owned(), line(component, list))));
        }
    }
    let mut chart = |name: String, values: &Value| {
        let list = values.get("args");
        found.extend(list.map(|list| (name, line(CLOUD, list))));
    };
    for values in parse(text(TEXTS[1])) {
        chart("valuesContent".to_owned(), &values);
    }
    if object["kind"] == "HelmChart" {
        chart("values".to_owned(), &object["spec"]["values"]);
    }
    // A document that is no YAML hides no other one.
    let manifests: Vec<Value> = text(TEXTS[2]).split("\n---\n").flat_map(parse).collect();
    for (number, manifest) in manifests.iter().enumerate() {
        if manifest["spec"]["chart"] != "aws-cloud-controller-manager" {
            continue;
        }
        chart(format!("manifest {number} values"), &manifest["spec"]["values"]);
        for values in parse(manifest["spec"]["valuesContent"].as_str().unwrap_or_default()) {
            chart(format!("manifest {number} valuesContent"), &values);
        }
    }
    found
}
