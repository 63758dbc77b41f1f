//! From the ports of a Service to listeners and target groups.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_aws::elbv2::{ListenerSettings, NewTargetGroup, TargetHealthCheck};

use super::super::super::error::Invalid;
use super::super::super::settings::Settings;
use super::super::annotations::Annotations;
use super::super::names::namespaced;
use super::health_check;
use super::names::{self, Owner, TargetGroupPort};

/// Protocol of a listener without encryption, and of the targets behind most listeners.
pub const TCP: &str = "TCP";
/// Protocol of a listener with a certificate, and of targets that are to be spoken to so.
pub const TLS: &str = "TLS";
/// Protocol of datagrams.
pub const UDP: &str = "UDP";

/// A port: one listener and the target group behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The listener; its target group is the one below.
    pub listener: ListenerSettings,
    /// The target group, as it would be made.
    pub target_group: NewTargetGroup,
}

impl Port {
    /// The port that health checks come in at on each node; `None` when it is no number, which the model excludes.
    pub fn health_port(&self) -> Option<i32> {
        let check = &self.target_group.health_check;
        if check.port == health_check::TRAFFIC_PORT {
            return Some(self.target_group.port);
        }
        check.port.parse().ok()
    }
}

/// The ports, checked for what holds for all of them: at least one, all of one protocol.
/// Fails when there is none, or protocols are mixed.
pub fn checked(service: &Service) -> Result<&[ServicePort], Invalid> {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    let Some(first) = ports.first() else {
        return Err(wrong("", "a load balancer needs at least one port"));
    };
    if ports.iter().any(|port| protocol(port) != protocol(first)) {
        let expected = "all ports of a load balancer must have the same protocol";
        return Err(wrong("mixed protocols", expected));
    }

    Ok(ports)
}

/// Listeners and target groups. A port without a node port has none, since no instance would listen.
/// Fails when a protocol is neither TCP nor UDP, or an annotation makes no health check.
pub fn wanted(
    service: &Service,
    ports: &[ServicePort],
    settings: &Settings,
    tags: &Tags,
) -> Result<Vec<Port>, Invalid> {
    let annotations = Annotations::of(service);
    let mut made = Vec::new();
    for port in ports {
        if !matches!(protocol(port), TCP | UDP) {
            return Err(wrong(protocol(port), "a network load balancer carries TCP or UDP"));
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

fn node_port(port: &ServicePort) -> Option<i32> {
    port.node_port.filter(|node_port| *node_port != 0)
}

/// Ports without a node port.
pub fn without_node_port(service: &Service) -> impl Iterator<Item = i32> {
    let ports = checked(service).unwrap_or_default().iter();
    ports.filter(|port| node_port(port).is_none()).map(|port| port.port)
}

/// The names of the target groups that the Service asks for; none for a Service that is refused.
pub fn target_group_names(service: &Service, settings: &Settings) -> BTreeSet<String> {
    let wanted = checked(service).and_then(|ports| wanted(service, ports, settings, &Tags::new()));
    let names = wanted.into_iter().flatten().map(|port| port.target_group.name);
    names.collect()
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or(TCP)
}

fn wrong(value: &str, expected: &'static str) -> Invalid {
    Invalid::Field {
        field: "spec.ports",
        value: value.to_owned(),
        expected,
    }
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

    let certificate = annotations
        .filled("ssl-cert")
        .filter(|_| takes_certificate(port, annotations));
    let Some(certificate) = certificate else {
        return plain(TCP);
    };

    let (mut listener, _) = plain(TLS);
    listener.certificate = Some(certificate.to_owned());
    listener.ssl_policy = annotations.filled("ssl-negotiation-policy").map(str::to_owned);

    let encrypted = annotations.get("backend-protocol") == Some("ssl");
    (listener, if encrypted { TLS } else { TCP })
}

/// Whether the certificate is for this port. Annotation `ssl-ports` lists numbers and names, neither trimmed nor, other
/// than for classic load balancers, in lower case; absent, empty and `*` mean all ports.
fn takes_certificate(port: &ServicePort, annotations: Annotations<'_>) -> bool {
    let Some(listed) = annotations.filled("ssl-ports").filter(|listed| *listed != "*") else {
        return true;
    };

    let name = port.name.as_deref().unwrap_or_default();
    listed.split(',').any(|item| match item.parse::<i64>() {
        Ok(number) => number == i64::from(port.port),
        Err(_) => name == item,
    })
}

fn target_group(
    service: &Service,
    settings: &Settings,
    listener: &ListenerSettings,
    (node_port, protocol): (i32, &str),
    health_check: TargetHealthCheck,
    tags: &Tags,
) -> NewTargetGroup {
    let (namespace, name) = namespaced(service);
    let owner = Owner {
        namespace,
        name,
        uid: "",
    };
    let of = TargetGroupPort {
        port: listener.port,
        node_port,
        protocol,
        health_check: &health_check,
    };

    NewTargetGroup {
        name: names::target_group(&settings.cluster_id, owner, of),
        port: node_port,
        protocol: protocol.to_owned(),
        vpc_id: settings.vpc_id.clone(),
        health_check,
        tags: tags.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::annotations::PREFIX;
    use super::*;

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
        let made = wanted(service, checked(service)?, &Settings::default(), &Tags::new())?;
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
            let ports = checked(&service).unwrap();
            wanted(&service, ports, &Settings::default(), &Tags::new()).unwrap()[0].health_port()
        };
        assert_eq!(port(&[]), Some(30443));
        assert_eq!(port(&[("healthcheck-port", "8080")]), Some(8080));
    }
}
