//! DescribeInstances and DescribeInstanceTopology, and DescribeNetworkInterfaces for the interfaces of Fargate. Pure.

use outrigger_aws_sim::query::{Parameters, Query};
use outrigger_aws_sim::xml::Element;

use super::account::{Account, AttachedInterface, Instance, NetworkInterface, SUBNET_ID};
use super::answer::{Answered, Refusal, check_names, item, optional};

/// The longest page, below the requested sizes, so that every caller must follow the pages.
const PAGE: usize = 25;

/// Names of filters that are scripted, besides `tag:KEY`.
const FILTERS: [&str; 6] = [
    "instance-id",
    "private-dns-name",
    "instance-state-name",
    "private-ip-address",
    "vpc-id",
    "tag-key",
];

/// The same for network interfaces.
const INTERFACE_FILTERS: [&str; 6] = [
    "attachment.status",
    "vpc-id",
    "private-ip-address",
    "addresses.private-ip-address",
    "network-interface-id",
    "private-dns-name",
];

pub(super) fn describe(account: &Account, query: &Query) -> Answered {
    let ids = query.parameters.list("InstanceId");
    if !ids.is_empty() && query.parameters.get("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(Refusal::new("InvalidParameterCombination", message));
    }

    check_ids(account, &ids)?;

    let filters = query.parameters.filters();
    check_names(&filters, &FILTERS)?;

    let requested = |instance: &&Instance| ids.is_empty() || ids.contains(&instance.instance_id.as_str());
    let found = account.instances.iter().filter(requested);
    let found: Vec<&Instance> = found.filter(|instance| matches(instance, &filters)).collect();

    page(&query.parameters, &found)
}

/// EC2 fails the whole call if one ID is malformed or does not exist. It checks the form of all IDs first.
fn check_ids(account: &Account, ids: &[&str]) -> Result<(), Refusal> {
    let malformed: Vec<&str> = ids.iter().copied().filter(|id| !is_id(id)).collect();
    if !malformed.is_empty() {
        let plural = if malformed.len() == 1 { "id" } else { "ids" };
        let message = format!("Invalid {plural}: \"{}\"", malformed.join(", "));
        return Err(Refusal::new("InvalidInstanceID.Malformed", message));
    }

    let exists = |id: &str| account.instances.iter().any(|instance| instance.instance_id == id);
    let missing: Vec<&str> = ids.iter().copied().filter(|id| !exists(id)).collect();
    let message = match missing.as_slice() {
        [] => return Ok(()),
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    };
    Err(Refusal::new("InvalidInstanceID.NotFound", message))
}

/// `i-` and 8 or 17 hexadecimal digits.
fn is_id(id: &str) -> bool {
    id.strip_prefix("i-")
        .is_some_and(|digits| matches!(digits.len(), 8 | 17) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// All filters match; one filter matches with any of its values. Values of `instance-id` need not be IDs.
fn matches(instance: &Instance, filters: &[(&str, Vec<&str>)]) -> bool {
    filters.iter().all(|(name, values)| {
        let any = |own: &str| values.contains(&own);
        match *name {
            "instance-id" => any(&instance.instance_id),
            "private-dns-name" => any(&instance.private_dns_name),
            "instance-state-name" => instance.state.as_deref().is_some_and(any),
            "private-ip-address" => instance.private_ip_address.as_deref().is_some_and(any),
            "vpc-id" => any(&instance.vpc_id),
            "tag-key" => instance.tags.keys().any(|key| any(key)),
            other => other
                .strip_prefix("tag:")
                .and_then(|key| instance.tags.get(key))
                .is_some_and(|value| any(value)),
        }
    })
}

/// Only calls with `MaxResults` or a token have pages. A token is the number of instances on earlier pages.
fn page(parameters: &Parameters, found: &[&Instance]) -> Answered {
    let invalid = |name: &str| {
        let value = parameters.get(name).unwrap_or_default();
        let message = format!("Value ( {value} ) for parameter {name} is invalid.");
        Refusal::new("InvalidParameterValue", message)
    };
    let number = |name: &str| {
        let number = parameters.get(name).map(str::parse::<usize>).transpose();
        number.map_err(|_| invalid(name))
    };
    let start = number("NextToken")?.unwrap_or(0);
    let length = match number("MaxResults")? {
        None => found.len(),
        Some(most) if (5..=1000).contains(&most) => most.min(PAGE),
        Some(_) => return Err(invalid("MaxResults")),
    };
    let rest = found.get(start..).unwrap_or_default();
    let shown = rest.get(..length).unwrap_or(rest);
    let reservations = shown.iter().enumerate().map(|(index, instance)| {
        item([
            Element::text("reservationId", format!("r-{:017x}", start + index)),
            Element::text("ownerId", "123456789012"),
            Element::parent("instancesSet", [element(instance)]),
        ])
    });
    let mut answer = vec![Element::parent("reservationSet", reservations)];

    if shown.len() < rest.len() {
        answer.push(Element::text("nextToken", (start + shown.len()).to_string()));
    }

    Ok(answer)
}

fn element(instance: &Instance) -> Element {
    let state = instance.state.as_ref().map(|state| {
        let code = code_of(state).to_string();
        let name = Element::text("name", state);
        Element::parent("instanceState", [Element::text("code", code), name])
    });
    let placement = instance.availability_zone.as_ref().map(|zone| {
        let zone = Element::text("availabilityZone", zone);
        Element::parent("placement", [zone, Element::text("tenancy", "default")])
    });
    let tags = instance.tags.iter();
    let tags = tags.map(|(key, value)| item([Element::text("key", key), Element::text("value", value)]));

    let always = [
        Element::text("instanceId", &instance.instance_id),
        Element::text("imageId", "ami-00000000000000001"),
        Element::text("privateDnsName", &instance.private_dns_name),
        Element::text("dnsName", &instance.public_dns_name),
        Element::text("subnetId", SUBNET_ID),
        Element::text("vpcId", &instance.vpc_id),
        // Long before the creation of any Node.
        Element::text("launchTime", "2020-01-01T00:00:00.000Z"),
        Element::parent("tagSet", tags),
        Element::parent("networkInterfaceSet", interfaces(instance)),
    ];
    let sometimes = [
        optional("instanceType", instance.instance_type.as_ref()),
        optional("privateIpAddress", instance.private_ip_address.as_ref()),
        optional("ipAddress", instance.public_ip_address.as_ref()),
        state,
        placement,
    ];
    item(always.into_iter().chain(sometimes.into_iter().flatten()))
}

fn code_of(state: &str) -> u8 {
    match state {
        "pending" => 0,
        "shutting-down" => 32,
        "terminated" => 48,
        "stopping" => 64,
        "stopped" => 80,
        _ => 16,
    }
}

fn interfaces(instance: &Instance) -> Vec<Element> {
    let default = || {
        let address = instance.private_ip_address.clone()?;
        Some(vec![AttachedInterface {
            status: "in-use".to_owned(),
            device_index: Some(0),
            private_ip_addresses: vec![address],
            ipv6_addresses: Vec::new(),
        }])
    };

    let interfaces = instance.network_interfaces.clone().or_else(default);
    interfaces.unwrap_or_default().iter().map(interface).collect()
}

fn interface(from: &AttachedInterface) -> Element {
    let attachment = from.device_index.map(|index| {
        let index = Element::text("deviceIndex", index.to_string());
        Element::parent("attachment", [index, Element::text("status", "attached")])
    });
    let private = from.private_ip_addresses.iter().enumerate().map(|(place, address)| {
        let primary = Element::text("primary", (place == 0).to_string());
        item([Element::text("privateIpAddress", address), primary])
    });
    let ipv6 = from.ipv6_addresses.iter();
    let ipv6 = ipv6.map(|address| item([Element::text("ipv6Address", address)]));
    let always = [
        Element::text("status", &from.status),
        Element::parent("privateIpAddressesSet", private),
        Element::parent("ipv6AddressesSet", ipv6),
    ];
    let address = optional("privateIpAddress", from.private_ip_addresses.first());
    item(always.into_iter().chain(address).chain(attachment))
}

/// DescribeInstanceTopology: the answer omits instances without a topology.
pub(super) fn topology(account: &Account, query: &Query) -> Answered {
    let ids = query.parameters.list("InstanceId");
    if ids.len() > 100 {
        let message = format!("{} instance IDs; at most 100 are allowed", ids.len());
        return Err(Refusal::new("InvalidParameterValue", message));
    }

    check_ids(account, &ids)?;

    let with_topology = account.instances.iter().filter_map(|instance| {
        let requested = ids.is_empty() || ids.contains(&instance.instance_id.as_str());
        let nodes = account.topology.get(&instance.instance_id).filter(|_| requested)?;
        let nodes = nodes.iter().map(|node| Element::text("item", node));
        let always = [
            Element::text("instanceId", &instance.instance_id),
            Element::parent("networkNodeSet", nodes),
        ];
        let zone = optional("availabilityZone", instance.availability_zone.as_ref());
        let kind = optional("instanceType", instance.instance_type.as_ref());
        Some(item(always.into_iter().chain(zone).chain(kind)))
    });

    Ok(vec![Element::parent("instanceSet", with_topology)])
}

pub(super) fn network_interfaces(account: &Account, query: &Query) -> Answered {
    let filters = query.parameters.filters();
    check_names(&filters, &INTERFACE_FILTERS)?;
    let found = account.network_interfaces.iter();
    let found = found
        .filter(|interface| interface_matches(interface, &filters))
        .map(network_interface);
    Ok(vec![Element::parent("networkInterfaceSet", found)])
}

fn interface_matches(interface: &NetworkInterface, filters: &[(&str, Vec<&str>)]) -> bool {
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

fn network_interface(interface: &NetworkInterface) -> Element {
    let primary = item([
        Element::text("privateIpAddress", &interface.private_ip_address),
        Element::text("primary", "true"),
    ]);
    let ipv6 = interface.ipv6_addresses.iter();
    let ipv6 = ipv6.map(|address| item([Element::text("ipv6Address", address)]));
    let always = [
        Element::text("networkInterfaceId", &interface.network_interface_id),
        Element::text("subnetId", SUBNET_ID),
        Element::text("vpcId", &interface.vpc_id),
        Element::text("status", "in-use"),
        Element::text("privateIpAddress", &interface.private_ip_address),
        Element::text("privateDnsName", &interface.private_dns_name),
        Element::parent("attachment", [Element::text("status", &interface.attachment_status)]),
        Element::parent("privateIpAddressesSet", [primary]),
        Element::parent("ipv6AddressesSet", ipv6),
    ];
    let zone = optional("availabilityZone", interface.availability_zone.as_ref());
    item(always.into_iter().chain(zone))
}

#[cfg(test)]
mod tests {
    use super::super::answer::answer;
    use super::{Account, Refusal};
    use outrigger_aws_sim::query::Query;
    use outrigger_aws_sim::xml::Element;

    fn account() -> Account {
        let instances: Vec<String> = (0..60)
            .map(|n| {
                format!("{{instanceId: i-{n:08x}, privateDnsName: ip-{n}.ec2.internal, privateIpAddress: 10.0.0.{n}}}")
            })
            .collect();
        let topology = "topology: {i-00000001: [nn-1, nn-2, nn-3]}";
        serde_saphyr::from_str(&format!("instances: [{}]\n{topology}\n", instances.join(", "))).expect("an account")
    }

    fn ask(form: &str) -> Result<Element, Refusal> {
        answer(&account(), &Query::parse(form.as_bytes()))
    }

    fn ids(answer: &Element) -> Vec<String> {
        let ids = answer.items("reservationSet").iter();
        ids.filter_map(|item| item.find("instanceId").map(|id| id.text.clone()))
            .collect()
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let (mut token, mut seen) = (String::new(), Vec::new());
        loop {
            let answer = ask(&format!("Action=DescribeInstances&MaxResults=1000{token}")).expect("answered");
            seen.extend(ids(&answer));
            match answer.child("nextToken") {
                Some(next) => token = format!("&NextToken={}", next.text),
                None => break,
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 60);
        let with_ids = ask("Action=DescribeInstances&MaxResults=1000&InstanceId.1=i-00000001");
        assert_eq!(with_ids.expect_err("refused").code, "InvalidParameterCombination");
    }

    #[test]
    fn plain_ids_fail_as_a_whole_and_filters_leave_out() {
        let by_id = |ids: &str| ask(&format!("Action=DescribeInstances&{ids}"));
        let found = by_id("InstanceId.1=i-00000001&InstanceId.2=i-00000002").expect("both exist");
        assert_eq!(ids(&found), ["i-00000001", "i-00000002"]);
        let gone = by_id("InstanceId.1=i-00000001&InstanceId.2=i-ffffffff").expect_err("one does not exist");
        assert_eq!(gone.code, "InvalidInstanceID.NotFound");
        assert_eq!(gone.message, "The instance ID 'i-ffffffff' does not exist");
        let malformed = by_id("InstanceId.1=i-ffffffff&InstanceId.2=i-none").expect_err("one is no ID");
        assert_eq!(malformed.code, "InvalidInstanceID.Malformed");
        let filtered = "Filter.1.Name=instance-id&Filter.1.Value.1=i-00000001&Filter.1.Value.2=i-none";
        assert_eq!(ids(&by_id(filtered).expect("answered")), ["i-00000001"]);
    }

    #[test]
    fn only_instances_with_a_topology_are_in_the_answer() {
        let answer = ask("Action=DescribeInstanceTopology&InstanceId.1=i-00000001&InstanceId.2=i-00000002");
        let answer = answer.expect("answered");
        assert_eq!(answer.items("instanceSet").len(), 1);
        let nodes: Vec<&str> = answer
            .items("networkNodeSet")
            .iter()
            .map(|node| node.text.as_str())
            .collect();
        assert_eq!(nodes, ["nn-1", "nn-2", "nn-3"]);
    }
}
