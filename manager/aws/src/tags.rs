//! Tags, and how they tie a resource to a cluster.

use std::collections::BTreeMap;

/// Tags of one resource, by key. AWS allows 50 of them and compares keys and values case-sensitively.
pub type Tags = BTreeMap<String, String>;

/// Key of the tag that older clusters carry; its value is the cluster ID.
pub const LEGACY_CLUSTER_TAG: &str = "KubernetesCluster";

/// Key of the tag that ties a resource to the cluster `cluster_id`. Its value tells `owned` from `shared`.
#[must_use]
pub fn cluster_tag_key(cluster_id: &str) -> String {
    format!("kubernetes.io/cluster/{cluster_id}")
}

/// Whether a resource with these tags belongs to the cluster: the current tag with any value, even an empty one,
/// or the legacy tag with the cluster's ID. Old and new provider read tags in this way.
#[must_use]
pub fn has_cluster_tag(tags: &Tags, cluster_id: &str) -> bool {
    tags.contains_key(&cluster_tag_key(cluster_id))
        || tags.get(LEGACY_CLUSTER_TAG).is_some_and(|value| value == cluster_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn any_value_of_the_current_tag_and_only_the_own_id_in_the_legacy_tag_mean_membership() {
        assert!(has_cluster_tag(&tags(&[("kubernetes.io/cluster/prod", "")]), "prod"));
        assert!(has_cluster_tag(
            &tags(&[("kubernetes.io/cluster/prod", "shared")]),
            "prod"
        ));
        assert!(has_cluster_tag(&tags(&[("KubernetesCluster", "prod")]), "prod"));
        assert!(!has_cluster_tag(&tags(&[("KubernetesCluster", "test")]), "prod"));
        assert!(!has_cluster_tag(
            &tags(&[("kubernetes.io/cluster/test", "owned")]),
            "prod"
        ));
        assert!(!has_cluster_tag(
            &tags(&[("Kubernetes.io/cluster/prod", "owned")]),
            "prod"
        ));
    }
}
