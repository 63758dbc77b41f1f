//! From entries to typed fields.

use regex::Regex;

use super::overrides::{self, Draft};
use super::syntax::{Entry, Place};
use super::{CloudConfig, Findings, HealthProbeMode, family};
use crate::suggest;

const SECTIONS: [&str; 2] = ["Global", "ServiceOverride"];

/// The keys of section `Global`; a file may write them in any case.
pub const GLOBAL_KEYS: [&str; 18] = [
    "ClusterServiceLoadBalancerHealthProbeMode",
    "ClusterServiceSharedLoadBalancerHealthProbePath",
    "ClusterServiceSharedLoadBalancerHealthProbePort",
    "DisableSecurityGroupIngress",
    "DisableStrictZoneCheck",
    "ElbSecurityGroup",
    "KubernetesClusterID",
    "KubernetesClusterTag",
    "NLBSecurityGroupMode",
    "NodeIPFamilies",
    "Region",
    "RoleARN",
    "RouteTableID",
    "SourceARN",
    "SubnetID",
    "SupportedTopologyInstanceTypePattern",
    "VPC",
    "Zone",
];

/// Gives every entry its meaning; problems go to `findings`.
pub(super) fn config(entries: &[Entry], findings: &mut Findings<'_>) -> CloudConfig {
    let mut config = CloudConfig::default();
    let mut drafts: Vec<Draft> = Vec::new();
    for entry in entries {
        if entry.section.eq_ignore_ascii_case("Global") {
            match (&entry.subsection, entry.key.as_str()) {
                // The incumbent passes over such a section and all its keys.
                (Some(_), "") => findings.tolerable(
                    entry.section_place,
                    "section Global must not have a name in quotes: write [Global]",
                ),
                (Some(_), _) | (None, "") => {}
                (None, _) => global(&mut config, entry, findings),
            }
        } else if entry.section.eq_ignore_ascii_case("ServiceOverride") {
            overrides::collect(&mut drafts, entry, findings);
        } else if entry.key.is_empty() {
            let hint = suggest::hint(&entry.section, SECTIONS, "");
            findings.tolerable(
                entry.section_place,
                &format!("unknown section {:?}{hint}", entry.section),
            );
        }
    }

    config.service_overrides = overrides::finish(drafts, findings);

    config
}

/// One table for the whole section: a key's name and where it goes.
fn global(config: &mut CloudConfig, entry: &Entry, findings: &mut Findings<'_>) {
    let Some(name) = GLOBAL_KEYS.iter().find(|known| known.eq_ignore_ascii_case(&entry.key)) else {
        let hint = suggest::hint(&entry.key, GLOBAL_KEYS, "");
        findings.tolerable(
            entry.place,
            &format!("unknown key {:?} in section Global{hint}", entry.key),
        );
        return;
    };
    match *name {
        "Zone" => text(&mut config.zone, entry, findings),
        "Region" => text(&mut config.region, entry, findings),
        "VPC" => text(&mut config.vpc, entry, findings),
        "SubnetID" => text(&mut config.subnet_id, entry, findings),
        "RouteTableID" => text(&mut config.route_table_id, entry, findings),
        "RoleARN" => role(&mut config.role_arn, entry, findings),
        "SourceARN" => text(&mut config.source_arn, entry, findings),
        "KubernetesClusterTag" => text(&mut config.kubernetes_cluster_tag, entry, findings),
        "KubernetesClusterID" => text(&mut config.kubernetes_cluster_id, entry, findings),
        "ElbSecurityGroup" => text(&mut config.elb_security_group, entry, findings),
        "DisableSecurityGroupIngress" => boolean(&mut config.disable_security_group_ingress, entry, findings),
        // Only the in-tree provider reads it.
        "DisableStrictZoneCheck" => findings.warning(
            entry.place,
            "DisableStrictZoneCheck has no effect: regions are not checked against a list",
        ),
        "NodeIPFamilies" => families(&mut config.node_ip_families, entry, findings),
        "ClusterServiceLoadBalancerHealthProbeMode" => probe_mode(&mut config.health_probe_mode, entry, findings),
        "ClusterServiceSharedLoadBalancerHealthProbePort" => port(&mut config.health_probe_port, entry, findings),
        "ClusterServiceSharedLoadBalancerHealthProbePath" => text(&mut config.health_probe_path, entry, findings),
        "SupportedTopologyInstanceTypePattern" => pattern(&mut config.topology_instance_types, entry, findings),
        "NLBSecurityGroupMode" => group_mode(&mut config.nlb_security_groups_managed, entry, findings),
        _ => findings.error(
            entry.place,
            &format!("the key {name} is known but has no reader: this is a bug"),
        ),
    }
}

/// The text of an entry; a key without `=` is only a value for booleans and lists.
pub(super) fn given<'a>(entry: &'a Entry, findings: &mut Findings<'_>) -> Option<(&'a str, Place)> {
    let value = entry.value.as_deref();
    if value.is_none() {
        findings.error(
            entry.place,
            &format!("the key {} needs a value: write {} = …", entry.key, entry.key),
        );
    }

    value.map(|text| (text, entry.value_place))
}

fn text(field: &mut Option<String>, entry: &Entry, findings: &mut Findings<'_>) {
    if let Some((value, _)) = given(entry, findings) {
        *field = Some(value.to_owned()).filter(|value| !value.is_empty());
    }
}

fn role(field: &mut Option<String>, entry: &Entry, findings: &mut Findings<'_>) {
    text(field, entry, findings);
    if let Some(arn) = field
        && (arn.split(':').count() < 6 || !arn.starts_with("arn:"))
    {
        findings.error(
            entry.value_place,
            &format!("RoleARN {arn:?} is not an ARN such as arn:aws:iam::123456789012:role/NAME"),
        );
    }
}

fn boolean(field: &mut bool, entry: &Entry, findings: &mut Findings<'_>) {
    match entry.value.as_deref().unwrap_or("true").to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => *field = true,
        "false" | "no" | "off" | "0" => *field = false,
        other => findings.error(
            entry.value_place,
            &format!(
                "{} = {other:?}: expected true, yes, on, 1, false, no, off or 0",
                entry.key
            ),
        ),
    }
}

/// A list grows with each occurrence; a key without `=` empties it.
fn families(field: &mut Vec<String>, entry: &Entry, findings: &mut Findings<'_>) {
    let Some(name) = &entry.value else {
        field.clear();
        return;
    };

    if family(name).is_none() {
        findings.warning(
            entry.value_place,
            &format!("NodeIPFamilies = {name:?} is ignored: expected ipv4 or ipv6, one per line"),
        );
    }

    field.push(name.clone());
}

fn probe_mode(field: &mut HealthProbeMode, entry: &Entry, findings: &mut Findings<'_>) {
    let Some((mode, place)) = given(entry, findings) else {
        return;
    };
    match mode {
        "" | "ServiceNodePort" => *field = HealthProbeMode::ServiceNodePort,
        "Shared" => *field = HealthProbeMode::Shared,
        other => findings.error(
            place,
            &format!("{} = {other:?}: expected ServiceNodePort or Shared", entry.key),
        ),
    }
}

fn port(field: &mut Option<u16>, entry: &Entry, findings: &mut Findings<'_>) {
    let Some((value, place)) = given(entry, findings) else {
        return;
    };

    let number = match value.trim().strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u16::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => value.trim().parse().ok(),
    };

    match number {
        Some(number) => *field = Some(number).filter(|port| *port != 0),
        None => findings.error(
            place,
            &format!("{} = {value:?}: expected a port from 1 to 65535", entry.key),
        ),
    }
}

fn pattern(field: &mut Option<Regex>, entry: &Entry, findings: &mut Findings<'_>) {
    let Some((value, place)) = given(entry, findings) else {
        return;
    };
    if value.is_empty() {
        *field = None;
        return;
    }

    match Regex::new(value) {
        Ok(regex) => *field = Some(regex),
        Err(problem) => {
            let reason = problem.to_string().lines().last().unwrap_or_default().trim().to_owned();
            findings.error(place, &format!("{} is not a regular expression: {reason}", entry.key));
        }
    }
}

/// Upstream takes any text and fails each network load balancer later; a wrong mode is wrong from the start.
fn group_mode(field: &mut bool, entry: &Entry, findings: &mut Findings<'_>) {
    let Some((mode, place)) = given(entry, findings) else {
        return;
    };
    match mode {
        "" => *field = false,
        "Managed" => *field = true,
        other => findings.error(
            place,
            &format!("NLBSecurityGroupMode = {other:?}: expected Managed or an empty value"),
        ),
    }
}
