//! By what a Node's instance is found.

use std::fmt;
use std::net::Ipv4Addr;

use outrigger_aws::{Instance, InstanceId};
use outrigger_shared::provider_id::{self, ProviderId};
use outrigger_shared::taints;

use super::key::{Key, is_well_formed};
use crate::node_cache::{AddressType, NodeView, PROVIDED_NODE_IP, ec2_name};

/// By what a Node's instance is found. The kind of a Node is decided here, before any call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its ID, from the provider ID or from the Node's name.
    Id(InstanceId),
    Name(Name),
    /// By its private IPv4 address: it runs on Fargate.
    Fargate(Ipv4Addr),
    /// Not at all: the reason why the Node is not an EC2 instance.
    Foreign(String),
    /// Not at all: the reason why the instance of its provider ID is not its own.
    Refused(String),
}

/// The properties by which the instance of a Node without a provider ID is found. The private DNS name comes first, as
/// in every AWS cloud provider; the others apply only if EC2 knows no instance with that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The whole name, as a private DNS name.
    pub dns: String,
    /// An instance ID somewhere in the name, such as `worker-i-0123456789abcdef0`.
    pub id: Option<InstanceId>,
    /// The Node's own IPv4 address, while the Node is new: addresses are used again, so a Node that lost its instance must
    /// not take the next one that has its address.
    pub ip: Option<Ipv4Addr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    ProviderId,
    /// The instance ID that the Node's name begins with.
    NodeName,
    PrivateDns,
    IdInName,
    Ip,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProviderId => "spec.providerID",
            Self::NodeName => "the instance ID that is its name",
            Self::PrivateDns => "its private DNS name",
            Self::IdInName => "the instance ID in its name",
            Self::Ip => "its IP address",
        })
    }
}

impl Target {
    pub const KINDS: [&str; 3] = ["ec2", "fargate", "foreign"];

    /// The provider ID decides. Without one, a name that starts with `i-` is an instance ID up to the first dot
    /// (resource-based naming, with or without a domain), and any other name is a private DNS name.
    pub fn of(node: &NodeView) -> Self {
        match node.provider_id().map(ProviderId::parse) {
            Some(Ok(ProviderId::Instance(id))) => match contradiction(node, &id) {
                Some(reason) => Self::Refused(reason),
                None => Self::Id(InstanceId::new(id.as_str())),
            },
            Some(Ok(ProviderId::Fargate(id))) => match fargate_ip(&id) {
                Some(ip) => Self::Fargate(ip),
                None => Self::Foreign(format!(
                    "the Fargate node {id:?} has no IPv4 address in its provider ID"
                )),
            },
            Some(Err(error)) if is_hybrid(&error.text) => Self::Foreign(format!(
                "spec.providerID {:?} is that of a hybrid node, which EC2 does not know",
                error.text
            )),
            Some(Err(error)) => Self::Foreign(error.to_string()),
            None => Self::of_name(node),
        }
    }

    fn of_name(node: &NodeView) -> Self {
        let name = node.name();
        let first = name.split('.').next().unwrap_or_default();
        match provider_id::InstanceId::parse(first) {
            Some(id) => Self::Id(InstanceId::new(id.as_str())),
            None => Self::Name(Name {
                dns: name.to_owned(),
                id: id_within(name),
                ip: own_ip(node).filter(|_| node.has_taint(taints::UNINITIALIZED)),
            }),
        }
    }

    pub fn id(&self) -> Option<&InstanceId> {
        if let Self::Id(id) = self { Some(id) } else { None }
    }

    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Id(id) => Some(Key::Id(id.clone())),
            Self::Name(name) => Some(Key::Dns(name.dns.clone())),
            Self::Fargate(ip) => Some(Key::Fargate(ip.to_string())),
            Self::Foreign(_) | Self::Refused(_) => None,
        }
    }

    /// The kind of Node, as the label of a metric.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Id(_) | Self::Name(_) => "ec2",
            Self::Fargate(_) => "fargate",
            Self::Foreign(_) | Self::Refused(_) => "foreign",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "instance {id}"),
            Self::Fargate(ip) => write!(f, "an attached network interface with address {ip}"),
            Self::Foreign(reason) | Self::Refused(reason) => f.write_str(reason),
            Self::Name(name) => {
                write!(f, "private DNS name {:?}", name.dns)?;
                if let Some(id) = &name.id {
                    write!(f, ", then {id}")?;
                }

                if let Some(ip) = name.ip {
                    write!(f, ", then private IP {ip}")?;
                }

                f.write_str(", each with the cluster's tag")
            }
        }
    }
}

impl Name {
    /// The keys of further requests, if EC2 knows no instance with that private DNS name.
    pub(super) fn fallbacks(&self) -> [Option<Key>; 2] {
        [self.id.clone().map(Key::Id), self.ip.map(|ip| Key::Ip(ip.to_string()))]
    }
}

/// Which way this Node's instance was found.
pub fn found_by(node: &NodeView, instance: &Instance) -> FoundBy {
    match Target::of(node) {
        Target::Id(_) if node.provider_id().is_none() => FoundBy::NodeName,
        Target::Name(name) if instance.private_dns_name.as_ref() == Some(&name.dns) => FoundBy::PrivateDns,
        Target::Name(name) if name.id.as_ref() == Some(&instance.id) => FoundBy::IdInName,
        Target::Name(_) => FoundBy::Ip,
        _ => FoundBy::ProviderId,
    }
}

/// The instance that a Node's provider ID names, if it is its own as far as Kubernetes shows it.
pub fn claimed(node: &NodeView) -> Option<InstanceId> {
    node.provider_id()?;
    Target::of(node).id().cloned()
}

/// Why the instance of a provider ID is not the Node's own, as far as Kubernetes shows it. A kubelet may write any provider
/// ID while its Node has none, but its credentials are for one name.
fn contradiction(node: &NodeView, id: &provider_id::InstanceId) -> Option<String> {
    if let Some(named) = ec2_name::instance(node.name()).filter(|named| *named != id.as_str()) {
        return Some(format!(
            "spec.providerID names instance {id}, and the Node has the name of instance {named}: correct the host name or the provider ID, and delete the Node"
        ));
    }

    let other = node.same_instance_as.as_ref()?;
    Some(format!(
        "spec.providerID names instance {id}, as that of Node {other} does, which has the better claim; if this machine had \
         that name before, delete Node {other}"
    ))
}

/// Why an instance is not that of a Node with this name: EC2 gives the name to an instance with another address. Names that
/// EC2 does not give prove nothing, and of a terminated instance EC2 shows no address.
pub(super) fn mismatch(name: &str, instance: &Instance) -> Option<String> {
    let named = ec2_name::address(name);
    is_mismatch(named, &addresses(instance)).then(|| {
        format!(
            "instance {} does not have the address in the name of this Node: correct the host name or the provider ID, and delete the Node",
            instance.id
        )
    })
}

/// Whether EC2 gives the Node's name to an instance with another address.
pub fn is_mismatch(named: Option<Ipv4Addr>, addresses: &[Ipv4Addr]) -> bool {
    named.is_some_and(|named| !addresses.is_empty() && !addresses.contains(&named))
}

/// The addresses of an instance, by which a machine may be named.
pub fn addresses(instance: &Instance) -> Vec<Ipv4Addr> {
    let interfaces = instance.network_interfaces.iter();
    let all = interfaces.flat_map(|interface| &interface.private_ips);
    all.chain(&instance.private_ip)
        .chain(&instance.public_ip)
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// EKS names a hybrid node by its managed instance, `mi-…`.
fn is_hybrid(provider_id: &str) -> bool {
    provider_id
        .rsplit('/')
        .next()
        .is_some_and(|last| last.starts_with("mi-"))
}

/// `fargate-ip-192-168-164-88.internal` and `fargate-192.168.164.88` have the same address.
fn fargate_ip(id: &str) -> Option<Ipv4Addr> {
    let text = id.strip_prefix("fargate-")?;
    match text.strip_prefix("ip-") {
        Some(dashed) => dashed.split('.').next()?.replace('-', ".").parse().ok(),
        None => text.parse().ok(),
    }
}

/// A well-formed instance ID that stands in the name between dashes or dots, but not at its beginning. EC2's IDs have
/// 8 or 17 digits.
fn id_within(name: &str) -> Option<InstanceId> {
    name.match_indices("i-").find_map(|(at, _)| {
        let before = name.get(..at)?.chars().next_back()?;
        let id = name.get(at..)?;
        let digits = id.get(2..)?;
        let length = digits.find(['-', '.']).unwrap_or(digits.len());
        let id = InstanceId::new(id.get(..length + 2)?);
        (matches!(before, '-' | '.') && matches!(length, 8 | 17) && is_well_formed(&id)).then_some(id)
    })
}

/// The address that the kubelet was given, else the one that it reports.
fn own_ip(node: &NodeView) -> Option<Ipv4Addr> {
    let provided = node.annotation(PROVIDED_NODE_IP).into_iter();
    let provided = provided.flat_map(|text| text.split(',').map(str::trim));
    let reported = node
        .status
        .addresses
        .iter()
        .filter(|address| address.kind == AddressType::InternalIp);
    let reported = reported.map(|address| address.address.as_str());

    provided.chain(reported).find_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn target(name: &str, provider_id: &str) -> Target {
        of(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}}))
    }

    fn of(node: Value) -> Target {
        Target::of(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn every_shape_of_name_has_its_target() {
        const ID: &str = "i-0123456789abcdef0";
        let id = |id: &str| Target::Id(InstanceId::new(id));
        let name = |dns: &str, id: Option<&str>| {
            let id = id.map(InstanceId::new);
            Target::Name(Name {
                dns: dns.into(),
                id,
                ip: None,
            })
        };
        for (node, provider_id, wanted) in [
            ("anything", "aws:///us-east-1a/i-1", id("i-1")),
            ("i-2", "aws:///us-east-1a/i-1", id("i-1")),
            ("anything", "i-1", id("i-1")),
            (ID, "", id(ID)),
            ("i-0123", "", id("i-0123")),
            ("i-0123.ec2.internal", "", id("i-0123")),
            ("i-0123.us-west-2.compute.internal", "", id("i-0123")),
            ("i-0123.corp.example.com", "", id("i-0123")),
            ("ip-10-0-0-1.ec2.internal", "", name("ip-10-0-0-1.ec2.internal", None)),
            ("ip-10-0-0-1", "", name("ip-10-0-0-1", None)),
            ("node-1", "", name("node-1", None)),
            (
                "worker-i-0123456789abcdef0",
                "",
                name("worker-i-0123456789abcdef0", Some(ID)),
            ),
            (
                "worker-i-0123456789abcdef0.corp.example.com",
                "",
                name("worker-i-0123456789abcdef0.corp.example.com", Some(ID)),
            ),
            (
                "pool.i-0abcdef1.example.com",
                "",
                name("pool.i-0abcdef1.example.com", Some("i-0abcdef1")),
            ),
            ("hi-0abcdef1", "", name("hi-0abcdef1", None)),
            ("worker-i-0abcdef", "", name("worker-i-0abcdef", None)),
            ("worker-i-0abcdef1x", "", name("worker-i-0abcdef1x", None)),
        ] {
            assert_eq!(target(node, provider_id), wanted, "{node} {provider_id}");
        }
    }

    #[test]
    fn a_provider_id_that_the_name_or_an_older_node_contradicts_is_refused() {
        const ID: &str = "i-0123456789abcdef0";
        let refused = |target: Target| matches!(target, Target::Refused(_));
        assert!(!refused(target(ID, &format!("aws:///z/{ID}"))));
        assert!(refused(target("i-0abcdef1.ec2.internal", &format!("aws:///z/{ID}"))));
        let mut node: NodeView =
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"providerID": ID}})).unwrap();
        assert_eq!(claimed(&node), Some(InstanceId::new(ID)));
        node.same_instance_as = Some("older".into());
        assert!(matches!(Target::of(&node), Target::Refused(why) if why.contains(ID) && why.contains("older")));
        assert_eq!(claimed(&node), None);
    }

    #[test]
    fn a_name_that_ec2_gave_to_another_address_contradicts_and_any_other_name_does_not() {
        let contradicts = |name, address: Option<&str>| {
            let instance = Instance {
                private_ip: address.map(str::to_owned),
                ..Instance::new("i-1")
            };
            mismatch(name, &instance).is_some()
        };
        let own = Some("10.0.1.5");
        for name in [
            "ip-10-0-1-5.ec2.internal",
            "ip-10-0-1-5",
            "ip-10-0-1-5.corp.example",
            "worker-1",
            "ip-rack-7",
            "i-0abcdef1",
        ] {
            assert!(!contradicts(name, own), "{name}");
        }
        assert!(contradicts("ip-10-0-1-6.ec2.internal", own));
        assert!(!contradicts("ip-10-0-1-6.ec2.internal", None), "a terminated instance");
        let second = is_mismatch(
            ec2_name::address("ip-10-0-2-7"),
            &[Ipv4Addr::new(10, 0, 1, 5), Ipv4Addr::new(10, 0, 2, 7)],
        );
        assert!(!second, "its second address");
    }

    #[test]
    fn the_kind_of_a_node_is_decided_by_its_provider_id() {
        let ip = Ipv4Addr::new(192, 168, 164, 88);
        for id in ["fargate-ip-192-168-164-88.internal", "fargate-192.168.164.88"] {
            assert_eq!(target("n", &format!("aws:///z/1abc-2def/{id}")), Target::Fargate(ip));
        }
        for provider_id in [
            "aws:///z/fargate-x",
            "aws:///z/fargate-ip-1-2-3.internal",
            "gce://p/z/n",
            "kind://docker/k/n",
        ] {
            assert_eq!(target("n", provider_id).kind(), "foreign", "{provider_id}");
        }
        assert!(
            matches!(target("n", "aws:///z/mi-0123456789abcdef0"), Target::Foreign(reason) if reason.contains("hybrid"))
        );
    }

    #[test]
    fn the_address_is_the_kubelets_own_before_the_reported_one() {
        let new = json!([{"key": taints::UNINITIALIZED, "effect": "NoSchedule"}]);
        let ip_of = |taints: &Value, annotation: Value, address: &str| {
            let node = json!({
                "metadata": {"name": "n", "annotations": {PROVIDED_NODE_IP: annotation}},
                "spec": {"taints": taints},
                "status": {"addresses": [{"type": "Hostname", "address": "10.0.0.9"}, {"type": "InternalIP", "address": address}]},
            });
            match of(node) {
                Target::Name(name) => name.ip.map(|ip| ip.to_string()),
                _ => None,
            }
        };
        let ip = |annotation, address| ip_of(&new, annotation, address);
        assert_eq!(
            ip_of(&json!([]), json!("10.0.0.1"), "10.0.0.2"),
            None,
            "not new any more"
        );
        assert_eq!(ip(json!("10.0.0.1"), "10.0.0.2").as_deref(), Some("10.0.0.1"));
        assert_eq!(ip(json!("fd00::1, 10.0.0.1"), "10.0.0.2").as_deref(), Some("10.0.0.1"));
        assert_eq!(ip(json!("nonsense"), "10.0.0.2").as_deref(), Some("10.0.0.2"));
        assert_eq!(ip(json!("fd00::1"), "fd00::1"), None);
    }

    #[test]
    fn what_was_looked_for_is_told_in_order() {
        let node = json!({
            "metadata": {"name": "a-i-0abcdef1"},
            "spec": {"taints": [{"key": taints::UNINITIALIZED, "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]},
        });
        assert_eq!(
            of(node).to_string(),
            "private DNS name \"a-i-0abcdef1\", then i-0abcdef1, then private IP 10.0.0.2, each with the cluster's tag"
        );
    }
}
