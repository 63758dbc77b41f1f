//! Additions that no phase removes again: the cluster's tag, the taint of a Node, the switch of Kubermatic.

use serde_json::{Value, json};

use crate::{
    case::{Case, version},
    table,
};

const TAG: &str = "kubernetes.io/cluster/";
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The object without the addition; an error if there is another addition than the case calls for.
pub fn without(case: &Case) -> Result<Value, String> {
    let (object, result) = (case.object(), case.result());
    match case.kind() {
        "Node" => {
            let mut wanted = object.clone();
            let taint = json!({"key": TAINT, "value": "true", "effect": "NoSchedule"});
            if object["spec"]["taints"].is_null() {
                wanted["spec"]["taints"] = json!([]);
            }
            wanted["spec"]["taints"].as_array_mut().unwrap().push(taint);
            (wants_taint(case) && *result == wanted)
                .then(|| object.clone())
                .ok_or("another taint".to_owned())
        }
        "Cluster" if case.group().starts_with("kubermatic.") => {
            let old = &case.input["oldObject"];
            let was_on = old["spec"]["features"]["externalCloudProvider"] == true;
            let mut wanted = object.clone();
            let name = case.migrations().keys().next().unwrap();
            let phase = format!("{name}/{}", case.spec()["phase"].as_str().unwrap());
            wanted["metadata"]["annotations"]["outrigger.dev/external-cloud-provider"] = json!(phase);
            wanted["spec"]["features"]["externalCloudProvider"] = json!(true);
            let may = case.has_downtime() && case.is_migrated() && kubermatic_refusal(case).is_none();
            ((may || was_on) && *result == wanted)
                .then(|| object.clone())
                .ok_or("another switch".to_owned())
        }
        _ if tag_place(case).is_some() => check_tag(case),
        _ => Ok(result.clone()),
    }
}

/// Why a Node gets no taint.
pub fn no_taint(case: &Case) -> Option<&'static str> {
    let (node, spec) = (case.object(), case.spec());
    let text = node["metadata"].to_string();
    let foreign = ["virtual-kubelet", "kwok.x-k8s.io/node", "\"hybrid\"", "fargate"];
    let taints = node["spec"]["taints"].as_array();
    let has_taint = taints.into_iter().flatten().any(|taint| taint["key"] == TAINT);
    let is_ready = spec["nodeTaint"] == "Always" || case.input["managerReady"] == true;
    match () {
        // The evidence is about managers, so a Node does not wait for it.
        () if matches!(spec["phase"].as_str(), Some("InTree" | "Prepare")) => {
            Some("Nodes are external from Migrate on")
        }
        () if spec["nodeTaint"] == "Never" => Some("nodeTaint is Never"),
        () if !is_ready => Some("no manager would remove the taint"),
        () if !node["spec"]["providerID"].is_null() => Some("the Node has a provider ID"),
        () if has_taint => Some("the Node has the taint"),
        () if foreign.iter().any(|mark| text.contains(mark)) => Some("the Node is no instance"),
        () => None,
    }
}

fn wants_taint(case: &Case) -> bool {
    no_taint(case).is_none()
}

/// Why a cluster of Kubermatic is not switched.
pub fn kubermatic_refusal(case: &Case) -> Option<&'static str> {
    let spec = &case.object()["spec"];
    let own = spec["version"].as_str().and_then(version);
    let version = own.or(case.spec()["kubernetesVersion"].as_str().and_then(version));
    let operator = case.object()["status"]["conditions"]["ClusterInitialized"]["kubermaticVersion"].as_str();
    let is_old = operator.is_some_and(|text| {
        let minor = text
            .trim_start_matches("v2.")
            .split('.')
            .next()
            .and_then(|minor| minor.parse::<u64>().ok());
        minor.is_some_and(|minor| minor < 22)
    });
    match () {
        () if spec["cloud"]["aws"].is_null() => Some("the cluster is of another cloud"),
        () if version.is_none() => Some("the version is not known"),
        () if version.is_some_and(|(minor, _)| minor < 24) => Some("Kubermatic is external on AWS from 1.24 on"),
        () if is_old => Some("Kubermatic migrates on AWS from 2.22 on"),
        () if !case.has_downtime() => Some("Kubermatic has no leader migration"),
        () => None,
    }
}

/// The place of the tags that the webhook adds to (docs/webhook.md: kinds that nobody else tags).
pub fn tag_place(case: &Case) -> Option<&'static str> {
    let crossplane = [
        "ec2.aws.crossplane.io",
        "ec2.aws.upbound.io",
        "autoscaling.aws.upbound.io",
    ];
    match (case.group(), case.kind()) {
        ("cluster.k8s.io", "Machine") => Some("/spec/providerSpec/value/cloudProviderSpec/tags"),
        ("cluster.k8s.io", _) => Some("/spec/template/spec/providerSpec/value/cloudProviderSpec/tags"),
        ("machine.openshift.io", "Machine") => Some("/spec/providerSpec/value/tags"),
        ("machine.openshift.io", "ControlPlaneMachineSet") => {
            Some("/spec/template/machines_v1beta1_machine_openshift_io/spec/providerSpec/value/tags")
        }
        ("machine.openshift.io", _) => Some("/spec/template/spec/providerSpec/value/tags"),
        ("ec2.services.k8s.aws", "LaunchTemplate") => Some("/spec/data/tagSpecifications"),
        ("ec2.services.k8s.aws", "VPC") => None,
        ("ec2.services.k8s.aws", _) => Some("/spec/tags"),
        (group, "LaunchTemplate") if crossplane.contains(&group) => Some("/spec/forProvider/tagSpecifications"),
        (_, "AutoscalingGroup") => Some("/spec/forProvider/tag"),
        (group, _) if crossplane.contains(&group) => Some("/spec/forProvider/tags"),
        _ => None,
    }
}

/// Exactly one tag of the migration's cluster is added, in its place, and nothing else is changed.
fn check_tag(case: &Case) -> Result<Value, String> {
    let (object, result) = (case.object(), case.result());
    let key = format!("{TAG}{}", table::id(case));
    let place = tag_place(case).unwrap();
    let at = |object: &Value| object.pointer(place).map_or_else(String::new, Value::to_string);
    if at(object).contains(&key) || at(result).matches(&key).count() != 1 {
        return Err(format!("{key} is not added once at {place}"));
    }

    let value = case.spec()["ownership"].as_str().unwrap_or("owned");
    if value_of(result.pointer(place).unwrap(), &key).as_deref() != Some(value) {
        return Err(format!("{key} has another value than {value:?}"));
    }
    let (mut before, mut after) = (object.clone(), result.clone());
    strip(&mut before, &key);
    strip(&mut after, &key);
    if before != after {
        return Err(format!("more than the tag is changed: {after}, not {before}"));
    }
    if case.phase() == "InTree" || no_tag(case).is_some() {
        return Err("no tag was called for".to_owned());
    }
    Ok(object.clone())
}

fn value_of(tags: &Value, key: &str) -> Option<String> {
    match tags {
        Value::Object(fields) if fields.contains_key(key) => fields[key].as_str().map(str::to_owned),
        Value::Object(fields) if is_tag(tags, key) => fields["value"].as_str().map(str::to_owned),
        Value::Object(fields) => fields.values().find_map(|value| value_of(value, key)),
        Value::Array(items) => items.iter().find_map(|item| value_of(item, key)),
        _ => None,
    }
}

/// An autoscaling group's tag must reach the instances.
fn is_tag(item: &Value, key: &str) -> bool {
    (item["key"] == key || item["name"] == key) && item["propagateAtLaunch"] != false
}

fn strip(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(key);
            fields.values_mut().for_each(|value| strip(value, key));
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => {
            items.retain(|item| !is_tag(item, key));
            items.iter_mut().for_each(|item| strip(item, key));
            items.retain(|item| !(item["resourceType"] == "instance" && item["tags"].is_null()));
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Why an object of a kind that gets the tag gets none.
pub fn no_tag(case: &Case) -> Option<&'static str> {
    let (object, id) = (case.object(), table::id(case));
    let spec = object["spec"].to_string();
    let tags = tag_place(case)
        .and_then(|place| object.pointer(place))
        .unwrap_or(&Value::Null);
    let owners = object["metadata"]["ownerReferences"].as_array();
    let has_apply = |object: &Value| !object["metadata"]["annotations"]["outrigger.dev/apply"].is_null();
    let keys: Vec<&str> = spec.split('"').collect();
    let names_another = keys
        .iter()
        .any(|text| text.strip_prefix(TAG).is_some_and(|other| other != id));
    let older = keys
        .windows(3)
        .find(|window| window[0] == "KubernetesCluster")
        .map(|window| window[2]);
    let place = tag_place(case).unwrap_or_default();
    let is_bare = place.contains("/providerSpec/value") && !spec.contains("\"providerSpec\"");
    let is_of_set = owners.into_iter().flatten().any(|owner| {
        matches!(
            owner["kind"].as_str(),
            Some("MachineDeployment" | "ControlPlaneMachineSet")
        )
    });
    let was_there = case.input["oldObject"]["spec"]
        .to_string()
        .contains(&format!("{TAG}{id}"));
    let is_single = matches!(case.kind(), "Machine" | "LaunchTemplate" | "Instance");
    match () {
        () if case.phase() == "InTree" => Some("InTree adds nothing"),
        () if names_another => Some("the object has another cluster's key"),
        () if older.is_some_and(|other| other != id) => Some("the object is of another cluster"),
        () if keys.iter().any(|text| *text == format!("{TAG}{id}")) => Some("the tag is there"),
        () if is_bare => Some("the object has no fields of AWS"),
        () if is_of_set => Some("the tag belongs into the owner's template"),
        () if case.kind() == "SecurityGroup" && !has_apply(object) => Some("only on request"),
        () if case.is_update() && is_single && !was_there => Some("the tag is added at the creation"),
        () if tags.as_object().is_some_and(|tags| tags.len() >= 50) => Some("AWS takes 50 tags"),
        () if tags.is_string() => Some("the tags are no map"),
        () => None,
    }
}
