//! Cluster API's provider for AWS. It puts the cluster's key with the value `owned` on all instances itself, so none is
//! added here. Another cluster's key would become a second one on every instance, which no other check finds.

use outrigger_shared::migration::Profile;

use super::{
    format::TagFormat,
    row::{BASE, Policy, Role, TagPath, TagRow, path},
};

const INFRASTRUCTURE: TagRow = TagRow {
    group: "infrastructure.cluster.x-k8s.io",
    versions: &["v1beta1", "v1beta2"],
    profiles: &[Profile::ClusterAPI, Profile::AwsResources],
    paths: &[target("/spec/additionalTags")],
    policy: Policy::Validate("Cluster API adds the cluster's tag itself"),
    ..BASE
};

const CONTROL_PLANE: TagRow = TagRow {
    group: "controlplane.cluster.x-k8s.io",
    ..INFRASTRUCTURE
};

const fn target(pointer: &'static str) -> TagPath {
    path(pointer, TagFormat::Map, Role::Target)
}

const fn other(pointer: &'static str) -> TagPath {
    path(pointer, TagFormat::Map, Role::Other)
}

const fn subnets(pointer: &'static str) -> TagPath {
    path(pointer, TagFormat::Map, Role::Subnets)
}

pub(super) const ROWS: &[TagRow] = &[
    TagRow {
        paths: &[
            target("/spec/additionalTags"),
            other("/spec/network/vpc/tags"),
            subnets("/spec/network/subnets/*/tags"),
        ],
        ..INFRASTRUCTURE.of("AWSCluster", "awsclusters")
    },
    TagRow {
        paths: &[
            target("/spec/template/spec/additionalTags"),
            other("/spec/template/spec/network/vpc/tags"),
            subnets("/spec/template/spec/network/subnets/*/tags"),
        ],
        ..INFRASTRUCTURE.of("AWSClusterTemplate", "awsclustertemplates")
    },
    TagRow {
        paths: &[
            target("/spec/additionalTags"),
            other("/spec/dynamicHostAllocation/tags"),
        ],
        ..INFRASTRUCTURE.of("AWSMachine", "awsmachines")
    },
    TagRow {
        paths: &[
            target("/spec/template/spec/additionalTags"),
            other("/spec/template/spec/dynamicHostAllocation/tags"),
        ],
        ..INFRASTRUCTURE.of("AWSMachineTemplate", "awsmachinetemplates")
    },
    INFRASTRUCTURE.of("AWSMachinePool", "awsmachinepools"),
    INFRASTRUCTURE.of("AWSManagedMachinePool", "awsmanagedmachinepools"),
    INFRASTRUCTURE.of("AWSFargateProfile", "awsfargateprofiles"),
    TagRow {
        versions: &["v1beta2"],
        ..INFRASTRUCTURE.of("ROSAMachinePool", "rosamachinepools")
    },
    TagRow {
        paths: &[
            target("/spec/additionalTags"),
            other("/spec/network/vpc/tags"),
            subnets("/spec/network/subnets/*/tags"),
            other("/spec/oidcIdentityProviderConfig/tags"),
        ],
        ..CONTROL_PLANE.of("AWSManagedControlPlane", "awsmanagedcontrolplanes")
    },
    TagRow {
        versions: &["v1beta2"],
        paths: &[
            target("/spec/template/spec/additionalTags"),
            other("/spec/template/spec/network/vpc/tags"),
            subnets("/spec/template/spec/network/subnets/*/tags"),
            other("/spec/template/spec/oidcIdentityProviderConfig/tags"),
        ],
        ..CONTROL_PLANE.of("AWSManagedControlPlaneTemplate", "awsmanagedcontrolplanetemplates")
    },
];
