//! Kinds whose controller adds the cluster's tag itself, or rejects it: Karpenter, kOps, HyperShift, StorageClasses,
//! and the annotation of Services.

use outrigger_shared::migration::Profile;

use super::{
    format::{KEY_VALUE, TagFormat},
    row::{self, Policy, TagRow, field, target},
};

/// Most of these kinds have just the one version.
const BASE: TagRow = TagRow {
    versions: &["v1"],
    ..row::BASE
};

const KOPS: TagRow = TagRow {
    group: "kops.k8s.io",
    versions: &["v1alpha2"],
    paths: &[target("/spec/cloudLabels", TagFormat::Map)],
    policy: Policy::Illegal("kOps writes it itself and refuses it in cloudLabels; remove it"),
    ..BASE
};

const HYPERSHIFT: TagRow = TagRow {
    group: "hypershift.openshift.io",
    versions: &["v1beta1"],
    on_aws: field("/spec/platform/type", &["AWS"]),
    profiles: &[Profile::HostedControlPlane, Profile::AwsResources],
    paths: &[target("/spec/platform/aws/resourceTags", KEY_VALUE)],
    policy: Policy::Validate("HyperShift writes the cluster's tag itself"),
    ..BASE
};

const CLASS: TagRow = TagRow {
    group: "storage.k8s.io",
    namespaced: false,
    paths: &[target("/parameters", TagFormat::Parameters)],
    policy: Policy::Illegal(
        "the EBS driver accepts the class and then creates no volume; remove it and give the driver --k8s-tag-cluster-id",
    ),
    ..BASE
};
const EBS_DRIVER: &[&str] = &["ebs.csi.aws.com"];

/// The annotation with the tags of a Service's load balancer.
pub(crate) const SERVICE_TAGS: &str = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags";
const SERVICE_TAGS_POINTER: &str =
    "/metadata/annotations/service.beta.kubernetes.io~1aws-load-balancer-additional-resource-tags";

pub(super) const ROWS: &[TagRow] = &[
    TagRow {
        group: "karpenter.k8s.aws",
        versions: &["v1", "v1beta1"],
        namespaced: false,
        paths: &[target("/spec/tags", TagFormat::Map)],
        policy: Policy::Illegal("Karpenter writes it itself and refuses the object; remove it"),
        ..BASE.of("EC2NodeClass", "ec2nodeclasses")
    },
    KOPS.of("Cluster", "clusters"),
    KOPS.of("InstanceGroup", "instancegroups"),
    HYPERSHIFT.of("HostedCluster", "hostedclusters"),
    HYPERSHIFT.of("NodePool", "nodepools"),
    TagRow {
        on_aws: field("/provisioner", &["ebs.csi.aws.com", "kubernetes.io/aws-ebs"]),
        ..CLASS.of("StorageClass", "storageclasses")
    },
    TagRow {
        versions: &["v1alpha1", "v1beta1", "v1"],
        on_aws: field("/driverName", EBS_DRIVER),
        ..CLASS.of("VolumeAttributesClass", "volumeattributesclasses")
    },
    TagRow {
        group: "snapshot.storage.k8s.io",
        on_aws: field("/driver", EBS_DRIVER),
        ..CLASS.of("VolumeSnapshotClass", "volumesnapshotclasses")
    },
    TagRow {
        paths: &[target(SERVICE_TAGS_POINTER, TagFormat::EqualsText)],
        policy: Policy::Validate("a cloud-controller-manager writes the cluster's tag itself"),
        ..BASE.of("Service", "services")
    },
];
