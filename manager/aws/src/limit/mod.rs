//! Client-side rate limits: a share of AWS's request rate limits of the account.
//!
//! AWS has token buckets per account and region: EC2 one for each action, Elastic Load Balancing one for each kind of
//! action. This module has buckets of the same sizes, scaled by a [`Share`], so that the rest remains for others in the
//! account. The share grows while calls wait, and is halved when AWS throttles. Waiting calls are served by [`Priority`]. If AWS throttles nevertheless, the calls of that bucket back off, and
//! the throttled call is retried.

mod bucket;
mod bucket_size;
mod limited;
mod limiter;
mod limiters;
mod task;

pub use bucket_size::Share;
pub use limited::Limited;
pub use task::{Priority, WaitFlag, attempt_unanswered, may_send};
