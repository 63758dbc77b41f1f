//! AWS's own request buckets, whole, for calls to EC2.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::Error;

/// What is left in each action's bucket.
#[derive(Debug, Default)]
pub(super) struct Buckets(BTreeMap<&'static str, (f64, Instant)>);

/// Size, and refill in a second, as EC2 documents them.
fn limits(bucket: &str) -> (f64, f64) {
    match bucket {
        "unpaged DescribeInstances" => (50.0, 10.0),
        "DescribeInstanceTopology" => (1.0, 1.0),
        "CreateTags" | "DeleteTags" => (100.0, 10.0),
        _ if bucket.starts_with("Describe") => (100.0, 20.0),
        _ => (50.0, 5.0),
    }
}

impl Buckets {
    /// Takes one call's token. Calls by plain IDs cannot be paged.
    pub(super) fn admit(&mut self, action: &'static str, about: &str) -> Result<(), Error> {
        let bucket = if about.starts_with("plain ") {
            "unpaged DescribeInstances"
        } else {
            action
        };
        let ((size, refill), now) = (limits(bucket), Instant::now());
        let (left, at) = self.0.entry(bucket).or_insert((size, now));
        *left = f64::min(*left + (now - *at).as_secs_f64() * refill, size);
        *at = now;
        if *left < 1.0 - 1e-6 {
            return Err(Error::answered(
                action,
                "RequestLimitExceeded",
                "Request limit exceeded.",
            ));
        }
        *left -= 1.0;
        Ok(())
    }
}
