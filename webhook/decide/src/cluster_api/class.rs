//! ClusterClass: its inline patches are applied over the templates, so a patch that sets `cloud-provider`, also in a
//! file, a command or user data, overrides the phase. Patches are templates with variables, so they are reported, not
//! changed.

use outrigger_shared::{command_line::Flag, migration::Phase, phase_flags::flag};
use serde_json::Value;

use super::common::row;
use crate::fields::{list_at, text_at};
use crate::{Draft, Input, Kind, Migration, machine_scripts};

pub(crate) const KINDS: &[Kind] = &[row(("cluster.x-k8s.io", "ClusterClass", "clusterclasses"), draft)];

/// Parent fields of arguments; a patch may set them as a whole.
const HOLDERS: [&str; 11] = [
    "spec",
    "kubeadmConfigSpec",
    "clusterConfiguration",
    "apiServer",
    "controllerManager",
    "initConfiguration",
    "joinConfiguration",
    "nodeRegistration",
    "serverConfig",
    "agentConfig",
    "kubelet",
];

fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    if !input.may_act(&["/spec"], &[]) || migration.spec.phase == Phase::InTree {
        return Draft::unchanged("no warning applies to it now");
    }

    let mut draft = Draft::unchanged("a ClusterClass is not changed");
    for patch in list_at(input.object, "/spec/patches") {
        let definitions = list_at(patch, "/definitions").iter();
        let changes = || {
            definitions
                .clone()
                .flat_map(|definition| list_at(definition, "/jsonPatches"))
        };
        let mut settings = changes().filter_map(provider);
        // From Migrate on, the templates have `external` too.
        let fits = |setting: &Setting| *setting == Setting::External && migration.spec.phase >= Phase::Migrate;
        let problem = if settings.any(|setting| !fits(&setting)) {
            "overrides cloud-provider of the templates"
        } else if changes().any(|change| brings_text(change, migration.spec.phase)) {
            "contains cloud-provider in a string, which may override the argument lists"
        } else {
            continue;
        };
        let name = patch.get("name").and_then(Value::as_str).unwrap_or_default();
        let name: String = name.chars().take(40).collect();

        draft.warnings.push(format!(
            "inline patch {name:?} {problem}, and is not rewritten; make it follow the phase, external from Migrate on"
        ));
    }

    draft
}

/// Whether a patch sets the provider in a file, a command or user data, or in a template of them.
fn brings_text(patch: &Value, phase: Phase) -> bool {
    let values = [patch.get("value"), patch.pointer("/valueFrom/template")];
    values
        .into_iter()
        .flatten()
        .any(|value| machine_scripts::is_in(value, phase))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    External,
    /// Another value, or a variable.
    Other,
}

/// None if the patch does not set it.
fn provider(patch: &Value) -> Option<Setting> {
    let path = patch.get("path")?.as_str()?;
    let keys: Vec<&str> = path.split('/').skip(1).collect();
    let last = *keys.last()?;
    if matches!(last, "cloud-provider" | "cloudProviderName") {
        if patch.get("op").and_then(Value::as_str) == Some("remove") {
            return Some(Setting::Other);
        }
        let value = text_at(patch, "/value").or_else(|| text_at(patch, "/valueFrom/template"));
        return Some(setting(value.unwrap_or_default()));
    }

    let is_list = keys.iter().any(|key| matches!(*key, "extraArgs" | "kubeletExtraArgs"));
    if !is_list && !HOLDERS.contains(&last) {
        return None;
    }

    let template = text_at(patch, "/valueFrom/template").and_then(in_text);
    template.or_else(|| patch.get("value").and_then(in_value))
}

fn setting(value: &str) -> Setting {
    match value.trim().trim_matches(['"', '\'']) {
        "external" => Setting::External,
        _ => Setting::Other,
    }
}

/// A map's entry, an item with a name, a text `cloud-provider=…`, at any depth.
fn in_value(value: &Value) -> Option<Setting> {
    let Flag { name, .. } = flag::CLOUD_PROVIDER;
    match value {
        Value::Object(fields) => {
            let own = if fields.get("name").and_then(Value::as_str) == Some(name) {
                fields.get("value")
            } else {
                fields.get(name).or_else(|| fields.get("cloudProviderName"))
            };
            match own.and_then(Value::as_str) {
                Some(own) => Some(setting(own)),
                None => fields.values().find_map(in_value),
            }
        }
        Value::Array(list) => list.iter().find_map(in_value),
        Value::String(text) => {
            let rest = text.trim_start_matches('-').strip_prefix(name)?.strip_prefix('=')?;
            Some(setting(rest))
        }
        _ => None,
    }
}

/// The same in the text of a template, where `value` may be between name and value.
fn in_text(text: &str) -> Option<Setting> {
    let (_, rest) = text.split_once(flag::CLOUD_PROVIDER.name)?;
    if rest.starts_with('-') {
        return in_text(rest);
    }

    let is_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    let mut words = rest.split(|letter| !is_word(letter)).filter(|word| !word.is_empty());
    let value = words.find(|word| *word != "value")?;

    Some(setting(value))
}
