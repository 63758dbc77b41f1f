//! Clients of AWS within their budgets.

mod ec2;
mod elb;
mod elbv2;

use std::sync::Arc;

use super::bucket_size::{self, Share};
use super::limiters::{Buckets, Limiters};
use crate::{Ec2, Elb, Elbv2, Error};

/// An [`Ec2`], [`Elb`] or [`Elbv2`] whose calls wait until there is budget for them, in the priority of
/// [`super::Priority::run`].
///
/// Each page of a list is a call. A call that AWS throttles had no effect: it waits until the pause of its bucket is over
/// and is sent again, up to five times within a minute, and only then fails.
pub struct Limited<T: ?Sized = dyn Ec2> {
    inner: Arc<T>,
    limiters: Limiters,
}

impl Limited<dyn Ec2> {
    /// Calls of EC2; of the reads only this share of the account's budget is taken. EC2 has a bucket for each action.
    #[must_use]
    pub fn new(inner: Arc<dyn Ec2>, share: Share) -> Self {
        let limiters = Limiters::new(move |action| bucket_size::ec2(action, share));
        Self { inner, limiters }
    }
}

impl Limited<dyn Elb> {
    /// Calls about classic load balancers; of the reads only this share of the account's budget is taken.
    #[must_use]
    pub fn elb(inner: Arc<dyn Elb>, share: Share) -> Self {
        let limiters = load_balancing(share);
        Self { inner, limiters }
    }
}

impl Limited<dyn Elbv2> {
    /// Calls about network load balancers; of the reads only this share of the account's budget is taken.
    #[must_use]
    pub fn elbv2(inner: Arc<dyn Elbv2>, share: Share) -> Self {
        let limiters = load_balancing(share);
        Self { inner, limiters }
    }
}

fn load_balancing(share: Share) -> Limiters {
    Limiters::new(move |bucket| bucket_size::load_balancing(bucket, share))
}

impl<T: ?Sized> Limited<T> {
    /// Sends a call of an action of Elastic Load Balancing, which has a bucket for each kind of action, and one for all
    /// calls together. That one holds more than the others give, so that AWS's throttling is put down to the kind.
    async fn balanced<R, F>(&self, action: &'static str, call: impl Fn() -> F) -> Result<R, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let kind = bucket_size::kind_of_action(action);
        let buckets = Buckets {
            throttling: &[kind],
            others: &[bucket_size::ALL],
        };
        self.limiters.call(buckets, call).await
    }
}

#[cfg(test)]
mod tests;
