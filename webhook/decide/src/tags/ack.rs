//! AWS Controllers for Kubernetes (ACK): one object per AWS resource. ACK does not add the cluster's tag.
//!
//! The tag is added to the resources where a cloud-controller-manager requires it: instances, subnets and route tables.
//! An instance may have only one security group with the tag, else load balancers fail, so security groups get it only
//! on request.

use super::{
    format::{KEY_VALUE, TagFormat},
    row::{BASE, NOT_LOOKED_FOR, Policy, Role, TagRow, When, path, target},
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
    EC2.of("Instance", "instances").adds(When::CreateAndUpdate, SPEC),
    // A new version of a launch template may replace machines.
    TagRow {
        paths: &[
            path("/spec/tags", KEY_VALUE, Role::Other),
            path("/spec/data/tagSpecifications/*/tags", KEY_VALUE, Role::Other),
        ],
        launch_template: Some("/spec/data/tagSpecifications"),
        ..EC2.of("LaunchTemplate", "launchtemplates").adds(When::Create, SPEC)
    },
    NETWORK.of("Subnet", "subnets").adds(When::CreateAndUpdate, SPEC),
    NETWORK
        .of("RouteTable", "routetables")
        .adds(When::CreateAndUpdate, SPEC),
    NETWORK.of("SecurityGroup", "securitygroups").adds(When::Asked, SPEC),
    NETWORK.of("VPC", "vpcs"),
    NETWORK.of("InternetGateway", "internetgateways"),
    NETWORK.of("NATGateway", "natgateways"),
    EC2.of("ElasticIPAddress", "elasticipaddresses"),
    ELB.of("LoadBalancer", "loadbalancers"),
    ELB.of("TargetGroup", "targetgroups"),
    EKS.of("Cluster", "clusters"),
    EKS.of("Nodegroup", "nodegroups"),
];
