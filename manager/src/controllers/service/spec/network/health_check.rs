//! The health check of a network load balancer's target groups.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::elbv2::TargetHealthCheck;

use super::super::super::error::Invalid;
use super::super::super::settings::HealthProbe;
use super::super::annotations::Annotations;
use super::super::request::{TRAFFIC_PORT, is_local};

const TCP: &str = "TCP";
const HTTP: &str = "HTTP";
const HTTPS: &str = "HTTPS";

/// The health check of all ports of a Service.
///
/// If Nodes are checked by one shared endpoint, the annotations for protocol, port and path have no effect; those for
/// numbers have. A Service with `externalTrafficPolicy: Local` has its own endpoint on each Node in any case. Fails
/// when an annotation makes no health check, or the Service has no port for its own one.
pub fn wanted(
    service: &Service,
    annotations: Annotations<'_>,
    probe: &HealthProbe,
) -> Result<TargetHealthCheck, Invalid> {
    let local = is_local(service);
    let mut check = if local { local_check(service) } else { default_check() };
    annotate(&mut check, annotations)?;
    if let (HealthProbe::Shared { port, path }, false) = (probe, local) {
        check.protocol = HTTP.to_owned();
        check.port = port.to_string();
        check.path = Some(path.clone());
    }

    let number = |suffix, default| Ok(annotations.present_integer(suffix)?.unwrap_or(default));
    check.interval = number("healthcheck-interval", check.interval)?;
    // Read only to report mistakes: the time-out stays AWS's own, as with the in-tree provider.
    annotations.present_integer("healthcheck-timeout")?;
    check.healthy_threshold = number("healthcheck-healthy-threshold", check.healthy_threshold)?;
    check.unhealthy_threshold = number("healthcheck-unhealthy-threshold", check.unhealthy_threshold)?;
    // A number of more than 32 bits would be cut, so that a rule would allow another port while AWS refuses the check.
    if check.port != TRAFFIC_PORT && check.port.parse::<i32>().is_err() {
        return Err(annotations.wrong("healthcheck-port", "expected a port number or traffic-port"));
    }
    if local && check.port == "0" {
        return Err(Invalid::Field {
            field: "spec.healthCheckNodePort",
            value: "0".to_owned(),
            expected: "externalTrafficPolicy Local needs a port where nodes answer health checks",
        });
    }

    Ok(check)
}

fn default_check() -> TargetHealthCheck {
    TargetHealthCheck {
        protocol: TCP.to_owned(),
        port: TRAFFIC_PORT.to_owned(),
        path: None,
        interval: 30,
        healthy_threshold: 3,
        unhealthy_threshold: 3,
    }
}

/// Each Node reports at its own port whether it has endpoints.
fn local_check(service: &Service) -> TargetHealthCheck {
    let port = service.spec.as_ref().and_then(|spec| spec.health_check_node_port);
    TargetHealthCheck {
        protocol: HTTP.to_owned(),
        port: port.unwrap_or_default().to_string(),
        path: Some("/healthz".to_owned()),
        interval: 10,
        healthy_threshold: 2,
        unhealthy_threshold: 2,
    }
}

fn annotate(check: &mut TargetHealthCheck, annotations: Annotations<'_>) -> Result<(), Invalid> {
    if let Some(protocol) = annotations.get("healthcheck-protocol") {
        check.protocol = protocol.to_uppercase();
    }

    match check.protocol.as_str() {
        TCP => check.path = None,
        HTTP | HTTPS => {
            let default = check.path.take().unwrap_or_else(|| "/".to_owned());
            let path = annotations.get("healthcheck-path").map(str::to_owned);
            check.path = Some(path.unwrap_or(default));
        }
        _ => return Err(annotations.wrong("healthcheck-protocol", "expected tcp, http or https")),
    }

    if let Some(port) = annotations.get("healthcheck-port") {
        check.port = port.to_owned();
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::annotations::PREFIX;
    use super::*;

    fn check(spec: &Value, annotations: &[(&str, &str)], probe: &HealthProbe) -> Result<String, Invalid> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        let service: Service =
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap();
        let made = wanted(&service, Annotations::of(&service), probe)?;
        let path = made.path.unwrap_or_else(|| "-".into());
        let numbers = (made.interval, made.healthy_threshold, made.unhealthy_threshold);
        Ok(format!(
            "{} {} {path} {}/{}/{}",
            made.protocol, made.port, numbers.0, numbers.1, numbers.2
        ))
    }

    fn shared() -> HealthProbe {
        HealthProbe::Shared {
            port: 10256,
            path: "/healthz".into(),
        }
    }

    #[test]
    fn policy_annotations_and_the_shared_endpoint_make_the_old_checks() {
        let cluster = json!({});
        let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32213});
        let own = HealthProbe::ServiceNodePort;
        let overridden = [
            ("healthcheck-protocol", "TCP"),
            ("healthcheck-port", "8001"),
            ("healthcheck-healthy-threshold", "4"),
            ("healthcheck-unhealthy-threshold", "4"),
            ("healthcheck-interval", "10"),
            ("healthcheck-timeout", "5"),
        ];
        let ignored = [
            ("healthcheck-protocol", "tcp"),
            ("healthcheck-port", "1"),
            ("healthcheck-path", "/x"),
        ];
        let numbers = [
            ("healthcheck-healthy-threshold", "7"),
            ("healthcheck-unhealthy-threshold", "5"),
        ];
        let custom = HealthProbe::Shared {
            port: 8080,
            path: "/mine".into(),
        };
        for (spec, annotations, probe, expected) in [
            (&cluster, &[][..], &own, "TCP traffic-port - 30/3/3"),
            (&local, &[], &own, "HTTP 32213 /healthz 10/2/2"),
            (&local, &[], &shared(), "HTTP 32213 /healthz 10/2/2"),
            (&local, &[("healthcheck-path", "/")], &own, "HTTP 32213 / 10/2/2"),
            (&local, &overridden, &own, "TCP 8001 - 10/4/4"),
            (&cluster, &[], &shared(), "HTTP 10256 /healthz 30/3/3"),
            (&cluster, &ignored, &shared(), "HTTP 10256 /healthz 30/3/3"),
            (&cluster, &numbers, &shared(), "HTTP 10256 /healthz 30/7/5"),
            (&cluster, &[], &custom, "HTTP 8080 /mine 30/3/3"),
            (
                &cluster,
                &[("healthcheck-protocol", "Http")],
                &own,
                "HTTP traffic-port / 30/3/3",
            ),
            (
                &cluster,
                &[("healthcheck-interval", "23")],
                &own,
                "TCP traffic-port - 23/3/3",
            ),
            (
                &cluster,
                &[("healthcheck-path", "/x")],
                &own,
                "TCP traffic-port - 30/3/3",
            ),
        ] {
            assert_eq!(
                check(spec, annotations, probe).as_deref(),
                Ok(expected),
                "{spec} {annotations:?}"
            );
        }
    }

    #[test]
    fn what_makes_no_check_is_refused_with_its_place() {
        for (annotation, value) in [
            ("healthcheck-protocol", "UDP"),
            ("healthcheck-protocol", ""),
            ("healthcheck-port", "http"),
            ("healthcheck-port", ""),
            ("healthcheck-port", "99999999999"),
            ("healthcheck-timeout", "bbb"),
            ("healthcheck-interval", "3.5"),
        ] {
            let error = check(&json!({}), &[(annotation, value)], &HealthProbe::ServiceNodePort).unwrap_err();
            assert!(error.to_string().contains(annotation), "{error}");
        }
        let portless = json!({"externalTrafficPolicy": "Local"});
        let error = check(&portless, &[], &HealthProbe::ServiceNodePort).unwrap_err();
        assert!(error.to_string().contains("healthCheckNodePort"), "{error}");
    }
}
