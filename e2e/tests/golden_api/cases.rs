//! The cases as their files have them, completed to what an API server takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use outrigger_decide::{Kind, kinds};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::UNDO;
use crate::required;

/// A case of `webhook/decide/tests/golden`.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub input: InputFile,
    pub expected: Expected,
    pub kind: &'static Kind,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputFile {
    pub operation: String,
    pub path: Option<String>,
    pub manager_ready: Option<bool>,
    pub namespace_labels: Option<BTreeMap<String, String>>,
    pub migrations: BTreeMap<String, CaseMigration>,
    pub object: Value,
    pub old_object: Option<Value>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseMigration {
    pub prepared: bool,
    pub spec: Value,
}

#[derive(Clone, Deserialize)]
pub struct Expected {
    /// As it is after the patch; none when nothing changes.
    pub object: Option<Value>,
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Case {
    pub fn is_update(&self) -> bool {
        self.input.operation == "UPDATE"
    }

    /// Whether an owner would write it again as it is: nobody does so with Pods and Nodes, with what a controller has made,
    /// or with a manifest in which the webhook's record of another phase stands.
    pub fn is_written_twice(&self) -> bool {
        let object = &self.input.object;
        let has_controller = object["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|all| all.iter().any(|owner| owner["controller"] == true));
        self.kind.on_update && !has_controller && !object.to_string().contains(UNDO)
    }

    /// kubectl's own comparison drops what is null.
    pub fn has_null(&self) -> bool {
        has_null(&self.input.object)
    }

    /// The part of a case that is about the whole cluster. Cases with the same part run together.
    fn surroundings(&self) -> String {
        let migrations: Value = self
            .input
            .migrations
            .iter()
            .map(|(name, migration)| (name.clone(), json!([migration.prepared, migration.spec])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        json!([migrations, self.input.path, self.input.manager_ready]).to_string()
    }

    /// The namespace's name and its labels.
    pub fn namespace(&self) -> Option<(&str, BTreeMap<String, String>)> {
        let name = self.input.object["metadata"]["namespace"].as_str()?;
        Some((name, self.input.namespace_labels.clone().unwrap_or_default()))
    }

    /// Why neither the API nor this test can show the case.
    pub fn why_not(&self) -> Option<&'static str> {
        let brings_its_archive = self.kind.kind == "HelmChart" && self.input.object["spec"]["chart"].is_null();
        if brings_its_archive || matches!(self.kind.kind, "ConfigMap" | "HelmChartConfig") {
            return Some("the rules know it by its name, and here every object has a name of its own");
        }
        if self.namespace().is_some() && self.input.namespace_labels.is_none() {
            return Some("an API server always knows the labels of a namespace");
        }
        if !self.input.object["metadata"]["deletionTimestamp"].is_null() {
            return Some("only an API server sets metadata.deletionTimestamp");
        }
        let own_name = |(name, labels): (&str, BTreeMap<String, String>)| {
            labels
                .get("kubernetes.io/metadata.name")
                .is_none_or(|label| label == name)
        };
        if !self.namespace().is_none_or(own_name) {
            return Some("its namespace has the name label of another, which no API server lets stand");
        }
        None
    }

    /// The object that is written, and the one that is stored before that: under another name, completed.
    pub fn written(&self, name: &str) -> Value {
        complete(&self.input.object, self.kind, name)
    }

    pub fn before(&self, name: &str) -> Option<Value> {
        let old = self.input.old_object.as_ref().filter(|_| self.is_update())?;
        Some(complete(old, self.kind, name))
    }

    /// The object that must be stored, without the API server's defaults.
    pub fn wanted(&self, name: &str) -> Value {
        complete(
            self.expected.object.as_ref().unwrap_or(&self.input.object),
            self.kind,
            name,
        )
    }
}

pub fn read() -> Result<Vec<Case>> {
    let root = PathBuf::from("../webhook/decide/tests/golden");
    let mut cases = Vec::new();
    for kind in folders(&root)? {
        for folder in folders(&kind)? {
            let name = folder.strip_prefix(&root)?.display().to_string();
            cases.push(read_one(&folder, name.clone()).with_context(|| name)?);
        }
    }
    ensure!(!cases.is_empty(), "no cases in {}", root.display());
    Ok(cases)
}

fn read_one(folder: &Path, name: String) -> Result<Case> {
    let input: InputFile = serde_saphyr::from_str(&std::fs::read_to_string(folder.join("input.yaml"))?)?;
    let expected = serde_saphyr::from_str(&std::fs::read_to_string(folder.join("expected.yaml"))?)?;
    let api_version = input.object["apiVersion"].as_str().unwrap_or_default();
    let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = kinds()
        .find(|kind| kind.group == group && input.object["kind"] == kind.kind)
        .with_context(|| format!("no rules for {api_version} {}", input.object["kind"]))?;
    Ok(Case {
        name,
        input,
        expected,
        kind,
    })
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(path)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    found.retain(|path| path.is_dir());
    found.sort();
    Ok(found)
}

/// Cases with the same migrations.
pub fn grouped(cases: &[Case]) -> Vec<Vec<Case>> {
    let mut groups: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases {
        groups.entry(case.surroundings()).or_default().push(case.clone());
    }
    groups.into_values().collect()
}

/// Adds fields that an API server requires and the case does not have.
fn complete(object: &Value, kind: &Kind, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    required::complete(&mut object);
    match (kind.group, kind.kind) {
        ("apps", _) => complete_workload(&mut object, kind.kind),
        ("", "Pod") => complete_pod(&mut object),
        _ => {}
    }
    object
}

fn complete_workload(object: &mut Value, kind: &str) {
    let spec = &mut object["spec"];
    let labels = &mut spec["template"]["metadata"]["labels"];
    if labels.is_null() {
        *labels = json!({"outrigger.dev/test": "yes"});
    }
    let labels = labels.clone();
    if spec["selector"].is_null() {
        spec["selector"] = json!({"matchLabels": labels});
    }
    if kind == "StatefulSet" && spec["serviceName"].is_null() {
        spec["serviceName"] = json!("none");
    }
    complete_containers(&mut spec["template"]["spec"]);
}

fn complete_pod(object: &mut Value) {
    let is_mirror = !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    let spec = &mut object["spec"];
    // A token's volume has another name each time; a mirror Pod has a node, and may not have one.
    if is_mirror {
        spec["nodeName"] = json!("n1");
    } else {
        spec["automountServiceAccountToken"] = json!(false);
    }
    complete_containers(spec);
}

fn complete_containers(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if container["image"].is_null() {
                container["image"] = json!("registry.example.com/none:v1");
            }
            // The default hangs on the image's tag when the object was made, and stays.
            if container["imagePullPolicy"].is_null() {
                container["imagePullPolicy"] = json!("IfNotPresent");
            }
        }
    }
    // Indexing by a missing key has put a null there.
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|key, value| key != "initContainers" || !value.is_null());
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.iter().any(has_null),
        Value::Object(all) => all.values().any(has_null),
        _ => false,
    }
}
