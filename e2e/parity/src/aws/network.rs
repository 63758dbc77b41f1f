//! DescribeNetworkInterfaces, for the interfaces of Fargate. Pure.

use outrigger_aws_sim::query::Query;
use outrigger_aws_sim::xml::Element;

use super::account::{Account, NetworkInterface, SUBNET_ID};
use super::answer::{Answered, check_names, item, optional};

/// Names of filters that are scripted.
const FILTERS: [&str; 6] = [
    "attachment.status",
    "vpc-id",
    "private-ip-address",
    "addresses.private-ip-address",
    "network-interface-id",
    "private-dns-name",
];

pub(super) fn describe(account: &Account, query: &Query) -> Answered {
    let filters = query.parameters.filters();
    check_names(&filters, &FILTERS)?;
    let found = account.network_interfaces.iter();
    let found = found.filter(|interface| matches(interface, &filters)).map(element);
    Ok(vec![Element::parent("networkInterfaceSet", found)])
}

fn matches(interface: &NetworkInterface, filters: &[(&str, Vec<&str>)]) -> bool {
    filters.iter().all(|(name, values)| {
        let own = match *name {
            "attachment.status" => &interface.attachment_status,
            "vpc-id" => &interface.vpc_id,
            "network-interface-id" => &interface.network_interface_id,
            "private-dns-name" => &interface.private_dns_name,
            _ => &interface.private_ip_address,
        };
        values.contains(&own.as_str())
    })
}

fn element(interface: &NetworkInterface) -> Element {
    let primary = item([
        Element::text("privateIpAddress", &interface.private_ip_address),
        Element::text("primary", "true"),
    ]);
    let ipv6 = interface.ipv6_addresses.iter();
    let ipv6 = ipv6.map(|address| item([Element::text("ipv6Address", address)]));
    let mut element = item([
        Element::text("networkInterfaceId", &interface.network_interface_id),
        Element::text("subnetId", SUBNET_ID),
        Element::text("vpcId", &interface.vpc_id),
        Element::text("status", "in-use"),
        Element::text("privateIpAddress", &interface.private_ip_address),
        Element::text("privateDnsName", &interface.private_dns_name),
        Element::parent("attachment", [Element::text("status", &interface.attachment_status)]),
        Element::parent("privateIpAddressesSet", [primary]),
        Element::parent("ipv6AddressesSet", ipv6),
    ]);

    element
        .children
        .extend(optional("availabilityZone", interface.availability_zone.as_ref()));

    element
}
