//! The health check of a classic load balancer.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::elb::{HealthCheck, Listener};

use super::super::super::error::Invalid;
use super::super::super::settings::HealthProbe;
use super::super::annotations::Annotations;
use super::super::request::{TRAFFIC_PORT, is_local};

/// The health check of a Service whose first listener is `first`.
/// Fails when an annotation is no number, or too small a one.
pub fn wanted(
    service: &Service,
    annotations: Annotations<'_>,
    probe: &HealthProbe,
    first: &Listener,
) -> Result<HealthCheck, Invalid> {
    let (mut protocol, mut port, mut path) = base(service, annotations, probe, first);
    if let Some(text) = annotations.get("healthcheck-protocol") {
        protocol = text.to_ascii_uppercase();
    }

    if annotations
        .get("healthcheck-port")
        .is_some_and(|text| text != TRAFFIC_PORT)
    {
        port = annotations.present_integer("healthcheck-port")?.unwrap_or(port);
    }

    if matches!(protocol.as_str(), "HTTP" | "HTTPS") {
        let chosen = annotations.filled("healthcheck-path").map(str::to_owned);
        path = chosen.unwrap_or(if path.is_empty() { "/".to_owned() } else { path });
    } else {
        path.clear();
    }

    Ok(HealthCheck {
        target: format!("{protocol}:{port}{path}"),
        interval: number(annotations, "healthcheck-interval", 10, 5)?,
        timeout: number(annotations, "healthcheck-timeout", 5, 2)?,
        unhealthy_threshold: number(annotations, "healthcheck-unhealthy-threshold", 6, 2)?,
        healthy_threshold: number(annotations, "healthcheck-healthy-threshold", 2, 2)?,
    })
}

/// Whether two checks are the same. v1.37.0 sends the protocol as the annotation spells it, and AWS accepts any case:
/// its load balancers stay unchanged.
pub fn same(a: &HealthCheck, b: &HealthCheck) -> bool {
    let target = |check: &HealthCheck| {
        let (protocol, rest) = check.target.split_once(':').unwrap_or((check.target.as_str(), ""));
        (protocol.to_ascii_uppercase(), rest.to_owned())
    };
    let numbers = |check: &HealthCheck| {
        (
            check.interval,
            check.timeout,
            check.unhealthy_threshold,
            check.healthy_threshold,
        )
    };

    target(a) == target(b) && numbers(a) == numbers(b)
}

/// Protocol, port and path before the annotations of the health check.
fn base(
    service: &Service,
    annotations: Annotations<'_>,
    probe: &HealthProbe,
    first: &Listener,
) -> (String, i32, String) {
    if let Some(port) = local_port(service) {
        let traffic = annotations.get("healthcheck-port") == Some(TRAFFIC_PORT);
        return (
            "HTTP".into(),
            if traffic { first.instance_port } else { port },
            "/healthz".into(),
        );
    }
    if let HealthProbe::Shared { port, path } = probe {
        return ("HTTP".into(), *port, path.clone());
    }

    let backend = annotations.get("backend-protocol").map(str::to_ascii_lowercase);
    let protocol = if matches!(backend.as_deref(), Some("https" | "ssl")) {
        "SSL"
    } else {
        "TCP"
    };

    (protocol.into(), first.instance_port, String::new())
}

/// The port where each Node reports whether it has endpoints, for `externalTrafficPolicy: Local`.
fn local_port(service: &Service) -> Option<i32> {
    let port = service.spec.as_ref()?.health_check_node_port;
    port.filter(|port| is_local(service) && *port != 0)
}

/// The number of an annotation, or its default. `smallest`: the least value that AWS accepts:
/// <https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_HealthCheck.html>.
fn number(annotations: Annotations<'_>, annotation: &str, default: i32, smallest: i32) -> Result<i32, Invalid> {
    match annotations.present_integer(annotation)? {
        None => Ok(default),
        Some(value) if value >= smallest => Ok(value),
        Some(_) => Err(annotations.wrong(annotation, format!("expected at least {smallest}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::annotations::PREFIX;
    use super::*;

    fn check(spec: serde_json::Value, annotations: &[(&str, &str)], probe: &HealthProbe) -> Result<String, Invalid> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        let service: Service =
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap();
        let first = Listener {
            port: 80,
            protocol: "tcp".into(),
            instance_port: 8080,
            instance_protocol: "tcp".into(),
            certificate: None,
        };
        let made = wanted(&service, Annotations::of(&service), probe, &first)?;
        Ok(format!(
            "{} {}/{}/{}/{}",
            made.target, made.interval, made.timeout, made.unhealthy_threshold, made.healthy_threshold
        ))
    }

    fn cluster(annotations: &[(&str, &str)]) -> Result<String, Invalid> {
        check(json!({}), annotations, &HealthProbe::ServiceNodePort)
    }

    #[test]
    fn defaults_and_annotations_give_the_in_tree_targets() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "TCP:8080 10/5/6/2"),
            (&[("healthcheck-protocol", "HTTP")], "HTTP:8080/ 10/5/6/2"),
            (
                &[
                    ("healthcheck-protocol", "HTTPS"),
                    ("healthcheck-path", "/healthz"),
                    ("healthcheck-port", "31224"),
                ],
                "HTTPS:31224/healthz 10/5/6/2",
            ),
            (
                &[
                    ("healthcheck-protocol", "SSL"),
                    ("healthcheck-path", "/x"),
                    ("healthcheck-port", "3124"),
                ],
                "SSL:3124 10/5/6/2",
            ),
            (&[("healthcheck-port", "traffic-port")], "TCP:8080 10/5/6/2"),
            (&[("backend-protocol", "HTTPS")], "SSL:8080 10/5/6/2"),
            (
                &[("healthcheck-interval", "23"), ("healthcheck-healthy-threshold", "7")],
                "TCP:8080 23/5/6/7",
            ),
        ];
        for (annotations, expected) in table {
            assert_eq!(cluster(annotations).as_deref(), Ok(*expected), "{annotations:?}");
        }
    }

    #[test]
    fn the_case_of_the_protocol_is_no_difference_and_that_of_the_path_is() {
        let check = |target: &str, interval| HealthCheck {
            target: target.into(),
            interval,
            timeout: 5,
            unhealthy_threshold: 6,
            healthy_threshold: 2,
        };
        assert!(same(&check("http:80/a", 10), &check("HTTP:80/a", 10)));
        assert!(same(&check("TCP:80", 10), &check("TCP:80", 10)));
        for other in ["HTTP:80/A", "HTTP:81/a", "HTTPS:80/a"] {
            assert!(!same(&check("HTTP:80/a", 10), &check(other, 10)), "{other}");
        }
        assert!(!same(&check("TCP:80", 10), &check("TCP:80", 11)));
    }

    #[test]
    fn local_traffic_is_checked_at_its_own_port() {
        let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32213});
        let probe = HealthProbe::Shared {
            port: 10256,
            path: "/healthz".into(),
        };
        assert_eq!(
            check(spec.clone(), &[], &probe).as_deref(),
            Ok("HTTP:32213/healthz 10/5/6/2")
        );
        let traffic = [("healthcheck-port", "traffic-port")];
        assert_eq!(
            check(spec, &traffic, &probe).as_deref(),
            Ok("HTTP:8080/healthz 10/5/6/2")
        );
        assert_eq!(
            check(json!({}), &[], &probe).as_deref(),
            Ok("HTTP:10256/healthz 10/5/6/2")
        );
    }

    #[test]
    fn numbers_that_are_none_or_too_small_are_refused_with_their_annotation() {
        for (annotation, value) in [
            ("healthcheck-timeout", "1"),
            ("healthcheck-timeout", "3.3"),
            ("healthcheck-interval", "4"),
            ("healthcheck-port", ""),
        ] {
            let error = cluster(&[(annotation, value)]).unwrap_err().to_string();
            assert!(error.contains(annotation), "{error}");
        }
    }
}
