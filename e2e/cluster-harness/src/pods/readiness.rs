//! When a container counts as ready: while it lives, or as its `readinessProbe` says. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::plan::Refusal;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    /// While its process lives.
    Alive,
    /// While it answers.
    Http(HttpProbe),
}

/// An `httpGet` readiness probe. Defaults and the range of good answers (200 to 399) are the kubelet's; certificates
/// are not checked, as the kubelet does not check them either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpProbe {
    pub(super) scheme: &'static str,
    pub(super) port: u16,
    pub(super) path: String,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
    pub(super) successes: u32,
    pub(super) failures: u32,
}

impl Readiness {
    /// Reads the container's `readinessProbe`. Refuses one that is no `httpGet`, or whose port is no number and no port of
    /// the container.
    pub(super) fn of(container: &Container) -> Result<Self, Refusal> {
        let Some(probe) = &container.readiness_probe else {
            return Ok(Self::Alive);
        };
        let Some(get) = &probe.http_get else {
            return Err(Refusal::config(
                "readinessProbe: only httpGet works here: use it or remove the probe",
            ));
        };

        let port = match &get.port {
            IntOrString::Int(port) => u16::try_from(*port).ok(),
            IntOrString::String(name) => named_port(container, name),
        };
        let port = port.ok_or_else(|| {
            Refusal::config(format!(
                "readinessProbe.httpGet.port: {:?} is no port of this container",
                get.port
            ))
        })?;
        let https = get
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("HTTPS"));

        Ok(Self::Http(HttpProbe {
            scheme: if https { "https" } else { "http" },
            port,
            path: get.path.clone().unwrap_or_else(|| "/".into()),
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        }))
    }
}

fn named_port(container: &Container, name: &str) -> Option<u16> {
    let port = container
        .ports
        .iter()
        .flatten()
        .find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}

fn seconds(value: Option<i32>, default: u32) -> Duration {
    Duration::from_secs(count(value, default).into())
}

/// Zero means "not set" in the API, which leaves the kubelet's default.
fn count(value: Option<i32>, default: u32) -> u32 {
    let given = value.and_then(|value| u32::try_from(value).ok());
    given.filter(|value| *value > 0).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readiness(probe: serde_json::Value) -> Result<Readiness, Box<dyn std::error::Error>> {
        let container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"name": "https", "containerPort": 10258}], "readinessProbe": probe
        }))?;
        Ok(Readiness::of(&container)?)
    }

    #[test]
    fn a_probe_reads_named_ports_and_takes_the_kubelets_defaults() -> Result<(), Box<dyn std::error::Error>> {
        let readiness =
            readiness(serde_json::json!({"httpGet": {"port": "https", "scheme": "HTTPS", "path": "/healthz"}}))?;
        let Readiness::Http(probe) = readiness else {
            return Err("no http probe".into());
        };
        assert_eq!(
            (probe.scheme, probe.port, probe.path.as_str()),
            ("https", 10258, "/healthz")
        );
        assert_eq!(
            (probe.period, probe.timeout, probe.failures),
            (Duration::from_secs(10), Duration::from_secs(1), 3)
        );
        Ok(())
    }

    #[test]
    fn a_port_that_the_container_does_not_have_is_refused() {
        let error = readiness(serde_json::json!({"httpGet": {"port": "metrics"}}))
            .err()
            .map(|error| error.to_string());
        assert!(error.unwrap_or_default().contains("readinessProbe.httpGet.port"));
    }
}
