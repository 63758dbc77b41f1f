//! The AWS tags that say which cluster a resource belongs to, as every AWS cloud provider of Kubernetes reads them.
//!
//! A resource belongs to a cluster by the tag's *key*, whatever its value (`owned`, `shared`, `1` and the empty text
//! are all in use); it is owned only with the value `owned`, or by the legacy tag.

/// Prefix of the current tag's key; the cluster ID follows.
pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";

/// Key of the legacy tag; its value is the cluster ID.
pub const LEGACY_CLUSTER: &str = "KubernetesCluster";

/// Value of the current tag on resources that the cluster may change and delete.
pub const OWNED: &str = "owned";

/// Value of the current tag on resources that several clusters use.
pub const SHARED: &str = "shared";

/// Key that Outrigger's manager writes on new load balancers, target groups and security groups: the UID of the
/// namespace `kube-system`, by which the sweep tells clusters with one ID apart.
pub const CLUSTER_UID: &str = "outrigger.dev/cluster-uid";

/// Key by which Kubermatic finds the resources of a cluster.
pub const SYSTEM_CLUSTER: &str = "system/cluster";

/// Key by which Karpenter finds subnets and security groups for new instances. Users set it on their own ones.
pub const KARPENTER_DISCOVERY: &str = "karpenter.sh/discovery";

/// Keys, or prefixes with `*` at the end, and the controllers that identify their resources by them.
const RESERVED: [(&str, &str); 18] = [
    ("kubernetes.io/service-name", "a cloud-controller-manager"),
    (CLUSTER_UID, "Outrigger's cloud-controller-manager"),
    ("elbv2.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("ingress.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("service.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("gateway.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("CSIVolumeName", "the EBS driver"),
    ("CSIVolumeSnapshotName", "the EBS driver"),
    ("ebs.csi.aws.com/*", "the EBS driver"),
    ("karpenter.sh/*", "Karpenter"),
    ("karpenter.k8s.aws/*", "Karpenter"),
    ("eks:*", "EKS"),
    ("aws:*", "AWS"),
    ("sigs.k8s.io/cluster-api-provider-aws/*", "Cluster API"),
    ("kops.k8s.io/*", "kOps"),
    ("k8s.io/role/*", "kOps"),
    ("owned-by.kubermatic.k8c.io/*", "Kubermatic"),
    (SYSTEM_CLUSTER, "Kubermatic"),
];

/// The controller that identifies its resources by this key. If another resource has the key, that controller may use or
/// keep it.
#[must_use]
pub fn reserved_for(key: &str) -> Option<&'static str> {
    let covers = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    };
    let owner = RESERVED.iter().find(|(pattern, _)| covers(pattern));
    owner.map(|(_, whose)| *whose)
}

/// The current tag's key for a cluster: `kubernetes.io/cluster/ID`.
#[must_use]
pub fn cluster_key(cluster_id: &str) -> String {
    format!("{CLUSTER_PREFIX}{cluster_id}")
}

/// The cluster that a current tag's key names. A key that ends at the prefix names none.
#[must_use]
pub fn cluster_of_key(key: &str) -> Option<&str> {
    key.strip_prefix(CLUSTER_PREFIX).filter(|id| !id.is_empty())
}

/// The cluster that a tag names, by the current key or by the legacy one.
#[must_use]
pub fn cluster_named<'a>(key: &'a str, value: &'a str) -> Option<&'a str> {
    cluster_of_key(key).or_else(|| (key == LEGACY_CLUSTER).then_some(value))
}

/// Another cluster that tags name, if they do not name this one too.
#[must_use]
pub fn other_owner<'a>(cluster_id: &str, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let mut other = None;
    let named = tags.into_iter().filter_map(|(key, value)| cluster_named(key, value));
    for cluster in named.filter(|cluster| !cluster.is_empty()) {
        if cluster == cluster_id {
            return None;
        }
        other = Some(cluster);
    }

    other
}

/// Whether tags put a resource into the cluster.
#[must_use]
pub fn belongs_to<'a>(cluster_id: &str, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    tags.into_iter()
        .any(|(key, value)| cluster_named(key, value) == Some(cluster_id))
}

/// Whether tags say that the cluster may change and delete a resource.
#[must_use]
pub fn owned_by<'a>(cluster_id: &str, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    tags.into_iter().any(|(key, value)| {
        (cluster_of_key(key) == Some(cluster_id) && value == OWNED) || (key == LEGACY_CLUSTER && value == cluster_id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_is_by_key_whatever_the_value() {
        for value in ["owned", "shared", "1", ""] {
            assert!(belongs_to("prod", [("kubernetes.io/cluster/prod", value)]), "{value}");
        }
        assert!(!belongs_to("prod", [("kubernetes.io/cluster/prod2", "owned")]));
        assert!(belongs_to("prod", [("KubernetesCluster", "prod")]));
        assert!(!belongs_to("prod", [("KubernetesCluster", "test")]));
    }

    #[test]
    fn ownership_needs_the_value_owned_or_the_legacy_tag() {
        assert!(owned_by("prod", [("kubernetes.io/cluster/prod", "owned")]));
        assert!(owned_by("prod", [("KubernetesCluster", "prod")]));
        for value in ["shared", "Owned", "", "1"] {
            assert!(!owned_by("prod", [("kubernetes.io/cluster/prod", value)]), "{value}");
        }
    }

    #[test]
    fn another_owner_is_named_only_where_the_cluster_itself_is_not() {
        let own = ("kubernetes.io/cluster/prod", "owned");
        let other = ("kubernetes.io/cluster/test", "owned");
        assert_eq!(other_owner("prod", [other]), Some("test"));
        assert_eq!(other_owner("prod", [("KubernetesCluster", "test")]), Some("test"));
        assert_eq!(other_owner("prod", [other, own]), None);
        assert_eq!(other_owner("prod", [other, ("KubernetesCluster", "prod")]), None);
        assert_eq!(other_owner("prod", [("team", "a"), ("KubernetesCluster", "")]), None);
    }

    #[test]
    fn keys_of_other_controllers_are_reserved() {
        for key in [
            "karpenter.sh/discovery",
            "elbv2.k8s.aws/cluster",
            "service.k8s.aws/stack",
            "aws:x",
        ] {
            assert!(reserved_for(key).is_some(), "{key}");
        }
        for key in [
            "team",
            "karpenter",
            "kubernetes.io/cluster/prod",
            "kubernetes.io/role/elb",
        ] {
            assert_eq!(reserved_for(key), None, "{key}");
        }
    }

    #[test]
    fn a_key_without_an_id_names_no_cluster() {
        assert_eq!(cluster_of_key("kubernetes.io/cluster/"), None);
        assert_eq!(cluster_of_key(&cluster_key("prod")), Some("prod"));
        assert!(!belongs_to("", [("kubernetes.io/cluster/", "owned")]));
    }
}
