//! Crossplane: the Upbound family (generated, tags as maps) and the older community provider (tags mostly as lists).
//! Crossplane adds its own tags, but not the cluster's. The tag is added to the same resources as for ACK.

use super::{
    format::{KEY_VALUE, TagFormat},
    row::{BASE, NOT_LOOKED_FOR, Policy, Role, TagPath, TagRow, When, add, path},
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

const COMMUNITY: TagRow = TagRow {
    group: "ec2.aws.crossplane.io",
    paths: &[path("/spec/forProvider/tags", KEY_VALUE, Role::Target)],
    ..UPBOUND
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

const TRIGGERS: &[&str] = &["/spec/forProvider"];

/// One row per group, because their formats differ; the paths of both versions of the Upbound kinds are listed.
pub(super) const ROWS: &[TagRow] = &[
    TagRow {
        versions: &["v1beta1", "v1beta2"],
        kind: "Instance",
        plural: "instances",
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
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        ..UPBOUND
    },
    TagRow {
        versions: &["v1beta1", "v1beta2"],
        kind: "LaunchTemplate",
        plural: "launchtemplates",
        paths: &[
            map("/spec/forProvider/tags"),
            map("/spec/forProvider/tagSpecifications/*/tags"),
            map("/spec/initProvider/tags"),
            map("/spec/initProvider/tagSpecifications/*/tags"),
        ],
        launch_template: Some("/spec/forProvider/tagSpecifications"),
        policy: add(When::Create, TRIGGERS, &[]),
        ..UPBOUND
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
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        ..UPBOUND
    },
    TagRow {
        kind: "EBSVolume",
        plural: "ebsvolumes",
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        ..UPBOUND
    },
    TagRow {
        kind: "Subnet",
        plural: "subnets",
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        shareable: true,
        ..UPBOUND
    },
    TagRow {
        kind: "RouteTable",
        plural: "routetables",
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        shareable: true,
        ..UPBOUND
    },
    TagRow {
        kind: "SecurityGroup",
        plural: "securitygroups",
        policy: add(When::Asked, TRIGGERS, &[]),
        shareable: true,
        ..UPBOUND
    },
    TagRow {
        kind: "VPC",
        plural: "vpcs",
        shareable: true,
        ..UPBOUND
    },
    TagRow {
        group: "elb.aws.upbound.io",
        versions: &["v1beta1", "v1beta2"],
        kind: "ELB",
        plural: "elbs",
        ..UPBOUND
    },
    TagRow {
        group: "elbv2.aws.upbound.io",
        versions: &["v1beta1", "v1beta2"],
        kind: "LB",
        plural: "lbs",
        ..UPBOUND
    },
    TagRow {
        group: "eks.aws.upbound.io",
        versions: &["v1beta1", "v1beta2"],
        kind: "Cluster",
        plural: "clusters",
        ..UPBOUND
    },
    TagRow {
        versions: &["v1alpha1"],
        kind: "Instance",
        plural: "instances",
        paths: &[
            path("/spec/forProvider/tags", KEY_VALUE, Role::Target),
            path("/spec/forProvider/tagSpecifications/*/tags", KEY_VALUE, Role::Same),
        ],
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        ..COMMUNITY
    },
    TagRow {
        versions: &["v1alpha1"],
        kind: "LaunchTemplate",
        plural: "launchtemplates",
        paths: &[
            list("/spec/forProvider/tags"),
            list("/spec/forProvider/tagSpecifications/*/tags"),
            list("/spec/forProvider/launchTemplateData/tagSpecifications/*/tags"),
        ],
        launch_template: Some("/spec/forProvider/launchTemplateData/tagSpecifications"),
        policy: add(When::Create, TRIGGERS, &[]),
        ..COMMUNITY
    },
    TagRow {
        versions: &["v1alpha1"],
        kind: "Volume",
        plural: "volumes",
        paths: &[
            path("/spec/forProvider/tags", TagFormat::Map, Role::Target),
            path("/spec/forProvider/tagSpecifications/*/tags", KEY_VALUE, Role::Same),
        ],
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        ..COMMUNITY
    },
    TagRow {
        kind: "Subnet",
        plural: "subnets",
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        shareable: true,
        ..COMMUNITY
    },
    TagRow {
        kind: "RouteTable",
        plural: "routetables",
        policy: add(When::CreateAndUpdate, TRIGGERS, &[]),
        shareable: true,
        ..COMMUNITY
    },
    TagRow {
        kind: "SecurityGroup",
        plural: "securitygroups",
        policy: add(When::Asked, TRIGGERS, &[]),
        shareable: true,
        ..COMMUNITY
    },
    TagRow {
        kind: "VPC",
        plural: "vpcs",
        shareable: true,
        ..COMMUNITY
    },
    TagRow {
        group: "elasticloadbalancing.aws.crossplane.io",
        versions: &["v1alpha1"],
        kind: "ELB",
        plural: "elbs",
        ..COMMUNITY
    },
    TagRow {
        group: "elbv2.aws.crossplane.io",
        versions: &["v1alpha1"],
        kind: "LoadBalancer",
        plural: "loadbalancers",
        ..COMMUNITY
    },
    TagRow {
        kind: "Cluster",
        plural: "clusters",
        ..COMMUNITY_EKS
    },
    TagRow {
        versions: &["v1alpha1"],
        kind: "NodeGroup",
        plural: "nodegroups",
        ..COMMUNITY_EKS
    },
];
