//! All target groups, listed at once. One listing serves all Services for a while.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::elbv2::TargetGroup;
use outrigger_aws::{Elbv2, Error};
use tokio::sync::Mutex;
use tokio::time::Instant;

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
pub struct TargetGroupList {
    last: Mutex<Option<(Instant, Arc<Vec<TargetGroup>>)>>,
}

impl TargetGroupList {
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
