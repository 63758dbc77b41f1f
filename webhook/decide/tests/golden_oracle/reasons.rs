//! Why an object is not changed: the exclusions of docs/webhook.md.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    additions,
    case::Case,
    lines::{self, API_SERVER, CLOUD, KUBELET, Line, MANAGER},
    table::{self, implied, version_of},
    undo,
};

/// Programs that start another program, and by whose arguments its own are known.
const STARTERS: [&str; 9] = [
    "go-runner",
    "kube-log-runner",
    "hyperkube",
    "tini",
    "timeout",
    "gosu",
    "env",
    "nice",
    "http-prober",
];

/// Whether no migration selects the object.
pub fn is_not_selected(case: &Case) -> bool {
    let object = case.object();
    let labels = &object["metadata"]["labels"];
    let namespace = object["metadata"]["namespace"].as_str();
    let is_node = case.kind() == "Node";
    let selects = |target: &Value| {
        let names_namespace =
            target["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == namespace.unwrap_or_default();
        let own = matches!(namespace, Some("kube-system" | "kube-node-lease" | "outrigger-system"));
        let is_kind = is_node == (target["profile"] == "Nodes");
        let mut namespace_labels = serde_json::json!(case.input["namespaceLabels"]);
        namespace_labels["kubernetes.io/metadata.name"] = serde_json::json!(namespace);
        is_kind
            && (is_node || !is_empty(&target["objectSelector"]) || !is_empty(&target["namespaceSelector"]))
            && matches(&target["objectSelector"], labels)
            && (namespace.is_none() || matches(&target["namespaceSelector"], &namespace_labels))
            && (!own || names_namespace)
    };
    let targets = case
        .migrations()
        .values()
        .flat_map(|one| one["spec"]["targets"].as_array().into_iter().flatten());
    let is_mirror = !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    is_mirror || (case.kind() == "Pod" && case.is_update()) || !targets.into_iter().any(selects)
}

fn is_empty(selector: &Value) -> bool {
    selector
        .as_object()
        .is_none_or(|fields| fields.values().all(|part| part.as_object().is_none_or(Map::is_empty)))
}

fn matches(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object();
    wanted.into_iter().flatten().all(|(key, value)| labels[key] == *value)
}

/// Why an object of a selected namespace has nothing that a phase is about.
pub fn not_ours(case: &Case) -> Option<&'static str> {
    let object = case.object();
    let text = object["spec"].to_string();
    match case.kind() {
        _ if is_not_selected(case) => Some("no target selects it"),
        "Node" => Some("on this path Nodes are of the management cluster"),
        "Cluster" if !text.contains("rkeConfig") && !text.contains("rancherKubernetesEngineConfig") => {
            Some("not of RKE")
        }
        "HelmChart" | "HelmChartConfig" if !text.contains("aws-cloud-controller-manager") => Some("another chart"),
        "MachineDeployment" | "MachineSet" if !text.contains("\"aws\"") && !text.contains("AWS") => {
            Some("another cloud")
        }
        "Machine" if !text.contains("\"providerSpec\"") => Some("another part"),
        "DaemonSet" | "Deployment" if case.has_profile("AwsResources") && lines::of(object).is_empty() => {
            Some("not the driver's controller")
        }
        _ => None,
    }
}

/// Why an update is not acted on: nothing is changed that a phase is about.
pub fn ignored_update(case: &Case) -> bool {
    let old = &case.input["oldObject"];
    let essence = |object: &Value| {
        let mut object = object.clone();
        let apply = object["metadata"]["annotations"]["outrigger.dev/apply"].clone();
        let fields = object.as_object_mut().unwrap();
        fields.remove("status");
        fields.insert("metadata".to_owned(), apply);
        for at in ["/spec", "/spec/rkeConfig", "/spec/controlPlane/deployment"] {
            let part = object.pointer_mut(at).and_then(Value::as_object_mut);
            let scaling = [
                "replicas",
                "paused",
                "strategy",
                "rolloutStrategy",
                "displayName",
                "machinePools",
            ];
            part.into_iter()
                .for_each(|part| part.retain(|key, _| !scaling.contains(&key.as_str())));
        }
        object
    };
    case.is_update() && essence(old) == essence(case.object())
}

/// Why a selected object that is reviewed stays as it is, without a warning that it is refused.
pub fn unchanged(case: &Case) -> Option<&'static str> {
    let object = case.object();
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_owned = owners.is_some_and(|owners| !owners.is_empty());
    let has_record = undo::records(object).is_ok_and(|records| !records.is_empty());
    match case.kind() {
        _ if ignored_update(case) => Some("the update changes nothing that a phase is about"),
        _ if !object["metadata"]["deletionTimestamp"].is_null() => Some("it is being deleted"),
        _ if lines::pod(object).is_some() && case.has_profile("Kubermatic") => Some("Kubermatic writes its workloads"),
        "Node" => additions::no_taint(case),
        "ConfigMap" if object["data"]["kubelet"].is_string() => Some("it is read for warnings only"),
        "HelmChartConfig" if lines::of(object).is_empty() => Some("the chart has the arguments"),
        "RKE2ConfigTemplate" | "RKE2Config" if !case.is_migrated() && !has_record => Some("kubelets change in Migrate"),
        "ClusterClass" => Some("its templates are changed, not the class"),
        "KubeadmConfig" | "RKE2Config" if is_owned => Some("its owner's template is changed"),
        "KubeadmControlPlaneTemplate" if case.is_update() => Some("it is immutable"),
        "Cluster" if case.group().starts_with("kubermatic.") => kubermatic(case),
        _ if additions::tag_place(case).is_some() => additions::no_tag(case),
        _ if case.phase() == "InTree" && !has_record => Some("it has its original form"),
        _ if stays_external(case) => Some("it is external"),
        _ if has_no_provider_by_name(case) => Some("in this release aws is only a name"),
        _ => None,
    }
}

/// An external component stays external, also without evidence.
fn stays_external(case: &Case) -> bool {
    let object = case.object();
    let found = lines::of(object);
    let (mut all, mut any) = (true, false);
    for line in found
        .values()
        .filter(|line| matches!(line.component, MANAGER | KUBELET))
    {
        any = true;
        all &= line
            .flags
            .get("cloud-provider")
            .is_some_and(|provider| provider == "external");
    }
    let waits = case.spec()["phase"] != case.phase();
    let place = lines::places(object).into_iter().next();
    let name = place.and_then(|(_, place)| implied(&undo::original(object).ok()?, &place));
    (waits && any && all) || (name.as_deref() == Some("external") && (all || !any))
}

fn has_no_provider_by_name(case: &Case) -> bool {
    let object = case.object();
    let Some((_, place)) = lines::places(object).into_iter().next() else {
        return false;
    };
    let version = version_of(case, object, &empty(MANAGER));
    let is_later = version.is_some_and(|version| version >= (29, 11)) && !table::ends_by_name(version);
    is_later && !case.is_migrated() && implied(object, &place).as_deref() == Some("aws")
}

fn empty(component: &'static str) -> Line {
    Line {
        component,
        flags: lines::Flags::new(),
        version: None,
    }
}

fn kubermatic(case: &Case) -> Option<&'static str> {
    match () {
        () if !case.is_update() => Some("Kubermatic decides on new clusters"),
        () if !case.is_migrated() => Some("only Migrate switches"),
        () if case.object()["spec"]["features"]["externalCloudProvider"] == true => Some("it is switched"),
        () => None,
    }
}

/// Why an object is refused.
pub fn refusal(case: &Case) -> Option<&'static str> {
    let object = case.object();
    if case.migrations().len() > 1 {
        return Some("several migrations select it");
    }
    let Ok(original) = undo::original(object) else {
        return Some("the undo annotation cannot be read");
    };
    let is_namespaced =
        object["metadata"]["namespace"].is_string() && case.spec().to_string().contains("namespaceSelector");
    let is_named = case.spec().to_string().contains("kubernetes.io/metadata.name");
    if is_namespaced && !is_named && case.input["namespaceLabels"].is_null() {
        return Some("the namespace's labels are not known");
    }
    if case.group().starts_with("kubermatic.") {
        return additions::kubermatic_refusal(case);
    }
    if additions::tag_place(case).is_some() {
        return additions::no_tag(case).or_else(|| broken_tags(case));
    }
    owned_by_another(object)
        .or_else(|| machines(object))
        .or_else(|| broken_list(object))
        .or_else(|| text(object))
        .or_else(|| file(case))
        .or_else(|| container(object))
        .or_else(|| provider(case, &original))
        .or_else(|| chart(object))
        .or_else(|| {
            all_lines(&original)
                .iter()
                .find_map(|(place, line)| command_line(case, &original, place, line))
        })
}

/// Also of components that only have the provisioner's provider.
fn all_lines(object: &Value) -> Vec<(String, Line)> {
    let mut found: Vec<(String, Line)> = lines::of(object).into_iter().collect();
    for (component, place) in lines::places(object) {
        let is_there = found.iter().any(|(_, line)| line.component == component);
        if !is_there && implied(object, &place).is_some() {
            found.push((place, empty(component)));
        }
    }
    found
}

/// From 1.28 on, and without a tag, its controllers have names that the built-in list does not have.
fn chart(object: &Value) -> Option<&'static str> {
    if object["kind"] != "HelmChart" {
        return None;
    }
    let spec = object["spec"].to_string();
    let own = spec.split_once("image.tag\":\"").or_else(|| spec.split_once("tag:"));
    let tag = match own {
        Some((_, tag)) => crate::case::version(tag.trim()),
        None => published(&object["spec"]),
    };
    match tag {
        _ if spec.contains("\"0.0.3\"") => Some("the chart ignores args"),
        Some((..=21, _)) => Some("the version has no leader migration"),
        None | Some((28.., _)) if !spec.contains("leader-migration-config") => {
            Some("its names are not in the built-in list")
        }
        _ => None,
    }
}

/// The version that the published chart installs; some of its releases.
fn published(spec: &Value) -> Option<crate::case::Version> {
    let text = spec.to_string();
    let is_published =
        text.contains("https://kubernetes.github.io/") || text.contains("https://github.com/kubernetes/");
    let of = |version: &str| {
        let is_named = spec["version"]
            .as_str()
            .is_some_and(|named| named.trim_start_matches('v') == version);
        is_published && (is_named || text.contains(&format!("-{version}.tgz")))
    };
    match () {
        () if of("0.0.7") => Some((23, 0)),
        () if of("0.0.8") => Some((27, 1)),
        () if of("0.0.9") => Some((33, 0)),
        () => None,
    }
}

fn broken_tags(case: &Case) -> Option<&'static str> {
    let spec = &case.object()["spec"];
    let tags = additions::tag_place(case).and_then(|place| case.object().pointer(place));
    let list = tags.and_then(Value::as_array);
    let is_broken = list
        .into_iter()
        .flatten()
        .any(|tag| tag["key"].is_null() && tag["name"].is_null() && tag["resourceType"].is_null());
    let text = spec.to_string();
    match () {
        () if is_broken => Some("a tag has no key"),
        () if text.contains("\"initProvider\"") => Some("the provider merges no lists"),
        () if case.kind() == "AutoscalingGroup" && spec["forProvider"]["tags"].is_array() => {
            Some("an older list is there")
        }
        () if text.contains("\"propagateAtLaunch\":false") => Some("the tag does not reach the instances"),
        () => None,
    }
}

fn owned_by_another(object: &Value) -> Option<&'static str> {
    let pod = object.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null);
    let text = object["metadata"].to_string() + &pod.to_string();
    match object["kind"].as_str()? {
        "KThreesControlPlane" => Some("the kind has no rules"),
        "TenantControlPlane" if text.contains("KamajiControlPlane") => Some("its KamajiControlPlane writes it"),
        "Deployment" | "Pod" | "StatefulSet" if text.contains("hypershift") => Some("HyperShift writes it"),
        "Deployment" | "Pod" | "StatefulSet" if text.contains("kubermatic") => Some("Kubermatic writes it"),
        "Deployment" if pod["cluster"].is_string() && pod["app"].is_string() => Some("Kubermatic writes it"),
        "Deployment" if object["spec"].to_string().contains("http-prober") => Some("Kubermatic writes it"),
        _ => None,
    }
}

fn machines(object: &Value) -> Option<&'static str> {
    let template = &object["spec"]["machineTemplate"];
    let kinds = [
        &template["infrastructureRef"]["kind"],
        &template["spec"]["infrastructureRef"]["kind"],
    ];
    let is_foreign = kinds
        .iter()
        .any(|kind| kind.as_str().is_some_and(|kind| !kind.starts_with("AWS")));
    is_foreign.then_some("the machines are of another cloud")
}

fn broken_list(object: &Value) -> Option<&'static str> {
    if object["spec"]
        .to_string()
        .contains(r#""extraArgsArray":{"cloud-provider""#)
    {
        return Some("another list replaces the arguments");
    }
    for (_, place) in lines::places(object) {
        match object.pointer(&place) {
            Some(Value::Array(items)) if items.len() >= 100 => return Some("the API takes 100 items"),
            Some(Value::String(_)) if place.contains("extraArgs") => return Some("the arguments are no list"),
            Some(Value::Number(_) | Value::Bool(_)) => return Some("the arguments are no list"),
            Some(Value::Object(_)) if place.ends_with("-arg") => return Some("the arguments are no list"),
            Some(Value::Array(items)) if items.iter().any(Value::is_array) => return Some("the arguments are no list"),
            _ => {}
        }
    }
    None
}

/// YAML that cannot be edited line by line.
fn text(object: &Value) -> Option<&'static str> {
    if !object["spec"]["set"].is_null() {
        return Some("values in two places");
    }
    let text = lines::TEXTS.iter().find_map(|at| object.pointer(at)?.as_str())?;
    let is_yaml = serde_saphyr::from_multiple::<Value>(text);
    let kind = text.lines().find_map(|line| line.strip_prefix("kind: "));
    let api = text.lines().find_map(|line| line.strip_prefix("apiVersion: "));
    let is_config = object["kind"] == "ConfigMap";
    match () {
        () if is_yaml.is_err() => Some("the text is no YAML"),
        () if text.contains('&') || text.contains(": *") => Some("the text has anchors"),
        () if text.contains(">-") || text.contains(": >") => Some("a folded text"),
        () if is_config && kind.is_some_and(|kind| kind != "ClusterConfiguration") => Some("another kind"),
        () if is_config
            && api.is_some_and(|api| {
                !matches!(
                    api,
                    "kubeadm.k8s.io/v1beta2" | "kubeadm.k8s.io/v1beta3" | "kubeadm.k8s.io/v1beta4"
                )
            }) =>
        {
            Some("another version of kubeadm's API")
        }
        () if !object["spec"]["values"].is_null() => Some("values in two places"),
        () => None,
    }
}

/// A custom leader migration configuration needs a file.
fn file(case: &Case) -> Option<&'static str> {
    let wanted = &case.spec()["leaderMigration"];
    if !wanted.is_object() {
        return None;
    }
    if matches!(
        wanted["leaderName"].as_str(),
        Some("kube-controller-manager" | "cloud-controller-manager")
    ) {
        return Some("the lease is a manager's main lease");
    }
    let Some(pod) = lines::pod(case.object()) else {
        return Some("the object cannot contain a file");
    };
    let volumes = pod["volumes"].as_array();
    let is_taken = |volume: &Value| volume["name"] == "outrigger-leader-migration" && volume["downwardAPI"].is_null();
    if volumes.into_iter().flatten().any(is_taken) {
        return Some("another volume of that name");
    }
    let mounts = pod["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|one| one["volumeMounts"].as_array().into_iter().flatten());
    let is_near = |mount: &Value| {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        mount["name"] != "outrigger-leader-migration" && (path.starts_with("/etc/outrigger") || path == "/etc")
    };
    mounts.into_iter().any(is_near).then_some("another mount at that path")
}

fn container(object: &Value) -> Option<&'static str> {
    let is_component = |text: &str| [MANAGER, API_SERVER, KUBELET].contains(&text);
    for container in lines::pod(object)?["containers"].as_array()? {
        let words: Vec<&str> = ["command", "args"]
            .iter()
            .flat_map(|list| container[list].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        if words.iter().any(|word| word.starts_with("--openshift-config")) {
            return Some("its flags are in a file");
        }

        let image = container["image"].as_str().unwrap_or_default();
        let by_image = [MANAGER, API_SERVER].iter().any(|one| image.contains(one));
        let by_name = is_component(container["name"].as_str().unwrap_or_default());
        let program = words.iter().find(|word| !word.starts_with('-'));
        let program = program.and_then(|word| word.rsplit('/').next());
        let is_known = program.is_some_and(|program| is_component(program) || STARTERS.contains(&program));
        if (by_name || by_image) && program.is_some() && !is_known {
            return Some("it is started by a script or an unknown program");
        }
        let marks = [by_name, by_image, program.is_some_and(is_component)];
        if marks.iter().filter(|mark| **mark).count() == 1 {
            return Some("only one mark of the component");
        }
    }
    None
}

/// The provisioner's field for all components.
fn provider(case: &Case, original: &Value) -> Option<&'static str> {
    let places = lines::places(original);
    let (_, place) = places.first()?;
    let is_rancher = place.contains("rkeConfig")
        || place.contains("rancherKubernetesEngineConfig")
        || case.kind().starts_with("RKE2ControlPlane");
    if !is_rancher {
        return None;
    }
    let found = lines::of(original);
    let explicit = found.values().any(|line| line.flags.contains_key("cloud-provider"));
    match implied(original, place).as_deref() {
        None if !explicit && case.phase() != "InTree" => Some("no provider is named"),
        Some("aws" | "external") | None => None,
        Some(_) => Some("the provider is of another cloud"),
    }
}

fn command_line(case: &Case, original: &Value, place: &str, line: &Line) -> Option<&'static str> {
    let flag = |name: &str| line.flags.get(name).map(String::as_str);
    let explicit = flag("cloud-provider");
    let provider = explicit.map(str::to_owned).or_else(|| implied(original, place));
    let provider = provider.as_deref().unwrap_or_default();
    let version = version_of(case, original, line);
    let minor = version.map(|(minor, _)| minor);
    let is_back = case.object() != original && !case.is_migrated();
    let below = |limit: u64| minor.is_some_and(|minor| minor < limit);
    let from = |limit: u64| minor.is_some_and(|minor| minor >= limit);
    if line.component == CLOUD {
        let misses = from(28) && case.phase() == "Prepare" && flag("leader-migration-config").is_none();
        return (misses || below(20)).then_some("its leader migration does not guard all controllers");
    }
    match line.component {
        _ if !matches!(provider, "" | "aws" | "external") => Some("the provider is of another cloud"),
        _ if flag("provider-id").is_some_and(|id| !id.starts_with("aws:")) => Some("a provider ID of another cloud"),
        _ if flag("external-cloud-volume-plugin").is_some_and(|plugin| plugin != "aws") => {
            Some("volumes of another cloud")
        }
        MANAGER | API_SERVER if provider == "aws" && minor.is_none() => Some("the version is not known"),
        MANAGER | API_SERVER if below(20) => Some("the version is too old"),
        MANAGER if provider == "aws" && case.phase() == "Prepare" && !case.has_downtime() && below(22) => {
            Some("the version has no leader migration by flags alone")
        }
        MANAGER | KUBELET if provider == "aws" && from(27) && (case.phase() == "Prepare" || is_back) => {
            Some("the version has no in-tree provider")
        }
        API_SERVER if is_back && from(29) && (explicit == Some("aws") || table::ends_by_name(version)) => {
            Some("it would not start")
        }
        KUBELET
            if provider == "aws"
                && case.is_migrated()
                && minor.is_some_and(|minor| minor <= 24 && table::mounts_in_tree(&line.flags, minor)) =>
        {
            Some("an external kubelet mounts no in-tree volumes")
        }
        _ => None,
    }
}

/// Kinds whose tags somebody else writes, or that take none: reviewed for warnings only.
pub fn is_only_read(case: &Case) -> bool {
    let kinds: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("", &["Service"][..]),
        ("ec2.services.k8s.aws", &["VPC"]),
        ("hypershift.openshift.io", &["HostedCluster"]),
        ("infrastructure.cluster.x-k8s.io", &["AWSCluster", "AWSMachineTemplate"]),
        ("karpenter.k8s.aws", &["EC2NodeClass"]),
        ("kops.k8s.io", &["Cluster"]),
        ("machine.sapcloud.io", &["MachineClass"]),
        ("rke-machine-config.cattle.io", &["Amazonec2Config"]),
        ("storage.k8s.io", &["StorageClass", "VolumeAttributesClass"]),
    ]);
    kinds
        .get(case.group())
        .is_some_and(|kinds| kinds.contains(&case.kind()))
}
