//! Routes: the type, and the calls that write them.

use aws_sdk_ec2::types as sdk;

use super::convert::told;
use super::{InstanceId, SdkEc2};
use crate::Error;
use crate::sdk::failed;

/// A route of a route table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// IPv4 destination in CIDR notation; `None` for an IPv6 range or a prefix list.
    pub destination: Option<String>,
    pub target: RouteTarget,
    /// The state `blackhole`: the target does not exist or cannot forward traffic.
    pub blackhole: bool,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum RouteTarget {
    /// To an instance.
    Instance(InstanceId),
    /// To a network interface whose instance EC2 does not name; so look routes to terminated instances.
    NetworkInterface(String),
    /// To a gateway, `local`, a peering connection or the like, by its ID.
    Other(String),
    /// EC2 names nothing.
    #[default]
    Unknown,
}

pub(super) fn route(from: &sdk::Route) -> Route {
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

impl SdkEc2 {
    pub(super) async fn send_create_route(&self, table: &str, cidr: &str, to: &InstanceId) -> Result<(), Error> {
        let call = self.client.create_route().route_table_id(table);
        let call = call.destination_cidr_block(cidr).instance_id(to.as_str());
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("CreateRoute", error))
    }

    pub(super) async fn send_replace_route(&self, table: &str, cidr: &str, to: &InstanceId) -> Result<(), Error> {
        let call = self.client.replace_route().route_table_id(table);
        let call = call.destination_cidr_block(cidr).instance_id(to.as_str());
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("ReplaceRoute", error))
    }

    pub(super) async fn send_delete_route(&self, table: &str, cidr: &str) -> Result<(), Error> {
        let call = self.client.delete_route().route_table_id(table);
        call.destination_cidr_block(cidr)
            .send()
            .await
            .map(drop)
            .map_err(|error| failed("DeleteRoute", error))
    }

    pub(super) async fn send_source_dest_check_off(&self, instance: &InstanceId) -> Result<(), Error> {
        let off = sdk::AttributeBooleanValue::builder().value(false).build();
        let call = self.client.modify_instance_attribute().instance_id(instance.as_str());
        call.source_dest_check(off)
            .send()
            .await
            .map(drop)
            .map_err(|error| failed("ModifyInstanceAttribute", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
