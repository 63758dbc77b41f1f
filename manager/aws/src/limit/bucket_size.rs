//! AWS's request rate limits.

/// The part of the account's budget of reads that this process takes: the least, and how far it grows while calls wait and
/// AWS does not throttle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    least: f64,
    most: f64,
}

/// With it AWS is called once in some minutes.
const SMALLEST: f64 = 0.001;

impl Share {
    /// Parts of at least [`SMALLEST`] and at most 1. A `most` below `least` counts as `least`.
    #[must_use]
    pub fn between(least: f64, most: f64) -> Option<Self> {
        let is_part = |part: f64| (SMALLEST..=1.0).contains(&part);
        (is_part(least) && is_part(most)).then_some(Self {
            least,
            most: most.max(least),
        })
    }

    /// A part of at least [`SMALLEST`] and at most 1 that does not grow.
    #[must_use]
    pub fn fixed(part: f64) -> Option<Self> {
        Self::between(part, part)
    }
}

/// A quarter, which grows to nine tenths: a cluster is seldom alone in its account.
impl Default for Share {
    fn default() -> Self {
        Self { least: 0.25, most: 0.9 }
    }
}

/// The burst of a bucket, and its refill rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BucketSize {
    pub capacity: f64,
    pub refill_rate: f64,
}

impl BucketSize {
    /// This part of the bucket. It holds at least one call.
    pub(super) fn part(self, part: f64) -> Self {
        Self {
            capacity: f64::max(self.capacity * part, 1.0),
            refill_rate: self.refill_rate * part,
        }
    }
}

/// AWS's bucket, and the part of it that this process takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budget {
    pub of_aws: BucketSize,
    pub least: f64,
    pub most: f64,
}

impl Budget {
    fn new((capacity, refill_rate): (f64, f64), share: Option<Share>) -> Self {
        let Share { least, most } = share.unwrap_or(Share { least: 1.0, most: 1.0 });
        let of_aws = BucketSize { capacity, refill_rate };
        Self { of_aws, least, most }
    }
}

/// The name under which calls by plain IDs, which cannot be paged, are counted besides their action's own. EC2 does not
/// say which of its buckets they go into, so both are assumed.
pub(super) const BY_PLAIN_ID: &str = "DescribeInstances by plain IDs";

/// This process's share of an action's bucket. EC2 documents the buckets per account and region:
/// <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>. The share limits reads only, for the
/// reason given at [`load_balancing`].
pub(super) fn ec2(action: &str, share: Share) -> Budget {
    match action {
        BY_PLAIN_ID => Budget::new((50.0, 10.0), Some(share)),
        "DescribeInstanceTopology" => Budget::new((1.0, 1.0), Some(share)),
        _ if action.starts_with("Describe") => Budget::new((100.0, 20.0), Some(share)),
        "CreateTags" | "DeleteTags" => Budget::new((100.0, 10.0), None),
        _ => Budget::new((50.0, 5.0), None),
    }
}

/// The bucket of all calls to one of the two load balancing APIs.
pub(super) const ALL: &str = "all calls about load balancers";

/// The bucket of an action of Elastic Load Balancing. Unlike EC2 it counts actions of a kind together.
pub(super) fn kind_of_action(action: &str) -> &'static str {
    match action {
        "CreateLoadBalancer" | "AttachLoadBalancerToSubnets" | "DetachLoadBalancerFromSubnets" => SLOW,
        _ if action.starts_with("Describe") => READS,
        _ if action.starts_with("Register") || action.starts_with("Deregister") => TARGETS,
        _ => WRITES,
    }
}

const SLOW: &str = "creating load balancers and changing their subnets";
pub(super) const READS: &str = "describing load balancers";
const TARGETS: &str = "registering and deregistering targets";
const WRITES: &str = "changing load balancers";

/// This process's share of a bucket of one load balancing API. AWS documents the buckets per account and region:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html>. The share limits reads
/// only: a write follows a change that a user waits for, and AWS allows few of them. With a quarter of one new load
/// balancer in five seconds, thirty new Services would take ten minutes.
pub(super) fn load_balancing(bucket: &str, share: Share) -> Budget {
    match bucket {
        SLOW => Budget::new((10.0, 0.2), None),
        TARGETS => Budget::new((20.0, 4.0), None),
        WRITES => Budget::new((20.0, 3.0), None),
        READS => Budget::new((40.0, 10.0), Some(share)),
        _ => Budget::new((40.0, 10.0), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part() {
        for bad in [0.0, 0.000_9, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::fixed(bad), None, "{bad}");
            assert_eq!(Share::between(0.1, bad), None, "{bad}");
        }
        assert_eq!(Share::between(0.25, 0.9), Some(Share::default()));
        assert_eq!(Share::between(0.5, 0.1), Share::fixed(0.5));
    }

    fn least(budget: Budget) -> (f64, f64) {
        let size = budget.of_aws.part(budget.least);
        (size.capacity, size.refill_rate)
    }

    #[test]
    fn reads_have_their_share_with_room_for_one_call_and_writes_the_whole_bucket() {
        let of = |action, share| least(ec2(action, Share::fixed(share).unwrap()));
        assert_eq!(of("DescribeInstances", 0.25), (25.0, 5.0));
        assert_eq!(of(BY_PLAIN_ID, 0.5), (25.0, 5.0));
        assert_eq!(of("DescribeInstanceTopology", 0.25), (1.0, 0.25));
        for share in [0.1, 0.25, 1.0] {
            assert_eq!(of("CreateTags", share), (100.0, 10.0));
            for action in [
                "CreateRoute",
                "ModifyInstanceAttribute",
                "AuthorizeSecurityGroupIngress",
            ] {
                assert_eq!(of(action, share), (50.0, 5.0), "{action}");
            }
        }
    }

    #[test]
    fn load_balancing_counts_kinds_of_actions_and_shares_the_reads() {
        let of = |action| load_balancing(kind_of_action(action), Share::default());
        assert_eq!(least(of("CreateLoadBalancer")), (10.0, 0.2));
        assert_eq!(least(of("AttachLoadBalancerToSubnets")), (10.0, 0.2));
        assert_eq!(least(of("DeregisterTargets")), (20.0, 4.0));
        assert_eq!(least(of("ModifyListener")), (20.0, 3.0));
        assert_eq!(least(of("DescribeTargetHealth")), (10.0, 2.5));
        assert_eq!(of("DescribeTargetHealth").most, 0.9);
        assert_eq!(least(load_balancing(ALL, Share::default())), (40.0, 10.0));
    }
}
