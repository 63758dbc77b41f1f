//! Machines, their sets and templates: machine-controller (Kubermatic), OpenShift, Gardener, Rancher.

use outrigger_shared::migration::Profile;

use super::{
    format::{NAME_VALUE, TagFormat},
    row::{BASE, Policy, Reserver, TagRow, When, add, field, target},
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
        on_aws: field("/spec/template/spec/providerSpec/value/cloudProvider", &["aws"]),
        paths: &[target(
            "/spec/template/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        ..MACHINE_CONTROLLER
            .of("MachineDeployment", "machinedeployments")
            .adds(When::CreateAndUpdate, TEMPLATE)
    },
    // The MachineDeployment controller finds its MachineSet by comparing templates: it would never match one with an
    // additional tag, and create new ones endlessly.
    TagRow {
        on_aws: field("/spec/template/spec/providerSpec/value/cloudProvider", &["aws"]),
        paths: &[target(
            "/spec/template/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        policy: add(When::CreateAndUpdate, TEMPLATE, &["MachineDeployment"]),
        ..MACHINE_CONTROLLER.of("MachineSet", "machinesets")
    },
    // The spec is immutable. Machines are not compared with a template, so new machines of a set are tagged even before
    // the template of the set is.
    TagRow {
        on_aws: field("/spec/providerSpec/value/cloudProvider", &["aws"]),
        paths: &[target(
            "/spec/providerSpec/value/cloudProviderSpec/tags",
            TagFormat::Map,
        )],
        ..MACHINE_CONTROLLER.of("Machine", "machines").adds(When::Create, &[])
    },
    TagRow {
        on_aws: field("/spec/template/spec/providerSpec/value/kind", OPENSHIFT_AWS),
        paths: &[target("/spec/template/spec/providerSpec/value/tags", NAME_VALUE)],
        ..OPENSHIFT
            .of("MachineSet", "machinesets")
            .adds(When::CreateAndUpdate, TEMPLATE)
    },
    // A ControlPlaneMachineSet replaces Machines that differ from its template.
    TagRow {
        on_aws: field("/spec/providerSpec/value/kind", OPENSHIFT_AWS),
        paths: &[target("/spec/providerSpec/value/tags", NAME_VALUE)],
        policy: add(When::Create, &[], &["ControlPlaneMachineSet"]),
        ..OPENSHIFT.of("Machine", "machines")
    },
    TagRow {
        versions: &["v1"],
        on_aws: field(
            "/spec/template/machines_v1beta1_machine_openshift_io/spec/providerSpec/value/kind",
            OPENSHIFT_AWS,
        ),
        paths: &[target(
            "/spec/template/machines_v1beta1_machine_openshift_io/spec/providerSpec/value/tags",
            NAME_VALUE,
        )],
        ..OPENSHIFT
            .of("ControlPlaneMachineSet", "controlplanemachinesets")
            .adds(When::CreateAndUpdate, TEMPLATE)
    },
    TagRow {
        group: "machine.sapcloud.io",
        versions: &["v1alpha1"],
        on_aws: field("/provider", &["AWS", "aws"]),
        paths: &[target("/providerSpec/tags", TagFormat::Map)],
        policy: Policy::Validate("Gardener writes the cluster's tag itself, with the value 1"),
        ..BASE.of("MachineClass", "machineclasses")
    },
    TagRow {
        group: "rke-machine-config.cattle.io",
        versions: &["v1"],
        profiles: &[Profile::RancherRKE2, Profile::AwsResources],
        paths: &[target("/tags", TagFormat::CommaText)],
        policy: Policy::Validate("Rancher writes the cluster's tag itself"),
        ..BASE.of("Amazonec2Config", "amazonec2configs")
    },
];
