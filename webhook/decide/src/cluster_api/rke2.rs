//! RKE2ControlPlane, RKE2Config and their templates, of Cluster API's RKE2 provider.
//!
//! `serverConfig.cloudProviderName` sets `--cloud-provider` of kube-controller-manager, kubelet and kube-apiserver, in
//! the releases that [`crate::rke2_provider`] lists; `extraArgs` come after it, and the last value counts. In
//! Prepare only the `extraArgs` of kube-controller-manager change. From Migrate on:
//!
//! | `cloudProviderName` | becomes | kube-controller-manager |
//! |---|---|---|
//! | `aws` | stays: it also names the Nodes of control planes and workers by instance metadata ([`crate::node_names`]), and arguments override it | `cloud-provider=external` in its `extraArgs` |
//! | `external` | stays | as above |
//! | none | stays where kube-controller-manager's `extraArgs` name a provider, else refused | |
//!
//! kube-apiserver of 1.29 to 1.32 does not start with `aws`: where the name sets it, its `extraArgs` get
//! `cloud-provider=external`; an existing one stays.
//!
//! RKE2's own cloud controller is disabled, because it would give Nodes its own provider IDs, which are immutable. The
//! kubelet then has no default `external`, so its `extraArgs` get it. An object that is external by its name needs
//! neither: any name disables the controller and is passed to the kubelet. `nodeTaints` are not changed.

use outrigger_shared::{
    command_line::Unreadable,
    component::Component,
    migration::Phase,
    phase_flags::{self, flag},
    version::KubernetesVersion,
};
use serde_json::{Value, json};

use super::common::{self, BOOTSTRAP, CONTROL_PLANE, RULES, config, join, refuse_other_clouds, row, template, values};
use crate::{
    Kind,
    arguments::ListFormat,
    document::Document,
    node_names,
    patch::Path,
    provisioner_object::{self, Obstacle, Rules, Situation},
    rke2_provider::{self, AWS, EXTERNAL, LAST_IN_TREE, Providers},
};

pub(crate) const KINDS: &[Kind] = &[
    row(
        (CONTROL_PLANE, "RKE2ControlPlane", "rke2controlplanes"),
        |input, migration| {
            rke2_provider::draft(input, migration, &CONTROL_PLANES, |object, version| {
                providers(object, version, SPEC)
            })
        },
    ),
    row(
        (CONTROL_PLANE, "RKE2ControlPlaneTemplate", "rke2controlplanetemplates"),
        |input, migration| {
            rke2_provider::draft(input, migration, &CONTROL_PLANE_TEMPLATES, |object, version| {
                providers(object, version, TEMPLATE)
            })
        },
    ),
    row((BOOTSTRAP, "RKE2Config", "rke2configs"), |input, migration| {
        config(input, migration, "RKE2ControlPlane", &CONFIGS)
    }),
    row(
        (BOOTSTRAP, "RKE2ConfigTemplate", "rke2configtemplates"),
        |input, migration| template(input, migration, &CONFIG_TEMPLATES),
    ),
];

const SPEC: &[&str] = &["spec"];
const TEMPLATE: &[&str] = &["spec", "template", "spec"];

const CONTROL_PLANES: Rules = Rules {
    // The second one is deprecated in favour of the first, and still valid in v1beta1.
    version: &["/spec/version", "/spec/agentConfig/version"],
    is_external: |object| is_external(object, SPEC),
    form: |document, situation| control_plane(document, situation, SPEC),
    ..RULES
};
const CONTROL_PLANE_TEMPLATES: Rules = Rules {
    version: &["/spec/template/spec/version", "/spec/template/spec/agentConfig/version"],
    is_external: |object| is_external(object, TEMPLATE),
    form: |document, situation| control_plane(document, situation, TEMPLATE),
    ..RULES
};
const CONFIGS: Rules = Rules {
    is_external: |object| provisioner_object::is_external(object, &kubelet(SPEC), ListFormat::Bare),
    form: |document, situation| machine(document, situation, SPEC),
    ..RULES
};
const CONFIG_TEMPLATES: Rules = Rules {
    is_external: |object| provisioner_object::is_external(object, &kubelet(TEMPLATE), ListFormat::Bare),
    form: |document, situation| machine(document, situation, TEMPLATE),
    ..RULES
};

fn kubelet(prefix: &[&str]) -> Path {
    join(prefix, &["agentConfig", "kubelet", "extraArgs"])
}

fn server(prefix: &[&str], rest: &[&str]) -> Path {
    join(prefix, &[&["serverConfig"], rest].concat())
}

fn extra_args(prefix: &[&str], component: &str) -> Path {
    server(prefix, &[component, "extraArgs"])
}

fn provider_name(prefix: &[&str]) -> Path {
    server(prefix, &["cloudProviderName"])
}

/// `extraArgs` of kube-controller-manager take precedence over `cloudProviderName`.
fn is_external(object: &Value, prefix: &[&str]) -> bool {
    let own = named_by(object, extra_args(prefix, "kubeControllerManager"));
    own.as_deref().or_else(|| name_of(object, prefix)) == Some(EXTERNAL)
}

/// The provider in an argument list.
fn named_by(object: &Value, list: Path) -> Option<String> {
    values(object, &(list, ListFormat::Bare), flag::CLOUD_PROVIDER).pop()
}

fn name_of<'a>(object: &'a Value, prefix: &[&str]) -> Option<&'a str> {
    object.pointer(provider_name(prefix).pointer().as_str())?.as_str()
}

fn providers(object: &Value, version: KubernetesVersion, prefix: &[&str]) -> Providers {
    let manager = extra_args(prefix, "kubeControllerManager");
    let lists = [
        (Component::KubeControllerManager, manager),
        (Component::KubeApiserver, extra_args(prefix, "kubeAPIServer")),
        (Component::Kubelet, kubelet(prefix)),
    ];
    let name = name_of(object, prefix);
    let given = |(component, path): (Component, Path)| {
        let named = || rke2_provider::passed(name, component, Some(version)).map(str::to_owned);
        (component, named_by(object, path).or_else(named))
    };

    Providers {
        is_named_aws: name == Some(AWS),
        given: lists.into_iter().map(given).collect(),
    }
}

fn control_plane(document: &mut Document, situation: &Situation<'_>, prefix: &[&str]) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }

    refuse_other_clouds(document, &[(kubelet(prefix), ListFormat::Bare)])?;

    let was_external = is_external(&document.value, prefix);
    let name = named_provider(document, prefix)?;
    controller_manager(document, situation, prefix, name)?;
    api_server(document, situation, prefix, name)?;
    check_kubelet(document, situation, prefix, name)?;
    warn_of_names(document, situation, prefix, name)?;
    if situation.effective_phase < Phase::Migrate {
        return Ok(());
    }

    // Any name disables RKE2's own controller.
    if !was_external || name.is_none() {
        disable_own_controller(document, prefix)?;
    }

    warn_of_config_map(document, prefix);
    let is_before = situation.version.is_some_and(|version| version.minor < 29);
    if situation.effective_phase == Phase::Complete && is_before && name == Some(AWS) && !was_external {
        document.warn(rke2_provider::LATER_RELEASES.to_owned());
    }

    let given = name.filter(|name| was_external && *name == EXTERNAL);
    kubelet_arguments(document, situation, prefix, given)?;

    let servers = ["kubeControllerManager", "kubeAPIServer", "kubeScheduler"].map(|name| extra_args(prefix, name));
    let paths = servers.into_iter().chain([kubelet(prefix)]);
    let lists: Vec<_> = paths.map(|path| (path, ListFormat::Bare)).collect();
    common::warn_of_gates(document, &lists, situation.version);

    Ok(())
}

/// Changes kube-controller-manager, by its list or by the name.
fn controller_manager(
    document: &mut Document,
    situation: &Situation<'_>,
    prefix: &[&str],
    name: Option<&'static str>,
) -> Result<(), Obstacle> {
    let list = extra_args(prefix, "kubeControllerManager");
    let by_arguments = named_by(&document.value, list.clone());
    if name.is_none() && by_arguments.is_none() {
        return Err(Obstacle::Other(format!(
            "{} is not set, so RKE2 runs its own cloud controller, whose Nodes no other one can take over; correct spec.targets, or set it to aws or external",
            provider_name(prefix).pointer()
        )));
    }

    let situation = &Situation {
        named_elsewhere: name.is_some(),
        ..*situation
    };
    let component = Component::KubeControllerManager;
    let is_overridden = situation.effective_phase >= Phase::Migrate && name == Some(AWS);
    let is_in_tree = situation
        .version
        .is_none_or(|version| version.minor <= LAST_IN_TREE.minor);
    // From 1.27 on it is no provider, but another field sets it.
    let given = rke2_provider::passed(name, component, situation.version).filter(|_| !is_overridden || is_in_tree);
    let write = match is_overridden {
        true => provisioner_object::overriding_arguments,
        false => provisioner_object::arguments,
    };

    write(document, &list, ListFormat::Bare, component, situation, given)
}

/// Changes kube-apiserver, whose list takes precedence over the name.
fn api_server(
    document: &mut Document,
    situation: &Situation<'_>,
    prefix: &[&str],
    name: Option<&str>,
) -> Result<(), Obstacle> {
    let component = Component::KubeApiserver;
    let path = extra_args(prefix, "kubeAPIServer");
    let mut own = document.arguments(&path, ListFormat::Bare)?;
    let passed = rke2_provider::passed(name, component, situation.version);
    let because = |reason| Obstacle::of_flags(component, reason);
    let changes = rke2_provider::api_server_changes(&own, passed, situation).map_err(because)?;

    for change in &changes {
        change.apply(&mut own).map_err(|reason| because(reason.into()))?;
    }

    let reasons = changes.iter().map(|change| format!("{component}: {change}"));
    document.set_arguments(&path, ListFormat::Bare, &own, reasons)?;

    Ok(())
}

/// `cloudProviderName`; refuses another cloud.
fn named_provider(document: &Document, prefix: &[&str]) -> Result<Option<&'static str>, Obstacle> {
    let path = provider_name(prefix);
    let refused = |what: String, fix| Obstacle::Other(format!("{} is {what}; {fix}", path.pointer()));
    match document.get(&path) {
        None => Ok(None),
        Some(Value::String(name)) => match name.as_str() {
            "" => Ok(None),
            AWS => Ok(Some(AWS)),
            EXTERNAL => Ok(Some(EXTERNAL)),
            other => Err(refused(
                format!("{other:?}, not \"aws\""),
                "this migration is for AWS, correct spec.targets",
            )),
        },
        Some(_) => Err(refused("no text".to_owned(), "correct it")),
    }
}

fn disable_own_controller(document: &mut Document, prefix: &[&str]) -> Result<(), Obstacle> {
    let path = server(prefix, &["disableComponents", "kubernetesComponents"]);
    let name = json!("cloudController");
    let disabled = document.get(&path).and_then(Value::as_array);
    if !disabled.is_some_and(|disabled| disabled.contains(&name)) {
        let why = "cloudController disabled: RKE2's own would give Nodes provider IDs of its own";
        document.push(&path, name, why)?;
    }

    Ok(())
}

fn machine(document: &mut Document, situation: &Situation<'_>, prefix: &[&str]) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }
    refuse_other_clouds(document, &[(kubelet(prefix), ListFormat::Bare)])?;
    warn_of_names(document, situation, prefix, None)?;
    kubelet_arguments(document, situation, prefix, None)
}

/// Refuses a control plane whose kubelet cannot be changed, by its arguments or by the name.
fn check_kubelet(
    document: &mut Document,
    situation: &Situation<'_>,
    prefix: &[&str],
    name: Option<&str>,
) -> Result<(), Obstacle> {
    let component = Component::Kubelet;
    let own = document.arguments(&kubelet(prefix), ListFormat::Bare)?;
    let given = rke2_provider::passed(name, component, situation.version);
    let whole = provisioner_object::with_provider(&own, component, given)?;
    provisioner_object::warn_of_flags(document, component, &whole, situation)?;

    let changes = phase_flags::changes(component, &whole, &situation.circumstances());
    changes
        .map(drop)
        .map_err(|reason| Obstacle::of_flags(component, reason))
}

fn kubelet_arguments(
    document: &mut Document,
    situation: &Situation<'_>,
    prefix: &[&str],
    given: Option<&str>,
) -> Result<(), Obstacle> {
    provisioner_object::arguments(
        document,
        &kubelet(prefix),
        ListFormat::Bare,
        Component::Kubelet,
        situation,
        given,
    )
}

/// Warns of Nodes that get another name: workers have the name of the provider from their control plane.
fn warn_of_names(
    document: &mut Document,
    situation: &Situation<'_>,
    prefix: &[&str],
    name: Option<&str>,
) -> Result<(), Obstacle> {
    let phase = situation.effective_phase;
    let component = Component::Kubelet;
    let own = document.arguments(&kubelet(prefix), ListFormat::Bare)?;
    let given = rke2_provider::passed(name, component, situation.version);
    let whole = provisioner_object::with_provider(&own, component, given)?;
    let unreadable = |reason: Unreadable| Obstacle::of_flags(component, reason.into());
    let is_in_tree = whole.value(flag::CLOUD_PROVIDER).map_err(unreadable)?.as_deref() == Some(AWS);
    let by_host = phase_flags::is_named_by_host(component, &whole, &situation.circumstances()).map_err(unreadable)?;
    let has_in_tree_version = situation
        .version
        .is_none_or(|version| version.minor <= LAST_IN_TREE.minor);
    if !node_names::is_said_in(phase) || !is_in_tree || !has_in_tree_version {
        return Ok(());
    }

    if name == Some(AWS) {
        document.warn(node_names::of_rke2(phase));
    } else if by_host {
        let remedy = "set serverConfig.cloudProviderName of the control plane to aws";
        document.warn(node_names::of_rke2_by_arguments(phase, remedy));
    }

    Ok(())
}

fn warn_of_config_map(document: &mut Document, prefix: &[&str]) {
    if document.get(&server(prefix, &["cloudProviderConfigMap"])).is_some() {
        document.warn(
            "kube-controller-manager no longer reads serverConfig.cloudProviderConfigMap; remove it once the phase is Complete"
                .to_owned(),
        );
    }
}
