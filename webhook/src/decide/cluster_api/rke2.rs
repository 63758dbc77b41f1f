//! RKE2ControlPlane, RKE2Config and their templates, of Cluster API's RKE2 provider.
//!
//! `serverConfig.cloudProviderName` sets `--cloud-provider` of kube-controller-manager, kubelet and kube-apiserver, in
//! the releases that [`crate::decide::rke2_provider`] lists; `extraArgs` come after it, and the last value counts. In
//! Prepare only the `extraArgs` of kube-controller-manager change. From Migrate on:
//!
//! | `cloudProviderName` | becomes | kube-controller-manager |
//! |---|---|---|
//! | `aws`, up to 1.26 | `external` | gets `external` from it; `aws` in its `extraArgs` becomes `external` too |
//! | `aws`, from 1.27 on | stays: there it only names Nodes by instance metadata, or is overridden by `extraArgs` | `cloud-provider=external` in its `extraArgs` |
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
    component::Component,
    migration::Phase,
    phase_flags::{self, flag},
    version::KubernetesVersion,
};
use serde_json::{Value, json};

use super::{
    common::{BOOTSTRAP, CONTROL_PLANE, RULES, config, join, refuse_other_clouds, row, template, values},
    obsolete_settings,
};
use crate::{
    decide::{
        Kind,
        arguments::ListFormat,
        document::Document,
        provisioner_object::{self, Obstacle, Rules, Situation},
        rke2_provider::{self, AWS, EXTERNAL, LAST_IN_TREE, Providers},
    },
    patch::Path,
};

pub(crate) const KINDS: &[Kind] = &[
    row(
        (CONTROL_PLANE, "RKE2ControlPlane", "rke2controlplanes"),
        true,
        |input, migration| {
            rke2_provider::draft(input, migration, &CONTROL_PLANES, |object, version| {
                providers(object, version, SPEC)
            })
        },
    ),
    row(
        (CONTROL_PLANE, "RKE2ControlPlaneTemplate", "rke2controlplanetemplates"),
        true,
        |input, migration| {
            rke2_provider::draft(input, migration, &CONTROL_PLANE_TEMPLATES, |object, version| {
                providers(object, version, TEMPLATE)
            })
        },
    ),
    row((BOOTSTRAP, "RKE2Config", "rke2configs"), true, |input, migration| {
        config(input, migration, "RKE2ControlPlane", &CONFIGS)
    }),
    row(
        (BOOTSTRAP, "RKE2ConfigTemplate", "rke2configtemplates"),
        true,
        |input, migration| template(input, migration, &CONFIG_TEMPLATES),
    ),
];

const SPEC: &[&str] = &["spec"];
const TEMPLATE: &[&str] = &["spec", "template", "spec"];

const CONTROL_PLANES: Rules = Rules {
    version: &["/spec/version"],
    is_external: |object| is_external(object, SPEC),
    form: |document, situation| control_plane(document, situation, SPEC),
    ..RULES
};
const CONTROL_PLANE_TEMPLATES: Rules = Rules {
    version: &["/spec/template/spec/version"],
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

fn kubelet(home: &[&str]) -> Path {
    join(home, &["agentConfig", "kubelet", "extraArgs"])
}

fn server(home: &[&str], rest: &[&str]) -> Path {
    join(home, &[&["serverConfig"], rest].concat())
}

fn extra_args(home: &[&str], component: &str) -> Path {
    server(home, &[component, "extraArgs"])
}

fn provider_name(home: &[&str]) -> Path {
    server(home, &["cloudProviderName"])
}

/// `extraArgs` of kube-controller-manager take precedence over `cloudProviderName`.
fn is_external(object: &Value, home: &[&str]) -> bool {
    let arguments = (extra_args(home, "kubeControllerManager"), ListFormat::Bare);
    let own = values(object, &arguments, flag::CLOUD_PROVIDER).pop();
    own.as_deref().or_else(|| name_of(object, home)) == Some(EXTERNAL)
}

fn name_of<'a>(object: &'a Value, home: &[&str]) -> Option<&'a str> {
    object.pointer(provider_name(home).pointer().as_str())?.as_str()
}

/// The provider of each component.
fn providers(object: &Value, version: KubernetesVersion, home: &[&str]) -> Providers {
    let lists = [
        (
            Component::KubeControllerManager,
            extra_args(home, "kubeControllerManager"),
        ),
        (Component::KubeApiserver, extra_args(home, "kubeAPIServer")),
        (Component::Kubelet, kubelet(home)),
    ];
    let name = name_of(object, home);
    let given = |(component, path): (Component, Path)| {
        let own = values(object, &(path, ListFormat::Bare), flag::CLOUD_PROVIDER).pop();
        let named = || rke2_provider::passed(name, component, Some(version)).map(str::to_owned);
        (component, own.or_else(named))
    };
    Providers {
        is_named_aws: name == Some(AWS),
        given: lists.into_iter().map(given).collect(),
    }
}

fn control_plane(document: &mut Document, situation: &Situation<'_>, home: &[&str]) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }
    refuse_other_clouds(document, &[(kubelet(home), ListFormat::Bare)])?;
    let was_external = is_external(document.whole(), home);
    let name = named_provider(document, home)?;
    controller_manager(document, situation, home, name)?;
    api_server(document, situation, home, name)?;
    check_kubelet(document, situation, home, name)?;
    if situation.effective_phase < Phase::Migrate {
        return Ok(());
    }
    // Any name disables RKE2's own controller.
    if !was_external || name.is_none() {
        disable_own_controller(document, home)?;
    }
    warn_of_config_map(document, home);
    let given = name.filter(|name| was_external && *name == EXTERNAL);
    kubelet_arguments(document, situation, home, given)?;
    let lists = [
        &extra_args(home, "kubeControllerManager"),
        &extra_args(home, "kubeAPIServer"),
        &extra_args(home, "kubeScheduler"),
        &kubelet(home),
    ];
    let lists = lists.map(|path| (path.clone(), ListFormat::Bare));
    obsolete_settings::warn_of_gates(document, &lists, situation.version);
    Ok(())
}

/// Changes kube-controller-manager, by its list or by the name.
fn controller_manager(
    document: &mut Document,
    situation: &Situation<'_>,
    home: &[&str],
    name: Option<&'static str>,
) -> Result<(), Obstacle> {
    let list = extra_args(home, "kubeControllerManager");
    let by_arguments = values(
        document.whole(),
        &(list.clone(), ListFormat::Bare),
        flag::CLOUD_PROVIDER,
    )
    .pop();
    if name.is_none() && by_arguments.is_none() {
        return Err(Obstacle::Other(format!(
            "{} is not set, so RKE2 runs its own cloud controller, whose Nodes no other one can take over; correct spec.targets, or set it to aws or external",
            provider_name(home).pointer()
        )));
    }
    let situation = &Situation {
        named_elsewhere: name.is_some(),
        ..*situation
    };
    let component = Component::KubeControllerManager;
    // In Migrate the name itself changes, unless it only names Nodes.
    let follows = name == Some(EXTERNAL)
        || situation
            .version
            .is_none_or(|version| version.minor <= LAST_IN_TREE.minor);
    let given = if situation.effective_phase < Phase::Migrate || follows {
        rke2_provider::passed(name, component, situation.version)
    } else {
        None
    };
    provisioner_object::arguments_beside(document, &list, ListFormat::Bare, component, situation, given)?;
    let is_overridden = by_arguments.as_deref() == Some(EXTERNAL);
    if situation.effective_phase >= Phase::Migrate && name == Some(AWS) && follows && !is_overridden {
        let why = "RKE2 gives it to kube-controller-manager and kubelet";
        document.set(
            &provider_name(home),
            json!(EXTERNAL),
            format!("cloudProviderName=external: {why}"),
        )?;
        warn_of_names(document, home);
    }
    Ok(())
}

/// Changes kube-apiserver, whose list takes precedence over the name.
fn api_server(
    document: &mut Document,
    situation: &Situation<'_>,
    home: &[&str],
    name: Option<&str>,
) -> Result<(), Obstacle> {
    let component = Component::KubeApiserver;
    let path = extra_args(home, "kubeAPIServer");
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
fn named_provider(document: &Document, home: &[&str]) -> Result<Option<&'static str>, Obstacle> {
    let path = provider_name(home);
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

fn disable_own_controller(document: &mut Document, home: &[&str]) -> Result<(), Obstacle> {
    let path = server(home, &["disableComponents", "kubernetesComponents"]);
    let is_there = |list: &Value| {
        list.as_array()
            .is_some_and(|list| list.contains(&json!("cloudController")))
    };
    if !document.get(&path).is_some_and(is_there) {
        document.push(
            &path,
            json!("cloudController"),
            "cloudController disabled: RKE2's own would give Nodes provider IDs of its own",
        )?;
    }
    Ok(())
}

/// Changes the kubelet of a worker machine.
fn machine(document: &mut Document, situation: &Situation<'_>, home: &[&str]) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }
    refuse_other_clouds(document, &[(kubelet(home), ListFormat::Bare)])?;
    kubelet_arguments(document, situation, home, None)
}

/// Refuses a control plane whose kubelet cannot be changed, by its arguments or by the name.
fn check_kubelet(
    document: &mut Document,
    situation: &Situation<'_>,
    home: &[&str],
    name: Option<&str>,
) -> Result<(), Obstacle> {
    let component = Component::Kubelet;
    let own = document.arguments(&kubelet(home), ListFormat::Bare)?;
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
    home: &[&str],
    given: Option<&str>,
) -> Result<(), Obstacle> {
    provisioner_object::arguments_beside(
        document,
        &kubelet(home),
        ListFormat::Bare,
        Component::Kubelet,
        situation,
        given,
    )
}

/// With `aws`, Nodes are named by instance metadata, and a cloud-controller-manager finds instances by that name.
fn warn_of_names(document: &mut Document, home: &[&str]) {
    let is_named = document.get(&join(home, &["agentConfig", "nodeName"])).is_some();
    let commands = document.get(&join(home, &["preRKE2Commands"])).map(Value::to_string);
    if !is_named && !commands.unwrap_or_default().contains("hostname") {
        document.warn(
            "Nodes are no longer named by instance metadata; give them their private DNS name by agentConfig.nodeName or preRKE2Commands"
                .to_owned(),
        );
    }
}

fn warn_of_config_map(document: &mut Document, home: &[&str]) {
    if document.get(&server(home, &["cloudProviderConfigMap"])).is_some() {
        document.warn(
            "kube-controller-manager no longer reads serverConfig.cloudProviderConfigMap; remove it once the phase is Complete"
                .to_owned(),
        );
    }
}
