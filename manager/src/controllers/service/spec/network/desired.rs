//! The desired network load balancer, derived from a Service and the settings only.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elbv2::{Attributes, ListenerSettings, NewTargetGroup, TargetHealthCheck};

use super::super::super::error::Invalid;
use super::super::super::plan::security_groups;
use super::super::super::settings::Settings;
use super::super::annotations::Annotations;
use super::super::names::{MOST_TAGS, cluster_tags, creation_tags};
use super::super::request::{self, Subnets, TRAFFIC_PORT, node_port, protocol, takes_certificate, wrong_ports};
use super::names::{self, Owner, TCP, TLS, TargetGroupNames, UDP};
use super::{attributes, health_check};

/// The security groups of a load balancer (`NLBSecurityGroupMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// The existing ones; a new load balancer gets none.
    Kept,
    /// One of its own.
    Managed,
    /// Given ones, whose rules are not managed.
    Given(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub name: String,
    /// Only reachable within the VPC. Fixed at creation.
    pub internal: bool,
    /// Listeners and target groups; none where no port has a node port.
    pub ports: Vec<Port>,
    /// Subnets. Fixed at creation.
    pub subnets: Subnets,
    /// Allocation IDs of elastic addresses, one for each subnet. Fixed at creation.
    pub elastic_addresses: Option<Vec<String>>,
    /// Addresses within the subnets, one for each. Fixed at creation.
    pub private_addresses: Option<Vec<String>>,
    pub groups: Groups,
    /// Its own group, if it has one.
    pub own_group: NewSecurityGroup,
    pub ingress: Vec<IpPermission>,
    /// Client networks.
    pub networks: BTreeSet<String>,
    pub attributes: Attributes,
    /// Attributes of all target groups; `None`: unchanged.
    pub target_group_attributes: Option<Attributes>,
    /// Tags of the load balancer, its listeners and target groups.
    pub tags: Tags,
    /// The cluster's tags among them.
    pub cluster_tags: Tags,
    /// Names of its target groups.
    pub target_groups: TargetGroupNames,
    /// Labels that a Node must have to be a target.
    pub node_labels: BTreeMap<String, String>,
}

/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let annotations = Annotations::of(service);
    if annotations.get("extra-security-groups").is_some() {
        let expected =
            "network load balancers take no extra security groups; list them in aws-load-balancer-security-groups";
        return Err(annotations.wrong("extra-security-groups", expected));
    }

    let user_tags = request::user_tags(annotations, &settings.cluster_id)?;
    let target_group_attributes = attributes::of_target_groups(service)?;
    request::refuse_affinity(service)?;

    let listed = request::ports(service)?;
    let networks = request::source_ranges(service)?;
    let cluster_tags = cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let tags = request::tags(service, &user_tags, &cluster_tags);
    let created = |tags: &Tags| creation_tags(tags, settings.cluster_uid.as_deref(), MOST_TAGS);
    let ports = wanted_ports(service, listed, settings, &created(&tags))?;
    request::refuse_fixed_address(service)?;

    let owner = Owner::of(service);
    let own_tags = created(&user_tags.into_iter().chain(cluster_tags.clone()).collect());

    Ok(Desired {
        name: super::super::names::load_balancer(owner.uid),
        internal: annotations.internal(),
        subnets: request::subnets(annotations)?,
        elastic_addresses: untrimmed(annotations, "eip-allocations"),
        private_addresses: untrimmed(annotations, "private-ipv4-addresses"),
        groups: groups(annotations, settings),
        own_group: NewSecurityGroup {
            name: names::security_group(&settings.cluster_name, owner),
            description: names::GROUP_DESCRIPTION.to_owned(),
            vpc_id: settings.vpc_id.clone(),
            tags: own_tags,
        },
        ingress: ingress(&ports, &networks),
        networks,
        attributes: attributes::wanted(annotations)?,
        target_group_attributes,
        target_groups: TargetGroupNames::of(owner),
        node_labels: annotations.pairs("target-node-labels"),
        tags,
        cluster_tags,
        ports,
    })
}

/// The items of a comma list, untrimmed; the empty value is one empty item.
fn untrimmed(annotations: Annotations<'_>, suffix: &str) -> Option<Vec<String>> {
    let items = annotations.get(suffix)?.split(',');
    Some(items.map(str::to_owned).collect())
}

/// Without `NLBSecurityGroupMode=Managed` the annotation has no effect.
fn groups(annotations: Annotations<'_>, settings: &Settings) -> Groups {
    if !settings.nlb_security_groups_managed {
        return Groups::Kept;
    }

    let given = annotations.list("security-groups").unwrap_or_default();
    if given.is_empty() {
        Groups::Managed
    } else {
        Groups::Given(given)
    }
}

/// Ingress of its own group. A security group has no protocol TLS, only TCP.
fn ingress(ports: &[Port], networks: &BTreeSet<String>) -> Vec<IpPermission> {
    let protocol = |port: &Port| {
        if port.listener.protocol == names::UDP {
            "udp"
        } else {
            "tcp"
        }
    };
    security_groups::ingress_of(ports.iter().map(|port| (protocol(port), port.listener.port)), networks)
}

/// A port: one listener and the target group behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The listener; its target group is the one below.
    pub listener: ListenerSettings,
    pub target_group: NewTargetGroup,
}

impl Port {
    /// The port of health checks on each Node; `None`: it is no number, which the health check excludes.
    pub fn health_port(&self) -> Option<i32> {
        let check = &self.target_group.health_check;
        if check.port == TRAFFIC_PORT {
            return Some(self.target_group.port);
        }
        check.port.parse().ok()
    }
}

/// Listeners and target groups. A port without a node port has none, since no instance would listen.
/// Fails when a protocol is neither TCP nor UDP, or an annotation makes no health check.
pub fn wanted_ports(
    service: &Service,
    ports: &[ServicePort],
    settings: &Settings,
    tags: &Tags,
) -> Result<Vec<Port>, Invalid> {
    let annotations = Annotations::of(service);
    let mut made = Vec::new();
    for port in ports {
        if !matches!(protocol(port), TCP | UDP) {
            return Err(wrong_ports(
                protocol(port),
                "a network load balancer carries TCP or UDP",
            ));
        }
        let Some(node_port) = node_port(port) else {
            continue;
        };

        let check = health_check::wanted(service, annotations, &settings.health_probe)?;
        let (listener, protocol) = listener(port, annotations);
        let target_group = target_group(service, settings, &listener, (node_port, protocol), check, tags);
        made.push(Port { listener, target_group });
    }

    Ok(made)
}

/// Ports without a node port.
pub fn without_node_port(service: &Service) -> impl Iterator<Item = i32> {
    let ports = request::ports(service).unwrap_or_default().iter();
    ports.filter(|port| node_port(port).is_none()).map(|port| port.port)
}

/// The names of the target groups that the Service requests; none for an invalid spec.
pub fn target_group_names(service: &Service, settings: &Settings) -> BTreeSet<String> {
    let wanted = request::ports(service).and_then(|ports| wanted_ports(service, ports, settings, &Tags::new()));
    let names = wanted.into_iter().flatten().map(|port| port.target_group.name);
    names.collect()
}

/// The listener, and the protocol towards its targets.
fn listener(port: &ServicePort, annotations: Annotations<'_>) -> (ListenerSettings, &'static str) {
    let plain = |protocol: &'static str| {
        let listener = ListenerSettings {
            port: port.port,
            protocol: protocol.to_owned(),
            ..ListenerSettings::default()
        };
        (listener, protocol)
    };
    if protocol(port) == UDP {
        return plain(UDP);
    }

    // Unlike for classic load balancers, the case of the name counts.
    let name = port.name.as_deref().unwrap_or_default();
    let certificate = annotations.filled("ssl-cert");
    let certificate = certificate.filter(|_| takes_certificate(port, name, annotations));
    let Some(certificate) = certificate else {
        return plain(TCP);
    };

    let (mut listener, _) = plain(TLS);
    listener.certificate = Some(certificate.to_owned());
    listener.ssl_policy = annotations.filled("ssl-negotiation-policy").map(str::to_owned);

    let encrypted = annotations.get("backend-protocol") == Some("ssl");
    (listener, if encrypted { TLS } else { TCP })
}

fn target_group(
    service: &Service,
    settings: &Settings,
    listener: &ListenerSettings,
    (node_port, protocol): (i32, &str),
    health_check: TargetHealthCheck,
    tags: &Tags,
) -> NewTargetGroup {
    let mut group = NewTargetGroup {
        name: String::new(),
        port: node_port,
        protocol: protocol.to_owned(),
        vpc_id: settings.vpc_id.clone(),
        health_check,
        tags: tags.clone(),
    };

    group.name = names::target_group(&settings.cluster_id, Owner::of(service), listener.port, &group);
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use super::super::super::annotations::PREFIX;

    fn service(annotations: &[(&str, &str)], protocol: &str, name: &str, node_port: i32) -> Service {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations, "name": "web", "namespace": "default"},
            "spec": {"ports": [{"port": 443, "nodePort": node_port, "name": name, "protocol": protocol}]},
        }))
        .unwrap()
    }

    fn read(service: &Service) -> Result<Vec<String>, Invalid> {
        let made = wanted_ports(service, request::ports(service)?, &Settings::default(), &Tags::new())?;
        let text = |port: &Port| {
            let certificate = port.listener.certificate.as_deref().unwrap_or("-");
            let policy = port.listener.ssl_policy.as_deref().unwrap_or("-");
            let group = &port.target_group;
            format!(
                "{}:{}->{}:{} {certificate} {policy}",
                port.listener.protocol, port.listener.port, group.protocol, group.port
            )
        };
        Ok(made.iter().map(text).collect())
    }

    fn one(annotations: &[(&str, &str)], protocol: &str, name: &str) -> String {
        read(&service(annotations, protocol, name, 30443)).unwrap().join(" ")
    }

    #[test]
    fn certificate_and_backend_protocol_choose_the_protocols() {
        let cert = ("ssl-cert", "arn:c");
        for (annotations, protocol, expected) in [
            (&[][..], "TCP", "TCP:443->TCP:30443 - -"),
            (&[("backend-protocol", "ssl")], "TCP", "TCP:443->TCP:30443 - -"),
            (&[("ssl-negotiation-policy", "p")], "TCP", "TCP:443->TCP:30443 - -"),
            (&[cert], "TCP", "TLS:443->TCP:30443 arn:c -"),
            (
                &[cert, ("backend-protocol", "tcp")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (
                &[cert, ("backend-protocol", "SSL")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (
                &[cert, ("backend-protocol", "ssl")],
                "TCP",
                "TLS:443->TLS:30443 arn:c -",
            ),
            (
                &[cert, ("ssl-negotiation-policy", "p")],
                "TCP",
                "TLS:443->TCP:30443 arn:c p",
            ),
            (
                &[cert, ("ssl-negotiation-policy", "")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (&[cert, ("backend-protocol", "ssl")], "UDP", "UDP:443->UDP:30443 - -"),
        ] {
            assert_eq!(one(annotations, protocol, ""), expected, "{annotations:?}");
        }
    }

    #[test]
    fn ssl_ports_choose_by_number_and_by_exact_name() {
        let with = |ports: &str, name| one(&[("ssl-cert", "c"), ("ssl-ports", ports)], "TCP", name);
        for (ports, name, encrypted) in [
            ("*", "", true),
            ("", "", true),
            ("443", "", true),
            ("80,443", "", true),
            ("80", "", false),
            ("80, 443", "", false),
            ("web", "web", true),
            ("WEB", "web", false),
        ] {
            assert_eq!(with(ports, name).starts_with("TLS"), encrypted, "{ports:?} {name:?}");
        }
    }

    #[test]
    fn a_port_without_node_port_is_passed_over_and_other_protocols_are_refused() {
        assert_eq!(read(&service(&[], "TCP", "", 0)), Ok(vec![]));
        let error = read(&service(&[], "SCTP", "", 1)).unwrap_err().to_string();
        assert!(error.contains("SCTP"), "{error}");
        let mixed: Service = serde_json::from_value(json!({"spec": {"ports": [
            {"port": 53, "nodePort": 1, "protocol": "TCP"}, {"port": 53, "nodePort": 1, "protocol": "UDP"},
        ]}}))
        .unwrap();
        assert!(read(&mixed).is_err());
        assert!(read(&Service::default()).is_err());
    }

    #[test]
    fn health_checks_come_in_at_the_node_port_or_the_port_of_the_check() {
        let port = |annotations: &[(&str, &str)]| {
            let service = service(annotations, "TCP", "", 30443);
            let ports = request::ports(&service).unwrap();
            wanted_ports(&service, ports, &Settings::default(), &Tags::new()).unwrap()[0].health_port()
        };
        assert_eq!(port(&[]), Some(30443));
        assert_eq!(port(&[("healthcheck-port", "8080")]), Some(8080));
    }
}
