//! Machines, their sets and templates: machine-controller (Kubermatic), OpenShift, Gardener, Rancher.

use outrigger_shared::migration::Profile;

use super::{
    format::{NAME_VALUE, TagFormat},
    row::{BASE, FieldIs, Policy, Reserver, TagRow, When, add, target},
};

const TEMPLATE: &[&str] = &["/spec/template"];

const MACHINE_CONTROLLER: TagRow = TagRow {
    group: "cluster.k8s.io",
    versions: &["v1alpha1"],
    profiles: &[Profile::Kubermatic, Profile::AwsResources],
    reserver: Reserver::Kubermatic,
    ..BASE
};

const OPENSHIFT: TagRow = TagRow {
    group: "machine.openshift.io",
    versions: &["v1beta1"],
    ..BASE
};

/// All names of the kind of AWS's provider specification.
const OPENSHIFT_AWS: &[&str] = &["AWSMachineProviderConfig"];

pub(super) const ROWS: &[TagRow] = &[
    // A change of the template replaces every machine, so an update is changed only when it changes the template itself
    // (not, for example, the replicas), or on request.
    TagRow {
        kind: "MachineDeployment",
        plural: "machinedeployments",
        on_aws: Some(FieldIs {
            pointer: "/spec/template/spec/providerSpec/value/cloudProvider",
            values: &["aws"],
        }),
        paths: &[target(
            "/spec/template/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        policy: add(When::CreateAndUpdate, TEMPLATE, &[]),
        ..MACHINE_CONTROLLER
    },
    // The MachineDeployment controller finds its MachineSet by comparing templates: it would never match one with an
    // additional tag, and create new ones endlessly.
    TagRow {
        kind: "MachineSet",
        plural: "machinesets",
        on_aws: Some(FieldIs {
            pointer: "/spec/template/spec/providerSpec/value/cloudProvider",
            values: &["aws"],
        }),
        paths: &[target(
            "/spec/template/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        policy: add(When::CreateAndUpdate, TEMPLATE, &["MachineDeployment"]),
        ..MACHINE_CONTROLLER
    },
    // The spec is immutable. Machines are not compared with a template, so new machines of a set are tagged even before
    // the template of the set is.
    TagRow {
        kind: "Machine",
        plural: "machines",
        on_aws: Some(FieldIs {
            pointer: "/spec/providerSpec/value/cloudProvider",
            values: &["aws"],
        }),
        paths: &[target(
            "/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        policy: add(When::Create, &[], &[]),
        ..MACHINE_CONTROLLER
    },
    TagRow {
        kind: "MachineSet",
        plural: "machinesets",
        on_aws: Some(FieldIs {
            pointer: "/spec/template/spec/providerSpec/value/kind",
            values: OPENSHIFT_AWS,
        }),
        paths: &[target("/spec/template/spec/providerSpec/value/tags", NAME_VALUE)],
        policy: add(When::CreateAndUpdate, TEMPLATE, &[]),
        ..OPENSHIFT
    },
    // A ControlPlaneMachineSet replaces Machines that differ from its template.
    TagRow {
        kind: "Machine",
        plural: "machines",
        on_aws: Some(FieldIs {
            pointer: "/spec/providerSpec/value/kind",
            values: OPENSHIFT_AWS,
        }),
        paths: &[target("/spec/providerSpec/value/tags", NAME_VALUE)],
        policy: add(When::Create, &[], &["ControlPlaneMachineSet"]),
        ..OPENSHIFT
    },
    TagRow {
        versions: &["v1"],
        kind: "ControlPlaneMachineSet",
        plural: "controlplanemachinesets",
        on_aws: Some(FieldIs {
            pointer: "/spec/template/machines_v1beta1_machine_openshift_io/spec/providerSpec/value/kind",
            values: OPENSHIFT_AWS,
        }),
        paths: &[target(
            "/spec/template/machines_v1beta1_machine_openshift_io/spec/providerSpec/value/tags",
            NAME_VALUE,
        )],
        policy: add(When::CreateAndUpdate, TEMPLATE, &[]),
        ..OPENSHIFT
    },
    TagRow {
        group: "machine.sapcloud.io",
        versions: &["v1alpha1"],
        kind: "MachineClass",
        plural: "machineclasses",
        on_aws: Some(FieldIs {
            pointer: "/provider",
            values: &["AWS", "aws"],
        }),
        paths: &[target("/providerSpec/tags", TagFormat::Map)],
        policy: Policy::Validate("Gardener writes the cluster's tag itself, with the value 1"),
        ..BASE
    },
    TagRow {
        group: "rke-machine-config.cattle.io",
        versions: &["v1"],
        kind: "Amazonec2Config",
        plural: "amazonec2configs",
        profiles: &[Profile::RancherRKE2, Profile::AwsResources],
        paths: &[target("/tags", TagFormat::CommaText)],
        policy: Policy::Validate("Rancher writes the cluster's tag itself"),
        ..BASE
    },
];
