//! Target groups that no listener uses, left by a change or deletion that was cut off.
//!
//! A target group that a load balancer uses is found through it. One that none uses has only its name, which tells
//! namespace and name of the Service in a shortened form, and its tags, which tell them in full. There is no call that
//! finds by either, so all target groups are listed. One listing serves all Services for a while: what was left
//! over by an earlier process was there before this one started.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Elbv2, Error, Tags};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::names::SERVICE_TAG;
use super::names::{TargetGroupNames, load_balancer};
use super::observe::Existing;

/// How long a listing serves those who look for what an earlier process left.
const MAX_AGE: Duration = Duration::from_secs(60);

/// How thoroughly target groups of a Service are looked for that nothing uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Only those of the wanted names: nothing else can be left over.
    Named,
    /// What an earlier process may have left.
    Earlier,
    /// What may have been left just now.
    Now,
}

/// The last listing of all target groups.
#[derive(Debug, Default)]
pub struct Listing {
    last: Mutex<Option<(Instant, Arc<Vec<TargetGroup>>)>>,
}

impl Listing {
    /// All target groups, as of now or of a short while ago. Those who ask at the same time share one listing.
    ///
    /// # Errors
    /// When the call failed.
    pub async fn all(&self, elb: &dyn Elbv2, search: Search) -> Result<Arc<Vec<TargetGroup>>, Error> {
        let mut last = self.last.lock().await;
        if let Some((at, groups)) = last.as_ref()
            && search == Search::Earlier
            && at.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(groups));
        }
        let groups = Arc::new(elb.all_target_groups().await?);
        *last = Some((Instant::now(), Arc::clone(&groups)));
        Ok(groups)
    }
}

/// Whose target groups are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// Their names.
    pub names: &'a TargetGroupNames,
    /// Tags of the Service, the cluster's among them.
    pub service_tag: &'a str,
    /// The cluster's tags.
    pub cluster_tags: &'a Tags,
    /// Its load balancer, if it has one. What a listing of a while ago says to be in use by it may not be so any more.
    pub balancer: Option<&'a Existing>,
    /// The name of its load balancer, if that is known to be gone: AWS may name it as a user for a while yet.
    pub gone: Option<&'a str>,
}

/// The Service's target groups that no load balancer uses, as AWS describes them now.
///
/// # Errors
/// When a call failed.
pub async fn unused(
    elb: &dyn Elbv2,
    listing: &Listing,
    whose: Whose<'_>,
    search: Search,
) -> Result<Vec<TargetGroup>, Error> {
    let all = listing.all(elb, search).await?;
    let names: Vec<String> = all
        .iter()
        .filter(|group| whose.may_be_unused(group))
        .map(|group| group.name.clone())
        .collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut groups = elb.target_groups_named(&names).await?;
    groups.retain(|group| group.load_balancers.iter().all(|user| whose.is_gone(user)));
    let arns: Vec<String> = groups.iter().map(|group| group.arn.clone()).collect();
    if arns.is_empty() {
        return Ok(Vec::new());
    }
    let tags = elb.tags(&arns).await?;
    let ours: BTreeSet<String> = arns
        .into_iter()
        .filter(|arn| tags.get(arn).is_some_and(|tags| whose.owns(tags)))
        .collect();
    groups.retain(|group| ours.contains(&group.arn));
    Ok(groups)
}

impl Whose<'_> {
    /// Whether a listed group may have no user now: it had none then, or one that is the Service's and is not found to use
    /// it now.
    fn may_be_unused(&self, group: &TargetGroup) -> bool {
        let released = |user: &String| {
            let balancer = self.balancer.filter(|existing| existing.described.arn == *user);
            self.is_gone(user) || balancer.is_some_and(|existing| !existing.uses(&group.arn))
        };
        self.names.has(&group.name) && group.load_balancers.iter().all(released)
    }

    fn is_gone(&self, load_balancer_arn: &str) -> bool {
        self.gone.is_some() && load_balancer(load_balancer_arn) == self.gone
    }

    fn owns(&self, tags: &Tags) -> bool {
        let of_service = tags.get(SERVICE_TAG).map(String::as_str) == Some(self.service_tag);
        of_service
            && self
                .cluster_tags
                .iter()
                .any(|(key, value)| tags.get(key) == Some(value))
    }
}
