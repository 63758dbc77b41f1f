//! Reads security groups with rules for Nodes.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::{Error, Filter, InstanceId};
use outrigger_shared::tags;

use super::super::plan::targets::NodeInstance;
use super::super::settings::Settings;
use super::super::spec::network::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, rule};
use super::{Reader, groups_by_id, groups_where};

/// The groups with the cluster's tag, and the groups of the instances.
pub async fn node_groups(
    reader: &Reader<'_>,
    settings: &Settings,
    instances: &BTreeMap<InstanceId, NodeInstance>,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let tagged = Filter::new("tag-key", [tags::cluster_key(&settings.cluster_id)]);
    let mut found = groups_where(reader, tagged, |_| true).await?;
    if settings.legacy_tags {
        let key = format!("tag:{}", tags::LEGACY_CLUSTER);
        let legacy = Filter::new(key, [&settings.cluster_id]);
        found.extend(groups_where(reader, legacy, |_| true).await?);
    }

    let of_instances = instances.values().flat_map(|instance| &instance.security_groups);
    let others: BTreeSet<String> = of_instances.filter(|id| !found.contains_key(*id)).cloned().collect();
    found.extend(groups_by_id(reader, others).await?);

    Ok(found)
}

/// The groups of the VPC with a rule for this load balancer, or with an orphaned one. An untagged group is not found
/// through its Nodes once they are gone.
pub async fn groups_with_rules_of(
    reader: &Reader<'_>,
    settings: &Settings,
    load_balancer: &str,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let ours = [CLIENT_RULE, HEALTH_RULE].map(|kind| rule(kind, load_balancer));
    let is_wanted = |group: &SecurityGroup| {
        let ranges = group.ingress.iter().flat_map(|rule| &rule.ranges);
        let texts: Vec<&str> = ranges.filter_map(|range| range.description.as_deref()).collect();
        let orphaned = texts.contains(&MTU_RULE) && !texts.iter().any(|text| text.contains(CLIENT_RULE));
        orphaned || texts.iter().any(|text| ours.iter().any(|own| own == text))
    };

    groups_where(reader, Filter::new("vpc-id", [&settings.vpc_id]), is_wanted).await
}
