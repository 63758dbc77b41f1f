//! The desired classic load balancer, derived from a Service and the settings only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elb::{Attributes, HealthCheck, Listener};

use super::super::super::error::Invalid;
use super::super::super::plan::security_groups;
use super::super::super::settings::Settings;
use super::super::annotations::Annotations;
use super::super::request::{self, Subnets};
use super::super::{names, source_ranges};
use super::{attributes, health_check, ports};

/// The security groups of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// One of its own, and further ones that are only attached.
    Own {
        /// Attached too, as listed.
        extra: Vec<String>,
    },
    /// Given ones, whose rules are not managed.
    Given(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub name: String,
    /// Only reachable within the VPC. Fixed at creation.
    pub internal: bool,
    /// Listeners, at least one.
    pub listeners: Vec<Listener>,
    pub subnets: Subnets,
    pub groups: Groups,
    /// Its own group, if it has one.
    pub own_group: NewSecurityGroup,
    pub ingress: Vec<IpPermission>,
    pub attributes: Attributes,
    pub health_check: HealthCheck,
    /// Tags of the load balancer.
    pub tags: Tags,
    /// The cluster's tags among them.
    pub cluster_tags: Tags,
    /// The annotation's tags among them.
    pub annotated_tags: Tags,
    /// Whether backends get the proxy protocol.
    pub proxy_protocol: bool,
    /// AWS's name of the TLS policy for listeners with a certificate.
    pub tls_policy: Option<String>,
    /// Labels that a Node must have to be a target.
    pub node_labels: BTreeMap<String, String>,
}

/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let annotations = Annotations::of(service);
    preflight(annotations)?;

    let user_tags = request::user_tags(annotations, &settings.cluster_id)?;
    request::refuse_affinity(service)?;

    let ports = ports::checked(service)?;
    let networks = source_ranges::wanted(service)?;
    let listeners = ports::listeners(ports, annotations)?;
    request::refuse_fixed_address(service)?;

    let first = listeners.first().ok_or(Invalid::NotBuilt {
        what: "a load balancer without listeners",
    })?;
    let proxy_protocol = proxy_protocol(annotations)?;
    let attributes = attributes::wanted(annotations)?;
    let subnets = request::subnets(annotations)?;
    let health_check = health_check::wanted(service, annotations, &settings.health_probe, first)?;
    let name = names::load_balancer(service.metadata.uid.as_deref().unwrap_or_default());
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);

    Ok(Desired {
        internal: annotations.internal(),
        ingress: security_groups::ingress(ports, &networks),
        subnets,
        groups: groups(annotations, settings),
        own_group: own_group(service, settings, &name, &user_tags, &cluster_tags),
        attributes,
        health_check,
        tags: request::tags(service, &user_tags, &cluster_tags),
        annotated_tags: request::annotated_tags(user_tags, &cluster_tags),
        cluster_tags,
        proxy_protocol,
        tls_policy: annotations.get("ssl-negotiation-policy").map(str::to_owned),
        node_labels: annotations.pairs("target-node-labels"),
        name,
        listeners,
    })
}

fn groups(annotations: Annotations<'_>, settings: &Settings) -> Groups {
    let extra = annotations.list("extra-security-groups").unwrap_or_default();
    let mut given = annotations.list("security-groups").unwrap_or_default();
    if given.is_empty() {
        given.extend(
            settings
                .elb_security_group
                .iter()
                .filter(|group| !group.is_empty())
                .cloned(),
        );
    }

    if given.is_empty() {
        return Groups::Own { extra };
    }

    given.extend(extra);

    Groups::Given(given)
}

fn own_group(
    service: &Service,
    settings: &Settings,
    load_balancer: &str,
    user_tags: &BTreeMap<String, String>,
    cluster_tags: &Tags,
) -> NewSecurityGroup {
    let (namespace, name) = names::namespaced(service);
    let mut tags = user_tags.clone();
    tags.extend(cluster_tags.clone());

    let tags = names::creation_tags(&tags, settings.cluster_uid.as_deref(), names::MOST_TAGS);
    NewSecurityGroup {
        name: names::security_group(load_balancer),
        description: names::security_group_description(load_balancer, namespace, name),
        vpc_id: settings.vpc_id.clone(),
        tags,
    }
}

fn proxy_protocol(annotations: Annotations<'_>) -> Result<bool, Invalid> {
    match annotations.filled("proxy-protocol") {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(_) => Err(annotations.wrong("proxy-protocol", "expected *, the proxy protocol on all ports")),
    }
}

fn preflight(annotations: Annotations<'_>) -> Result<(), Invalid> {
    if annotations.get("target-group-attributes").is_some() {
        return Err(annotations.wrong(
            "target-group-attributes",
            "only network load balancers have target groups",
        ));
    }
    Ok(())
}
