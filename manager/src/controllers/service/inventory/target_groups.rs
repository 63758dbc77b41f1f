//! Searches for unused target groups of a Service.

use std::collections::BTreeSet;

use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Error, Tags};

use super::super::model::network::Existing;
use super::super::settings::Settings;
use super::super::spec::names::{SERVICE_TAG, TargetGroupNames, load_balancer_of, other_uid};
use super::Aws;
use super::account::Search;

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
