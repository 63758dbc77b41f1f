//! What a Node should say about itself, from its instance. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use outrigger_aws::Instance;
use outrigger_aws::ec2::NetworkInterface;

use super::error::Waiting;
use crate::cloud_config::IpFamily;
use crate::node_cache::{Address, AddressType, NodeView};

pub use crate::node_cache::PROVIDED_NODE_IP;

/// The label with the zone's ID.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";

/// What is the same for all Nodes.
#[derive(Debug, Clone)]
pub struct Place {
    /// The region; labels name this one, whatever the instance's zone says.
    pub region: String,
    /// Address families, in order.
    pub families: Vec<IpFamily>,
}

/// What an initialized Node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// For a Node that has none.
    pub provider_id: String,
    /// `None`: EC2 told none, so there is no label.
    pub instance_type: Option<String>,
    /// The availability zone.
    pub zone: String,
    /// The region.
    pub region: String,
    /// Further labels, for keys that the Node does not have.
    pub additional: BTreeMap<String, String>,
    /// Its addresses in order; empty means that EC2 gave none and those there stay.
    pub addresses: Vec<Address>,
}

/// What an initialized Node says. `zone_ids` maps zones to their IDs.
///
/// # Errors
/// [`Waiting`], when something that is needed is missing or contradicts the kubelet.
pub fn desired(
    node: &NodeView,
    instance: &Instance,
    place: &Place,
    zone_ids: &HashMap<String, String>,
) -> Result<Desired, Waiting> {
    let zone = instance.availability_zone.clone().filter(|zone| !zone.is_empty());
    let zone = zone.ok_or_else(|| Waiting::NoZone(instance.id.to_string()))?;
    let mut additional = BTreeMap::new();
    if node.label(ZONE_ID).is_none() {
        let id = zone_ids.get(&zone).ok_or_else(|| Waiting::UnknownZone(zone.clone()))?;
        additional.insert(ZONE_ID.to_owned(), id.clone());
    }
    Ok(Desired {
        provider_id: format!("aws:///{zone}/{}", instance.id),
        instance_type: instance.instance_type.clone().filter(|kind| !kind.is_empty()),
        zone,
        region: place.region.clone(),
        additional,
        addresses: addresses(node, instance, &place.families)?,
    })
}

/// A Node's addresses in order: the instance's, the Node's own host name where the instance has none, and first of
/// all those that the kubelet was told to use.
///
/// # Errors
/// [`Waiting`], when the kubelet's address is not the instance's, or an address is none.
pub fn addresses(node: &NodeView, instance: &Instance, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    let mut addresses = of_instance(instance, families)?;
    if addresses.is_empty() {
        return Ok(addresses);
    }
    if !addresses.iter().any(|address| address.kind == AddressType::Hostname) {
        let own = node
            .status
            .addresses
            .iter()
            .filter(|address| address.kind == AddressType::Hostname);
        addresses.extend(own.cloned());
    }
    let addresses = match node.annotation(PROVIDED_NODE_IP) {
        Some(text) => prefer(&provided_ips(text)?, addresses)?,
        None => addresses,
    };
    Ok(by_type(addresses))
}

/// Puts addresses of one type together, where the first of them is, as the API server does with the patches of other
/// managers. It matters with two families: the host name stands between them otherwise.
fn by_type(mut addresses: Vec<Address>) -> Vec<Address> {
    let mut kinds: Vec<AddressType> = Vec::new();
    for address in &addresses {
        if !kinds.contains(&address.kind) {
            kinds.push(address.kind.clone());
        }
    }
    addresses.sort_by_key(|address| kinds.iter().position(|kind| *kind == address.kind));
    addresses
}

fn of_instance(instance: &Instance, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    let mut interfaces: Vec<&NetworkInterface> = instance
        .network_interfaces
        .iter()
        .filter(|interface| interface.status.as_deref() == Some("in-use"))
        .collect();
    interfaces.sort_by_key(|interface| interface.device_index.unwrap_or(i32::MAX));
    let mut addresses = Vec::new();
    for family in families {
        match family {
            IpFamily::V4 => v4(instance, &interfaces, &mut addresses)?,
            IpFamily::V6 => {
                for text in interfaces.iter().filter_map(|interface| interface.ipv6.first()) {
                    let ip: Ipv6Addr = text.parse().map_err(|_| Waiting::BadAddress(text.to_owned()))?;
                    addresses.push(Address {
                        kind: AddressType::InternalIp,
                        address: ip.to_string().into(),
                    });
                }
            }
        }
    }
    Ok(addresses)
}

/// Every private address of every interface, then what the instance has once. The host name follows the private DNS
/// name, as kubelets and users of older releases expect.
fn v4(instance: &Instance, interfaces: &[&NetworkInterface], addresses: &mut Vec<Address>) -> Result<(), Waiting> {
    let mut add = |kind, address: String| {
        addresses.push(Address {
            kind,
            address: address.into(),
        });
    };
    for text in interfaces.iter().flat_map(|interface| &interface.private_ips) {
        add(AddressType::InternalIp, ipv4(text)?.to_string());
    }
    if let Some(text) = some(&instance.public_ip) {
        add(AddressType::ExternalIp, ipv4(text)?.to_string());
    }
    if let Some(name) = some(&instance.private_dns_name) {
        add(AddressType::InternalDns, name.to_owned());
        add(AddressType::Hostname, name.to_owned());
    }
    if let Some(name) = some(&instance.public_dns_name) {
        add(AddressType::ExternalDns, name.to_owned());
    }
    Ok(())
}

fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn ipv4(text: &str) -> Result<Ipv4Addr, Waiting> {
    let ip = without_leading_zeros(text).parse();
    ip.map_err(|_| Waiting::BadAddress(text.to_owned()))
}

/// `010.0.0.01` means `10.0.0.1`, as in all of Kubernetes' older readers of addresses: no part is octal.
fn without_leading_zeros(text: &str) -> String {
    let part = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        digits => digits.to_owned(),
    };
    text.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// The kubelet's addresses: one, or two of different families.
fn provided_ips(text: &str) -> Result<Vec<IpAddr>, Waiting> {
    let unreadable = || Waiting::ProvidedIpUnreadable {
        annotation: PROVIDED_NODE_IP,
        text: text.to_owned(),
    };
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|ip| {
            let ip = ip.trim();
            let ipv4 = without_leading_zeros(ip).parse().map(IpAddr::V4);
            ipv4.or_else(|_| ip.parse()).map_err(|_| unreadable())
        })
        .collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [one, two] if one.is_ipv4() != two.is_ipv4() => Ok(ips),
        _ => Err(unreadable()),
    }
}

/// For each of the kubelet's addresses those equal to it come first; all others of the types so found are dropped;
/// the rest follows in its order.
fn prefer(ips: &[IpAddr], addresses: Vec<Address>) -> Result<Vec<Address>, Waiting> {
    let mut chosen: Vec<Address> = Vec::new();
    for ip in ips {
        let equal: Vec<Address> = addresses
            .iter()
            .filter(|address| address.address.parse() == Ok(*ip))
            .cloned()
            .collect();
        if equal.is_empty() {
            return Err(Waiting::ProvidedIpNotFound {
                wanted: ip.to_string(),
                have: addresses,
            });
        }
        chosen.extend(equal);
    }
    let kinds: BTreeSet<AddressType> = chosen.iter().map(|address| address.kind.clone()).collect();
    chosen.extend(addresses.into_iter().filter(|address| !kinds.contains(&address.kind)));
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn interface(index: Option<i32>, status: &str, v4: &[&str], v6: &[&str]) -> NetworkInterface {
        NetworkInterface {
            status: Some(status.into()),
            device_index: index,
            private_ips: v4.iter().map(|ip| (*ip).to_owned()).collect(),
            ipv6: v6.iter().map(|ip| (*ip).to_owned()).collect(),
        }
    }

    fn instance() -> Instance {
        let mut instance = Instance::new("i-1");
        instance.availability_zone = Some("us-east-1a".into());
        instance.private_dns_name = Some("one.internal".into());
        instance.public_ip = Some("3.3.3.3".into());
        instance.public_dns_name = Some("one.example".into());
        instance.network_interfaces = vec![
            interface(Some(1), "in-use", &["10.0.1.1"], &["fd00::0002", "fd00::3"]),
            interface(Some(0), "in-use", &["10.0.0.1", "10.0.0.2"], &[]),
            interface(Some(2), "available", &["10.0.2.1"], &["fd00::9"]),
        ];
        instance
    }

    fn node(annotation: Option<&str>) -> NodeView {
        let annotations = annotation.map(|text| json!({PROVIDED_NODE_IP: text}));
        let status = json!({"addresses": [{"type": "Hostname", "address": "kubelets-own"}]});
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}, "status": status}))
            .unwrap()
    }

    fn texts(annotation: Option<&str>, families: &[IpFamily]) -> Result<Vec<String>, Waiting> {
        let list = addresses(&node(annotation), &instance(), families)?;
        Ok(list
            .into_iter()
            .map(|address| format!("{} {}", address.kind, address.address))
            .collect())
    }

    #[test]
    fn addresses_come_by_interface_and_then_what_the_instance_has_once() {
        let wanted = [
            "InternalIP 10.0.0.1",
            "InternalIP 10.0.0.2",
            "InternalIP 10.0.1.1",
            "ExternalIP 3.3.3.3",
            "InternalDNS one.internal",
            "Hostname one.internal",
            "ExternalDNS one.example",
        ];
        assert_eq!(texts(None, &[IpFamily::V4]).unwrap(), wanted);
    }

    #[test]
    fn with_two_families_addresses_of_one_type_stand_together() {
        let list = texts(None, &[IpFamily::V4, IpFamily::V6]).unwrap();
        assert_eq!(
            list[2..5],
            ["InternalIP 10.0.1.1", "InternalIP fd00::2", "ExternalIP 3.3.3.3"]
        );
        assert_eq!(list.len(), 8);
    }

    #[test]
    fn leading_zeros_mean_nothing() {
        let mut instance = instance();
        instance.network_interfaces = vec![interface(Some(0), "in-use", &["010.000.0.08"], &[])];
        let list = addresses(&node(Some("10.0.0.008")), &instance, &[IpFamily::V4]).unwrap();
        assert_eq!(list[0].address, "10.0.0.8");
        for text in ["", "10.0.0", "10.0.0.", "10.0.0.256", "10.0.0.0x1", "10..0.1"] {
            assert!(ipv4(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ipv6_alone_gives_the_first_of_each_interface_and_keeps_the_kubelets_host_name() {
        assert_eq!(
            texts(None, &[IpFamily::V6]).unwrap(),
            ["InternalIP fd00::2", "Hostname kubelets-own"]
        );
        assert_eq!(texts(None, &[]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_kubelets_ip_comes_first_and_drops_the_others_of_its_type() {
        let list = texts(Some("10.0.1.1"), &[IpFamily::V4]).unwrap();
        assert_eq!(list[..2], ["InternalIP 10.0.1.1", "ExternalIP 3.3.3.3"]);
        assert_eq!(list.len(), 5);
    }

    #[test]
    fn two_ips_of_both_families_come_first_in_the_kubelets_order() {
        let list = texts(Some("fd00:0::2,10.0.0.2"), &[IpFamily::V4, IpFamily::V6]).unwrap();
        assert_eq!(list[..2], ["InternalIP fd00::2", "InternalIP 10.0.0.2"]);
        assert!(list.contains(&"Hostname one.internal".to_owned()) && list.len() == 6);
    }

    #[test]
    fn an_ip_that_is_not_the_instances_or_cannot_be_read_is_an_error() {
        assert!(matches!(
            texts(Some("10.9.9.9"), &[IpFamily::V4]),
            Err(Waiting::ProvidedIpNotFound { .. })
        ));
        for text in ["", "x", "10.0.0.1,10.0.0.2", "10.0.0.1,fd00::2,fd00::3"] {
            assert!(
                matches!(
                    texts(Some(text), &[IpFamily::V4]),
                    Err(Waiting::ProvidedIpUnreadable { .. })
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn any_field_of_ec2s_answer_may_be_missing() {
        let place = Place {
            region: "us-east-1".into(),
            families: vec![IpFamily::V4, IpFamily::V6],
        };
        let bare = Instance::new("i-1");
        assert!(matches!(
            desired(&node(None), &bare, &place, &HashMap::new()),
            Err(Waiting::NoZone(_))
        ));
        let zoned = Instance {
            availability_zone: Some("z".into()),
            ..bare
        };
        assert!(matches!(
            desired(&node(None), &zoned, &place, &HashMap::new()),
            Err(Waiting::UnknownZone(_))
        ));
        let zones = HashMap::from([("z".to_owned(), "z-id".to_owned())]);
        let found = desired(&node(None), &zoned, &place, &zones).unwrap();
        assert!(found.addresses.is_empty() && found.instance_type.is_none());
    }
}
