//! AWS's request rate limits.

/// The part of the account's budget of reads that this process may take.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// A part greater than 0 and at most 1.
    #[must_use]
    pub fn new(part: f64) -> Option<Self> {
        (part > 0.0 && part <= 1.0).then_some(Self(part))
    }
}

/// A quarter: a cluster is seldom alone in its account.
impl Default for Share {
    fn default() -> Self {
        Self(0.25)
    }
}

/// The burst of a bucket, and its refill rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BucketSize {
    pub capacity: f64,
    pub refill_rate: f64,
}

/// The name under which calls by plain IDs, which cannot be paged, are counted besides their action's own. EC2 does not
/// say which of its buckets they go into, so both are assumed.
pub(super) const BY_PLAIN_ID: &str = "DescribeInstances by plain IDs";

/// This process's share of an action's bucket. EC2 documents the buckets per account and region:
/// <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>. The share limits reads only, for the
/// reason given at [`load_balancing`]. The bucket holds at least one call.
pub(super) fn ec2(action: &str, share: Share) -> BucketSize {
    let (capacity, refill_rate) = match action {
        BY_PLAIN_ID => (50.0 * share.0, 10.0 * share.0),
        "DescribeInstanceTopology" => (share.0, share.0),
        _ if action.starts_with("Describe") => (100.0 * share.0, 20.0 * share.0),
        "CreateTags" | "DeleteTags" => (100.0, 10.0),
        _ => (50.0, 5.0),
    };
    BucketSize {
        capacity: f64::max(capacity, 1.0),
        refill_rate,
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
const READS: &str = "describing load balancers";
const TARGETS: &str = "registering and deregistering targets";
const WRITES: &str = "changing load balancers";

/// This process's share of a bucket of one load balancing API. AWS documents the buckets per account and region:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html>. The share limits reads
/// only: a write follows a change that a user waits for, and AWS allows few of them. With a quarter of one new load
/// balancer in five seconds, thirty new Services would take ten minutes.
pub(super) fn load_balancing(bucket: &str, share: Share) -> BucketSize {
    let (capacity, refill_rate) = match bucket {
        SLOW => (10.0, 0.2),
        TARGETS => (20.0, 4.0),
        WRITES => (20.0, 3.0),
        READS => (40.0 * share.0, 10.0 * share.0),
        _ => (40.0, 10.0),
    };
    BucketSize {
        capacity: f64::max(capacity, 1.0),
        refill_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part() {
        for bad in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(bad), None, "{bad}");
        }
        assert_eq!(Share::new(0.25), Some(Share::default()));
    }

    #[test]
    fn reads_have_their_share_with_room_for_one_call_and_writes_the_whole_bucket() {
        let of = |action, share| {
            let size = ec2(action, Share::new(share).unwrap());
            (size.capacity, size.refill_rate)
        };
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
        let of = |action| {
            let size = load_balancing(kind_of_action(action), Share::default());
            (size.capacity, size.refill_rate)
        };
        assert_eq!(of("CreateLoadBalancer"), (10.0, 0.2));
        assert_eq!(of("AttachLoadBalancerToSubnets"), (10.0, 0.2));
        assert_eq!(of("DeregisterTargets"), (20.0, 4.0));
        assert_eq!(of("ModifyListener"), (20.0, 3.0));
        assert_eq!(of("DescribeTargetHealth"), (10.0, 2.5));
        assert_eq!(
            load_balancing(ALL, Share::default()),
            BucketSize {
                capacity: 40.0,
                refill_rate: 10.0
            }
        );
    }
}
