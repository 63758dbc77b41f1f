//! Names and tags of a Service's AWS resources. The in-tree and the external provider use the same, so that each finds
//! the other's resources.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_shared::tags;

use super::super::settings::Settings;

/// The finalizer that keeps a Service until its load balancer is deleted.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

pub const SERVICE_TAG: &str = "kubernetes.io/service-name";

/// Key of the tag with the UID of the namespace `kube-system`, which tells clusters of the same ID apart. A resource
/// gets it when it is created, and never later.
pub const CLUSTER_UID_TAG: &str = tags::CLUSTER_UID;

/// Tags of a classic load balancer, at most:
/// <https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_AddTags.html>
pub const MOST_CLASSIC_TAGS: usize = 10;

/// Tags of any other resource, at most:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions>
pub const MOST_TAGS: usize = 50;

/// Policy that makes a classic load balancer send the proxy protocol.
pub const PROXY_POLICY: &str = "k8s-proxyprotocol-enabled";

/// Prefix of the policies that fix the TLS ciphers of a listener; AWS's own policy name follows.
pub const TLS_POLICY_PREFIX: &str = "k8s-SSLNegotiationPolicy-";

const LONGEST_NAME: usize = 32;

/// The load balancer's name: `a`, then the Service's UID without dashes, cut to 32 characters.
pub fn load_balancer(uid: &str) -> String {
    let name = uid.chars().filter(|c| *c != '-');
    std::iter::once('a').chain(name).take(LONGEST_NAME).collect()
}

/// Whether it has the form of a name that both providers give a load balancer: with 31 of the 32 digits of a UID.
pub fn is_load_balancer(name: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    name.len() == 32 && name.starts_with('a') && name.chars().all(digit)
}

pub fn security_group(load_balancer: &str) -> String {
    format!("k8s-elb-{load_balancer}")
}

pub fn security_group_description(load_balancer: &str, namespace: &str, name: &str) -> String {
    format!("Security group for Kubernetes ELB {load_balancer} ({namespace}/{name})")
}

/// The tags of the owning cluster; the legacy one only in clusters that use it.
pub fn cluster_tags(cluster_id: &str, legacy: bool) -> Tags {
    let mut of_cluster = Tags::from([(tags::cluster_key(cluster_id), tags::OWNED.to_owned())]);
    if legacy {
        of_cluster.insert(tags::LEGACY_CLUSTER.to_owned(), cluster_id.to_owned());
    }
    of_cluster
}

/// Tags of a new resource: with the cluster's UID, if that is known and AWS allows one more tag.
pub fn creation_tags(wanted: &Tags, cluster_uid: Option<&str>, most: usize) -> Tags {
    let mut tags = wanted.clone();
    if let Some(uid) = cluster_uid.filter(|_| tags.len() < most) {
        tags.insert(CLUSTER_UID_TAG.to_owned(), uid.to_owned());
    }
    tags
}

pub fn in_cluster(of_resource: &Tags, cluster_id: &str) -> bool {
    let pairs = of_resource.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    tags::belongs_to(cluster_id, pairs)
}

pub fn namespaced(service: &Service) -> (&str, &str) {
    let metadata = &service.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    (namespace.unwrap_or_default(), name.unwrap_or_default())
}

pub fn uid(service: &Service) -> &str {
    service.metadata.uid.as_deref().unwrap_or_default()
}

/// `namespace/name`.
pub fn namespaced_name(service: &Service) -> String {
    let (namespace, name) = namespaced(service);
    format!("{namespace}/{name}")
}

// The cluster that owns a load balancer. Its name is derived from the Service's UID, which a restored copy of a cluster
// shares with the original, often together with the cluster ID. The UID of the namespace `kube-system`, in the tag
// `outrigger.dev/cluster-uid`, tells the two apart.

/// The UID of another cluster in the tags; `None` if there is none, or this cluster's UID is unknown.
pub fn other_uid<'a>(of_resource: &'a Tags, settings: &Settings) -> Option<&'a str> {
    let own = settings.cluster_uid.as_ref()?;
    let named = of_resource.get(CLUSTER_UID_TAG)?;
    (named != own).then_some(named)
}

/// The UID or ID of the other cluster that a load balancer belongs to. Without known tags it counts as this cluster's,
/// as in v1.37.0.
pub fn other_owner<'a>(of_balancer: Option<&'a Tags>, settings: &Settings) -> Option<&'a str> {
    let of_balancer = of_balancer?;
    let pairs = of_balancer.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    other_uid(of_balancer, settings).or_else(|| tags::other_owner(&settings.cluster_id, pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_in_tree_provider() {
        let name = load_balancer("12345678-1234-1234-1234-123456789abc");
        assert_eq!(name, "a12345678123412341234123456789ab");
        assert_eq!(security_group(&name), "k8s-elb-a12345678123412341234123456789ab");
        assert_eq!(load_balancer("id"), "aid");
        assert_eq!(
            security_group_description(&name, "default", "web"),
            "Security group for Kubernetes ELB a12345678123412341234123456789ab (default/web)"
        );
    }

    #[test]
    fn the_uid_is_left_out_where_it_is_not_known_or_the_tags_are_full() {
        let nine: Tags = (0..9).map(|n| (format!("key{n}"), String::new())).collect();
        let with = creation_tags(&nine, Some("u"), MOST_CLASSIC_TAGS);
        assert_eq!((with.len(), with[CLUSTER_UID_TAG].as_str()), (10, "u"));
        assert_eq!(creation_tags(&nine, None, MOST_CLASSIC_TAGS), nine);
        let ten = cluster_tags("prod", false).into_iter().chain(nine).collect();
        assert_eq!(creation_tags(&ten, Some("u"), MOST_CLASSIC_TAGS), ten);
        assert_eq!(creation_tags(&ten, Some("u"), MOST_TAGS).len(), 11);
    }

    #[test]
    fn the_legacy_tag_stands_beside_the_current_one() {
        let one = [("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())];
        assert_eq!(cluster_tags("prod", false), Tags::from(one));
        assert_eq!(
            cluster_tags("prod", true).get("KubernetesCluster").map(String::as_str),
            Some("prod")
        );
    }

    fn settings(cluster_uid: Option<&str>) -> Settings {
        Settings {
            cluster_id: "prod".into(),
            cluster_uid: cluster_uid.map(str::to_owned),
            ..Settings::default()
        }
    }

    #[test]
    fn a_load_balancer_is_another_clusters_by_its_uid_or_its_id() {
        let tags = |pairs: &[(&str, &str)]| -> Tags {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let own = ("kubernetes.io/cluster/prod", "owned");
        let of_other_id = tags(&[("kubernetes.io/cluster/test", "owned")]);
        let of_other_uid = tags(&[own, (CLUSTER_UID_TAG, "u-2")]);
        let of_incumbent = tags(&[own]);
        for known in [Some("u-1"), None] {
            let settings = &settings(known);
            assert_eq!(other_owner(Some(&of_other_id), settings), Some("test"));
            assert_eq!(other_owner(Some(&of_incumbent), settings), None);
            assert_eq!(other_owner(None, settings), None);
            assert_eq!(other_owner(Some(&of_other_uid), settings), known.map(|_| "u-2"));
            assert_eq!(other_uid(&of_other_id, settings), None);
        }
        assert_eq!(other_owner(Some(&of_other_uid), &settings(Some("u-2"))), None);
    }
}
