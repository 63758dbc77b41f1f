//! How EC2 answers when it is asked for instances by plain IDs, and by addresses.

use super::FakeAws;
use super::filters::tag_matches;
use crate::Error;
use crate::ec2::{FargateEni, Filter, Instance, InstanceId, InstanceState, MAX_FILTER_VALUES, MAX_IDS};

const DESCRIBE: &str = "DescribeInstances";

/// Whether EC2 takes the text as an instance ID at all: `i-` and 8 or 17 hexadecimal digits.
fn well_formed(id: &InstanceId) -> bool {
    let digits = id.as_str().strip_prefix("i-").unwrap_or_default();
    matches!(digits.len(), 8 | 17) && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn check<T>(action: &'static str, values: &[T]) -> Result<(), Error> {
    if values.is_empty() || values.len() > MAX_FILTER_VALUES {
        return Err(Error::answered(
            action,
            "InvalidParameterValue",
            "a filter needs 1 to 200 values",
        ));
    }
    Ok(())
}

fn names(ids: &[&InstanceId]) -> String {
    let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
    names.join(", ")
}

impl FakeAws {
    pub(super) fn ids(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let names: Vec<&str> = ids.iter().map(InstanceId::as_str).collect();
        self.read(DESCRIBE, names.join(","), |world| {
            check(DESCRIBE, ids)?;
            Ok(ids.iter().filter_map(|id| world.instances.get(id)).cloned().collect())
        })
    }

    pub(super) fn private_dns_names(&self, names: &[String]) -> Result<Vec<Instance>, Error> {
        self.read(DESCRIBE, names.join(","), |world| {
            check(DESCRIBE, names)?;

            let living = world
                .instances
                .values()
                .filter(|i| i.state != Some(InstanceState::Terminated));
            Ok(living
                .filter(|i| i.private_dns_name.as_ref().is_some_and(|n| names.contains(n)))
                .cloned()
                .collect())
        })
    }

    /// One bad ID fails the whole call; a malformed one before a missing one, and the message names what it means.
    pub(super) fn plain_ids(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let all: Vec<&InstanceId> = ids.iter().collect();
        self.read(DESCRIBE, format!("plain {}", names(&all)), |world| {
            let refuse = |code, text: String| Err(Error::answered(DESCRIBE, code, text));
            if ids.is_empty() || ids.len() > MAX_IDS {
                return refuse("InvalidParameterValue", "1 to 1000 IDs are needed".to_owned());
            }
            if let Some(id) = ids.iter().find(|id| !well_formed(id)) {
                return refuse("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""));
            }

            let missing: Vec<&InstanceId> = ids.iter().filter(|id| !world.instances.contains_key(id)).collect();
            match missing.as_slice() {
                [] => Ok(ids.iter().filter_map(|id| world.instances.get(id)).cloned().collect()),
                [id] => refuse(
                    "InvalidInstanceID.NotFound",
                    format!("The instance ID '{id}' does not exist"),
                ),
                ids => refuse(
                    "InvalidInstanceID.NotFound",
                    format!("The instance IDs '{}' do not exist", names(ids)),
                ),
            }
        })
    }

    pub(super) fn private_ips(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<Instance>, Error> {
        self.read(DESCRIBE, format!("ip {}", ips.join(",")), |world| {
            check(DESCRIBE, ips)?;

            let living = world
                .instances
                .values()
                .filter(|i| i.state != Some(InstanceState::Terminated) && i.vpc_id.as_deref() == Some(vpc_id));
            Ok(living
                .filter(|i| i.private_ip.as_ref().is_some_and(|ip| ips.contains(ip)))
                .cloned()
                .collect())
        })
    }

    pub(super) fn running(&self, vpc_id: &str, tag: &Filter) -> Result<Vec<Instance>, Error> {
        let about = format!("running in {vpc_id} {}={}", tag.name, tag.values.join(","));
        self.read(DESCRIBE, about, |world| {
            let passes = |i: &&Instance| {
                i.state == Some(InstanceState::Running)
                    && i.vpc_id.as_deref() == Some(vpc_id)
                    && tag_matches(&i.tags, tag).unwrap_or(false)
            };
            Ok(world.instances.values().filter(passes).cloned().collect())
        })
    }

    pub(super) fn fargate_enis(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>, Error> {
        const ACTION: &str = "DescribeNetworkInterfaces";
        self.read(ACTION, ips.join(","), |world| {
            check(ACTION, ips)?;
            let ours = world.fargate.iter().filter(|eni| eni.vpc_id.as_deref() == Some(vpc_id));
            Ok(ours
                .filter(|eni| eni.private_ip.as_ref().is_some_and(|ip| ips.contains(ip)))
                .cloned()
                .collect())
        })
    }
}
