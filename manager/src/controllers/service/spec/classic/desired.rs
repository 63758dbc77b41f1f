//! The desired classic load balancer, derived from a Service and the settings only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elb::{Attributes, HealthCheck, Listener};

use super::super::super::error::Invalid;
use super::super::super::plan::security_groups;
use super::super::super::settings::Settings;
use super::super::annotations::Annotations;
use super::super::names;
use super::super::request::{self, Subnets};
use super::{attributes, health_check};

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

    let ports = checked(service)?;
    let networks = request::source_ranges(service)?;
    let listeners = listeners(ports, annotations)?;
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
        let configured = settings.elb_security_group.clone();
        given.extend(configured.filter(|group| !group.is_empty()));
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

/// The ports, which all have to be TCP.
fn checked(service: &Service) -> Result<&[ServicePort], Invalid> {
    let ports = request::ports(service)?;
    match ports.iter().map(request::protocol).find(|protocol| *protocol != "TCP") {
        Some(other) => Err(request::wrong_ports(other, "a classic load balancer carries TCP only")),
        None => Ok(ports),
    }
}

/// The listeners for these ports. A port without a node port has none, since no instance would listen.
/// Fails when an annotation has a value that makes no listener, or no port has a node port.
pub fn listeners(ports: &[ServicePort], annotations: Annotations<'_>) -> Result<Vec<Listener>, Invalid> {
    let reachable = ports.iter().filter_map(|port| Some((port, request::node_port(port)?)));
    let listeners: Vec<Listener> = reachable
        .map(|(port, node_port)| listener(port, node_port, annotations))
        .collect::<Result<_, _>>()?;
    if listeners.is_empty() {
        return Err(Invalid::Field {
            field: "spec.ports[*].nodePort",
            value: String::new(),
            expected: "a classic load balancer reaches instances by node ports; set spec.allocateLoadBalancerNodePorts",
        });
    }

    Ok(listeners)
}

fn listener(port: &ServicePort, node_port: i32, annotations: Annotations<'_>) -> Result<Listener, Invalid> {
    let backend = annotations.filled("backend-protocol");
    let name = port.name.as_deref().unwrap_or_default().to_lowercase();
    let certificate = annotations.filled("ssl-cert");
    let certificate = certificate.filter(|_| request::takes_certificate(port, &name, annotations));
    let (front, back) = match (certificate, backend) {
        (None, Some("http")) => ("http", "http"),
        (None, _) => ("tcp", "tcp"),
        (Some(_), None | Some("tcp")) => ("ssl", "tcp"),
        (Some(_), Some("ssl")) => ("ssl", "ssl"),
        (Some(_), Some("http")) => ("https", "http"),
        (Some(_), Some("https")) => ("https", "https"),
        (Some(arn), Some(_)) => {
            let expected = format!("expected http, https, ssl or tcp beside certificate {arn} in annotation ssl-cert");
            return Err(annotations.wrong("backend-protocol", expected));
        }
    };

    Ok(Listener {
        port: port.port,
        protocol: front.to_owned(),
        instance_port: node_port,
        instance_protocol: back.to_owned(),
        certificate: certificate.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(annotations: &[(&str, &str)], port: i32, name: &str) -> Result<String, Invalid> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{}{k}", super::super::super::annotations::PREFIX), json!(v)))
            .collect();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"ports": [{"port": port, "nodePort": 7999, "name": name, "protocol": "TCP"}]},
        }))
        .unwrap();
        let made = listeners(checked(&service)?, Annotations::of(&service))?;
        let certificate = if made[0].certificate.is_some() { "+cert" } else { "" };
        Ok(format!(
            "{}->{}{certificate}",
            made[0].protocol, made[0].instance_protocol
        ))
    }

    #[test]
    fn certificate_and_backend_protocol_choose_the_protocols() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "tcp->tcp"),
            (&[("ssl-cert", "c")], "ssl->tcp+cert"),
            (&[("backend-protocol", "https")], "tcp->tcp"),
            (&[("ssl-cert", "c"), ("backend-protocol", "https")], "https->https+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "http")], "https->http+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "ssl")], "ssl->ssl+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "tcp")], "ssl->tcp+cert"),
            (&[("backend-protocol", "http")], "http->http"),
        ];
        for (annotations, expected) in table {
            assert_eq!(read(annotations, 80, "").as_deref(), Ok(*expected), "{annotations:?}");
        }
        for backend in ["bacon", "HTTP"] {
            assert!(read(&[("ssl-cert", "c"), ("backend-protocol", backend)], 80, "").is_err());
        }
    }

    #[test]
    fn ssl_ports_choose_by_number_and_by_lower_case_name() {
        let with = |ports: &str, port, name| read(&[("ssl-cert", "c"), ("ssl-ports", ports)], port, name).unwrap();
        assert_eq!(with("1234,5678", 1234, ""), "ssl->tcp+cert");
        assert_eq!(with("1234,5678", 443, ""), "tcp->tcp");
        assert_eq!(with("foo,bar", 80, "bar"), "ssl->tcp+cert");
        assert_eq!(with("foo,bar", 80, ""), "tcp->tcp");
        assert_eq!(with("foo, 80", 80, ""), "tcp->tcp");
        for empty_item in ["443,8443,", ","] {
            assert_eq!(
                with(empty_item, 80, ""),
                "ssl->tcp+cert",
                "a name for a port without one"
            );
            assert_eq!(with(empty_item, 80, "web"), "tcp->tcp");
        }
    }

    #[test]
    fn other_protocols_and_mixtures_are_refused() {
        let service = |protocols: &[&str]| -> Service {
            let ports: Vec<_> = protocols
                .iter()
                .map(|p| json!({"port": 1, "nodePort": 2, "protocol": p}))
                .collect();
            serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap()
        };
        assert!(checked(&service(&["TCP", "TCP"])).is_ok());
        for bad in [&["UDP"][..], &["TCP", "UDP"], &[]] {
            assert!(checked(&service(bad)).is_err(), "{bad:?}");
        }
    }
}
