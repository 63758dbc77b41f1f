//! Calls within a share of what AWS allows the account.
//!
//! AWS counts calls in buckets, for the whole account and region: EC2 those of each action in one of its own, Elastic
//! Load Balancing those of actions of a kind together. Here are buckets of the same shapes, smaller by a [`Share`]:
//! others in the account keep the rest. Whoever has to wait does so in a [`Priority`]. Where AWS throttles nevertheless,
//! since the others took more than their part, the calls of that bucket pause and no others do, and the throttled call is
//! sent again after the pause.

mod bucket;
mod bucket_size;
mod limited;
mod limiter;
mod limiters;
mod priority;
mod retries;
mod wait_flag;

pub use bucket_size::Share;
pub use limited::Limited;
pub use priority::Priority;
pub use wait_flag::WaitFlag;
