//! Checks, subnets, tags and address for either kind of load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_shared::tags;

use super::super::error::Invalid;
use super::annotations::{Annotations, Kind};
use super::names;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subnets {
    Discover,
    Listed {
        ids: Vec<String>,
        /// By `Name` tag.
        names: Vec<String>,
    },
}

/// Value of `healthcheck-port`, and of AWS's health checks, that means the port of the traffic.
pub const TRAFFIC_PORT: &str = "traffic-port";

/// The ports of a Service: at least one, all of one protocol.
pub fn ports(service: &Service) -> Result<&[ServicePort], Invalid> {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let Some(first) = ports.first() else {
        return Err(wrong_ports("", "a load balancer needs at least one port"));
    };
    if ports.iter().any(|port| protocol(port) != protocol(first)) {
        let expected = "all ports of a load balancer must have the same protocol";
        return Err(wrong_ports("mixed protocols", expected));
    }

    Ok(ports)
}

pub fn wrong_ports(value: &str, expected: &'static str) -> Invalid {
    Invalid::Field {
        field: "spec.ports",
        value: value.to_owned(),
        expected,
    }
}

/// The protocol of a port; the API server defaults it to TCP.
pub fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

pub fn node_port(port: &ServicePort) -> Option<i32> {
    port.node_port.filter(|node_port| *node_port != 0)
}

/// Whether the certificate is for a port with this name. Annotation `ssl-ports` lists numbers and names, not trimmed;
/// absent, empty and `*` mean all ports. An empty item, as a comma at the end makes one, is the name of a port without a
/// name.
pub fn takes_certificate(port: &ServicePort, name: &str, annotations: Annotations<'_>) -> bool {
    let Some(listed) = annotations.filled("ssl-ports").filter(|listed| *listed != "*") else {
        return true;
    };

    listed.split(',').any(|item| match item.parse::<i64>() {
        Ok(number) => number == i64::from(port.port),
        Err(_) => name == item,
    })
}

pub fn is_local(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

/// Refuses session affinity, which AWS load balancers do not support here.
pub fn refuse_affinity(service: &Service) -> Result<(), Invalid> {
    let spec = service.spec.as_ref();
    match spec.and_then(|spec| spec.session_affinity.as_deref()) {
        None | Some("None") => Ok(()),
        Some(affinity) => Err(Invalid::Field {
            field: "spec.sessionAffinity",
            value: affinity.to_owned(),
            expected: "session affinity is not supported; expected None",
        }),
    }
}

pub fn refuse_fixed_address(service: &Service) -> Result<(), Invalid> {
    let spec = service.spec.as_ref();
    match spec.and_then(|spec| spec.load_balancer_ip.as_deref()) {
        None | Some("") => Ok(()),
        Some(address) => Err(Invalid::Field {
            field: "spec.loadBalancerIP",
            value: address.to_owned(),
            expected: "AWS chooses the addresses of a load balancer; leave the field empty",
        }),
    }
}

/// The subnets of annotation `subnets`, or discovery.
/// Fails when the annotation is there and lists none.
pub fn subnets(annotations: Annotations<'_>) -> Result<Subnets, Invalid> {
    let Some(listed) = annotations.list("subnets") else {
        return Ok(Subnets::Discover);
    };
    if listed.is_empty() {
        return Err(annotations.wrong("subnets", "expected a comma-separated list of subnet IDs or Name tags"));
    }

    let (ids, names) = listed.into_iter().partition(|item| item.starts_with("subnet-"));
    Ok(Subnets::Listed { ids, names })
}

/// The tags of annotation `additional-resource-tags`, without [`reserved_tags`].
/// Fails when a tag names another cluster: both would own the resource, and neither would delete it. Also when it is
/// the tag with the cluster's UID.
pub fn user_tags(annotations: Annotations<'_>, cluster_id: &str) -> Result<BTreeMap<String, String>, Invalid> {
    let pairs = annotations.pairs("additional-resource-tags");
    let wrong = |expected: String| Err(annotations.wrong("additional-resource-tags", expected));
    for (key, value) in &pairs {
        if let Some(other) = tags::cluster_named(key, value).filter(|other| *other != cluster_id) {
            let expected = format!(
                "tag {key}={value} assigns the resources to cluster {other:?}, and this one is {cluster_id:?}; remove this tag"
            );
            return wrong(expected);
        }
        if key == names::CLUSTER_UID_TAG {
            return wrong(format!("tag {key} is set by the controller; remove it"));
        }
    }

    Ok(pairs
        .into_iter()
        // The load balancer gets the controller's own value; its security group keeps the user's, as with v1.37.
        .filter(|(key, _)| key == names::SERVICE_TAG || tags::reserved_for(key).is_none())
        .collect())
}

/// The keys of annotation `additional-resource-tags` by which other controllers find their resources, with these controllers.
/// They are not set: with `karpenter.sh/discovery`, for example, new Nodes would get the load balancer's security group, whose
/// rules the author of the Service chooses.
pub fn reserved_tags(annotations: Annotations<'_>) -> Vec<String> {
    let keys = annotations.pairs("additional-resource-tags").into_keys();
    let reserved = keys.filter_map(|key| {
        let whose = tags::reserved_for(&key).filter(|_| key != names::SERVICE_TAG)?;
        Some(format!("{key} ({whose})"))
    });
    reserved.collect()
}

/// The tags of the annotation, without those with a key of the controller.
pub fn annotated_tags(user_tags: BTreeMap<String, String>, cluster_tags: &Tags) -> Tags {
    let own = |key: &String| key == names::SERVICE_TAG || cluster_tags.contains_key(key);
    user_tags.into_iter().filter(|(key, _)| !own(key)).collect()
}

/// Tags of a Service's new resources. The controller's tags override the user's.
pub fn tags(service: &Service, user_tags: &BTreeMap<String, String>, cluster_tags: &Tags) -> Tags {
    let mut tags = user_tags.clone();
    tags.insert(names::SERVICE_TAG.to_owned(), names::namespaced_name(service));
    tags.extend(cluster_tags.clone());
    tags
}

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The client networks that may reach a load balancer: `spec.loadBalancerSourceRanges`, else the annotation, else everyone; host bits cleared, duplicates merged.
/// Fails when an entry is no IPv4 network: a classic load balancer in a VPC has no IPv6 addresses.
pub fn source_ranges(service: &Service) -> Result<BTreeSet<String>, Invalid> {
    let spec = service.spec.as_ref();
    let listed = spec.and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
        let parse = |text: &String| {
            network(text.trim()).ok_or_else(|| Invalid::Field {
                field: "spec.loadBalancerSourceRanges",
                value: text.clone(),
                expected: "expected IPv4 networks such as 10.0.0.0/8",
            })
        };
        return listed.iter().map(parse).collect();
    }

    let annotations = service.metadata.annotations.as_ref();
    let annotation = annotations
        .and_then(|all| all.get(SOURCE_RANGES))
        .map_or("", String::as_str);
    if annotation.trim().is_empty() {
        return Ok(BTreeSet::from(["0.0.0.0/0".to_owned()]));
    }

    let parse = |text: &str| {
        network(text.trim()).ok_or_else(|| Invalid::Annotation {
            key: SOURCE_RANGES.to_owned(),
            value: text.to_owned(),
            expected: "expected a comma-separated list of IPv4 networks such as 10.0.0.0/8".to_owned(),
        })
    };

    annotation.split(',').map(parse).collect()
}

/// The network of `address/length`, without host bits. Leading zeros are read as decimal, as Kubernetes does here.
fn network(text: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'/');
    if !text.bytes().all(is_allowed) {
        return None;
    }

    let (address, length) = text.split_once('/')?;
    let mut octets = [0_u8; 4];
    let mut parts = address.split('.');

    for octet in &mut octets {
        *octet = parts.next()?.parse().ok()?;
    }

    if parts.next().is_some() {
        return None;
    }

    let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    let network = Ipv4Addr::from(u32::from_be_bytes(octets) & mask);
    Some(format!("{network}/{length}"))
}

/// Refuses a Service whose type annotation requests another kind of load balancer than the status names. Otherwise a
/// second load balancer would be created, and the first one orphaned.
pub fn same_kind(service: &Service, wanted: Kind) -> Result<(), Invalid> {
    let Some(first) = first(service) else {
        return Ok(());
    };

    let hostname = first.hostname.as_deref().unwrap_or_default();
    let wanted = match wanted {
        Kind::Classic if !is_classic(hostname) => "classic",
        Kind::Network if is_classic(hostname) => "network",
        _ => return Ok(()),
    };

    Err(Invalid::TypeChanged {
        wanted,
        hostname: hostname.to_owned(),
    })
}

/// The kind of load balancer that the address in the status belongs to; `None` without an address.
pub fn kind_in_status(service: &Service) -> Option<Kind> {
    let hostname = first(service)?.hostname.as_deref().filter(|name| !name.is_empty())?;
    match is_classic(hostname) {
        true => Some(Kind::Classic),
        false => Some(Kind::Network),
    }
}

/// Whether the Service's address is that of the load balancer of this name. An internal one has a prefix.
pub fn has_address_of(service: &Service, load_balancer: &str) -> bool {
    let hostname = first(service).and_then(|first| first.hostname.as_deref());
    let hostname = hostname.unwrap_or_default();
    let name = hostname.strip_prefix("internal-").unwrap_or(hostname);
    let rest = name.strip_prefix(load_balancer);
    rest.is_some_and(|rest| rest.starts_with(['-', '.']))
}

fn first(service: &Service) -> Option<&LoadBalancerIngress> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()
}

/// Whether it is the name of a classic load balancer: `NAME.REGION.elb.SUFFIX`; a network load balancer has
/// `NAME.elb.REGION.SUFFIX`. The suffix depends on the AWS partition and is not compared.
fn is_classic(hostname: &str) -> bool {
    let labels: Vec<&str> = hostname.trim_end_matches('.').split('.').collect();
    let Some(at) = labels.iter().position(|label| *label == "elb") else {
        return false;
    };
    at >= 2 && labels.get(at + 1).is_some_and(|next| !is_region(next))
}

/// Whether a label looks like a region: words and a number, joined by dashes.
fn is_region(label: &str) -> bool {
    let parts: Vec<&str> = label.split('-').collect();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() >= 3 && parts.last().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ranges(field: &[&str], annotation: &str) -> Result<Vec<String>, Invalid> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"annotations": {SOURCE_RANGES: annotation}},
            "spec": {"loadBalancerSourceRanges": field},
        }))
        .unwrap();
        source_ranges(&service).map(|set| set.into_iter().collect())
    }

    #[test]
    fn the_field_wins_over_the_annotation_and_nothing_means_everyone() {
        assert_eq!(
            ranges(&["10.1.2.3/8", "10.0.0.0/8"], "192.168.0.0/16"),
            Ok(vec!["10.0.0.0/8".into()])
        );
        assert_eq!(
            ranges(&[], " 192.168.1.1/16 , 0.0.0.0/0"),
            Ok(vec!["0.0.0.0/0".into(), "192.168.0.0/16".into()])
        );
        assert_eq!(ranges(&[], "  "), Ok(vec!["0.0.0.0/0".into()]));
    }

    #[test]
    fn what_is_no_ipv4_network_is_refused_with_its_place() {
        assert!(ranges(&[], "10.0.0.0/8,").is_err(), "an empty item is no network");
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "2001:db8::/32",
            "1.2.3/8",
            "1.2.3.4.5/8",
            "x/8",
            "+1.2.3.4/8",
        ] {
            assert!(
                ranges(&[bad], "")
                    .unwrap_err()
                    .to_string()
                    .contains("spec.loadBalancerSourceRanges"),
                "{bad}"
            );
            assert!(
                ranges(&[], bad).unwrap_err().to_string().contains(SOURCE_RANGES),
                "{bad}"
            );
        }
    }

    const CLASSIC: &str = "a1-123.eu-central-1.elb.amazonaws.com";
    const CHINA: &str = "a1-123.cn-north-1.elb.amazonaws.com.cn";
    const NETWORK: &str = "a1-abc.elb.eu-central-1.amazonaws.com";

    fn with_address(ingress: serde_json::Value) -> Service {
        serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": ingress}}})).unwrap()
    }

    #[test]
    fn a_status_of_the_same_kind_or_none_is_fine() {
        for (ingress, kind) in [
            (json!([]), Kind::Classic),
            (json!([{"hostname": CLASSIC}]), Kind::Classic),
            (json!([{"hostname": CHINA}]), Kind::Classic),
            (json!([{"hostname": NETWORK}]), Kind::Network),
        ] {
            assert_eq!(same_kind(&with_address(ingress.clone()), kind), Ok(()), "{ingress}");
        }
    }

    #[test]
    fn a_status_of_the_other_kind_or_of_someone_else_is_refused() {
        for (ingress, kind) in [
            (json!([{"hostname": CLASSIC}]), Kind::Network),
            (json!([{"hostname": CHINA}]), Kind::Network),
            (json!([{"hostname": NETWORK}]), Kind::Classic),
            (json!([{"hostname": "web.example.com"}]), Kind::Classic),
            (json!([{"ip": "192.0.2.1"}]), Kind::Classic),
        ] {
            assert!(same_kind(&with_address(ingress.clone()), kind).is_err(), "{ingress}");
        }
    }
}
