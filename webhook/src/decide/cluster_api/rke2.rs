//! RKE2ControlPlane, RKE2Config and their templates, of Cluster API's RKE2 provider.
//!
//! `serverConfig.cloudProviderName` gives kube-controller-manager and kubelet their `--cloud-provider`; `extraArgs` come
//! after it, and the last one counts. kube-apiserver gets nothing from it. So in Prepare only kube-controller-manager's
//! `extraArgs` change, and from Migrate on:
//!
//! | `cloudProviderName` | becomes | kube-controller-manager |
//! |---|---|---|
//! | `aws`, up to 1.26 | `external` | gets `external` from it; `aws` in its `extraArgs` becomes `external` too |
//! | `aws`, from 1.27 on | stays: there it only names Nodes by instance metadata, or is overridden by `extraArgs` | `cloud-provider=external` in its `extraArgs` |
//! | `external` | stays | as above |
//! | none | stays where kube-controller-manager's `extraArgs` name a provider, else refused | |
//!
//! RKE2's own cloud controller is disabled, as it would give Nodes provider IDs of its own, which are for ever. The kubelet
//! then gets `external` from nobody, so its `extraArgs` say it. `nodeTaints` stay as they are.

use outrigger_shared::{component::Component, migration::Phase, phase_flags::flag, version::KubernetesVersion};
use serde_json::{Value, json};

use super::{BOOTSTRAP, CONTROL_PLANE, RULES, config, join, leftovers, refuse_other_clouds, row, template, values};
use crate::{
    decide::{
        Kind,
        arguments::Shape,
        document::Document,
        durable::{self, Obstacle, Rules, Situation},
    },
    patch::Path,
};

pub(in crate::decide) const KINDS: &[Kind] = &[
    row(
        (CONTROL_PLANE, "RKE2ControlPlane", "rke2controlplanes"),
        true,
        |input, migration| durable::draft(input, migration, &CONTROL_PLANES),
    ),
    row(
        (CONTROL_PLANE, "RKE2ControlPlaneTemplate", "rke2controlplanetemplates"),
        true,
        |input, migration| durable::draft(input, migration, &CONTROL_PLANE_TEMPLATES),
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
    is_external: |object| durable::is_external(object, &kubelet(SPEC), Shape::Bare),
    form: |document, situation| machine(document, situation, SPEC),
    ..RULES
};
const CONFIG_TEMPLATES: Rules = Rules {
    is_external: |object| durable::is_external(object, &kubelet(TEMPLATE), Shape::Bare),
    form: |document, situation| machine(document, situation, TEMPLATE),
    ..RULES
};

const AWS: &str = "aws";
const EXTERNAL: &str = "external";
/// From here on no component has the in-tree AWS provider.
const WITHOUT_AWS: KubernetesVersion = KubernetesVersion::v1(27);

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

/// `extraArgs` of kube-controller-manager count before `cloudProviderName`.
fn is_external(object: &Value, home: &[&str]) -> bool {
    let arguments = (extra_args(home, "kubeControllerManager"), Shape::Bare);
    let own = values(object, &arguments, flag::CLOUD_PROVIDER).pop();
    let named = || {
        object
            .pointer(provider_name(home).pointer().as_str())
            .and_then(Value::as_str)
    };
    own.as_deref().or_else(named) == Some(EXTERNAL)
}

fn control_plane(document: &mut Document, situation: &Situation<'_>, home: &[&str]) -> Result<(), Obstacle> {
    if situation.row == Phase::InTree {
        return Ok(());
    }
    refuse_other_clouds(document, &[(kubelet(home), Shape::Bare)])?;
    let manager = extra_args(home, "kubeControllerManager");
    let name = named_provider(document, home)?;
    let by_arguments = values(document.whole(), &(manager.clone(), Shape::Bare), flag::CLOUD_PROVIDER).pop();
    if name.is_none() && by_arguments.is_none() {
        return Err(Obstacle::Other(format!(
            "{} is not set, so RKE2 runs its own cloud controller, whose Nodes no other one can take over; correct spec.targets, or set it to aws or external",
            provider_name(home).pointer()
        )));
    }
    let is_gone = situation.version.is_some_and(|version| version >= WITHOUT_AWS);
    let derived = name.filter(|name| *name == EXTERNAL || !is_gone);
    let situation = &Situation {
        named_elsewhere: name.is_some(),
        ..*situation
    };
    durable::arguments_beside(
        document,
        &manager,
        Shape::Bare,
        Component::KubeControllerManager,
        situation,
        derived,
    )?;
    let api_server = extra_args(home, "kubeAPIServer");
    durable::arguments(document, &api_server, Shape::Bare, Component::KubeApiserver, situation)?;
    if situation.row < Phase::Migrate {
        return Ok(());
    }
    if name == Some(AWS) && derived == Some(AWS) && by_arguments.as_deref() != Some(EXTERNAL) {
        let why = "RKE2 gives it to kube-controller-manager and kubelet";
        document.set(
            &provider_name(home),
            json!(EXTERNAL),
            format!("cloudProviderName=external: {why}"),
        )?;
        warn_of_names(document, home);
    }
    disable_own_controller(document, home)?;
    warn_of_config_map(document, home);
    machine(document, situation, home)?;
    let lists = [
        &manager,
        &api_server,
        &extra_args(home, "kubeScheduler"),
        &kubelet(home),
    ];
    let lists = lists.map(|path| (path.clone(), Shape::Bare));
    leftovers::warn_of_gates(document, &lists, situation.version);
    Ok(())
}

/// `cloudProviderName`, if it is one that this migration is about.
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

/// The kubelet of any machine.
fn machine(document: &mut Document, situation: &Situation<'_>, home: &[&str]) -> Result<(), Obstacle> {
    if situation.row == Phase::InTree {
        return Ok(());
    }
    let list = (kubelet(home), Shape::Bare);
    refuse_other_clouds(document, std::slice::from_ref(&list))?;
    durable::arguments(document, &list.0, Shape::Bare, Component::Kubelet, situation)?;
    Ok(())
}

/// `aws` names Nodes by instance metadata, and a cloud-controller-manager finds instances by that name.
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
