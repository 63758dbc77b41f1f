//! Rancher's Cluster of RKE1 (`management.cattle.io/v3`): `spec.rancherKubernetesEngineConfig`.
//!
//! | phase | `services.kubeController.extraArgs` | `cloudProvider` |
//! |---|---|---|
//! | Prepare | `enable-leader-migration: "true"` | `name: aws` |
//! | Migrate, Complete | no leader migration | `name: external-aws`, `useInstanceMetadataHostname: true` |
//!
//! With `external-aws`, RKE1 starts kube-apiserver, kube-controller-manager and kubelet with
//! `--cloud-provider=external` at once; the API server cannot wait for Complete, but the flag has no effect on it in
//! these versions. Arguments of a service take precedence over the name of the provider, so an existing
//! `cloud-provider` among them is changed too, and none is added. With `useInstanceMetadataHostname` Nodes keep the
//! names that the in-tree provider gave them; otherwise Rancher names them by the machine pool. RKE1 uncordons Nodes
//! itself.
//!
//! Clusters that Rancher imports, or that EKS runs, have no such field and are not changed.

use outrigger_shared::{
    command_line::{CommandLine, Flag, Unreadable},
    component::{Component, Form},
    migration::{Phase, Profile},
    phase_flags::{self, Refusal, flag},
};
use serde_json::{Value, json};

use super::{
    Kind,
    arguments::ListFormat,
    document::Document,
    fields::{find, list_at, text_at},
    node_names,
    provisioner_object::{self, Obstacle, Rules, Situation},
    rancher_warnings::{csi_migration_off, turns_csi_migration_off},
    warning,
};
use crate::patch::Path;

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "management.cattle.io",
    versions: &["v3"],
    kind: "Cluster",
    plural: "clusters",
    namespaced: false,
    on_update: true,
    profiles: &[Profile::RancherRKE1],
    is_concerned: |input| input.object.pointer(CONFIG).is_some_and(Value::is_object),
    draft: |input, migration| provisioner_object::draft(input, migration, &RULES),
}];

const CONFIG: &str = "/spec/rancherKubernetesEngineConfig";

const RULES: Rules = Rules {
    triggers: &[CONFIG],
    besides: &[],
    version: &["/spec/rancherKubernetesEngineConfig/kubernetesVersion"],
    both_in_one_object: true,
    is_external,
    form,
    warnings,
};

const AWS: &str = "aws";
const EXTERNAL: &str = "external";

/// Services whose arguments may name a provider.
const SERVICES: [(Component, &str); 3] = [
    (Component::KubeControllerManager, "kubeController"),
    (Component::KubeApiserver, "kubeApi"),
    (Component::Kubelet, "kubelet"),
];

fn provider_field(field: &str) -> Path {
    Path::new(&["spec", "rancherKubernetesEngineConfig", "cloudProvider", field])
}

fn service(name: &str, field: &str) -> Path {
    Path::new(&["spec", "rancherKubernetesEngineConfig", "services", name, field])
}

/// The default of the components; none without a cloud provider.
fn provider(object: &Value) -> Result<Option<&'static str>, Obstacle> {
    match find(object, &provider_field("name")) {
        None => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) if name == AWS => Ok(Some(AWS)),
        Some(Value::String(name)) if name == EXTERNAL || name == "external-aws" => Ok(Some(EXTERNAL)),
        Some(other) => Err(Obstacle::Other(format!(
            "cloudProvider.name is {other}, not \"aws\"; this migration is for AWS, correct spec.targets"
        ))),
    }
}

/// `name=value` for everything in `extraArgsArray` of a service, which RKE1 adds to `extraArgs`.
fn array_items(object: &Value, name: &str) -> Vec<String> {
    let map = find(object, &service(name, "extraArgsArray")).and_then(Value::as_object);
    let pairs = map.into_iter().flatten().flat_map(|(flag, values)| {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(move |value| format!("{flag}={value}"))
    });
    pairs.collect()
}

/// The complete command line of a service, as far as the object defines it.
fn whole_line(object: &Value, name: &str) -> Result<CommandLine, Obstacle> {
    let path = service(name, "extraArgs");
    let own = ListFormat::Map.read(find(object, &path), &path)?;
    let provider = provider(object)?.map(|provider| format!("{}={provider}", flag::CLOUD_PROVIDER.name));
    let own = own.items().unwrap_or_default().iter().cloned();
    let items: Vec<String> = provider
        .into_iter()
        .chain(array_items(object, name))
        .chain(own)
        .collect();

    CommandLine::bare(items).map_err(|reason| Obstacle::Other(reason.to_string()))
}

fn is_external(object: &Value) -> bool {
    let line = whole_line(object, "kubeController");
    line.is_ok_and(|line| matches!(Form::of_command_line(&line), Form::External { .. }))
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }

    let original = document.value.clone();
    let provider = provider(&original)?;
    if provider.is_none() && situation.effective_phase >= Phase::Migrate {
        return Err(Obstacle::Other(
            "cloudProvider.name is not set, so there is no in-tree provider to migrate from, and external-aws would rename \
             the Nodes; correct spec.targets"
                .to_owned(),
        ));
    }

    for (component, name) in SERVICES {
        arguments(document, &original, component, name, situation)?;
    }

    if provider == Some(AWS) && situation.effective_phase >= Phase::Migrate {
        let why = "cloudProvider.name: external-aws, as the cloud controllers run in the cloud-controller-manager";
        document.set(&provider_field("name"), json!("external-aws"), why)?;
        let why = "cloudProvider.useInstanceMetadataHostname: true, so that Nodes keep the names that AWS knows";
        document.set(&provider_field("useInstanceMetadataHostname"), json!(true), why)?;
    }

    Ok(())
}

/// Changes the arguments of one service. Its `cloud-provider` is set by the name of the provider, so an argument is
/// changed only where it exists.
fn arguments(
    document: &mut Document,
    original: &Value,
    component: Component,
    name: &str,
    situation: &Situation<'_>,
) -> Result<(), Obstacle> {
    let because = |reason: Refusal| Obstacle::of_flags(component, reason);
    let unreadable = |reason: Unreadable| because(reason.into());
    let whole = whole_line(original, name)?;
    provisioner_object::warn_of_flags(document, component, &whole, situation)?;
    provisioner_object::note_warnings(document, &whole, component, situation, provider(original)?);

    let changes = phase_flags::changes(component, &whole, &situation.circumstances()).map_err(because)?;
    let path = service(name, "extraArgs");
    let mut own = document.arguments(&path, ListFormat::Map)?;
    let mut reasons = Vec::new();

    for change in &changes {
        let before = own.edits().len();
        match change {
            phase_flags::Change::Set(flag, ..)
                if *flag == flag::CLOUD_PROVIDER && own.value(*flag).map_err(unreadable)?.is_none() => {}
            change => change.apply(&mut own).map_err(unreadable)?,
        }

        if own.edits().len() > before {
            reasons.push(format!("{component}: {change}"));
        }
    }

    let is_changed = |item: &String| {
        let name = item.split('=').next().unwrap_or_default().replace('_', "-");
        changes.iter().any(|change| change.flag().name == name)
    };
    if let Some(item) = array_items(original, name).into_iter().find(is_changed) {
        return Err(Obstacle::Other(format!(
            "services.{name}.extraArgsArray has {item:?}, which overrides the form of {}; move it to extraArgs",
            situation.effective_phase
        )));
    }

    document.set_arguments(&path, ListFormat::Map, &own, reasons)?;

    Ok(())
}

fn warnings(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    if situation.effective_phase == Phase::InTree {
        return Vec::new();
    }

    let services = ["kubeController", "kubeApi", "kubelet", "scheduler"];
    let is_set = |name: &str| {
        let path = service(name, "extraArgs");
        let gates = find(object, &path).and_then(|map| map.get(flag::FEATURE_GATES.name)?.as_str());
        gates.is_some_and(turns_csi_migration_off)
            || array_items(object, name)
                .iter()
                .any(|item| turns_csi_migration_off(item))
    };

    let keys = services
        .iter()
        .filter(|name| is_set(name))
        .map(|name| format!("services.{name}"))
        .collect();
    let mut warnings: Vec<String> = csi_migration_off(keys).into_iter().collect();
    warnings.extend(names(object, situation));

    let is_switched = situation.effective_phase >= Phase::Prepare && !is_external(object);
    if is_switched && provider(object).is_ok_and(|provider| provider == Some(AWS)) {
        warnings.push(node_names::of_rke1(situation.effective_phase));
    }

    warnings
}

/// Names that take precedence over the host name of the instance metadata: an external kubelet uses them, the in-tree
/// provider did not.
fn names(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    if situation.effective_phase == Phase::InTree || is_external(object) {
        return Vec::new();
    }

    const OVERRIDE: Flag = Flag::text("hostname-override");

    let mut warnings = Vec::new();
    let kubelet = whole_line(object, "kubelet");
    if kubelet.is_ok_and(|line| !matches!(line.value(OVERRIDE), Ok(None))) {
        warnings.push(
            "remove hostname-override from services.kubelet before Migrate: an external kubelet uses it, so every Node would have \
             that name"
                .to_owned(),
        );
    }

    let nodes = object
        .pointer(CONFIG)
        .map_or(&[][..], |config| list_at(config, "/nodes"));
    let named = nodes.iter().enumerate().filter_map(|(index, node)| {
        let name = text_at(node, "/hostnameOverride")?;
        let is_of_instance = name.is_empty() || name.ends_with(".internal") || name.starts_with("i-");
        (!is_of_instance).then(|| format!("nodes[{index}]"))
    });
    let named: Vec<String> = named.collect();

    if !named.is_empty() {
        warnings.push(format!(
            "set hostnameOverride of {} to the private DNS name of the instance: an external kubelet names its Node by it",
            warning::listed(&named, 3)
        ));
    }

    warnings
}
