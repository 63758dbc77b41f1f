//! Crossplane: the Upbound family (generated, tags as maps) and the older community provider (tags mostly as lists).
//! Crossplane adds its own tags, but not the cluster's. The tag is added to the same resources as for ACK.

use super::{
    format::{KEY_VALUE, TagFormat},
    row::{BASE, NOT_LOOKED_FOR, Policy, Role, TagPath, TagRow, When, path},
};

const UPBOUND: TagRow = TagRow {
    group: "ec2.aws.upbound.io",
    versions: &["v1beta1"],
    namespaced: false,
    paths: &[
        path("/spec/forProvider/tags", TagFormat::Map, Role::Target),
        path("/spec/initProvider/tags", TagFormat::Map, Role::Same),
    ],
    policy: Policy::Validate(NOT_LOOKED_FOR),
    ..BASE
};

const UPBOUND_NETWORK: TagRow = TagRow {
    shareable: true,
    ..UPBOUND
};

const COMMUNITY: TagRow = TagRow {
    group: "ec2.aws.crossplane.io",
    paths: &[path("/spec/forProvider/tags", KEY_VALUE, Role::Target)],
    ..UPBOUND
};

const COMMUNITY_NETWORK: TagRow = TagRow {
    shareable: true,
    ..COMMUNITY
};

const COMMUNITY_EKS: TagRow = TagRow {
    group: "eks.aws.crossplane.io",
    paths: &[path("/spec/forProvider/tags", TagFormat::Map, Role::Target)],
    ..UPBOUND
};

const fn map(pointer: &'static str) -> TagPath {
    path(pointer, TagFormat::Map, Role::Other)
}

const fn list(pointer: &'static str) -> TagPath {
    path(pointer, KEY_VALUE, Role::Other)
}

/// A kind of the Upbound family in a group of its own.
const fn upbound(group: &'static str, kind: &'static str, plural: &'static str) -> TagRow {
    TagRow {
        group,
        versions: &["v1beta1", "v1beta2"],
        ..UPBOUND.of(kind, plural)
    }
}

/// A kind that the community provider has only in its first version.
const fn alpha(row: TagRow, kind: &'static str, plural: &'static str) -> TagRow {
    TagRow {
        versions: &["v1alpha1"],
        ..row.of(kind, plural)
    }
}

const TRIGGERS: &[&str] = &["/spec/forProvider"];

/// One row per group, because their formats differ; the paths of both versions of the Upbound kinds are listed.
pub(super) const ROWS: &[TagRow] = &[
    TagRow {
        versions: &["v1beta1", "v1beta2"],
        paths: &[
            path("/spec/forProvider/tags", TagFormat::Map, Role::Target),
            path("/spec/initProvider/tags", TagFormat::Map, Role::Same),
            map("/spec/forProvider/volumeTags"),
            map("/spec/forProvider/ebsBlockDevice/*/tags"),
            map("/spec/forProvider/rootBlockDevice/tags"),
            map("/spec/forProvider/rootBlockDevice/*/tags"),
            map("/spec/initProvider/volumeTags"),
            map("/spec/initProvider/ebsBlockDevice/*/tags"),
            map("/spec/initProvider/rootBlockDevice/tags"),
            map("/spec/initProvider/rootBlockDevice/*/tags"),
        ],
        ..UPBOUND
            .of("Instance", "instances")
            .adds(When::CreateAndUpdate, TRIGGERS)
    },
    TagRow {
        versions: &["v1beta1", "v1beta2"],
        paths: &[
            map("/spec/forProvider/tags"),
            map("/spec/forProvider/tagSpecifications/*/tags"),
            map("/spec/initProvider/tags"),
            map("/spec/initProvider/tagSpecifications/*/tags"),
        ],
        launch_template: Some("/spec/forProvider/tagSpecifications"),
        ..UPBOUND
            .of("LaunchTemplate", "launchtemplates")
            .adds(When::Create, TRIGGERS)
    },
    // Releases before v1beta2 have `tags` in addition to `tag`, with the same meaning.
    TagRow {
        group: "autoscaling.aws.upbound.io",
        versions: &["v1beta1", "v1beta2", "v1beta3"],
        kind: "AutoscalingGroup",
        plural: "autoscalinggroups",
        paths: &[
            path("/spec/forProvider/tag", TagFormat::GroupList, Role::Target),
            path("/spec/forProvider/tags", KEY_VALUE, Role::Same),
            path("/spec/initProvider/tag", TagFormat::GroupList, Role::Same),
            path("/spec/initProvider/tags", KEY_VALUE, Role::Same),
        ],
        ..UPBOUND.adds(When::CreateAndUpdate, TRIGGERS)
    },
    UPBOUND
        .of("EBSVolume", "ebsvolumes")
        .adds(When::CreateAndUpdate, TRIGGERS),
    UPBOUND_NETWORK
        .of("Subnet", "subnets")
        .adds(When::CreateAndUpdate, TRIGGERS),
    UPBOUND_NETWORK
        .of("RouteTable", "routetables")
        .adds(When::CreateAndUpdate, TRIGGERS),
    UPBOUND_NETWORK
        .of("SecurityGroup", "securitygroups")
        .adds(When::Asked, TRIGGERS),
    UPBOUND_NETWORK.of("VPC", "vpcs"),
    upbound("elb.aws.upbound.io", "ELB", "elbs"),
    upbound("elbv2.aws.upbound.io", "LB", "lbs"),
    upbound("eks.aws.upbound.io", "Cluster", "clusters"),
    TagRow {
        paths: &[
            path("/spec/forProvider/tags", KEY_VALUE, Role::Target),
            path("/spec/forProvider/tagSpecifications/*/tags", KEY_VALUE, Role::Same),
        ],
        ..alpha(COMMUNITY, "Instance", "instances").adds(When::CreateAndUpdate, TRIGGERS)
    },
    TagRow {
        paths: &[
            list("/spec/forProvider/tags"),
            list("/spec/forProvider/tagSpecifications/*/tags"),
            list("/spec/forProvider/launchTemplateData/tagSpecifications/*/tags"),
        ],
        launch_template: Some("/spec/forProvider/launchTemplateData/tagSpecifications"),
        ..alpha(COMMUNITY, "LaunchTemplate", "launchtemplates").adds(When::Create, TRIGGERS)
    },
    TagRow {
        paths: &[
            path("/spec/forProvider/tags", TagFormat::Map, Role::Target),
            path("/spec/forProvider/tagSpecifications/*/tags", KEY_VALUE, Role::Same),
        ],
        ..alpha(COMMUNITY, "Volume", "volumes").adds(When::CreateAndUpdate, TRIGGERS)
    },
    COMMUNITY_NETWORK
        .of("Subnet", "subnets")
        .adds(When::CreateAndUpdate, TRIGGERS),
    COMMUNITY_NETWORK
        .of("RouteTable", "routetables")
        .adds(When::CreateAndUpdate, TRIGGERS),
    COMMUNITY_NETWORK
        .of("SecurityGroup", "securitygroups")
        .adds(When::Asked, TRIGGERS),
    COMMUNITY_NETWORK.of("VPC", "vpcs"),
    TagRow {
        group: "elasticloadbalancing.aws.crossplane.io",
        ..alpha(COMMUNITY, "ELB", "elbs")
    },
    TagRow {
        group: "elbv2.aws.crossplane.io",
        ..alpha(COMMUNITY, "LoadBalancer", "loadbalancers")
    },
    COMMUNITY_EKS.of("Cluster", "clusters"),
    alpha(COMMUNITY_EKS, "NodeGroup", "nodegroups"),
];
