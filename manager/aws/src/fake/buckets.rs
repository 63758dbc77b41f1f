//! AWS's own request buckets, and another tenant of the account.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::refusals::refuse;
use crate::Result;

/// The remaining tokens of each bucket.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    left: BTreeMap<String, (f64, Instant)>,
    /// The part of each bucket's refill that another tenant takes all the time.
    taken: f64,
}

/// A bucket: name, size, and refill in a second.
type Bucket = (String, f64, f64);

/// The buckets that a call draws from, as AWS documents them, and the code with which it is refused.
fn buckets(action: &str, about: &str) -> (Vec<Bucket>, &'static str) {
    match api(action) {
        Some(api) => {
            let (kind, size, refill) = load_balancing(action.trim_end_matches("/v2"));
            let buckets = vec![(format!("{api} {kind}"), size, refill), (api.to_owned(), 40.0, 10.0)];
            (buckets, "Throttling")
        }
        None => (vec![ec2(action, about)], "RequestLimitExceeded"),
    }
}

/// The load balancing API of an action, if it is one's.
fn api(action: &str) -> Option<&'static str> {
    if action.ends_with("/v2") {
        return Some("elbv2");
    }
    if action.contains("LoadBalancer") || ["ConfigureHealthCheck", "AddTags", "DescribeTags"].contains(&action) {
        return Some("elb");
    }

    let network = ["Listener", "Target", "SetSecurityGroups"];
    network.iter().any(|part| action.contains(part)).then_some("elbv2")
}

fn load_balancing(action: &str) -> (&'static str, f64, f64) {
    match action {
        "CreateLoadBalancer" | "AttachLoadBalancerToSubnets" | "DetachLoadBalancerFromSubnets" => ("create", 10.0, 0.2),
        _ if action.starts_with("Describe") => ("describe", 40.0, 10.0),
        _ if action.starts_with("Register") || action.starts_with("Deregister") => ("register", 20.0, 4.0),
        _ => ("mutate", 20.0, 3.0),
    }
}

/// Calls by plain IDs cannot be paged.
fn ec2(action: &str, about: &str) -> Bucket {
    let (name, size, refill) = match action {
        _ if about.starts_with("plain ") => ("unpaged DescribeInstances", 50.0, 10.0),
        "DescribeInstanceTopology" => (action, 1.0, 1.0),
        "CreateTags" | "DeleteTags" => (action, 100.0, 10.0),
        _ if action.starts_with("Describe") => (action, 100.0, 20.0),
        _ => (action, 50.0, 5.0),
    };
    (name.to_owned(), size, refill)
}

impl Buckets {
    /// Full buckets, of whose refill another tenant takes this part.
    pub(super) fn beside(taken: f64) -> Self {
        Self {
            left: BTreeMap::new(),
            taken,
        }
    }

    /// Takes one call's tokens; a refused call costs none.
    pub(super) fn admit(&mut self, action: &'static str, about: &str) -> Result<()> {
        let (buckets, code) = buckets(action, about);
        let now = Instant::now();
        for (name, size, refill) in &buckets {
            let (left, at) = self.left.entry(name.clone()).or_insert((*size, now));
            *left = f64::min(*left + (now - *at).as_secs_f64() * refill * (1.0 - self.taken), *size);
            *at = now;
            if *left < 1.0 - 1e-6 {
                return refuse(action, code, "Rate exceeded");
            }
        }

        for (name, ..) in &buckets {
            if let Some((left, _)) = self.left.get_mut(name) {
                *left -= 1.0;
            }
        }

        Ok(())
    }
}
