//! Names and tags of a Service's AWS resources. The in-tree and the external provider use the same, so that each finds
//! the other's resources.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_aws::elbv2::NewTargetGroup;
use outrigger_shared::tags;
use sha1::{Digest, Sha1};
use sha2::Sha256;

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

/// Protocol of a listener without encryption, and of the targets behind most listeners.
pub const TCP: &str = "TCP";
/// Protocol of a listener with a certificate, and of targets that expect TLS.
pub const TLS: &str = "TLS";
pub const UDP: &str = "UDP";

/// Numbers of characters of a namespace or name, and of a hash, in a name.
const PART: usize = 8;
const HASH: usize = 10;
const EARLIER_HASH: usize = 13;

pub const TARGET_TYPE: &str = "instance";

pub const GROUP_DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";

/// Description of the Nodes' rules that allow clients; the load balancer's name follows.
pub const CLIENT_RULE: &str = "kubernetes.io/rule/nlb/client";

/// Description of the Nodes' rules that allow health checks; the load balancer's name follows.
pub const HEALTH_RULE: &str = "kubernetes.io/rule/nlb/health";

/// Description of the Nodes' rules for path MTU discovery, which all load balancers share.
pub const MTU_RULE: &str = "kubernetes.io/rule/nlb/mtu";

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
/// as in v1.37.
pub fn other_owner<'a>(of_balancer: Option<&'a Tags>, settings: &Settings) -> Option<&'a str> {
    let of_balancer = of_balancer?;
    let pairs = of_balancer.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    other_uid(of_balancer, settings).or_else(|| tags::other_owner(&settings.cluster_id, pairs))
}

/// The name in a network load balancer's ARN: `….:loadbalancer/net/NAME/ID`.
pub fn load_balancer_of(arn: &str) -> Option<&str> {
    let (_, rest) = arn.split_once(":loadbalancer/net/")?;
    rest.split('/').next()
}

/// The name in a target group's ARN: `….:targetgroup/NAME/ID`.
pub fn target_group_of(arn: &str) -> Option<&str> {
    let (_, rest) = arn.split_once(":targetgroup/")?;
    rest.split('/').next()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

impl<'a> Owner<'a> {
    pub fn of(service: &'a Service) -> Self {
        let (namespace, name) = namespaced(service);
        let uid = uid(service);
        Self { namespace, name, uid }
    }
}

/// The prefix of the names of all target groups, and of the security group, of a Service.
pub fn resource_prefix(owner: Owner<'_>) -> String {
    format!("k8s-{}-{}-", short(owner.namespace), short(owner.name))
}

/// The prefixes of the names that the providers give to target groups of one Service. A user may attach another target
/// group to a listener; that one is not managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetGroupNames {
    today: String,
    /// Of earlier in-tree providers: without a readable namespace and name.
    earlier: String,
}

impl TargetGroupNames {
    pub fn of(owner: Owner<'_>) -> Self {
        let service = format!("{}/{}", owner.namespace, owner.name);
        Self {
            today: resource_prefix(owner),
            earlier: format!("k8s-tg-{}-", digest(&Sha1::digest(service), EARLIER_HASH)),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        name.starts_with(&self.today) || name.starts_with(&self.earlier)
    }
}

/// The name of a target group. It depends on all properties that AWS never changes on an existing target group.
pub fn target_group(cluster_id: &str, owner: Owner<'_>, port: i32, group: &NewTargetGroup) -> String {
    let mut hash = Sha1::new();
    for part in [
        cluster_id,
        owner.namespace,
        owner.name,
        &port.to_string(),
        &group.port.to_string(),
        &group.protocol,
        TARGET_TYPE,
        &group.health_check.protocol,
        &group.health_check.interval.to_string(),
    ] {
        hash.update(part.as_bytes());
    }

    format!("{}{}", resource_prefix(owner), digest(&hash.finalize(), HASH))
}

/// The name of the security group that is created for a load balancer. `cluster_name` is that of the command line, not
/// the cluster ID of tags.
pub fn network_security_group(cluster_name: &str, owner: Owner<'_>) -> String {
    let mut hash = Sha256::new();
    for part in [cluster_name, owner.name, owner.namespace, owner.uid] {
        hash.update(part.as_bytes());
    }
    format!("{}{}", resource_prefix(owner), digest(&hash.finalize(), HASH))
}

pub fn rule(kind: &str, load_balancer: &str) -> String {
    format!("{kind}={load_balancer}")
}

fn short(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).take(PART).collect()
}

fn digest(bytes: &[u8], length: usize) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use outrigger_aws::elbv2::TargetHealthCheck;

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

    fn owner<'a>(namespace: &'a str, name: &'a str, uid: &'a str) -> Owner<'a> {
        Owner { namespace, name, uid }
    }

    fn named(cluster: &str, namespace: &str, name: &str, port: (i32, i32, &str), check: (&str, i32)) -> String {
        let health_check = TargetHealthCheck {
            protocol: check.0.into(),
            interval: check.1,
            ..TargetHealthCheck::default()
        };
        let group = NewTargetGroup {
            port: port.1,
            protocol: port.2.into(),
            health_check,
            ..NewTargetGroup::default()
        };
        target_group(cluster, owner(namespace, name, "u"), port.0, &group)
    }

    #[test]
    fn target_groups_have_the_old_names() {
        let plain = (80, 8080, "TCP");
        let of = |port, check| named("cluster-a", "default", "service-a", port, check);
        assert_eq!(of(plain, ("", 0)), "k8s-default-servicea-7fa2e07508");
        assert_eq!(of(plain, ("TCP", 30)), "k8s-default-servicea-7dc8c715c5");
        assert_eq!(of(plain, ("HTTP", 10)), "k8s-default-servicea-ef39f2b177");
        assert_eq!(of((80, 8080, "UDP"), ("TCP", 30)), "k8s-default-servicea-a6f88aed66");
        assert_eq!(of((80, 8080, "TLS"), ("TCP", 30)), "k8s-default-servicea-8b5bb194fc");
        assert_eq!(of((9090, 8080, "TCP"), ("", 0)), "k8s-default-servicea-06876706cb");
        assert_eq!(of((80, 9090, "TCP"), ("", 0)), "k8s-default-servicea-119f844ec0");
        assert_eq!(of((80, 8080, "UDP"), ("", 0)), "k8s-default-servicea-3868761686");
        let elsewhere = named("cluster-b", "default", "service-a", plain, ("", 0));
        assert_eq!(elsewhere, "k8s-default-servicea-719ee635da");
        let another = named("cluster-a", "another", "service-a", plain, ("", 0));
        assert_eq!(another, "k8s-another-servicea-f66e09847d");
        let second = named("cluster-a", "default", "service-b", plain, ("", 0));
        assert_eq!(second, "k8s-default-serviceb-196c19c881");
    }

    #[test]
    fn target_groups_of_a_service_are_found_by_all_their_name_formats() {
        let names = TargetGroupNames::of(owner("default", "service-a", "u"));
        for own in ["k8s-default-servicea-7fa2e07508", "k8s-tg-2e7989088f097-80-30080"] {
            assert!(names.has(own), "{own}");
        }
        let others = [
            "k8s-default-serviceb-196c19c881",
            "k8s-default-service-a",
            "k8s-tg-0123456789abc-80-30080",
            "k8s-tg-",
            "hand",
            "",
        ];
        for other in others {
            assert!(!names.has(other), "{other}");
        }
    }

    #[test]
    fn security_groups_have_the_old_names() {
        let uid = "12345678-1234-1234-1234-123456789abc";
        for (cluster, namespace, name, uid, expected) in [
            (
                "test-cluster",
                "default",
                "my-service",
                uid,
                "k8s-default-myservic-b7cb8b02f0",
            ),
            ("c", "b", "a", "x", "k8s-b-a-7a83d4e37a"),
            ("test", "___@@@___", "---***---", "special-uid", "k8s---a9ace1b206"),
            (
                "test-cluster",
                "kube-system",
                "my-service-123",
                "87654321-4321-4321-4321-cba987654321",
                "k8s-kubesyst-myservic-5aa269aeaf",
            ),
            (
                "test-cluster",
                "very-long-namespace-name-that-also-exceeds",
                "very-long-service-name-that-exceeds-limits",
                "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
                "k8s-verylong-verylong-24c7f2d8ee",
            ),
            (
                "",
                "default",
                "test-service",
                "test-uid-123",
                "k8s-default-testserv-4ff26f905f",
            ),
            (
                "prod-cluster-01",
                "prod-ns_01",
                "api-v2.service",
                "special-chars-uid-456",
                "k8s-prodns01-apiv2ser-9d72cd8df0",
            ),
            (
                "consistent-cluster",
                "hash-ns",
                "hash-test",
                "deterministic-uid",
                "k8s-hashns-hashtest-4f98483bd9",
            ),
        ] {
            assert_eq!(network_security_group(cluster, owner(namespace, name, uid)), expected);
        }
    }
}
