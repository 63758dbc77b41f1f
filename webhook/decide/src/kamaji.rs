//! Kamaji's TenantControlPlane: one Deployment runs all components, with the arguments in this object. Kamaji reverts
//! changes of the Deployment, so the flags must be set here.
//!
//! Cluster API's KamajiControlPlane has the same lists, and its controller writes the TenantControlPlane from it
//! (<https://github.com/clastix/cluster-api-control-plane-provider-kamaji>). A TenantControlPlane with such an owner is
//! not changed. KThreesControlPlane, of Cluster API's K3s provider, has no rules and is refused, so that the operator
//! gets a warning.

use outrigger_shared::{
    component::Component,
    migration::{Phase, Profile},
};
use serde_json::Value;

use super::{
    Draft, Input, Kind, Migration,
    arguments::ListFormat,
    cluster_api::{CONTROL_PLANE, row},
    document::Document,
    fields::has_owner,
    provisioner_object::{self, Obstacle, Rules, Situation},
};
use crate::patch::Path;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        group: "kamaji.clastix.io",
        versions: &["v1alpha1"],
        kind: "TenantControlPlane",
        plural: "tenantcontrolplanes",
        namespaced: true,
        on_update: true,
        profiles: &[Profile::HostedControlPlane],
        is_concerned: |_| true,
        draft: tenant,
    },
    Kind {
        versions: &["v1alpha1", "v1alpha2"],
        ..row(
            (CONTROL_PLANE, "KamajiControlPlane", "kamajicontrolplanes"),
            |input, migration| provisioner_object::draft(input, migration, &CLUSTER_API),
        )
    },
    row((CONTROL_PLANE, "KThreesControlPlane", "kthreescontrolplanes"), k3s),
];

const TENANT: Rules = Rules {
    triggers: &["/spec/kubernetes", "/spec/controlPlane/deployment"],
    besides: &["replicas", "strategy"],
    version: &["/spec/kubernetes/version"],
    both_in_one_object: true,
    is_external: |object| is_external(object, OF_TENANT),
    form: |document, situation| form(document, situation, OF_TENANT),
    warnings: |_, _| Vec::new(),
};

const CLUSTER_API: Rules = Rules {
    triggers: &["/spec"],
    besides: &["replicas"],
    version: &["/spec/version"],
    is_external: |object| is_external(object, OF_CLUSTER_API),
    form: |document, situation| form(document, situation, OF_CLUSTER_API),
    ..TENANT
};

/// The path of the argument list of a component.
type ArgumentsPath = fn(&str) -> Path;

const OF_TENANT: ArgumentsPath = |component| Path::new(&["spec", "controlPlane", "deployment", "extraArgs", component]);
const OF_CLUSTER_API: ArgumentsPath = |component| Path::new(&["spec", component, "extraArgs"]);

fn is_external(object: &Value, place: ArgumentsPath) -> bool {
    provisioner_object::is_external(object, &place("controllerManager"), ListFormat::Dashed)
}

fn form(document: &mut Document, situation: &Situation<'_>, place: ArgumentsPath) -> Result<(), Obstacle> {
    let situation = &Situation {
        controllers: Some(provisioner_object::KUBEADM_CONTROLLERS),
        ..*situation
    };
    let mut component = |field, component| {
        let path = place(field);
        provisioner_object::arguments(document, &path, ListFormat::Dashed, component, situation, None)
    };
    component("controllerManager", Component::KubeControllerManager)?;
    component("apiServer", Component::KubeApiserver)
}

fn tenant(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let draft = provisioner_object::draft(input, migration, &TENANT);
    let is_owned = has_owner(input.object, "KamajiControlPlane", "");
    if is_owned && !draft.patch.is_empty() && migration.spec.phase > Phase::InTree {
        return Draft::refused(
            "nothing is changed: select its KamajiControlPlane by a target of profile ClusterAPI instead, which writes this object \
             again",
        );
    }

    draft
}

fn k3s(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    if migration.spec.phase == Phase::InTree || !input.may_act(&["/spec"], &["replicas"]) {
        return Draft::unchanged("no warning applies to it now");
    }
    Draft::refused(
        "nothing is changed: a KThreesControlPlane has no rules here; write the flags of the phase into \
         kthreesConfigSpec.serverConfig.kubeControllerManagerArgs and agentConfig.kubeletArgs, and select only its Nodes",
    )
}
