//! Target groups in memory: AWS's rules for health checks and targets.

use std::collections::BTreeSet;

use super::World;
use super::elb::at_most;
use super::network::{FakeTargetGroup, Network, new_group_attributes};
use super::refusals::{invalid, refuse, unfit, within};
use crate::ec2::InstanceState;
use crate::elbv2::{
    HealthCheckChange, MAX_NAMES, MAX_TARGETS, NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth,
    TargetHealthCheck,
};
use crate::{InstanceId, Result};

/// Why AWS refuses these settings of a health check, if it does.
fn check(action: &'static str, check: &TargetHealthCheck) -> Result<()> {
    let within = |what: &str, value: i32, least: i32, most: i32| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        invalid(action, format!("{what} {value} is not within {least} and {most}"))
    };
    if !["TCP", "HTTP", "HTTPS"].contains(&check.protocol.as_str()) {
        let protocol = &check.protocol;
        return invalid(action, format!("health check protocol '{protocol}' is not known"));
    }

    if check.port != "traffic-port" {
        let port = check.port.parse().unwrap_or_default();
        within("health check port", port, 1, 65535)?;
    }

    if check.protocol == "TCP" && check.path.is_some() {
        return unfit(action, "a health check of TCP has no path");
    }
    if check.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
        return invalid(action, "a health check path begins with /");
    }

    within("health check interval", check.interval, 5, 300)?;
    within("healthy threshold", check.healthy_threshold, 2, 10)?;

    within("unhealthy threshold", check.unhealthy_threshold, 2, 10)
}

pub(super) fn describe(network: &mut Network, query: TargetGroupQuery<'_>) -> Result<Vec<TargetGroup>> {
    const ACTION: &str = "DescribeTargetGroups";

    let all = |network: &Network| -> Vec<TargetGroup> {
        let groups = network.target_groups.values();
        groups.map(|group| network.describe_group(group)).collect()
    };
    match query {
        TargetGroupQuery::All => Ok(all(network)),
        TargetGroupQuery::UsedBy(arn) => {
            network.balancer(ACTION, arn)?;
            let mut used = all(network);
            used.retain(|group| group.load_balancers.contains(arn));
            Ok(used)
        }
        TargetGroupQuery::Names(names) => {
            at_most(ACTION, names, MAX_NAMES)?;
            let one = |name: &String| match network.target_group_named(name) {
                Some(group) => Ok(network.describe_group(group)),
                None => Err(Network::no_name(ACTION, "TargetGroupNotFound", name)),
            };
            names.iter().map(one).collect()
        }
    }
}

/// Makes a target group, or finds the one that was made with the same settings.
pub(super) fn create(network: &mut Network, new: &NewTargetGroup) -> Result<String> {
    const ACTION: &str = "CreateTargetGroup";

    let mut health_check = new.health_check.clone();
    if health_check.protocol != "TCP" {
        health_check.path.get_or_insert_with(|| "/".to_owned());
    }

    check(ACTION, &health_check)?;
    if new.name.is_empty() || new.name.len() > 32 || !(1..=65535).contains(&new.port) {
        return invalid(ACTION, "name or port is not valid");
    }
    if !["TCP", "UDP", "TLS", "TCP_UDP"].contains(&new.protocol.as_str()) {
        return invalid(ACTION, format!("protocol '{}' is not known", new.protocol));
    }

    let mut group = TargetGroup {
        name: new.name.clone(),
        port: new.port,
        protocol: new.protocol.clone(),
        target_type: Some("instance".to_owned()),
        vpc_id: Some(new.vpc_id.clone()),
        health_check,
        ..TargetGroup::default()
    };
    if let Some(old) = network.target_group_named(&new.name) {
        group.arn.clone_from(&old.described.arn);
        if group == old.described {
            return Ok(group.arn);
        }
        let name = &new.name;
        let message = format!("A target group with the same name '{name}' exists, but with different settings");
        return refuse(ACTION, "DuplicateTargetGroupName", message);
    }

    let arn = network.new_arn(&format!("targetgroup/{}", new.name));
    group.arn.clone_from(&arn);
    let made = FakeTargetGroup {
        described: group,
        attributes: new_group_attributes(&new.protocol),
        tags: new.tags.clone(),
        ..FakeTargetGroup::default()
    };

    network.target_groups.insert(arn.clone(), made);

    Ok(arn)
}

/// Changes a health check.
pub(super) fn modify(network: &mut Network, arn: &str, change: &HealthCheckChange) -> Result<()> {
    const ACTION: &str = "ModifyTargetGroup";

    let now = &mut network.group(ACTION, arn)?.described.health_check;
    let new = TargetHealthCheck {
        protocol: now.protocol.clone(),
        port: change.port.clone().unwrap_or_else(|| now.port.clone()),
        path: change.path.clone().or_else(|| now.path.clone()),
        interval: now.interval,
        healthy_threshold: change.healthy_threshold.unwrap_or(now.healthy_threshold),
        unhealthy_threshold: change.unhealthy_threshold.unwrap_or(now.unhealthy_threshold),
    };

    check(ACTION, &new)?;
    *now = new;

    Ok(())
}

/// Deletes a target group that no listener uses.
pub(super) fn delete(world: &mut World, arn: &str) -> Result<()> {
    const ACTION: &str = "DeleteTargetGroup";

    if !world.network.target_groups.contains_key(arn) {
        return Ok(());
    }
    if world.lingers(arn) || !world.network.users_of(arn).is_empty() {
        let message = format!("Target group '{arn}' is currently in use by a listener or a rule");
        return refuse(ACTION, "ResourceInUse", message);
    }

    world.network.target_groups.remove(arn);

    Ok(())
}

fn in_one_call(action: &'static str, targets: &[Target]) -> Result<()> {
    if targets.is_empty() || targets.len() > MAX_TARGETS {
        let count = targets.len();
        let message = format!("1 to {MAX_TARGETS} targets are taken in one call, not {count}");
        return invalid(action, message);
    }
    Ok(())
}

/// Adds targets, all or none.
pub(super) fn register(world: &mut World, arn: &str, targets: &[Target]) -> Result<()> {
    const ACTION: &str = "RegisterTargets";

    in_one_call(ACTION, targets)?;

    let running = |id: &InstanceId| match world.instances.get(id) {
        None => false,
        Some(instance) => matches!(instance.state, None | Some(InstanceState::Running)),
    };
    let stopped = targets.iter().filter(|target| !running(&target.id));
    let stopped: Vec<String> = stopped.map(|target| format!("'{}'", target.id)).collect();
    if !stopped.is_empty() {
        let stopped = stopped.join(", ");
        let message = format!("The following targets are not in a running state: {stopped}");
        return refuse(ACTION, "InvalidTarget", message);
    }

    let group = world.network.group(ACTION, arn)?;
    let all: BTreeSet<Target> = group.targets.iter().chain(targets).cloned().collect();
    within(ACTION, world.quotas.check_target_group(all.len()))?;

    let mut after = world.network.clone();
    after.group(ACTION, arn)?.targets.clone_from(&all);
    for balancer in world.network.users_of(arn) {
        check_zones(world, &after, ACTION, &balancer)?;
    }

    let group = world.network.group(ACTION, arn)?;
    group.draining.retain(|target, _| !targets.contains(target));
    group.targets = all;

    Ok(())
}

/// Checks the targets that a load balancer has in each zone, with its listeners and target groups as in `after`.
/// Draining targets do not count.
pub(super) fn check_zones(world: &World, after: &Network, action: &'static str, balancer: &str) -> Result<()> {
    // Names of deleted load balancers linger.
    let Some(found) = after.load_balancers.get(balancer) else {
        return Ok(());
    };
    let listeners = after.listeners_of(balancer);
    let arns = listeners
        .values()
        .filter_map(|listener| listener.settings.target_group_arn.as_ref());
    let arns: BTreeSet<&String> = arns.collect();
    let groups = arns.into_iter().filter_map(|arn| after.target_groups.get(arn));
    let instances = groups
        .flat_map(|group| &group.targets)
        .map(|target| world.instances.get(&target.id));
    let zones = instances.map(|instance| {
        instance
            .and_then(|instance| instance.availability_zone.as_deref())
            .unwrap_or_default()
    });
    let is_cross_zone = found
        .attributes
        .get("load_balancing.cross_zone.enabled")
        .is_some_and(|on| on == "true");

    within(action, world.quotas.check_balancer(zones, is_cross_zone))
}

/// Takes targets away; where a listener uses the group they drain for a while.
pub(super) fn deregister(world: &mut World, arn: &str, targets: &[Target]) -> Result<()> {
    const ACTION: &str = "DeregisterTargets";

    in_one_call(ACTION, targets)?;

    let used = !world.network.users_of(arn).is_empty();
    let looks = if used { world.network.drain_looks } else { 0 };
    let group = world.network.group(ACTION, arn)?;

    for target in targets {
        if group.targets.remove(target) && looks > 0 {
            group.draining.insert(target.clone(), looks);
        }
    }

    Ok(())
}

/// Describes the targets. Each description advances the deregistration of draining targets.
pub(super) fn health(network: &mut Network, arn: &str) -> Result<Vec<TargetHealth>> {
    let used = !network.users_of(arn).is_empty();
    let group = network.group("DescribeTargetHealth", arn)?;
    let (state, reason) = if used {
        ("healthy", None)
    } else {
        ("unused", Some("Target.NotInUse"))
    };
    let one = |target: &Target, state: &str, reason: Option<&str>| TargetHealth {
        target: target.clone(),
        state: Some(state.to_owned()),
        reason: reason.map(str::to_owned),
    };
    let staying = group.targets.iter().map(|target| one(target, state, reason));
    let leaving = group.draining.keys();
    let leaving = leaving.map(|target| one(target, "draining", Some("Target.DeregistrationInProgress")));
    let seen = staying.chain(leaving).collect();

    group.draining.retain(|_, looks| {
        *looks = looks.saturating_sub(1);
        *looks > 0
    });

    Ok(seen)
}

/// Sets attributes of a target group.
pub(super) fn set_attributes(network: &mut Network, arn: &str, wanted: &crate::elbv2::Attributes) -> Result<()> {
    const ACTION: &str = "ModifyTargetGroupAttributes";
    let group = network.group(ACTION, arn)?;
    let off = |key: &str| wanted.get(key).is_some_and(|value| value == "false");
    if group.described.protocol.ends_with("UDP") && off("preserve_client_ip.enabled") {
        return unfit(ACTION, "preserve_client_ip.enabled stays true for UDP");
    }
    super::network::set(ACTION, &mut group.attributes, wanted)
}
