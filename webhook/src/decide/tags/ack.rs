//! AWS Controllers for Kubernetes (ACK): one object per AWS resource. ACK does not add the cluster's tag.
//!
//! The tag is added to the resources where a cloud-controller-manager requires it: instances, subnets and route tables.
//! An instance may have only one security group with the tag, else load balancers fail, so security groups get it only
//! on request.

use super::{
    format::{KEY_VALUE, TagFormat},
    row::{BASE, NOT_LOOKED_FOR, Policy, Role, TagPath, TagRow, When, add, target},
};

const EC2: TagRow = TagRow {
    group: "ec2.services.k8s.aws",
    versions: &["v1alpha1"],
    paths: &[target("/spec/tags", KEY_VALUE)],
    policy: Policy::Validate(NOT_LOOKED_FOR),
    ..BASE
};

const NETWORK: TagRow = TagRow { shareable: true, ..EC2 };

const ELB: TagRow = TagRow {
    group: "elbv2.services.k8s.aws",
    ..EC2
};

const EKS: TagRow = TagRow {
    group: "eks.services.k8s.aws",
    paths: &[target("/spec/tags", TagFormat::Map)],
    ..EC2
};

const SPEC: &[&str] = &["/spec"];

pub(super) const ROWS: &[TagRow] = &[
    TagRow {
        kind: "Instance",
        plural: "instances",
        policy: add(When::CreateAndUpdate, SPEC, &[]),
        ..EC2
    },
    // A new version of a launch template may replace machines.
    TagRow {
        kind: "LaunchTemplate",
        plural: "launchtemplates",
        paths: &[
            TagPath {
                pointer: "/spec/tags",
                shape: KEY_VALUE,
                role: Role::Other,
            },
            TagPath {
                pointer: "/spec/data/tagSpecifications/*/tags",
                shape: KEY_VALUE,
                role: Role::Other,
            },
        ],
        launch_template: Some("/spec/data/tagSpecifications"),
        policy: add(When::Create, SPEC, &[]),
        ..EC2
    },
    TagRow {
        kind: "Subnet",
        plural: "subnets",
        policy: add(When::CreateAndUpdate, SPEC, &[]),
        ..NETWORK
    },
    TagRow {
        kind: "RouteTable",
        plural: "routetables",
        policy: add(When::CreateAndUpdate, SPEC, &[]),
        ..NETWORK
    },
    TagRow {
        kind: "SecurityGroup",
        plural: "securitygroups",
        policy: add(When::Asked, SPEC, &[]),
        ..NETWORK
    },
    TagRow {
        kind: "VPC",
        plural: "vpcs",
        ..NETWORK
    },
    TagRow {
        kind: "InternetGateway",
        plural: "internetgateways",
        ..NETWORK
    },
    TagRow {
        kind: "NATGateway",
        plural: "natgateways",
        ..NETWORK
    },
    TagRow {
        kind: "ElasticIPAddress",
        plural: "elasticipaddresses",
        ..EC2
    },
    TagRow {
        kind: "LoadBalancer",
        plural: "loadbalancers",
        ..ELB
    },
    TagRow {
        kind: "TargetGroup",
        plural: "targetgroups",
        ..ELB
    },
    TagRow {
        kind: "Cluster",
        plural: "clusters",
        ..EKS
    },
    TagRow {
        kind: "Nodegroup",
        plural: "nodegroups",
        ..EKS
    },
];
