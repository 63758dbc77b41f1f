//! Kamaji's TenantControlPlane: one Deployment runs all components, with the arguments that stand here.
//!
//! Kamaji writes the Deployment again whenever it differs from this object, so this is where the flags belong.

use outrigger_shared::{component::Component, migration::Profile};
use serde_json::Value;

use super::{
    Kind,
    arguments::Shape,
    document::Document,
    durable::{self, Obstacle, Rules, Situation},
};
use crate::patch::Path;

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "kamaji.clastix.io",
    versions: &["v1alpha1"],
    kind: "TenantControlPlane",
    plural: "tenantcontrolplanes",
    namespaced: true,
    on_update: true,
    profiles: &[Profile::HostedControlPlane],
    is_concerned: |_| true,
    draft: |input, migration| durable::draft(input, migration, &RULES),
}];

const RULES: Rules = Rules {
    triggers: &["/spec/kubernetes", "/spec/controlPlane/deployment"],
    besides: &["replicas", "strategy"],
    version: &["/spec/kubernetes/version"],
    both_in_one_object: true,
    is_external,
    form,
    warnings: durable::no_warnings,
};

fn extra_args(component: &str) -> Path {
    Path::new(&["spec", "controlPlane", "deployment", "extraArgs", component])
}

fn is_external(object: &Value) -> bool {
    durable::is_external(object, &extra_args("controllerManager"), Shape::Dashed)
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    let situation = &Situation {
        controllers: Some(durable::KUBEADM_CONTROLLERS),
        ..*situation
    };
    let mut component = |field, component| {
        let path = extra_args(field);
        durable::arguments(document, &path, Shape::Dashed, component, situation)
    };
    component("controllerManager", Component::KubeControllerManager)?;
    component("apiServer", Component::KubeApiserver)
}
