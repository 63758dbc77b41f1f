//! Searches among all target groups: unused ones of a Service, and users of shared rules for health checks.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Error, Tags};

use super::super::model::network::Existing;
use super::super::plan::security_groups::{Check, OtherUsers};
use super::super::settings::Settings;
use super::super::spec::names::{
    SERVICE_TAG, TargetGroupNames, in_cluster, is_load_balancer, load_balancer_of, other_uid,
};
use super::super::spec::request::TRAFFIC_PORT;
use super::account::Search;
use super::{Aws, Reader, subnets_of_vpc};

// Target groups that no listener uses, after an interrupted change or deletion.
//
// A used target group is found through its load balancer. An unused one has only a name with a shortened namespace and
// name of the Service, and tags with the full ones. No AWS call filters by either, so all target groups are listed.
// The list is shared: resources of an earlier process existed before this one started.

#[derive(Debug, Clone, Copy)]
pub struct GroupOwner<'a> {
    pub names: &'a TargetGroupNames,
    /// The exact names that were given to target groups of this Service, as far as they are known.
    pub given: &'a BTreeSet<String>,
    pub service_tag: &'a str,
    pub cluster_tags: &'a Tags,
    pub settings: &'a Settings,
    /// Its load balancer, if it has one. An older list may name it as user of a target group that it has released
    /// since.
    pub balancer: Option<&'a Existing>,
    /// The name of its load balancer, if that is deleted: AWS may name it as a user for a while.
    pub gone: Option<&'a str>,
}

/// The Service's unused target groups, as AWS describes them now.
///
/// If AWS denies reading tags, only exact known names count: Services with similar names share the prefix.
pub async fn unused(aws: &Aws, group_owner: GroupOwner<'_>, search: Search) -> Result<Vec<TargetGroup>, Error> {
    let elb = aws.elbv2.as_ref();
    let all = aws.target_groups.all(elb, search).await?;
    let listed = all.iter().filter(|group| group_owner.may_be_unused(group));
    let names: Vec<String> = listed.map(|group| group.name.clone()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }

    let mut groups = elb.target_groups_named(&names).await?;
    groups.retain(|group| group.load_balancers.iter().all(|user| group_owner.is_gone(user)));

    let arns: Vec<String> = groups.iter().map(|group| group.arn.clone()).collect();
    if arns.is_empty() {
        return Ok(Vec::new());
    }

    let Some(tags) = aws.tag_reads.allowed(elb.tags(&arns).await)? else {
        return Ok(of_given_names(groups, group_owner));
    };

    groups.retain(|group| tags.get(&group.arn).is_some_and(|tags| group_owner.owns(tags)));

    Ok(groups)
}

/// Target groups with names that were given to the Service. The others are kept.
fn of_given_names(groups: Vec<TargetGroup>, group_owner: GroupOwner<'_>) -> Vec<TargetGroup> {
    let is_given = |group: &TargetGroup| group_owner.given.contains(&group.name);
    let (given, kept): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_given);
    if !kept.is_empty() {
        let names: Vec<String> = kept.into_iter().map(|group| group.name).collect();
        let service = group_owner.service_tag;
        tracing::warn!(service, target_groups = ?names, "keeping unused target groups whose tags cannot be read");
    }

    given
}

impl GroupOwner<'_> {
    /// Whether a listed group may be unused now: it had no user, or one of the Service that has released it since.
    fn may_be_unused(&self, group: &TargetGroup) -> bool {
        let released = |user: &String| {
            let balancer = self.balancer.filter(|existing| existing.described.arn == *user);
            self.is_gone(user) || balancer.is_some_and(|existing| !existing.uses(&group.arn))
        };
        self.names.has(&group.name) && group.load_balancers.iter().all(released)
    }

    fn is_gone(&self, load_balancer_arn: &str) -> bool {
        self.gone.is_some() && load_balancer_of(load_balancer_arn) == self.gone
    }

    fn owns(&self, tags: &Tags) -> bool {
        let of_service = tags.get(SERVICE_TAG).map(String::as_str) == Some(self.service_tag);
        let mut cluster_tags = self.cluster_tags.iter();
        let of_cluster = cluster_tags.any(|(key, value)| tags.get(key) == Some(value));
        of_service && of_cluster && other_uid(tags, self.settings).is_none()
    }
}

/// The other load balancers of the cluster that need rules for these checks.
/// Few calls are made without any check, or without another load balancer that has its checks at such a port.
pub async fn other_users(
    reader: &Reader<'_>,
    settings: &Settings,
    load_balancer: &str,
    checks: &BTreeSet<Check>,
    search: Search,
) -> Result<OtherUsers, Error> {
    if checks.is_empty() {
        return Ok(OtherUsers::new());
    }

    let elb = reader.elbv2.as_ref();
    let all = reader.target_groups.all(elb, search).await?;
    let of_others = users(&all, checks, load_balancer);
    if of_others.is_empty() {
        return Ok(OtherUsers::new());
    }

    let arns: Vec<String> = of_others.keys().cloned().collect();
    let tags = reader.tag_reads.allowed(elb.tags(&arns).await)?;
    let mut balancers = elb.all_load_balancers().await?;
    balancers.retain(|lb| lb.vpc_id.as_ref() == Some(&settings.vpc_id) && is_load_balancer(&lb.name));

    // An extra rule does less harm than a missing one: if tags are unknown, every such load balancer of the VPC counts
    // as the cluster's.
    let of_cluster = |arn: &str| match &tags {
        Some(tags) => tags.get(arn).is_some_and(|tags| in_cluster(tags, &settings.cluster_id)),
        None => true,
    };
    balancers.retain(|balancer| of_cluster(&balancer.arn));

    let subnets = subnets_of_vpc(reader, settings).await?;
    let mut other_users = OtherUsers::new();
    for balancer in &balancers {
        for port in of_others.get(&balancer.arn).into_iter().flatten() {
            let attached = subnets.iter().filter(|subnet| balancer.subnets.contains(&subnet.id));
            let each = attached.filter_map(|subnet| Some((*port, subnet.cidr_block.clone()?)));
            for check in each.filter(|check| checks.contains(check)) {
                other_users.insert(check, balancer.name.clone());
            }
        }
    }

    Ok(other_users)
}

fn users(all: &[TargetGroup], checks: &BTreeSet<Check>, but: &str) -> BTreeMap<String, BTreeSet<i32>> {
    let ports: BTreeSet<i32> = checks.iter().map(|(port, _)| *port).collect();
    let mut users: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for group in all {
        let port = match group.health_check.port.as_str() {
            TRAFFIC_PORT => Some(group.port),
            number => number.parse().ok(),
        };
        let Some(port) = port.filter(|port| ports.contains(port)) else {
            continue;
        };

        let is_other = |arn: &&String| load_balancer_of(arn).is_some_and(|name| name != but);
        for arn in group.load_balancers.iter().filter(is_other) {
            users.entry(arn.clone()).or_default().insert(port);
        }
    }

    users
}
