//! How EC2 answers when it is asked for instances, by plain IDs and by filters.

use super::World;
use super::refusals::refuse;
use super::world::tag_matches;
use crate::Result;
use crate::ec2::{FargateEni, Instance, InstanceId, InstanceQuery, InstanceState, MAX_FILTER_VALUES, MAX_IDS};

const DESCRIBE: &str = "DescribeInstances";

/// Whether EC2 takes the text as an instance ID at all: `i-` and 8 or 17 hexadecimal digits.
fn well_formed(id: &InstanceId) -> bool {
    let digits = id.as_str().strip_prefix("i-").unwrap_or_default();
    matches!(digits.len(), 8 | 17) && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn check<T>(action: &'static str, values: &[T]) -> Result<()> {
    if values.is_empty() || values.len() > MAX_FILTER_VALUES {
        return refuse(action, "InvalidParameterValue", "a filter needs 1 to 200 values");
    }
    Ok(())
}

pub(super) fn names<'a>(ids: impl IntoIterator<Item = &'a InstanceId>, between: &str) -> String {
    let names: Vec<&str> = ids.into_iter().map(InstanceId::as_str).collect();
    names.join(between)
}

/// The query as the log of calls shows it.
pub(super) fn about(query: InstanceQuery<'_>) -> String {
    match query {
        InstanceQuery::Ids(ids) => names(ids, ","),
        InstanceQuery::PrivateDnsNames(names) => names.join(","),
        InstanceQuery::PrivateIps { ips, .. } => format!("ip {}", ips.join(",")),
        InstanceQuery::Running { vpc_id, tag } => format!("running in {vpc_id} {}={}", tag.name, tag.values.join(",")),
    }
}

pub(super) fn found(world: &World, query: InstanceQuery<'_>) -> Result<Vec<Instance>> {
    let living = |i: &Instance| i.state != Some(InstanceState::Terminated);
    let all = world.instances.values();
    let found: Vec<&Instance> = match query {
        InstanceQuery::Ids(ids) => {
            check(DESCRIBE, ids)?;
            ids.iter().filter_map(|id| world.instances.get(id)).collect()
        }
        InstanceQuery::PrivateDnsNames(names) => {
            check(DESCRIBE, names)?;
            let named = |i: &Instance| i.private_dns_name.as_ref().is_some_and(|name| names.contains(name));
            all.filter(|i| living(i) && named(i)).collect()
        }
        InstanceQuery::PrivateIps { vpc_id, ips } => {
            check(DESCRIBE, ips)?;
            let has_ip = |i: &Instance| i.private_ip.as_ref().is_some_and(|ip| ips.contains(ip));
            all.filter(|i| living(i) && i.vpc_id.as_deref() == Some(vpc_id) && has_ip(i))
                .collect()
        }
        InstanceQuery::Running { vpc_id, tag } => {
            let running = |i: &Instance| i.state == Some(InstanceState::Running) && i.vpc_id.as_deref() == Some(vpc_id);
            all.filter(|i| running(i) && tag_matches(&i.tags, tag).unwrap_or(false))
                .collect()
        }
    };

    Ok(found.into_iter().cloned().collect())
}

/// One bad ID fails the whole call; a malformed one before a missing one, and the message names what it means.
pub(super) fn by_plain_id(world: &World, ids: &[InstanceId]) -> Result<Vec<Instance>> {
    if ids.is_empty() || ids.len() > MAX_IDS {
        return refuse(DESCRIBE, "InvalidParameterValue", "1 to 1000 IDs are needed");
    }
    if let Some(id) = ids.iter().find(|id| !well_formed(id)) {
        return refuse(DESCRIBE, "InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""));
    }

    all_exist(world, DESCRIBE, ids)?;
    Ok(ids.iter().filter_map(|id| world.instances.get(id)).cloned().collect())
}

/// Refuses a call for the IDs that do not exist, which the message names.
pub(super) fn all_exist<'a>(
    world: &World,
    action: &'static str,
    ids: impl IntoIterator<Item = &'a InstanceId>,
) -> Result<()> {
    let missing = ids.into_iter().filter(|id| !world.instances.contains_key(id));
    let missing: Vec<&InstanceId> = missing.collect();
    let message = match missing.as_slice() {
        [] => return Ok(()),
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", names(ids.iter().copied(), ", ")),
    };
    refuse(action, "InvalidInstanceID.NotFound", message)
}

pub(super) fn fargate_enis(world: &World, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>> {
    check("DescribeNetworkInterfaces", ips)?;
    let has_ip = |eni: &&FargateEni| eni.private_ip.as_ref().is_some_and(|ip| ips.contains(ip));
    let own = world.fargate.iter().filter(|eni| eni.vpc_id.as_deref() == Some(vpc_id));
    Ok(own.filter(has_ip).cloned().collect())
}
