//! Names of the resources of a network load balancer. The in-tree and the external provider use the same, so that each
//! finds the other's resources.

use sha1::{Digest, Sha1};
use sha2::Sha256;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::elbv2::NewTargetGroup;

use super::names::{namespaced, uid};

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
pub fn prefix(owner: Owner<'_>) -> String {
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
            today: prefix(owner),
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

    format!("{}{}", prefix(owner), digest(&hash.finalize(), HASH))
}

/// The name of the security group that is created for a load balancer. `cluster_name` is that of the command line, not
/// the cluster ID of tags.
pub fn security_group(cluster_name: &str, owner: Owner<'_>) -> String {
    let mut hash = Sha256::new();
    for part in [cluster_name, owner.name, owner.namespace, owner.uid] {
        hash.update(part.as_bytes());
    }
    format!("{}{}", prefix(owner), digest(&hash.finalize(), HASH))
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
            assert_eq!(security_group(cluster, owner(namespace, name, uid)), expected);
        }
    }
}
