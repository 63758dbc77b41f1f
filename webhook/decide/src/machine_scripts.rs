//! `cloud-provider` outside of the argument lists: in files, commands and user data of a machine. They take precedence
//! over the lists (kubeadm puts `$KUBELET_EXTRA_ARGS` last and applies patches after it has rendered a manifest). They
//! are scripts, so they are reported, not changed.

use base64::{Engine, engine::general_purpose::STANDARD};
use outrigger_shared::migration::Phase;
use serde_json::Value;

use super::{provisioner_object::Situation, warning};

/// Places that a warning names; API servers cut warnings after 256 characters.
const MAX_PLACES: usize = 1;

/// JSON Pointers to the configuration of a machine.
const PREFIXES: [&str; 4] = [
    "/spec",
    "/spec/kubeadmConfigSpec",
    "/spec/template/spec",
    "/spec/template/spec/kubeadmConfigSpec",
];

/// Scripts in such a configuration, of Cluster API's kubeadm and RKE2 providers.
const OF_MACHINES: [&str; 9] = [
    "/files",
    "/bootCommands",
    "/preKubeadmCommands",
    "/postKubeadmCommands",
    "/ignition",
    "/preRKE2Commands",
    "/postRKE2Commands",
    "/agentConfig/additionalUserData",
    "/additionalUserData",
];

/// User data of instances and launch templates, in the objects of Karpenter, ACK, Crossplane, kOps and Rancher.
const USER_DATA: [&str; 8] = [
    "/spec/userData",
    "/spec/launchTemplateData/userData",
    "/spec/forProvider/userData",
    "/spec/forProvider/userDataBase64",
    "/spec/forProvider/launchTemplateData/userData",
    "/spec/additionalUserData",
    "/spec/providerSpec/value/userData",
    "/userdata",
];

/// Warns of scripts in objects of Cluster API that set a provider.
pub(super) fn warnings(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    let pointers = PREFIXES
        .iter()
        .flat_map(|prefix| OF_MACHINES.iter().map(move |field| format!("{prefix}{field}")));
    by_hand(object, pointers, situation.migration.spec.phase)
        .into_iter()
        .collect()
}

/// The same for objects of EC2 instances and launch templates.
pub(super) fn user_data(object: &Value, phase: Phase) -> Option<String> {
    by_hand(object, USER_DATA.iter().map(|pointer| (*pointer).to_owned()), phase)
}

/// Whether a string below the value sets a provider that does not fit the phase.
pub(super) fn is_in(value: &Value, phase: Phase) -> bool {
    let mut places = Vec::new();
    search(value, "", phase, &mut places);
    !places.is_empty()
}

fn by_hand(object: &Value, pointers: impl Iterator<Item = String>, phase: Phase) -> Option<String> {
    if phase == Phase::InTree {
        return None;
    }

    let mut places = Vec::new();
    for pointer in pointers {
        if let Some(value) = object.pointer(&pointer) {
            search(value, &pointer, phase, &mut places);
        }
    }

    if places.is_empty() {
        return None;
    }

    Some(format!(
        "change cloud-provider by hand in {}, to external from Migrate on: it is outside of the argument lists, may override \
         them and is not rewritten",
        warning::listed(&places, MAX_PLACES)
    ))
}

/// Finds the strings below a value that set another provider, by JSON Pointer.
fn search(value: &Value, at: &str, phase: Phase, places: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let is_foreign = |text: &str| settings(text).any(|is_external| !is_external || phase < Phase::Migrate);
            if is_foreign(text) || decoded(text).is_some_and(|text| is_foreign(&text)) {
                places.push(at.to_owned());
            }
        }
        Value::Array(list) => {
            for (index, element) in list.iter().enumerate() {
                search(element, &format!("{at}/{index}"), phase, places);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                search(field, &format!("{at}/{key}"), phase, places);
            }
        }
        _ => {}
    }
}

/// Decodes base64; compressed data is not read.
fn decoded(text: &str) -> Option<String> {
    let compact: String = text.split_ascii_whitespace().collect();
    // Too short for the name of the flag.
    if compact.len() < 16 {
        return None;
    }
    String::from_utf8(STANDARD.decode(compact).ok()?).ok()
}

/// Each setting of a cloud provider in a text: whether it is `external`. Names of projects or files are ignored.
fn settings(text: &str) -> impl Iterator<Item = bool> + '_ {
    let found = text
        .match_indices("cloud-provider")
        .chain(text.match_indices("cloud_provider"));
    found.filter_map(|(start, name)| {
        let rest = text.get(start + name.len()..)?;
        let rest = rest.strip_prefix("-name").unwrap_or(rest);
        let is_end = |letter: char| !(letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/'));
        if !rest.starts_with(is_end) {
            return None;
        }

        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '$' | '{');
        let mut words = rest.split(|letter| !is_word(letter)).filter(|word| !word.is_empty());
        let value = words.find(|word| *word != "value");

        Some(value == Some("external"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_setting_is_told_from_a_name() {
        for (text, expected) in [
            ("KUBELET_EXTRA_ARGS=--cloud-provider=aws", vec![false]),
            ("--cloud-provider external --v=2", vec![true]),
            ("cloud-provider-name: \"aws\"", vec![false]),
            (
                r#"[{"op":"add","path":"/-","value":"--cloud-provider=aws"}]"#,
                vec![false],
            ),
            ("- name: cloud-provider\n  value: external\n", vec![true]),
            ("s/--cloud-provider=external/--cloud-provider=aws/", vec![true, false]),
            ("--cloud-provider=$PROVIDER", vec![false]),
            ("--cloud_provider=aws", vec![false]),
            ("https://kubernetes.github.io/cloud-provider-aws", vec![]),
            ("/etc/kubernetes/cloud-provider.conf", vec![]),
            ("cloud provider", vec![]),
        ] {
            assert_eq!(settings(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn user_data_in_base64_is_read() {
        let text = STANDARD.encode("#!/bin/bash\nkubelet --cloud-provider=aws\n");
        let object = json!({"spec": {"forProvider": {"userData": text}}});
        assert!(
            user_data(&object, Phase::Prepare)
                .unwrap()
                .contains("/spec/forProvider/userData")
        );
        assert_eq!(user_data(&object, Phase::InTree), None);
        assert_eq!(
            user_data(
                &json!({"spec": {"userData": "kubelet --cloud-provider=external"}}),
                Phase::Migrate
            ),
            None
        );
    }
}
