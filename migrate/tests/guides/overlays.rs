//! Kustomizations: the paths exist, and the patches of the manager's arguments fit the DaemonSet.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::names;
use crate::page::{self, Page};

pub fn faults(page: &Page) -> Vec<String> {
    let blocks = page.blocks().into_iter().filter(|block| block.language == "yaml");
    let mut faults = Vec::new();
    for block in blocks {
        for text in block.text.split("\n---\n") {
            match serde_saphyr::from_str::<Value>(text) {
                Ok(value) => faults.extend(of_value(&value).into_iter().map(|fault| page.fault(fault))),
                Err(error) => faults.push(page.fault(format!("{error}\n{text}"))),
            }
        }
    }
    faults
}

fn of_value(value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for field in ["resources", "components"] {
        let paths = value[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        faults.extend(paths.filter_map(of_path));
    }

    for patch in value["patches"].as_array().into_iter().flatten() {
        let is_manager = patch["target"]["name"] == "outrigger-manager";
        let text = patch["patch"].as_str().unwrap_or_default();
        let operations: Value = serde_saphyr::from_str(text).unwrap();
        let operations = operations.as_array().into_iter().flatten();
        faults.extend(operations.filter(|_| is_manager).flat_map(of_operation));
    }
    faults
}

fn of_path(path: &str) -> Option<String> {
    let relative = path.strip_prefix("../../");
    // The pages ask for a copy of this file beside the kustomization.
    let file = relative.map_or_else(|| format!("manifests/base/{path}"), str::to_owned);
    (!page::root().join(&file).exists()).then(|| format!("there is no {file}"))
}

fn of_operation(operation: &Value) -> Vec<String> {
    let path = operation["path"].as_str().unwrap_or_default();
    let value = operation["value"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    if let Some(flag) = value.strip_prefix("--") {
        let name = flag.split('=').next().unwrap_or_default();
        let known: BTreeSet<String> = names::manager_flags();
        if !known.contains(name) {
            faults.push(format!("the manager has no flag --{name}"));
        }
    }

    let index = path.split("/containers/0/args/").nth(1);
    if operation["op"] == "test"
        && let Some(index) = index
    {
        let index: usize = index.parse().unwrap();
        let argument = arguments().get(index).cloned();
        if argument.as_deref() != Some(value) {
            faults.push(format!("args/{index} is {argument:?}, not {value}"));
        }
    }
    faults
}

/// The arguments of the manager in the DaemonSet of the base.
fn arguments() -> Vec<String> {
    let text = page::read("manifests/base/control-plane-daemonset.yaml");
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    let arguments = object.pointer("/spec/template/spec/containers/0/args").unwrap();
    serde_json::from_value(arguments.clone()).unwrap()
}
