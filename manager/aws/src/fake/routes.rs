//! Route tables in memory.

use super::World;
use super::refusals::refuse;
use super::world::pass_tags;
use crate::ec2::{Filter, Instance, Route, RouteTable, RouteTarget};
use crate::{Error, InstanceId, Result};

pub(super) fn passes(vpc_id: &str, table: &RouteTable, filter: &Filter) -> Result<bool> {
    Ok(match filter.name.as_str() {
        "vpc-id" => filter.values.iter().any(|value| value == vpc_id),
        "route-table-id" => filter.values.contains(&table.id),
        _ => pass_tags("DescribeRouteTables", &table.tags, filter)?,
    })
}

fn table<'w>(world: &'w mut World, action: &'static str, id: &str) -> Result<&'w mut RouteTable> {
    let mut tables = world.route_tables.values_mut().flatten();
    tables.find(|table| table.id == id).ok_or_else(|| {
        let message = format!("The routeTable ID '{id}' does not exist");
        Error::answered(action, "InvalidRouteTableID.NotFound", message)
    })
}

pub(super) fn instance<'w>(world: &'w mut World, action: &'static str, id: &InstanceId) -> Result<&'w mut Instance> {
    world.instances.get_mut(id).ok_or_else(|| {
        let message = format!("The instance ID '{id}' does not exist");
        Error::answered(action, "InvalidInstanceID.NotFound", message)
    })
}

fn is_to(route: &Route, cidr: &str) -> bool {
    route.destination.as_deref() == Some(cidr)
}

pub(super) fn create(world: &mut World, id: &str, cidr: &str, to: &InstanceId) -> Result<()> {
    const ACTION: &str = "CreateRoute";

    instance(world, ACTION, to)?;

    let most = world.most_routes;
    let routes = &mut table(world, ACTION, id)?.routes;
    if routes.iter().any(|route| is_to(route, cidr)) {
        let message = format!("The route identified by {cidr} already exists.");
        return refuse(ACTION, "RouteAlreadyExists", message);
    }
    if most.is_some_and(|most| routes.len() >= most) {
        let message = format!("route table {id} has reached its limit");
        return refuse(ACTION, "RouteLimitExceeded", message);
    }

    routes.push(Route {
        destination: Some(cidr.to_owned()),
        target: RouteTarget::Instance(to.clone()),
        blackhole: false,
    });

    Ok(())
}

fn existing<'w>(
    world: &'w mut World,
    action: &'static str,
    id: &str,
    cidr: &str,
) -> Result<(&'w mut Vec<Route>, usize)> {
    let routes = &mut table(world, action, id)?.routes;
    let place = routes.iter().position(|route| is_to(route, cidr)).ok_or_else(|| {
        let message = format!("no route with destination-cidr-block {cidr} in route table {id}");
        Error::answered(action, "InvalidRoute.NotFound", message)
    })?;
    Ok((routes, place))
}

pub(super) fn replace(world: &mut World, id: &str, cidr: &str, to: &InstanceId) -> Result<()> {
    const ACTION: &str = "ReplaceRoute";

    instance(world, ACTION, to)?;

    let (routes, place) = existing(world, ACTION, id, cidr)?;
    if let Some(route) = routes.get_mut(place) {
        route.target = RouteTarget::Instance(to.clone());
        route.blackhole = false;
    }

    Ok(())
}

pub(super) fn delete(world: &mut World, id: &str, cidr: &str) -> Result<()> {
    let (routes, place) = existing(world, "DeleteRoute", id, cidr)?;
    routes.remove(place);
    Ok(())
}
