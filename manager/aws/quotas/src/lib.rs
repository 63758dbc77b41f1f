//! AWS's quotas as AWS counts them: of rules, of targets, of instances.
//!
//! Pure, and without the types of a simulation, so that all simulations of AWS apply the same rules.
//!
//! - <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html#vpc-limits-security-groups>
//! - <https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-limits.html>
//! - <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-limits.html>

use std::collections::BTreeMap;

/// AWS's defaults, unless a test sets others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Rules of a security group for IPv4, and as many for IPv6.
    pub rules: usize,
    /// Targets of a target group.
    pub targets_per_group: usize,
    /// Targets of a network load balancer in one zone, or in all zones if it balances across zones. A target counts once
    /// for each target group.
    pub targets_per_zone: usize,
    /// Instances of a classic load balancer.
    pub instances: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            rules: 60,
            targets_per_group: 1000,
            targets_per_zone: 500,
            instances: 1000,
        }
    }
}

/// An answer of AWS instead of the effect of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: &'static str,
    pub message: String,
}

/// A source of a rule. Each counts as one rule of its permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Ipv4,
    Ipv6,
    /// A security group or a prefix list, which counts for IPv4 and for IPv6. A prefix list counts with its maximum
    /// length, which its ID does not tell; here it counts as one.
    Both,
}

impl Quotas {
    /// Checks all rules that a security group would have.
    ///
    /// # Errors
    /// If these are too many rules for IPv4 or for IPv6.
    pub fn check_rules(&self, sources: impl Iterator<Item = Source> + Clone) -> Result<(), Refusal> {
        let ipv4 = sources.clone().filter(|source| *source != Source::Ipv6).count();
        let ipv6 = sources.filter(|source| *source != Source::Ipv4).count();
        let message = "The maximum number of rules per security group has been reached.";
        at_most(
            self.rules,
            ipv4.max(ipv6),
            "RulesPerSecurityGroupLimitExceeded",
            message,
        )
    }

    /// Checks the number of targets that a target group would have.
    ///
    /// # Errors
    /// If these are too many.
    pub fn check_target_group(&self, targets: usize) -> Result<(), Refusal> {
        let message = "The maximum number of targets per target group has been reached";
        at_most(self.targets_per_group, targets, "TooManyTargets", message)
    }

    /// Checks the targets that a network load balancer would have: the zone of each target of each of its target groups.
    /// AWS checks them when targets are registered, and when a listener forwards to another target group.
    ///
    /// # Errors
    /// If these are too many for one zone, or in all if it balances across zones.
    pub fn check_balancer<'a>(&self, zones: impl Iterator<Item = &'a str>, is_cross_zone: bool) -> Result<(), Refusal> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for zone in zones {
            *counts.entry(if is_cross_zone { "" } else { zone }).or_default() += 1;
        }

        let most = counts.into_values().max().unwrap_or_default();
        let message = "The maximum number of targets per Availability Zone of the load balancer has been reached";
        at_most(self.targets_per_zone, most, "TooManyTargets", message)
    }

    /// Checks the number of instances that a classic load balancer would have. The API's reference names no code for
    /// this; it names `ValidationError` for parameters beyond their limits.
    ///
    /// # Errors
    /// If these are too many.
    pub fn check_instances(&self, instances: usize) -> Result<(), Refusal> {
        let message = "The maximum number of registered instances has been reached";
        at_most(self.instances, instances, "ValidationError", message)
    }
}

fn at_most(most: usize, count: usize, code: &'static str, message: &str) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    let message = format!("{message} ({count} of {most})");
    Err(Refusal { code, message })
}

#[cfg(test)]
mod tests {
    use super::Source::{Both, Ipv4, Ipv6};
    use super::*;

    fn small() -> Quotas {
        Quotas {
            rules: 2,
            targets_per_group: 2,
            targets_per_zone: 2,
            instances: 2,
        }
    }

    fn code(result: Result<(), Refusal>) -> &'static str {
        result.map_or_else(|refusal| refusal.code, |()| "")
    }

    #[test]
    fn rules_count_for_each_address_family() {
        let check = |sources: &[Source]| code(small().check_rules(sources.iter().copied()));
        assert_eq!(check(&[Ipv4, Ipv4, Ipv6, Ipv6]), "");
        assert_eq!(check(&[Ipv4, Both, Ipv6]), "");
        for sources in [
            [Ipv4, Ipv4, Ipv4],
            [Ipv6, Ipv6, Ipv6],
            [Ipv4, Both, Both],
            [Ipv6, Both, Both],
        ] {
            assert_eq!(check(&sources), "RulesPerSecurityGroupLimitExceeded", "{sources:?}");
        }
    }

    #[test]
    fn targets_count_in_their_zone_or_all_together() {
        let check = |zones: &[&str], is_cross| code(small().check_balancer(zones.iter().copied(), is_cross));
        assert_eq!(check(&["a", "a", "b", "b"], false), "");
        assert_eq!(check(&["a", "a", "a"], false), "TooManyTargets");
        assert_eq!(check(&["a", "b"], true), "");
        assert_eq!(check(&["a", "b", "c"], true), "TooManyTargets");
    }

    #[test]
    fn a_quota_itself_is_allowed() {
        assert_eq!(code(small().check_target_group(2)), "");
        assert_eq!(code(small().check_target_group(3)), "TooManyTargets");
        assert_eq!(code(small().check_instances(2)), "");
        assert_eq!(code(small().check_instances(3)), "ValidationError");
    }
}
