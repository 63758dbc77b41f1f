//! DescribeNetworkInterfaces, which finds the interfaces of Fargate. Pure.

use crate::aws::query::Query;
use crate::aws::xml::Element;

use super::answer::{Answered, Refusal, item, optional};
use super::world::{NetworkInterface, SUBNET_ID, World};

pub(super) fn describe(world: &World, query: &Query) -> Answered {
    let filters = query.parameters.filters();
    let mut items = Vec::new();
    for interface in &world.network_interfaces {
        if matches(interface, &filters)? {
            items.push(element(interface));
        }
    }
    Ok(vec![Element::parent("networkInterfaceSet", items)])
}

fn matches(interface: &NetworkInterface, filters: &[(&str, Vec<&str>)]) -> Result<bool, Refusal> {
    for (name, values) in filters {
        let value = match *name {
            "attachment.status" => &interface.attachment_status,
            "vpc-id" => &interface.vpc_id,
            "private-ip-address" | "addresses.private-ip-address" => &interface.private_ip_address,
            "network-interface-id" => &interface.network_interface_id,
            "private-dns-name" => &interface.private_dns_name,
            unknown => return Err(Refusal::invalid_filter(unknown)),
        };
        if !values.contains(&value.as_str()) {
            return Ok(false);
        }
    }
    Ok(true)
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
        Element::parent(
            "attachment",
            [Element::text("status", &interface.attachment_status)],
        ),
        Element::parent("privateIpAddressesSet", [primary]),
        Element::parent("ipv6AddressesSet", ipv6),
    ]);
    element
        .children
        .extend(optional("availabilityZone", interface.availability_zone.as_ref()));
    element
}
