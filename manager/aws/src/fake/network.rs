//! The state of network load balancers in memory, and AWS's rules for it.

use std::collections::{BTreeMap, BTreeSet};

use super::refusals::{invalid, refuse, unfit};
use crate::elbv2::{Attributes, ListenerSettings, NetworkLoadBalancer, SubnetMapping, Target, TargetGroup};
use crate::{Error, Result, Tags};

/// The policy of a `TLS` listener that is created without one.
pub(super) const DEFAULT_SSL_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// A load balancer with what AWS keeps apart from its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeNetworkLoadBalancer {
    pub described: NetworkLoadBalancer,
    /// `network`; load balancers of other types share the names.
    pub kind: String,
    /// The subnets at creation, with addresses.
    pub mappings: Vec<SubnetMapping>,
    pub attributes: Attributes,
    pub tags: Tags,
    /// After how many more descriptions it is `active`.
    pub provisioning: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FakeListener {
    /// The ARN of its load balancer.
    pub load_balancer: String,
    pub settings: ListenerSettings,
    pub tags: Tags,
}

/// A target group with its targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FakeTargetGroup {
    /// Its load balancers are ignored: they follow from the listeners.
    pub described: TargetGroup,
    pub attributes: Attributes,
    pub tags: Tags,
    pub targets: BTreeSet<Target>,
    /// Draining targets, with the number of further descriptions that show them.
    pub draining: BTreeMap<Target, u32>,
}

/// Network load balancers, listeners and target groups, all by ARN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    pub load_balancers: BTreeMap<String, FakeNetworkLoadBalancer>,
    pub listeners: BTreeMap<String, FakeListener>,
    pub target_groups: BTreeMap<String, FakeTargetGroup>,
    /// How many descriptions of a target group show a target after its deregistration; by default 1.
    pub drain_looks: u32,
    /// How many descriptions show a new load balancer as `provisioning`; by default 1.
    pub provisioning_looks: u32,
    /// How often a thing of a name was made; numbers the ARNs, so that what is made again has another one.
    pub made: BTreeMap<String, u32>,
    /// Load balancers that are gone and are still named as users of target groups, by the ARNs of those.
    pub still_named: BTreeMap<String, BTreeSet<String>>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            load_balancers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            target_groups: BTreeMap::new(),
            drain_looks: 1,
            provisioning_looks: 1,
            made: BTreeMap::new(),
            still_named: BTreeMap::new(),
        }
    }
}

fn missing(action: &'static str, code: &str, what: &str, which: &str) -> Error {
    Error::answered(action, code, format!("{what} '{which}' not found"))
}

impl Network {
    /// The ARN of a new thing.
    pub(super) fn new_arn(&mut self, resource: &str) -> String {
        let times = self.made.entry(resource.to_owned()).or_default();
        *times += 1;
        format!("arn:aws:elasticloadbalancing:eu-central-1:123456789012:{resource}/{times:016x}")
    }

    /// The load balancer of this name, whatever its type.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&FakeNetworkLoadBalancer> {
        self.load_balancers.values().find(|lb| lb.described.name == name)
    }

    /// The target group of this name.
    #[must_use]
    pub fn target_group_named(&self, name: &str) -> Option<&FakeTargetGroup> {
        self.target_groups.values().find(|group| group.described.name == name)
    }

    /// The listeners of a load balancer, by port.
    #[must_use]
    pub fn listeners_of(&self, load_balancer_arn: &str) -> BTreeMap<i32, &FakeListener> {
        let own = self.listeners.values().filter(|l| l.load_balancer == load_balancer_arn);
        own.map(|listener| (listener.settings.port, listener)).collect()
    }

    pub(super) fn uses_group(&self, id: &str) -> bool {
        let balancers = self.load_balancers.values();
        let mut groups = balancers.flat_map(|lb| &lb.described.security_groups);
        groups.any(|group| group == id)
    }

    pub(super) fn balancer(&mut self, action: &'static str, arn: &str) -> Result<&mut FakeNetworkLoadBalancer> {
        let missing = || missing(action, "LoadBalancerNotFound", "Load balancer", arn);
        self.load_balancers.get_mut(arn).ok_or_else(missing)
    }

    pub(super) fn group(&mut self, action: &'static str, arn: &str) -> Result<&mut FakeTargetGroup> {
        let missing = || missing(action, "TargetGroupNotFound", "Target group", arn);
        self.target_groups.get_mut(arn).ok_or_else(missing)
    }

    pub(super) fn listener(&mut self, action: &'static str, arn: &str) -> Result<&mut FakeListener> {
        let missing = || missing(action, "ListenerNotFound", "Listener", arn);
        self.listeners.get_mut(arn).ok_or_else(missing)
    }

    pub(super) fn no_name(action: &'static str, code: &str, name: &str) -> Error {
        missing(action, code, "One or more of the names", name)
    }

    /// The ARNs of the load balancers whose listeners forward to a target group, or did until a moment ago.
    pub(super) fn users_of(&self, target_group_arn: &str) -> BTreeSet<String> {
        let uses = |l: &&FakeListener| l.settings.target_group_arn.as_deref() == Some(target_group_arn);
        let users = self.listeners.values().filter(uses).map(|l| &l.load_balancer);
        let gone = self.still_named.get(target_group_arn).into_iter().flatten();
        users.chain(gone).cloned().collect()
    }

    /// A target group as AWS describes it.
    pub(super) fn describe_group(&self, group: &FakeTargetGroup) -> TargetGroup {
        TargetGroup {
            load_balancers: self.users_of(&group.described.arn),
            ..group.described.clone()
        }
    }

    /// The tags of a load balancer, target group or listener.
    pub(super) fn tags_of(&mut self, action: &'static str, arn: &str) -> Result<&mut Tags> {
        if arn.contains(":targetgroup/") {
            return Ok(&mut self.group(action, arn)?.tags);
        }
        if arn.contains(":listener/") {
            return Ok(&mut self.listener(action, arn)?.tags);
        }
        Ok(&mut self.balancer(action, arn)?.tags)
    }

    /// A description of a load balancer, which brings a new one closer to being active.
    pub(super) fn look(balancer: &mut FakeNetworkLoadBalancer) -> NetworkLoadBalancer {
        let seen = balancer.described.clone();
        balancer.provisioning = balancer.provisioning.saturating_sub(1);
        if balancer.provisioning == 0 && seen.state.as_deref() == Some("provisioning") {
            balancer.described.state = Some("active".to_owned());
        }
        seen
    }

    /// Gives a listener of a load balancer these settings, completed from the ones it has.
    ///
    /// # Errors
    /// As AWS: on another listener's port, without a target group, with one that does not fit.
    pub(super) fn checked(
        &mut self,
        action: &'static str,
        load_balancer_arn: &str,
        own_arn: Option<&str>,
        wanted: &ListenerSettings,
    ) -> Result<ListenerSettings> {
        self.balancer(action, load_balancer_arn)?;
        if !(1..=65535).contains(&wanted.port) {
            return invalid(action, format!("port {} is not within 1 and 65535", wanted.port));
        }

        let taken = |(arn, other): (&String, &FakeListener)| {
            other.load_balancer == load_balancer_arn
                && other.settings.port == wanted.port
                && Some(arn.as_str()) != own_arn
        };
        if self.listeners.iter().any(taken) {
            let port = wanted.port;
            let message = format!("A listener already exists on port {port} of this load balancer");
            return refuse(action, "DuplicateListener", message);
        }

        let old = own_arn.and_then(|arn| self.listeners.get(arn));
        let old = old.map(|old| old.settings.clone());
        let group_arn = wanted.target_group_arn.clone();
        let group_arn = group_arn.or_else(|| old.as_ref()?.target_group_arn.clone());
        let Some(group_arn) = group_arn else {
            return invalid(action, "a default action is needed");
        };

        let group_protocol = self.group(action, &group_arn)?.described.protocol.clone();
        let fits: &[&str] = match wanted.protocol.as_str() {
            "TCP" => &["TCP", "TCP_UDP"],
            "UDP" => &["UDP", "TCP_UDP"],
            "TLS" => &["TCP", "TLS"],
            "TCP_UDP" => &["TCP_UDP"],
            other => {
                return invalid(action, format!("protocol '{other}' is not for network load balancers"));
            }
        };
        if !fits.contains(&group_protocol.as_str()) {
            let message = format!("{} to a target group of {group_protocol}", wanted.protocol);
            return refuse(action, "IncompatibleProtocols", message);
        }
        if self.users_of(&group_arn).iter().any(|user| user != load_balancer_arn) {
            return refuse(action, "TargetGroupAssociationLimit", group_arn);
        }

        let (certificate, ssl_policy) = secured(action, wanted, old.as_ref())?;
        Ok(ListenerSettings {
            target_group_arn: Some(group_arn),
            certificate,
            ssl_policy,
            ..wanted.clone()
        })
    }
}

/// Certificate and policy of a listener. Those of a `TLS` listener stay if they are not given; others have none.
fn secured(
    action: &'static str,
    wanted: &ListenerSettings,
    old: Option<&ListenerSettings>,
) -> Result<(Option<String>, Option<String>)> {
    if wanted.protocol != "TLS" {
        return match (&wanted.certificate, &wanted.ssl_policy) {
            (None, None) => Ok((None, None)),
            _ => invalid(action, "certificate or policy beside a protocol that is not TLS"),
        };
    }

    let certificate = wanted.certificate.clone().or_else(|| old?.certificate.clone());
    if certificate.is_none() {
        return invalid(action, "A certificate must be specified for TLS listeners");
    }

    let policy = wanted.ssl_policy.clone().or_else(|| old?.ssl_policy.clone());
    match policy {
        Some(policy) if !policy.starts_with("ELBSecurityPolicy-") => refuse(action, "SSLPolicyNotFound", policy),
        Some(policy) => Ok((certificate, Some(policy))),
        None => Ok((certificate, Some(DEFAULT_SSL_POLICY.to_owned()))),
    }
}

/// The attributes of a new network load balancer.
pub(super) fn new_attributes(internal: bool) -> Attributes {
    let internal = if internal { "true" } else { "false" };
    attributes(&[
        ("access_logs.s3.bucket", ""),
        ("access_logs.s3.enabled", "false"),
        ("access_logs.s3.prefix", ""),
        ("deletion_protection.enabled", "false"),
        ("dns_record.client_routing_policy", "any_availability_zone"),
        ("ipv6.deny_all_igw_traffic", internal),
        ("load_balancing.cross_zone.enabled", "false"),
        ("secondary_ips.auto_assigned.per_subnet", "0"),
        ("zonal_shift.config.enabled", "false"),
    ])
}

/// The attributes of a new target group of instances.
pub(super) fn new_group_attributes(protocol: &str) -> Attributes {
    let udp = protocol.ends_with("UDP");
    let (ends_connections, keeps_connections) = if udp { ("true", "false") } else { ("false", "true") };
    attributes(&[
        ("deregistration_delay.connection_termination.enabled", ends_connections),
        ("deregistration_delay.timeout_seconds", "300"),
        ("load_balancing.cross_zone.enabled", "use_load_balancer_configuration"),
        ("preserve_client_ip.enabled", "true"),
        ("proxy_protocol_v2.enabled", "false"),
        ("stickiness.enabled", "false"),
        ("stickiness.type", "source_ip"),
        ("target_group_health.dns_failover.minimum_healthy_targets.count", "1"),
        (
            "target_group_health.dns_failover.minimum_healthy_targets.percentage",
            "off",
        ),
        (
            "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count",
            "1",
        ),
        (
            "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage",
            "off",
        ),
        (
            "target_health_state.unhealthy.connection_termination.enabled",
            keeps_connections,
        ),
        ("target_health_state.unhealthy.draining_interval_seconds", "0"),
    ])
}

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Sets attributes, all or none.
pub(super) fn set(action: &'static str, now: &mut Attributes, wanted: &Attributes) -> Result<()> {
    if let Some(key) = wanted.keys().find(|key| !now.contains_key(*key)) {
        return invalid(action, format!("attribute key '{key}' is not recognized"));
    }

    let mut new = now.clone();
    new.extend(wanted.clone());

    let logs = new
        .get("access_logs.s3.enabled")
        .is_some_and(|enabled| enabled == "true");
    if logs && new.get("access_logs.s3.bucket").is_none_or(String::is_empty) {
        return unfit(action, "access logs need a bucket");
    }

    *now = new;

    Ok(())
}
