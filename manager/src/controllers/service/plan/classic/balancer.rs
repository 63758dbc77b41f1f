//! Steps that change a load balancer itself.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::Tags;
use outrigger_aws::ec2::Subnet;
use outrigger_aws::elb::{Listener, NewPolicy};

use super::super::super::error::Environment;
use super::super::super::model::classic::{Existing, KnownTags, Observed};
use super::super::super::spec::desired::classic::{Desired, attribute_differences, same_health_check};
use super::super::super::spec::names::{PROXY_POLICY, TLS_POLICY_PREFIX};
use super::super::subnets::{SubnetChange, subnet_changes};
use super::super::{ClassicStep as Step, FormerListener, GroupRef, Planned};

/// Subnets and groups of a load balancer that exists; no groups: it keeps those that it has.
pub(super) fn placement(
    observed: &Observed,
    existing: &Existing,
    wanted: &[Subnet],
    groups: Option<&[GroupRef]>,
) -> Result<Vec<Planned>, Environment> {
    let moves = subnet_changes(&existing.described.subnets, wanted, &observed.vpc.subnets)?;
    let of_subnets = moves.into_iter().map(|one| match one {
        SubnetChange::Attach(ids) => Planned::new(Step::AttachSubnets(ids), "the load balancer lacks these subnets"),
        SubnetChange::Detach(ids) => Planned::new(Step::DetachSubnets(ids), "these subnets are no longer chosen"),
    });
    let mut steps: Vec<Planned> = of_subnets.collect();
    let now = existing.described.security_groups.iter().cloned();
    let now: BTreeSet<GroupRef> = now.map(GroupRef::Id).collect();

    if let Some(groups) = groups
        && now != groups.iter().cloned().collect()
    {
        let reason = format!("its {} security groups are not the requested ones", now.len());
        steps.push(Planned::new(Step::ApplyGroups(groups.to_vec()), reason));
    }

    Ok(steps)
}

/// Tags to be set. A cluster tag with another value stays: someone has marked the load balancer as shared. Where the
/// tags may not be read, only those of the annotation are set, as v1.37 does it at each sync:
/// <https://github.com/kubernetes/cloud-provider-aws/blob/v1.37.1/pkg/providers/v1/aws_loadbalancer.go>.
fn missing_tags(desired: &Desired, actual: &KnownTags) -> Tags {
    let differs = |(key, value): &(&String, &String)| match actual {
        KnownTags::Read(tags) => match tags.get(*key) {
            None => true,
            Some(present) => present != *value && !desired.cluster_tags.contains_key(*key),
        },
        KnownTags::Unknown { set } => desired.annotated_tags.contains_key(*key) && set.get(*key) != Some(*value),
    };
    let missing = desired.tags.iter().filter(differs);
    missing.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Listeners, policies, tags, attributes and health check, in the order of the in-tree provider: a refusal for another
/// reason than a missing permission stops only the steps that follow there too.
pub(super) fn settings(desired: &Desired, existing: &Existing) -> Vec<Planned> {
    let (mut steps, renewed) = listeners(desired, existing);
    steps.extend(proxy_protocol(desired, existing, &renewed));

    let missing = missing_tags(desired, &existing.tags);
    if !missing.is_empty() {
        steps.push(Planned::new(Step::AddTags(missing), "tags are missing or differ"));
    }

    let actual = existing.attributes.as_ref();
    let differ = actual.map(|actual| attribute_differences(&desired.attributes, actual));
    if let Some(differ) = differ.filter(|differ| !differ.is_empty()) {
        let reason = format!("attributes differ: {}", differ.join(", "));
        steps.push(Planned::new(Step::ModifyAttributes(desired.attributes.clone()), reason));
    }

    steps.extend(tls_policy(desired, existing, &renewed));

    let checked = existing.described.health_check.as_ref();
    if !checked.is_some_and(|check| same_health_check(check, &desired.health_check)) {
        let now = checked.map_or("none", |check| check.target.as_str());
        let reason = format!("the health check {now} differs in target, interval, timeout or thresholds");
        let step = Step::ConfigureHealthCheck(desired.health_check.clone());
        steps.push(Planned::new(step, reason));
    }

    steps
}

/// Listeners, and the ports of those that are created again and so have no policies. AWS changes nothing of a listener
/// but its certificate: otherwise the old one is deleted before the new one is created.
fn listeners(desired: &Desired, existing: &Existing) -> (Vec<Planned>, BTreeSet<i32>) {
    let now = &existing.described.listeners;
    let is_unwanted = |old: &&Listener| !desired.listeners.iter().any(|new| is_same(old, new));
    let is_missing = |new: &&Listener| !now.iter().any(|old| is_same(old, new));
    let mut old: Vec<&Listener> = now.iter().filter(is_unwanted).collect();
    let mut new: Vec<&Listener> = desired.listeners.iter().filter(is_missing).collect();
    let mut steps = Vec::new();

    new.retain(|new| {
        let Some(at) = old.iter().position(|old| differs_in_certificate(old, new)) else {
            return true;
        };
        let listener = former(existing, old.swap_remove(at));
        let certificate = new.certificate.clone().unwrap_or_default();
        let step = Step::SetCertificate { listener, certificate };
        steps.push(Planned::new(step, "the listener has another certificate"));
        false
    });

    let renewed = new.iter().map(|listener| listener.port).collect();
    steps.extend(changed_listeners(existing, &old, &new));

    (steps, renewed)
}

fn changed_listeners(existing: &Existing, old: &[&Listener], new: &[&Listener]) -> Vec<Planned> {
    let created: Vec<Listener> = new.iter().copied().cloned().collect();
    if old.iter().any(|old| new.iter().any(|new| new.port == old.port)) {
        let old = old.iter().map(|listener| former(existing, listener)).collect();
        let step = Step::ReplaceListeners { old, new: created };
        return vec![Planned::new(step, "ports of the Service have other listeners")];
    }

    let mut steps = Vec::new();
    if !old.is_empty() {
        let ports = old.iter().map(|listener| listener.port).collect();
        let reason = "no port of the Service requests these listeners";
        steps.push(Planned::new(Step::DeleteListeners(ports), reason));
    }

    if !created.is_empty() {
        let reason = "ports of the Service have no such listener";
        steps.push(Planned::new(Step::CreateListeners(created), reason));
    }

    steps
}

/// ARNs are equal in upper and lower case, as in v1.37.
fn is_same(a: &Listener, b: &Listener) -> bool {
    let arn = |listener: &Listener| listener.certificate.as_deref().map(str::to_ascii_lowercase);
    has_same_route(a, b) && arn(a) == arn(b)
}

/// Whether two listeners that are not the same have each a certificate, and no other difference.
fn differs_in_certificate(old: &Listener, new: &Listener) -> bool {
    has_same_route(old, new) && old.certificate.is_some() && new.certificate.is_some()
}

fn has_same_route(a: &Listener, b: &Listener) -> bool {
    (a.port, &a.protocol, a.instance_port, &a.instance_protocol)
        == (b.port, &b.protocol, b.instance_port, &b.instance_protocol)
}

fn former(existing: &Existing, listener: &Listener) -> FormerListener {
    let lb = &existing.described;
    let names = |of: Option<&BTreeSet<String>>| of.into_iter().flatten().cloned().collect();
    FormerListener {
        listener: listener.clone(),
        policies: names(lb.listener_policies.get(&listener.port)),
        backend_policies: names(lb.backend_policies.get(&listener.instance_port)),
    }
}

fn proxy_protocol(desired: &Desired, existing: &Existing, renewed: &BTreeSet<i32>) -> Vec<Planned> {
    let lb = &existing.described;
    let mut steps = Vec::new();
    if desired.proxy_protocol && !lb.policies.contains(PROXY_POLICY) {
        let policy = NewPolicy {
            name: PROXY_POLICY.to_owned(),
            type_name: "ProxyProtocolPolicyType".to_owned(),
            attributes: BTreeMap::from([("ProxyProtocol".to_owned(), "true".to_owned())]),
        };
        let reason = "the proxy protocol is requested";
        steps.push(Planned::new(Step::CreatePolicy(policy), reason));
    }

    for listener in &desired.listeners {
        let policies = lb.backend_policies.get(&listener.instance_port);
        let now = policies.cloned().unwrap_or_default();
        // AWS does not document whether a backend's policies outlive its listener: both cases are handled.
        let lost = desired.proxy_protocol && renewed.contains(&listener.port);
        if now.contains(PROXY_POLICY) == desired.proxy_protocol && !lost {
            continue;
        }

        let mut then = now;
        if desired.proxy_protocol {
            then.insert(PROXY_POLICY.to_owned());
        } else {
            then.remove(PROXY_POLICY);
        }

        let step = Step::SetBackendPolicies(listener.instance_port, then.into_iter().collect());
        let reason = "the proxy protocol of this backend is not as requested";
        steps.push(Planned::new(step, reason));
    }

    // A backend outlives its listener at AWS, and would keep the proxy protocol for the next one on its port.
    let is_used = |port: i32| desired.listeners.iter().any(|listener| listener.instance_port == port);
    let backends = lb.backend_policies.iter();
    let unused = backends.filter(|(port, policies)| policies.contains(PROXY_POLICY) && !is_used(**port));

    steps.extend(unused.map(|(port, policies)| {
        let others = policies.iter().filter(|policy| *policy != PROXY_POLICY);
        let step = Step::SetBackendPolicies(*port, others.cloned().collect());
        Planned::new(step, "no listener uses this backend any more")
    }));

    steps
}

fn tls_policy(desired: &Desired, existing: &Existing, renewed: &BTreeSet<i32>) -> Vec<Planned> {
    let Some(reference) = desired.tls_policy.as_deref().filter(|reference| !reference.is_empty()) else {
        return Vec::new();
    };

    let lb = &existing.described;
    let name = format!("{TLS_POLICY_PREFIX}{reference}");
    let mut steps = Vec::new();
    let in_use = lb.listener_policies.values().any(|policies| policies.contains(&name));

    if !in_use && !lb.policies.contains(&name) {
        let policy = NewPolicy {
            name: name.clone(),
            type_name: "SSLNegotiationPolicyType".to_owned(),
            attributes: BTreeMap::from([("Reference-Security-Policy".to_owned(), reference.to_owned())]),
        };
        steps.push(Planned::new(Step::CreatePolicy(policy), "a TLS policy is requested"));
    }

    let is_encrypted = |listener: &&Listener| matches!(listener.protocol.as_str(), "ssl" | "https");
    for listener in desired.listeners.iter().filter(is_encrypted) {
        let kept = lb.listener_policies.get(&listener.port);
        let kept = kept.filter(|_| !renewed.contains(&listener.port));
        if !kept.is_some_and(|policies| policies.contains(&name)) {
            let step = Step::SetListenerPolicies(listener.port, vec![name.clone()]);
            steps.push(Planned::new(step, "this listener has another TLS policy"));
        }
    }

    steps
}
