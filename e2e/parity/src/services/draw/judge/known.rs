//! Steps in which only one fails, with the rows of `docs/parity.md` that explain it.

use serde_json::{Value, json};

use super::super::annotations::PREFIX;
use super::{Both, problem, targets};
use crate::services::compare::Problem;
use crate::services::outcome::Outcome;

/// Events of success.
pub(super) const SUCCEEDS: [&str; 2] = ["EnsuredLoadBalancer", "DeletedLoadBalancer"];
/// Events of a failure.
pub(super) const FAILS: [&str; 3] = [
    "SyncLoadBalancerFailed",
    "UpdateLoadBalancerFailed",
    "DeleteLoadBalancerFailed",
];
/// Words of a failure that only v1.37 has, and the topic of the row.
const ONLY_THEIRS: [(&str, &str); 7] = [
    ("DuplicateListener", "port from TCP to UDP and back"),
    (
        "DuplicateTargetGroupName",
        "name of a target group taken by one with other settings",
    ),
    ("ResourceInUse", "port from TCP to TLS and back"),
    (
        "HealthCheck Target must begin with",
        "`healthcheck-protocol` in lower case",
    ),
    ("RulesPerSecurityGroupLimitExceeded", "rules of a security group"),
    ("has to stay in one subnet", "change of subnets"),
    (
        "InvalidTarget",
        "a target that AWS refuses (`InvalidTarget`, `InvalidInstance`)",
    ),
];
/// Events of ours only, each with its own row.
pub(super) const OURS_ONLY: [&str; 6] = [
    "SchemeNotChanged",
    "SourceRangesNotEnforced",
    "SecurityGroupNearlyFull",
    "TargetsRefused",
    "TooManyRules",
    "TooManyTargets",
];

/// Numbers of health checks.
const NUMBERS: [&str; 5] = [
    "healthcheck-port",
    "healthcheck-healthy-threshold",
    "healthcheck-unhealthy-threshold",
    "healthcheck-timeout",
    "healthcheck-interval",
];

/// A value that only ours refuses: whether a Service has it, and the topic of the row.
type Refused = (fn(&Value) -> bool, &'static str);
const REFUSED: [Refused; 4] = [
    (names_another_cluster, "tags of the user that name another cluster"),
    (has_long_number, "numbers of health checks beyond 32 bits"),
    (has_no_node_port, "no port with a node port"),
    (has_ipv6, "source ranges with IPv6"),
];

/// Words of a failure that only ours has, and the topic of the row.
const ONLY_OURS: [(&str, &str); 1] = [("RulesPerSecurityGroupLimitExceeded", "node rules: path MTU")];

/// Topics of `docs/parity.md` on which this comparison relies.
pub fn topics() -> impl Iterator<Item = &'static str> {
    let relied_on = [
        "on a load balancer with traffic",
        "unhealthy threshold, path",
        "target groups that outlive their load balancer",
        "groups that the user brought (`security-groups`, `ElbSecurityGroup`)",
        "details of access logs and draining that are off",
        "health check of a new classic load balancer",
        "a node that is not Ready",
        "change of a Node's labels or taints",
        "change of Nodes that changes no target",
        "the same failure again",
        "another certificate of a listener",
        "own group that others replace, with `DisableSecurityGroupIngress`",
        "targets of Nodes that are missing right after a start",
        "rules of a managed group for TLS ports",
        "node rules: groups without the cluster's tag",
    ];

    let only_theirs = ONLY_THEIRS.iter().map(|(_, topic)| *topic);
    let only_ours = ONLY_OURS.iter().map(|(_, topic)| *topic);
    let refused = REFUSED.iter().map(|(_, topic)| *topic);

    only_theirs.chain(only_ours).chain(refused).chain(relied_on)
}

impl Both<'_> {
    pub(super) fn only_theirs_fails(&self, index: usize) -> Option<Problem> {
        let explained = has_words(&ONLY_THEIRS, self.theirs.get(..=index)?);
        let (there, here) = (self.theirs.get(index)?, self.ours.get(index)?);
        (!explained).then(|| problem(here, "events", "only v1.37 fails", json!(there.events)))
    }

    pub(super) fn only_ours_fails(&self, index: usize) -> Option<Problem> {
        let service = targets::service(self.case, index);
        let refused = REFUSED.iter().any(|(has, _)| has(&service));
        let explained = refused || has_words(&ONLY_OURS, self.ours.get(..=index)?);
        let here = self.ours.get(index)?;
        (!explained).then(|| problem(here, "events", "only ours fails", json!(here.events)))
    }
}

/// Whether an Event so far contains one of the words.
fn has_words(words: &[(&str, &str)], outcomes: &[Outcome]) -> bool {
    let messages = outcomes.iter().flat_map(|outcome| &outcome.events);
    let text: String = messages.map(|event| event.message.as_str()).collect();
    words.iter().any(|(words, _)| text.contains(words))
}

fn has_long_number(service: &Value) -> bool {
    NUMBERS.iter().any(|suffix| {
        let text = service["metadata"]["annotations"][format!("{PREFIX}{suffix}")].as_str();
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.is_some_and(|number| i32::try_from(number).is_err())
    })
}

/// All cases are of the cluster `parity`.
fn names_another_cluster(service: &Value) -> bool {
    let key = format!("{PREFIX}additional-resource-tags");
    let text = service["metadata"]["annotations"][key].as_str().unwrap_or_default();
    text.split(',').any(|pair| {
        let (key, value) = pair.trim().split_once('=').unwrap_or((pair.trim(), ""));
        let legacy = key == "KubernetesCluster" && value != "parity";
        legacy
            || key
                .strip_prefix("kubernetes.io/cluster/")
                .is_some_and(|id| !id.is_empty() && id != "parity")
    })
}

fn has_no_node_port(service: &Value) -> bool {
    let ports = service["spec"]["ports"].as_array();
    ports.is_some_and(|ports| ports.iter().all(|port| port["nodePort"].is_null()))
}

fn has_ipv6(service: &Value) -> bool {
    let ranges = service["spec"]["loadBalancerSourceRanges"].as_array();
    let mut ranges = ranges.into_iter().flatten().filter_map(Value::as_str);
    ranges.any(|range| range.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_only_ours_refuses_are_found() {
        let number = |text: &str| json!({"metadata": {"annotations": {format!("{PREFIX}healthcheck-interval"): text}}});
        assert!(has_long_number(&number("4294967298")) && has_long_number(&number("-4294967293")));
        assert!(!has_long_number(&number("2147483647")) && !has_long_number(&number("99999999999999999999")));
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        assert!(has_no_node_port(&ports(json!([{"port": 80}]))));
        assert!(!has_no_node_port(&ports(
            json!([{"port": 80}, {"port": 81, "nodePort": 30081}])
        )));
        let ranges = |range: &str| json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", range]}});
        assert!(has_ipv6(&ranges("2001:db8::/32")) && !has_ipv6(&ranges("10.1.0.0/16")));
    }
}
