//! Converts between the EC2 SDK's types and this crate's. A field that is missing in a response is `None` or empty.

use aws_sdk_ec2::types as sdk;

use super::{
    AvailabilityZone, FargateEni, Filter, GroupPair, Instance, InstanceId, InstanceLayers, InstanceState, IpPermission,
    IpRange, NetworkInterface, Route, RouteTable, RouteTarget, SecurityGroup, Subnet,
};
use crate::Tags;
use crate::sdk::told;

pub(super) fn tags(tags: Option<Vec<sdk::Tag>>) -> Tags {
    let tags = tags.into_iter().flatten();
    tags.filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default())))
        .collect()
}

pub(super) fn sdk_tags(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter()
        .map(|(key, value)| sdk::Tag::builder().key(key).value(value).build())
        .collect()
}

pub(super) fn sdk_filters(filters: &[Filter]) -> Vec<sdk::Filter> {
    let filter = |filter: &Filter| {
        let builder = sdk::Filter::builder().name(&filter.name);
        builder.set_values(Some(filter.values.clone())).build()
    };
    filters.iter().map(filter).collect()
}

pub(super) fn sdk_ids(ids: &[InstanceId]) -> Vec<String> {
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

/// Instances with an ID; EC2 wraps them in reservations.
pub(super) fn instances(reservations: Option<Vec<sdk::Reservation>>) -> impl Iterator<Item = Instance> {
    let reservations = reservations.into_iter().flatten();
    reservations
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
        .filter_map(instance)
}

pub(super) fn fargate_eni(from: sdk::NetworkInterface) -> FargateEni {
    let ipv6 = from.ipv6_addresses.unwrap_or_default().into_iter();
    FargateEni {
        id: told(from.network_interface_id),
        vpc_id: told(from.vpc_id),
        availability_zone: told(from.availability_zone),
        private_ip: told(from.private_ip_address),
        private_dns_name: told(from.private_dns_name),
        ipv6: ipv6.filter_map(|address| told(address.ipv6_address)).collect(),
    }
}

/// `None` for an instance without an ID, of which nothing can be said.
fn instance(from: sdk::Instance) -> Option<Instance> {
    let groups = from.security_groups.into_iter().flatten();
    let interfaces = from.network_interfaces.into_iter().flatten();
    Some(Instance {
        id: InstanceId::new(told(from.instance_id)?),
        private_dns_name: told(from.private_dns_name),
        public_dns_name: told(from.public_dns_name),
        private_ip: told(from.private_ip_address),
        public_ip: told(from.public_ip_address),
        availability_zone: from.placement.and_then(|placement| told(placement.availability_zone)),
        instance_type: from.instance_type.and_then(|kind| told(Some(kind.as_str().to_owned()))),
        state: from.state.and_then(|state| state.name).map(|name| state(name.as_str())),
        launched: from.launch_time.map(|time| time.secs()),
        vpc_id: told(from.vpc_id),
        subnet_id: told(from.subnet_id),
        tags: tags(from.tags),
        security_groups: groups.filter_map(|group| told(group.group_id)).collect(),
        network_interfaces: interfaces.map(network_interface).collect(),
        source_dest_check: from.source_dest_check,
    })
}

fn state(name: &str) -> InstanceState {
    match name {
        "pending" => InstanceState::Pending,
        "running" => InstanceState::Running,
        "shutting-down" => InstanceState::ShuttingDown,
        "terminated" => InstanceState::Terminated,
        "stopping" => InstanceState::Stopping,
        "stopped" => InstanceState::Stopped,
        other => InstanceState::Other(other.to_owned()),
    }
}

fn network_interface(from: sdk::InstanceNetworkInterface) -> NetworkInterface {
    let private = from.private_ip_addresses.unwrap_or_default().into_iter();
    let ipv6 = from.ipv6_addresses.unwrap_or_default().into_iter();
    NetworkInterface {
        status: from.status.and_then(|status| told(Some(status.as_str().to_owned()))),
        device_index: from.attachment.and_then(|attachment| attachment.device_index),
        private_ips: private.filter_map(|address| told(address.private_ip_address)).collect(),
        ipv6: ipv6.filter_map(|address| told(address.ipv6_address)).collect(),
    }
}

pub(super) fn availability_zone(from: sdk::AvailabilityZone) -> Option<AvailabilityZone> {
    Some(AvailabilityZone {
        name: told(from.zone_name)?,
        id: told(from.zone_id),
        zone_type: told(from.zone_type),
    })
}

pub(super) fn subnet(from: sdk::Subnet) -> Option<Subnet> {
    Some(Subnet {
        id: told(from.subnet_id)?,
        vpc_id: told(from.vpc_id),
        availability_zone: told(from.availability_zone),
        cidr_block: told(from.cidr_block),
        tags: tags(from.tags),
    })
}

pub(super) fn route_table(from: sdk::RouteTable) -> RouteTable {
    let associations = from.associations.unwrap_or_default();
    let routes = from.routes.unwrap_or_default();
    let gateways = routes.iter().filter_map(|route| told(route.gateway_id.clone()));
    RouteTable {
        id: from.route_table_id.unwrap_or_default(),
        main: associations.iter().any(|association| association.main == Some(true)),
        subnet_ids: associations
            .into_iter()
            .filter_map(|association| told(association.subnet_id))
            .collect(),
        gateway_ids: gateways.collect(),
        routes: routes.iter().map(route).collect(),
        tags: tags(from.tags),
    }
}

pub(super) fn security_group(from: sdk::SecurityGroup) -> Option<SecurityGroup> {
    let permissions = from.ip_permissions.into_iter().flatten();
    Some(SecurityGroup {
        id: told(from.group_id)?,
        name: told(from.group_name),
        description: told(from.description),
        vpc_id: told(from.vpc_id),
        ingress: permissions.map(permission).collect(),
        tags: tags(from.tags),
    })
}

fn permission(from: sdk::IpPermission) -> IpPermission {
    let ranges = from.ip_ranges.unwrap_or_default().into_iter();
    let ipv6 = from.ipv6_ranges.unwrap_or_default().into_iter();
    let groups = from.user_id_group_pairs.unwrap_or_default().into_iter();
    let lists = from.prefix_list_ids.unwrap_or_default().into_iter();

    IpPermission {
        protocol: from.ip_protocol.unwrap_or_default(),
        from_port: from.from_port,
        to_port: from.to_port,
        ranges: ranges
            .filter_map(|range| {
                Some(IpRange {
                    cidr: range.cidr_ip?,
                    description: told(range.description),
                })
            })
            .collect(),
        ipv6_ranges: ipv6.filter_map(|range| range.cidr_ipv6).collect(),
        groups: groups
            .map(|pair| GroupPair {
                group_id: told(pair.group_id),
                user_id: told(pair.user_id),
            })
            .collect(),
        prefix_lists: lists.filter_map(|list| list.prefix_list_id).collect(),
    }
}

pub(super) fn sdk_permissions(rules: &[IpPermission]) -> Vec<sdk::IpPermission> {
    rules.iter().map(sdk_permission).collect()
}

/// Absent lists are left out of the request, since EC2 refuses empty ones for some protocols.
fn sdk_permission(rule: &IpPermission) -> sdk::IpPermission {
    let ranges = rule.ranges.iter().map(|range| {
        let builder = sdk::IpRange::builder().cidr_ip(&range.cidr);
        builder.set_description(range.description.clone()).build()
    });
    let ipv6 = rule.ipv6_ranges.iter();
    let ipv6 = ipv6.map(|cidr| sdk::Ipv6Range::builder().cidr_ipv6(cidr).build());
    let groups = rule.groups.iter().map(|pair| {
        let builder = sdk::UserIdGroupPair::builder().set_group_id(pair.group_id.clone());
        builder.set_user_id(pair.user_id.clone()).build()
    });
    let lists = rule.prefix_lists.iter();
    let lists = lists.map(|id| sdk::PrefixListId::builder().prefix_list_id(id).build());

    sdk::IpPermission::builder()
        .ip_protocol(&rule.protocol)
        .set_from_port(rule.from_port)
        .set_to_port(rule.to_port)
        .set_ip_ranges(some(ranges.collect()))
        .set_ipv6_ranges(some(ipv6.collect()))
        .set_user_id_group_pairs(some(groups.collect()))
        .set_prefix_list_ids(some(lists.collect()))
        .build()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn route(from: &sdk::Route) -> Route {
    let text = |value: Option<&str>| told(value.map(str::to_owned));
    let others = [
        from.gateway_id(),
        from.nat_gateway_id(),
        from.transit_gateway_id(),
        from.vpc_peering_connection_id(),
        from.local_gateway_id(),
        from.carrier_gateway_id(),
        from.core_network_arn(),
        from.egress_only_internet_gateway_id(),
        from.odb_network_arn(),
    ];

    let target = if let Some(id) = text(from.instance_id()) {
        RouteTarget::Instance(InstanceId::new(id))
    } else if let Some(other) = others.into_iter().find_map(text) {
        RouteTarget::Other(other)
    } else if let Some(id) = text(from.network_interface_id()) {
        RouteTarget::NetworkInterface(id)
    } else {
        RouteTarget::Unknown
    };

    Route {
        destination: text(from.destination_cidr_block()),
        target,
        blackhole: from.state() == Some(&sdk::RouteState::Blackhole),
    }
}

/// An item without an ID is ignored. An empty name of a network node would shift the layers, so it ends the list.
pub(super) fn layers(item: sdk::InstanceTopology) -> Option<InstanceLayers> {
    let id = told(item.instance_id)?;
    let nodes = item.network_nodes.unwrap_or_default();
    let layers = nodes.into_iter().take_while(|node| !node.is_empty()).collect();
    Some((InstanceId::new(id), layers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_with_nothing_but_an_id_is_an_instance_and_one_without_is_none() {
        let bare = sdk::Instance::builder().instance_id("i-1").build();
        assert_eq!(instance(bare), Some(Instance::new("i-1")));
        assert_eq!(instance(sdk::Instance::builder().build()), None);
    }

    #[test]
    fn empty_names_read_as_absent_and_unknown_states_keep_their_text() {
        let from = sdk::Instance::builder()
            .instance_id("i-1")
            .private_dns_name("")
            .state(sdk::InstanceState::builder().name("hovering".into()).build())
            .build();
        let read = instance(from).unwrap();
        assert_eq!(read.private_dns_name, None);
        assert_eq!(read.state, Some(InstanceState::Other("hovering".into())));
    }

    #[test]
    fn a_rule_survives_the_way_to_the_sdk_and_back() {
        let rule = IpPermission {
            protocol: "tcp".into(),
            from_port: Some(80),
            to_port: Some(80),
            ranges: vec![IpRange {
                cidr: "10.0.0.0/8".into(),
                description: Some("inside".into()),
            }],
            ipv6_ranges: vec!["fd00::/8".into()],
            groups: vec![GroupPair {
                group_id: Some("sg-1".into()),
                user_id: None,
            }],
            prefix_lists: vec!["pl-1".into()],
        };
        assert_eq!(permission(sdk_permission(&rule)), rule);
    }

    #[test]
    fn a_main_table_and_its_gateways_are_seen() {
        let table = sdk::RouteTable::builder()
            .route_table_id("rtb-1")
            .associations(sdk::RouteTableAssociation::builder().main(true).build())
            .associations(sdk::RouteTableAssociation::builder().subnet_id("subnet-1").build())
            .routes(sdk::Route::builder().gateway_id("local").build())
            .routes(sdk::Route::builder().gateway_id("igw-1").build())
            .build();
        let read = route_table(table);
        assert!(read.main);
        assert_eq!(read.subnet_ids, ["subnet-1"]);
        assert_eq!(read.gateway_ids, ["local", "igw-1"]);
    }

    fn read(build: impl FnOnce(sdk::builders::RouteBuilder) -> sdk::builders::RouteBuilder) -> Route {
        route(&build(sdk::Route::builder()).build())
    }

    #[test]
    fn each_kind_of_target_is_told_apart() {
        let to = |build: fn(sdk::builders::RouteBuilder) -> sdk::builders::RouteBuilder| read(build).target;
        assert_eq!(
            to(|r| r.instance_id("i-1").network_interface_id("eni-1")),
            RouteTarget::Instance(InstanceId::new("i-1"))
        );
        assert_eq!(
            to(|r| r.network_interface_id("eni-1")),
            RouteTarget::NetworkInterface("eni-1".into())
        );
        assert_eq!(to(|r| r.gateway_id("local")), RouteTarget::Other("local".into()));
        assert_eq!(
            to(|r| r.vpc_peering_connection_id("pcx-1")),
            RouteTarget::Other("pcx-1".into())
        );
        assert_eq!(to(|r| r.instance_id("")), RouteTarget::Unknown);
    }

    #[test]
    fn ipv6_and_prefix_lists_have_no_ipv4_destination_and_only_the_state_makes_a_blackhole() {
        assert_eq!(read(|r| r.destination_ipv6_cidr_block("fd00::/64")).destination, None);
        assert_eq!(read(|r| r.destination_prefix_list_id("pl-1")).destination, None);
        let dead = read(|r| {
            r.destination_cidr_block("10.0.1.0/24")
                .state(sdk::RouteState::Blackhole)
        });
        assert!(dead.blackhole && dead.destination.as_deref() == Some("10.0.1.0/24"));
        assert!(!read(|r| r.state(sdk::RouteState::Active)).blackhole);
    }

    #[test]
    fn any_field_of_the_answer_may_be_missing() {
        let bare = sdk::InstanceTopology::builder().build();
        assert_eq!(layers(bare), None);
        let without_nodes = sdk::InstanceTopology::builder().instance_id("i-1").build();
        assert_eq!(layers(without_nodes), Some((InstanceId::new("i-1"), vec![])));
        let with_a_hole = sdk::InstanceTopology::builder()
            .instance_id("i-1")
            .network_nodes("nn-1")
            .network_nodes("")
            .network_nodes("nn-3")
            .build();
        assert_eq!(
            layers(with_a_hole),
            Some((InstanceId::new("i-1"), vec!["nn-1".to_owned()]))
        );
    }
}
