//! The validation of the classic load balancing API, from its documentation and from observed responses. AWS rejects
//! such requests on every attempt.

use std::collections::BTreeSet;

use super::World;
use super::refusals::{invalid, refuse, unfit};
use crate::elb::{Attributes, HealthCheck, Listener};
use crate::{InstanceId, Result};

/// Listeners of one call: ports in range and each once, protocols of one layer, a certificate exactly where the front
/// is encrypted.
pub(super) fn listeners(world: &World, action: &'static str, listeners: &[Listener]) -> Result<()> {
    if listeners.is_empty() {
        return invalid(action, "no listener");
    }

    let mut ports = BTreeSet::new();
    for listener in listeners {
        let port = listener.port;
        let in_range = |port: &i32| (1..=65535).contains(port);
        if ![port, listener.instance_port].iter().all(in_range) {
            return invalid(action, format!("listener {port}: a port is out of range"));
        }
        if !ports.insert(port) {
            return invalid(action, format!("listener {port} stands there twice"));
        }

        let layer = |protocol: &str| match protocol {
            "http" | "https" => Some(7),
            "tcp" | "ssl" => Some(4),
            _ => None,
        };
        let front = layer(&listener.protocol);
        if front.is_none() || front != layer(&listener.instance_protocol) {
            return unfit(action, format!("listener {port}: the protocols are not of one layer"));
        }

        let encrypted = matches!(listener.protocol.as_str(), "https" | "ssl");
        if encrypted != listener.certificate.is_some() {
            let why = format!("listener {port}: a certificate goes with https and ssl");
            return unfit(action, why);
        }
        if let Some(arn) = &listener.certificate {
            certificate(world, action, arn)?;
        }
    }

    Ok(())
}

pub(super) fn certificate(world: &World, action: &'static str, arn: &str) -> Result<()> {
    if world.missing_certificates.contains(arn) {
        return refuse(
            action,
            "CertificateNotFound",
            format!("Server Certificate not found for the key: {arn}"),
        );
    }
    Ok(())
}

/// A health check: numbers in range, a time-out below the interval, a target of a known form.
pub(super) fn health_check(action: &'static str, check: &HealthCheck) -> Result<()> {
    let in_range = (5..=300).contains(&check.interval)
        && (2..=60).contains(&check.timeout)
        && (2..=10).contains(&check.healthy_threshold)
        && (2..=10).contains(&check.unhealthy_threshold);
    if !in_range {
        let why = format!("a number of the health check is out of range: {check:?}");
        return invalid(action, why);
    }
    if check.timeout >= check.interval {
        return invalid(action, "the time-out must be smaller than the interval");
    }

    let (protocol, place) = check.target.split_once(':').unwrap_or_default();
    let (port, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let formed = match protocol {
        "TCP" | "SSL" => path.is_empty(),
        "HTTP" | "HTTPS" => path.starts_with('/'),
        _ => false,
    };
    let numbered = port.parse::<u16>().is_ok_and(|port| port > 0);

    if formed && numbered {
        Ok(())
    } else {
        invalid(action, format!("{:?} is no target of a health check", check.target))
    }
}

/// Attributes: numbers in range, and logs only with a bucket.
pub(super) fn attributes(action: &'static str, attributes: &Attributes) -> Result<()> {
    let idle = attributes.idle_timeout;
    if idle.is_some_and(|seconds| !(1..=4000).contains(&seconds)) {
        return invalid(action, "the idle time-out is 1 to 4000 s");
    }

    let draining = attributes.connection_draining_timeout;
    if draining.is_some_and(|seconds| !(1..=3600).contains(&seconds)) {
        return invalid(action, "the draining time-out is 1 to 3600 s");
    }
    let Some(log) = attributes.access_log.as_ref() else {
        return Ok(());
    };
    if log.emit_interval.is_some_and(|minutes| !matches!(minutes, 5 | 60)) {
        return invalid(action, "logs are written every 5 or 60 minutes");
    }
    if log.enabled && log.bucket.is_none() {
        return unfit(action, "logs need a bucket");
    }

    Ok(())
}

/// Security groups of a load balancer: at least one, all there, all of its VPC.
pub(super) fn groups(world: &World, action: &'static str, groups: &[String], vpc: Option<&String>) -> Result<()> {
    if groups.is_empty() {
        return invalid(action, "no security group");
    }

    for id in groups {
        let Some(group) = world.security_groups.get(id) else {
            return refuse(action, "InvalidSecurityGroup", id.clone());
        };
        if vpc.is_some() && group.vpc_id.is_some() && group.vpc_id.as_ref() != vpc {
            return unfit(action, format!("security group {id} is of another VPC"));
        }
    }

    Ok(())
}

/// Instances to be registered: EC2 must know them, and they must not be on their way out.
pub(super) fn instances(world: &World, action: &'static str, instances: &[InstanceId]) -> Result<()> {
    use crate::ec2::InstanceState::{ShuttingDown, Terminated};

    for id in instances {
        let living = world
            .instances
            .get(id)
            .is_some_and(|instance| !matches!(instance.state, Some(ShuttingDown | Terminated)));
        if !living {
            return refuse(action, "InvalidInstance", id.to_string());
        }
    }

    Ok(())
}
