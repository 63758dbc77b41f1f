//! The desired addresses of a Node. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use outrigger_aws::Instance;
use outrigger_aws::ec2::{FargateEni, NetworkInterface};

use super::{Host, some};
use crate::cloud_config::IpFamily;
use crate::controllers::node::error::Waiting;
use crate::node_cache::{Address, AddressType, NodeView, PROVIDED_NODE_IP};

/// The addresses in order: first those of the kubelet's `--node-ip`, then the other addresses of the host, then the
/// Node's present host name if the host has none. Empty: EC2 lists none, so the present addresses stay.
///
/// # Errors
/// [`Waiting`], when the host does not have the kubelet's address, or an address is invalid.
pub fn addresses(node: &NodeView, host: &Host, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    let mut addresses = of_host(host, families)?;
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

    prefer_the_kubelets(node, addresses).map(by_type)
}

/// Groups addresses by type, in the order of the first of each type, as the API server does with patches of other
/// writers. With two families the host name would be between them otherwise.
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

/// The same for a new Node: EC2 must list the kubelet's address before the taint is removed.
pub fn first_addresses(node: &NodeView, host: &Host, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    let addresses = addresses(node, host, families)?;
    if addresses.is_empty() {
        return prefer_the_kubelets(node, addresses);
    }
    Ok(addresses)
}

fn of_host(host: &Host, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    match host {
        Host::Instance(instance) => of_instance(instance, families),
        Host::Fargate(interface) => of_fargate(interface, families),
    }
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
                    addresses.push(ip_address(AddressType::InternalIp, text)?);
                }
            }
        }
    }

    Ok(addresses)
}

/// All private addresses of all interfaces, then the addresses of the instance. The host name equals the private DNS
/// name, as kubelets and users of older releases expect.
fn v4(instance: &Instance, interfaces: &[&NetworkInterface], addresses: &mut Vec<Address>) -> Result<(), Waiting> {
    for text in interfaces.iter().flat_map(|interface| &interface.private_ips) {
        addresses.push(ip_address(AddressType::InternalIp, text)?);
    }

    if let Some(text) = some(&instance.public_ip) {
        addresses.push(ip_address(AddressType::ExternalIp, text)?);
    }

    if let Some(name) = some(&instance.private_dns_name) {
        addresses.push(name_address(AddressType::InternalDns, name));
        addresses.push(name_address(AddressType::Hostname, name));
    }

    if let Some(name) = some(&instance.public_dns_name) {
        addresses.push(name_address(AddressType::ExternalDns, name));
    }

    Ok(())
}

/// One address of each family, and the DNS name once: the API server refuses a status that has it twice. A family
/// without an address has no name either.
fn of_fargate(interface: &FargateEni, families: &[IpFamily]) -> Result<Vec<Address>, Waiting> {
    let mut addresses = Vec::new();
    for family in families {
        let text = match family {
            IpFamily::V4 => some(&interface.private_ip),
            IpFamily::V6 => interface.ipv6.first().map(String::as_str),
        };
        let Some(text) = text else { continue };
        addresses.push(ip_address(AddressType::InternalIp, text)?);

        let name = some(&interface.private_dns_name).map(|name| name_address(AddressType::InternalDns, name));
        addresses.extend(name.filter(|name| !addresses.contains(name)));
    }

    Ok(addresses)
}

fn name_address(kind: AddressType, name: &str) -> Address {
    Address {
        kind,
        address: name.into(),
    }
}

fn ip_address(kind: AddressType, text: &str) -> Result<Address, Waiting> {
    let ip = parse(text).ok_or_else(|| Waiting::BadAddress(text.to_owned()))?;
    Ok(Address {
        kind,
        address: ip.to_string().into(),
    })
}

/// An IP address; leading zeros in an IPv4 address are decimal, as Kubernetes has always read them.
fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }

    let octets: Vec<u8> = text
        .split('.')
        .map(|octet| octet.parse().ok().filter(|_| !octet.starts_with('+')))
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets)
        .ok()
        .map(|octets| Ipv4Addr::from(octets).into())
}

/// The kubelet's addresses: one, or two of different families.
fn provided_ips(text: &str) -> Result<Vec<IpAddr>, Waiting> {
    let unreadable = || Waiting::ProvidedIpUnreadable {
        annotation: PROVIDED_NODE_IP,
        text: text.to_owned(),
    };
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|ip| parse(ip.trim()).ok_or_else(unreadable))
        .collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [one, two] if one.is_ipv4() != two.is_ipv4() => Ok(ips),
        _ => Err(unreadable()),
    }
}

/// For each of the kubelet's addresses those equal to it come first; all others of the types so found are dropped;
/// the rest follows in its order.
fn prefer_the_kubelets(node: &NodeView, addresses: Vec<Address>) -> Result<Vec<Address>, Waiting> {
    let Some(text) = node.annotation(PROVIDED_NODE_IP) else {
        return Ok(addresses);
    };

    let mut chosen: Vec<Address> = Vec::new();
    for ip in provided_ips(text)? {
        let equal: Vec<Address> = addresses
            .iter()
            .filter(|address| parse(&address.address) == Some(ip))
            .cloned()
            .collect();
        if equal.is_empty() {
            return Err(Waiting::ProvidedIpNotFound {
                provided: text.to_owned(),
                missing: ip,
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
    use std::sync::Arc;

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
        addresses(&node(annotation), &Host::Instance(Arc::new(instance())), families).map(shown)
    }

    fn shown(list: Vec<Address>) -> Vec<String> {
        let show = |address: Address| format!("{} {}", address.kind, address.address);
        list.into_iter().map(show).collect()
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
    fn the_error_tells_both_lists() {
        let error = texts(Some("10.0.0.1,fd00::9"), &[IpFamily::V4, IpFamily::V6]).unwrap_err();
        let text = error.to_string();
        for part in [
            "10.0.0.1,fd00::9",
            "fd00::9 is not",
            "InternalIP 10.0.1.1",
            "InternalIP fd00::2",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
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
    fn leading_zeros_are_decimal_and_other_text_is_no_address() {
        assert_eq!(parse("010.0.00.0001"), "10.0.0.1".parse().ok());
        assert_eq!(parse("::ffff:10.0.0.1"), "10.0.0.1".parse().ok());
        for text in ["", "10.0.0", "10.0.0.256", "10.0.0.+1", "10.0.0.1/24", "x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_of_ec2_that_is_none_is_an_error() {
        let mut bad = instance();
        bad.public_ip = Some("3.3.3".into());
        let result = addresses(&node(None), &Host::Instance(Arc::new(bad)), &[IpFamily::V4]);
        assert!(matches!(result, Err(Waiting::BadAddress(_))));
    }

    #[test]
    fn an_instance_without_addresses_leaves_those_there_unless_the_kubelet_was_told_one() {
        let bare = Host::Instance(Arc::new(Instance::new("i-1")));
        let families = [IpFamily::V4, IpFamily::V6];
        assert_eq!(addresses(&node(None), &bare, &families).unwrap(), []);
        assert_eq!(first_addresses(&node(None), &bare, &families).unwrap(), []);
        let told = node(Some("10.0.0.1"));
        assert_eq!(addresses(&told, &bare, &families).unwrap(), []);
        let waits = first_addresses(&told, &bare, &families);
        assert!(matches!(waits, Err(Waiting::ProvidedIpNotFound { .. })));
    }

    #[test]
    fn fargate_gives_one_address_of_each_family_and_keeps_the_kubelets_host_name() {
        let interface = FargateEni {
            private_ip: Some("192.168.1.1".into()),
            private_dns_name: Some("ip-192-168-1-1.internal".into()),
            ipv6: vec!["fd00::0001".into(), "fd00::2".into()],
            ..FargateEni::default()
        };
        let list = |interface: &FargateEni, families: &[IpFamily]| {
            shown(addresses(&node(None), &Host::Fargate(Arc::new(interface.clone())), families).unwrap())
        };
        let (ip, name) = ("InternalIP 192.168.1.1", "InternalDNS ip-192-168-1-1.internal");
        assert_eq!(list(&interface, &[IpFamily::V4]), [ip, name, "Hostname kubelets-own"]);
        assert_eq!(
            list(&interface, &[IpFamily::V4, IpFamily::V6]),
            [ip, "InternalIP fd00::1", name, "Hostname kubelets-own"]
        );
        let four_only = FargateEni {
            ipv6: vec![],
            ..interface
        };
        assert!(list(&four_only, &[IpFamily::V6]).is_empty(), "what is there stays");
    }
}
