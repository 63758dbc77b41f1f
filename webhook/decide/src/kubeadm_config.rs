//! ConfigMaps of kubeadm in kube-system, changed only where a target names that namespace.
//!
//! `kubeadm-config` holds a ClusterConfiguration as YAML text. kubeadm reads it when a control-plane node joins or is
//! upgraded; running static Pods do not change. `kubelet-config` has no field for a cloud provider, so it only causes
//! warnings.

use outrigger_shared::{
    component::{Component, Form},
    migration::{Phase, Profile},
    phase_flags,
    yaml_text::YamlText,
};
use serde_json::Value;

use super::{
    Input, Kind,
    arguments::ListFormat,
    document::Document,
    fields::text_at,
    provisioner_object::{self, Obstacle, Rules, Situation},
    yaml_arguments::{self, ListPath},
};
use crate::patch::Path;

const fn row(
    is_concerned: fn(&Input<'_>) -> bool,
    draft: fn(&Input<'_>, &super::Migration<'_>) -> super::Draft,
) -> Kind {
    Kind {
        group: "",
        versions: &["v1"],
        kind: "ConfigMap",
        plural: "configmaps",
        namespaced: true,
        on_update: true,
        profiles: &[Profile::KubeadmConfig],
        is_concerned,
        draft,
    }
}

pub(super) const KINDS: &[Kind] = &[
    row(
        |input| is_in_kube_system(input, |name| name == "kubeadm-config"),
        |input, migration| provisioner_object::draft(input, migration, &CLUSTER),
    ),
    row(
        |input| is_in_kube_system(input, is_kubelet_config),
        |input, migration| provisioner_object::draft(input, migration, &KUBELET),
    ),
];

const CLUSTER: Rules = Rules {
    triggers: &["/data"],
    besides: &[],
    version: &[],
    both_in_one_object: true,
    is_external,
    form,
    warnings,
};

const KUBELET: Rules = Rules {
    both_in_one_object: false,
    // It does not depend on the evidence.
    is_external: |_| true,
    form: |_, _| Ok(()),
    warnings: kubelet_warnings,
    ..CLUSTER
};

const KEY: &str = "ClusterConfiguration";
const CONTROLLER_MANAGER: [&str; 2] = ["controllerManager", "extraArgs"];
const API_SERVER: [&str; 2] = ["apiServer", "extraArgs"];

fn is_in_kube_system(input: &Input<'_>, has_name: fn(&str) -> bool) -> bool {
    input.namespace == Some("kube-system") && has_name(input.name)
}

/// Up to 1.23 the name ends in the version.
fn is_kubelet_config(name: &str) -> bool {
    name.strip_prefix("kubelet-config").is_some_and(|rest| {
        let minor = rest.strip_prefix("-1.").map(str::parse::<u32>);
        rest.is_empty() || matches!(minor, Some(Ok(_)))
    })
}

fn path() -> Path {
    Path::new(&["data", KEY])
}

/// The text, and the index of the ClusterConfiguration document.
fn read(text: &str) -> Result<(YamlText, usize), Obstacle> {
    let text = YamlText::parse(text)?;
    let is_ours = |document: &Value| document.get("kind").and_then(Value::as_str) == Some(KEY);
    let place = text.documents().iter().position(is_ours);
    let place = place.ok_or_else(|| Obstacle::Other(format!("data.{KEY} holds no kind: {KEY}; correct it")))?;
    Ok((text, place))
}

fn is_external(object: &Value) -> bool {
    let text = object.pointer(path().pointer().as_str()).and_then(Value::as_str);
    let Some(Ok((text, document))) = text.map(read) else {
        return false;
    };

    let place = ListPath {
        document,
        path: &CONTROLLER_MANAGER,
    };
    yaml_arguments::read(&text, place, ListFormat::Map)
        .is_ok_and(|line| matches!(Form::of_command_line(&line), Form::External { .. }))
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    let path = path();
    let text = document.get(&path).and_then(Value::as_str);
    let text =
        text.ok_or_else(|| Obstacle::Other(format!("data.{KEY} is missing; restore it from a node's backup")))?;
    let (mut text, number) = read(text)?;
    let version = text.get(number, &["kubernetesVersion"]).and_then(Value::as_str);
    let situation = Situation {
        version: version.and_then(|version| version.parse().ok()).or(situation.version),
        controllers: Some(provisioner_object::KUBEADM_CONTROLLERS),
        ..*situation
    };
    // v1beta4 has lists of name and value, earlier versions have maps.
    let api = text.get(number, &["apiVersion"]).and_then(Value::as_str);
    let api = api.unwrap_or_default();
    let shape = match api.rsplit('/').next() {
        Some("v1beta1" | "v1beta2" | "v1beta3") => ListFormat::Map,
        Some("v1beta4") => ListFormat::Named,
        _ => {
            return Err(Obstacle::Other(format!(
                "data.{KEY} has apiVersion {api:?}, and only kubeadm.k8s.io/v1beta1 to v1beta4 are known; change extraArgs by hand"
            )));
        }
    };

    let manager = ListPath {
        document: number,
        path: &CONTROLLER_MANAGER,
    };
    let line = yaml_arguments::read(&text, manager, shape)?;
    provisioner_object::warn_of_flags(document, Component::KubeControllerManager, &line, &situation)?;

    let mut component = |text: &mut YamlText, path, component| {
        let place = ListPath { document: number, path };
        let line = yaml_arguments::read(text, place, shape)?;
        provisioner_object::note_warnings(document, &line, component, &situation, None);
        yaml_arguments::arguments(text, place, shape, component, &situation)
    };
    let reasons = text.batch(|text| {
        let mut reasons = component(text, &CONTROLLER_MANAGER, Component::KubeControllerManager)?;
        reasons.extend(component(text, &API_SERVER, Component::KubeApiserver)?);
        Ok::<_, Obstacle>(reasons)
    })?;
    document.set_text(&path, &text, reasons)?;

    Ok(())
}

fn warnings(_: &Value, situation: &Situation<'_>) -> Vec<String> {
    if situation.effective_phase == Phase::InTree {
        return vec!["running static Pods keep their flags; on each control-plane node `kubeadm upgrade node phase control-plane` writes the original ones (--dry-run shows them)".to_owned()];
    }
    vec!["running static Pods keep their flags, kubeadm reads this at join and upgrade; on each control-plane node `kubeadm upgrade node phase control-plane` applies it (--dry-run shows it)".to_owned()]
}

fn kubelet_warnings(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    let text = match YamlText::parse(text_at(object, "/data/kubelet").unwrap_or_default()) {
        Ok(text) => text,
        Err(refusal) => return vec![format!("data.kubelet: {refusal}")],
    };
    let names = ["cloudProvider", "cloud-provider", "cloudConfig", "cloud-config"];
    let documents = text.documents().iter().filter_map(Value::as_object);
    let fields = documents.flat_map(|fields| fields.keys());
    let mut warnings = kubelet_settings(&text, situation);
    let unknown = fields
        .filter(|field| names.contains(&field.as_str()))
        .map(|field| {
            format!("data.kubelet has {field}, which is not a field of KubeletConfiguration; remove it and start the kubelet with --cloud-provider=external (nodeRegistration.kubeletExtraArgs)")
        });

    warnings.extend(unknown);

    warnings
}

/// Settings that cannot be right for all kubelets, or with which no kubelet starts.
fn kubelet_settings(text: &YamlText, situation: &Situation<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if situation.migration.spec.phase == Phase::InTree {
        return warnings;
    }

    for document in text.documents() {
        let id = document.get("providerID").and_then(Value::as_str).unwrap_or_default();
        if !id.is_empty() {
            warnings.push(format!(
                "remove providerID {id:?} from data.kubelet: every Node would have the provider ID of one instance"
            ));
        }

        let gates = document.get("featureGates").and_then(Value::as_object);
        for (gate, setting) in gates.into_iter().flatten() {
            warnings.extend(gate_warning(gate, setting, situation));
        }
    }

    warnings
}

fn gate_warning(gate: &str, setting: &Value, situation: &Situation<'_>) -> Option<String> {
    if let Some(version) = situation.version
        && phase_flags::is_removed_gate(gate, version)
    {
        return Some(format!(
            "remove featureGates.{gate} from data.kubelet: a kubelet of {version} does not know it and does not start"
        ));
    }
    (gate == "CSIMigrationAWS" && *setting == Value::Bool(false)).then(|| {
        "install the EBS CSI driver and remove featureGates.CSIMigrationAWS=false from data.kubelet: with it an external kubelet \
         mounts no in-tree EBS volume, and from 1.25 on none starts"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::is_kubelet_config;

    #[test]
    fn names_of_kubelet_configurations() {
        for (name, is_one) in [
            ("kubelet-config", true),
            ("kubelet-config-1.23", true),
            ("kubelet-config-1.", false),
            ("kubelet-config-mine", false),
            ("my-kubelet-config", false),
        ] {
            assert_eq!(is_kubelet_config(name), is_one, "{name}");
        }
    }
}
