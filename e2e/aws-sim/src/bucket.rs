//! AWS's rate limits: token buckets per account and region, as AWS documents them for EC2 ("Request throttling for the
//! Amazon EC2 API") and for Elastic Load Balancing; and another tenant of the account, who uses them too. Pure: the time
//! is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use super::query::{Parameters, is_write};
use super::service::Service;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The most tokens it holds: a burst.
    pub size: f64,
    /// Tokens a second.
    pub refill: f64,
}

const fn rate(size: f64, refill: f64) -> Rate {
    Rate { size, refill }
}

/// A token bucket, full at first.
#[derive(Debug, Clone)]
pub struct Bucket {
    rate: Rate,
    tokens: f64,
    filled: Duration,
    tenant: Option<Tenant>,
}

/// Another user of a bucket, who calls at an even pace. A call without a token is repeated until there is one, and gets
/// the first.
#[derive(Debug, Clone)]
struct Tenant {
    interval: Duration,
    next: Duration,
    unanswered: f64,
}

impl Tenant {
    /// One who takes this part of the refill.
    fn taking(share: f64, rate: Rate, now: Duration) -> Option<Self> {
        let interval = Duration::try_from_secs_f64((share * rate.refill).recip()).ok()?;
        Some(Self {
            interval,
            next: now + interval,
            unanswered: 0.0,
        })
    }

    /// When the next call comes, if it is by now.
    fn due(&mut self, now: Duration) -> Option<Duration> {
        let at = self.next;
        if at > now {
            return None;
        }
        self.next += self.interval;
        self.unanswered += 1.0;
        Some(at)
    }
}

impl Bucket {
    /// A full bucket. Times are offsets from any fixed start.
    pub fn full(rate: Rate, now: Duration) -> Self {
        Self {
            rate,
            tokens: rate.size,
            filled: now,
            tenant: None,
        }
    }

    /// The same beside another tenant, who takes this part of the refill from now on: none of it, if 0.
    pub fn beside(share: f64, rate: Rate, now: Duration) -> Self {
        Self {
            tenant: Tenant::taking(share, rate, now),
            ..Self::full(rate, now)
        }
    }

    /// Counts the tokens of the time up to `now`, and takes those of the other tenant.
    fn fill(&mut self, now: Duration) {
        while let Some(at) = self.tenant.as_mut().and_then(|tenant| tenant.due(now)) {
            self.refill(at);
        }
        self.refill(now);
    }

    fn refill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = self.rate.size.min(elapsed.mul_add(self.rate.refill, self.tokens));
        self.filled = self.filled.max(now);
        if let Some(tenant) = &mut self.tenant {
            let answered = tenant.unanswered.min(self.tokens.floor());
            tenant.unanswered -= answered;
            self.tokens -= answered;
        }
    }

    pub fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// All buckets of one account in one region, made as they are first used.
#[derive(Debug, Default)]
pub struct Limits {
    buckets: BTreeMap<String, Bucket>,
    taken: f64,
}

impl Limits {
    /// Full buckets, of each of which another tenant takes this part of the refill all the time.
    pub fn beside(taken: f64) -> Self {
        Self {
            buckets: BTreeMap::new(),
            taken,
        }
    }

    /// Whether AWS would take this call now. A refused call costs no tokens.
    pub fn admit(&mut self, service: &Service, action: &str, parameters: &Parameters, now: Duration) -> bool {
        let names = buckets_of(service, action, parameters);
        for (name, rate) in &names {
            let new = || Bucket::beside(self.taken, *rate, now);
            let bucket = self.buckets.entry(name.clone()).or_insert_with(new);
            bucket.fill(now);
            if bucket.tokens < 1.0 {
                return false;
            }
        }

        names
            .iter()
            .all(|(name, _)| self.buckets.get_mut(name).is_some_and(|bucket| bucket.take(now)))
    }
}

/// The buckets that a call draws from. EC2 has one per action; Elastic Load Balancing one for all actions of an API
/// generation and one for each kind of action, and both must have a token.
fn buckets_of(service: &Service, action: &str, parameters: &Parameters) -> Vec<(String, Rate)> {
    match service {
        Service::Ec2 => {
            let (suffix, rate) = ec2_rate(action, parameters);
            vec![(format!("ec2/{action}{suffix}"), rate)]
        }
        Service::Elb | Service::ElbV2 => {
            let generation = if *service == Service::Elb { "elb" } else { "elbv2" };
            let (kind, kind_rate) = elb_rate(action);
            vec![
                (format!("{generation}/all"), rate(40.0, 10.0)),
                (format!("{generation}/{kind}"), kind_rate),
            ]
        }
        Service::Sts | Service::Other(_) => Vec::new(),
    }
}

/// Reads that name neither a filter nor a page size draw from a smaller bucket. AWS does not say which bucket a read
/// by bare IDs draws from; the smaller is assumed, so that a caller who is fine here is fine there.
fn ec2_rate(action: &str, parameters: &Parameters) -> (&'static str, Rate) {
    const HEAVY: [&str; 4] = [
        "DescribeInstances",
        "DescribeSecurityGroups",
        "DescribeNetworkInterfaces",
        "DescribeVolumes",
    ];
    match action {
        "DescribeInstanceTopology" => ("", rate(1.0, 1.0)),
        "CreateTags" | "DeleteTags" => ("", rate(100.0, 10.0)),
        _ if is_write(action) => ("", rate(50.0, 5.0)),
        _ if HEAVY.contains(&action) && !parameters.any("Filter.") && parameters.get("MaxResults").is_none() => {
            ("/unfiltered", rate(50.0, 10.0))
        }
        _ => ("", rate(100.0, 20.0)),
    }
}

fn elb_rate(action: &str) -> (&'static str, Rate) {
    match action {
        "RegisterInstancesWithLoadBalancer"
        | "DeregisterInstancesFromLoadBalancer"
        | "RegisterTargets"
        | "DeregisterTargets" => ("register", rate(20.0, 4.0)),
        "CreateLoadBalancer"
        | "SetSubnets"
        | "AttachLoadBalancerToSubnets"
        | "DetachLoadBalancerFromSubnets"
        | "EnableAvailabilityZonesForLoadBalancer"
        | "DisableAvailabilityZonesForLoadBalancer" => ("create", rate(10.0, 0.2)),
        _ if is_write(action) => ("mutate", rate(20.0, 3.0)),
        _ => ("describe", rate(40.0, 10.0)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Bucket, Limits, rate};
    use crate::query::Parameters;
    use crate::service::Service;

    fn burst(limits: &mut Limits, service: &Service, action: &str, parameters: &Parameters, now: u64) -> usize {
        (0..1000)
            .take_while(|_| limits.admit(service, action, parameters, Duration::from_secs(now)))
            .count()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_refill() {
        let mut bucket = Bucket::full(rate(3.0, 2.0), Duration::ZERO);
        assert_eq!((0..9).filter(|_| bucket.take(Duration::ZERO)).count(), 3);
        assert_eq!((0..9).filter(|_| bucket.take(Duration::from_secs(1))).count(), 2);
        assert_eq!((0..9).filter(|_| bucket.take(Duration::from_secs(1000))).count(), 3);
    }

    #[test]
    fn a_clock_that_seems_to_go_back_gives_nothing_away() {
        let mut bucket = Bucket::full(rate(1.0, 1.0), Duration::from_secs(10));
        assert!(bucket.take(Duration::from_secs(10)));
        assert!(!bucket.take(Duration::from_secs(5)));
        assert!(!bucket.take(Duration::from_secs(10)));
    }

    #[test]
    fn an_unfiltered_describe_draws_from_the_smaller_bucket() {
        let mut limits = Limits::default();
        let filtered = Parameters::from_iter([("Filter.1.Name", "instance-state-name")]);
        let bare = Parameters::from_iter([("InstanceId.1", "i-1")]);
        assert_eq!(burst(&mut limits, &Service::Ec2, "DescribeInstances", &bare, 0), 50);
        assert_eq!(
            burst(&mut limits, &Service::Ec2, "DescribeInstances", &filtered, 0),
            100
        );
        assert_eq!(burst(&mut limits, &Service::Ec2, "DescribeInstances", &bare, 1), 10);
        assert_eq!(burst(&mut limits, &Service::Ec2, "DescribeInstances", &filtered, 1), 20);
    }

    #[test]
    fn actions_of_ec2_do_not_starve_each_other() {
        let mut limits = Limits::default();
        let none = Parameters::default();
        assert_eq!(burst(&mut limits, &Service::Ec2, "CreateTags", &none, 0), 100);
        assert_eq!(burst(&mut limits, &Service::Ec2, "CreateSecurityGroup", &none, 0), 50);
        assert_eq!(
            burst(&mut limits, &Service::Ec2, "DescribeInstanceTopology", &none, 0),
            1
        );
    }

    #[test]
    fn another_tenant_leaves_what_it_does_not_take() {
        // Every millisecond one call, in a full bucket of 10 that refills by one in five seconds.
        let taken = |share: f64, seconds: u64| {
            let mut bucket = Bucket::beside(share, rate(10.0, 0.2), Duration::ZERO);
            let calls = (0..=seconds * 1000).map(Duration::from_millis);
            calls.filter(|now| bucket.take(*now)).count()
        };
        assert_eq!(taken(0.0, 101), 30);
        assert_eq!(taken(0.5, 101), 20);
        assert_eq!(taken(1.0, 101), 10);
    }

    #[test]
    fn another_tenant_who_takes_less_than_the_refill_leaves_an_unused_bucket_full() {
        let mut limits = Limits::beside(0.5);
        let none = Parameters::default();
        let elb = Service::Elb;
        assert_eq!(burst(&mut limits, &elb, "CreateLoadBalancer", &none, 0), 10);
        assert_eq!(burst(&mut limits, &elb, "CreateLoadBalancer", &none, 20), 2, "of four");
        assert_eq!(
            burst(&mut limits, &elb, "CreateLoadBalancer", &none, 1000),
            9,
            "less its last"
        );
        assert_eq!(burst(&mut limits, &elb, "CreateLoadBalancer", &none, 1005), 1);
    }

    #[test]
    fn load_balancer_actions_share_one_bucket_per_generation() {
        let mut limits = Limits::default();
        let none = Parameters::default();
        assert_eq!(burst(&mut limits, &Service::Elb, "CreateLoadBalancer", &none, 0), 10);
        assert_eq!(burst(&mut limits, &Service::Elb, "AddTags", &none, 0), 20);
        assert_eq!(
            burst(&mut limits, &Service::Elb, "DescribeLoadBalancers", &none, 0),
            10,
            "40 in all"
        );
        assert_eq!(
            burst(&mut limits, &Service::ElbV2, "DescribeLoadBalancers", &none, 0),
            40
        );
        assert_eq!(
            burst(&mut limits, &Service::Elb, "CreateLoadBalancer", &none, 5),
            1,
            "one in five seconds"
        );
    }
}
