//! All target groups, listed at once. One listing serves all Services for a while.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Elbv2, Error};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a list is used to find resources of an earlier process.
const MAX_AGE: Duration = Duration::from_secs(60);

/// How thoroughly to search for unused target groups of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Only the wanted names: there can be no others.
    Named,
    /// Target groups that an earlier process may have left.
    Earlier,
    /// Target groups that may have been left just now.
    Now,
}

#[derive(Debug, Default)]
pub struct TargetGroupList {
    last: Mutex<Option<(Instant, Arc<Vec<TargetGroup>>)>>,
}

impl TargetGroupList {
    /// All target groups. Concurrent callers share one call.
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
