//! From the ports of a Service to listeners.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::elb::Listener;

use super::super::super::error::Invalid;
use super::super::annotations::Annotations;

/// The protocol of a port; the API server defaults it to TCP.
fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The ports, checked for what a classic load balancer can do: at least one, all TCP.
/// Fails when there is none, or one is not TCP.
pub fn checked(service: &Service) -> Result<&[ServicePort], Invalid> {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    let wrong = |value: &str, expected| Invalid::Field {
        field: "spec.ports",
        value: value.to_owned(),
        expected,
    };
    let Some(first) = ports.first() else {
        return Err(wrong("", "a load balancer needs at least one port"));
    };
    if ports.iter().any(|port| protocol(port) != protocol(first)) {
        return Err(wrong(
            "mixed protocols",
            "all ports of a load balancer must have the same protocol",
        ));
    }
    if protocol(first) != "TCP" {
        return Err(wrong(protocol(first), "a classic load balancer carries TCP only"));
    }

    Ok(ports)
}

/// The listeners for these ports. A port without a node port has none, since no instance would listen.
/// Fails when an annotation has a value that makes no listener, or no port has a node port.
pub fn listeners(ports: &[ServicePort], annotations: Annotations<'_>) -> Result<Vec<Listener>, Invalid> {
    let reachable = ports
        .iter()
        .filter_map(|port| Some((port, port.node_port.filter(|node_port| *node_port != 0)?)));
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
    let certificate = annotations
        .filled("ssl-cert")
        .filter(|_| takes_certificate(port, annotations));
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

/// Whether the certificate is for this port: annotation `ssl-ports` lists numbers and names, not trimmed; absent,
/// empty and `*` mean all ports. An empty item, as a comma at the end makes one, is the name of a port without a name.
fn takes_certificate(port: &ServicePort, annotations: Annotations<'_>) -> bool {
    let Some(listed) = annotations.filled("ssl-ports").filter(|listed| *listed != "*") else {
        return true;
    };

    let name = port.name.as_deref().unwrap_or_default().to_lowercase();
    listed.split(',').any(|item| match item.parse::<i64>() {
        Ok(number) => number == i64::from(port.port),
        Err(_) => name == item,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
