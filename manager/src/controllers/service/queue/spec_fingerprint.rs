//! The fields that a Service's load balancer depends on, as in Kubernetes' service controller. A change of them is
//! reported by Events even if nothing has to be written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec, SessionAffinityConfig};
use kube::api::ObjectMeta;

/// Not included: selector, labels, cluster IPs, `internalTrafficPolicy`, `publishNotReadyAddresses`, endpoints and
/// status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpecFingerprint {
    annotations: BTreeMap<String, String>,
    source_ranges: Vec<String>,
    ports: Vec<ServicePort>,
    session_affinity: Option<String>,
    session_affinity_config: Option<SessionAffinityConfig>,
    load_balancer_ip: Option<String>,
    external_ips: Vec<String>,
    external_traffic_policy: Option<String>,
    health_check_node_port: Option<i32>,
    /// The first family cannot change, so the number is enough.
    ip_families: usize,
}

impl SpecFingerprint {
    pub fn of(service: &Service) -> Self {
        let spec = service.spec.clone().unwrap_or_default();
        Self {
            annotations: service.metadata.annotations.clone().unwrap_or_default(),
            source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
            ports: spec.ports.unwrap_or_default(),
            session_affinity: spec.session_affinity,
            session_affinity_config: spec.session_affinity_config,
            load_balancer_ip: spec.load_balancer_ip.filter(|address| !address.is_empty()),
            external_ips: spec.external_ips.unwrap_or_default(),
            external_traffic_policy: spec.external_traffic_policy,
            health_check_node_port: spec.health_check_node_port.filter(|port| *port != 0),
            ip_families: spec.ip_families.map_or(0, |families| families.len()),
        }
    }

    /// A Service that is gone, with the fields that deleting its resources needs.
    pub fn remains(&self, namespace: &str, name: &str, uid: &str) -> Service {
        Service {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                annotations: Some(self.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(path: &str, value: Value) -> SpecFingerprint {
        let mut service = json!({
            "metadata": {"annotations": {"a": "1"}, "labels": {"l": "1"}},
            "spec": {
                "type": "LoadBalancer", "sessionAffinity": "None", "selector": {"app": "web"},
                "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}],
                "ipFamilies": ["IPv4"], "externalTrafficPolicy": "Cluster",
            },
            "status": {},
        });
        if !path.is_empty() {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let parent = service.pointer_mut(parent).unwrap();
            if let Ok(index) = field.parse::<usize>() {
                parent[index] = value;
            } else {
                parent[field] = value;
            }
        }
        SpecFingerprint::of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn what_the_load_balancer_depends_on_makes_a_difference_and_nothing_else_does() {
        let as_it_was = with("", Value::Null);
        for (path, value) in [
            ("/metadata/annotations", json!({"a": "2"})),
            ("/metadata/annotations", json!({"a": "1", "example.com/beat": "1"})),
            ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
            ("/spec/ports/1/nodePort", json!(30082)),
            ("/spec/ports/1/targetPort", json!(8080)),
            ("/spec/ports/1/appProtocol", json!("http")),
            ("/spec/ports/1/name", json!("c")),
            (
                "/spec/ports",
                json!([{"name": "b", "port": 81, "nodePort": 30081}, {"name": "a", "port": 80, "nodePort": 30080}]),
            ),
            ("/spec/sessionAffinity", json!("ClientIP")),
            (
                "/spec/sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 5}}),
            ),
            ("/spec/loadBalancerIP", json!("192.0.2.1")),
            ("/spec/externalIPs", json!(["192.0.2.1"])),
            ("/spec/externalTrafficPolicy", json!("Local")),
            ("/spec/healthCheckNodePort", json!(32000)),
            ("/spec/ipFamilies", json!(["IPv4", "IPv6"])),
        ] {
            assert_ne!(with(path, value), as_it_was, "{path}");
        }
        for (path, value) in [
            ("/metadata/labels", json!({"l": "2"})),
            ("/spec/selector", json!({"app": "other"})),
            ("/spec/internalTrafficPolicy", json!("Local")),
            ("/spec/allocateLoadBalancerNodePorts", json!(false)),
            ("/spec/clusterIPs", json!(["10.0.0.1"])),
            ("/spec/publishNotReadyAddresses", json!(true)),
            ("/spec/ipFamilies", json!(["IPv6"])),
            ("/status/loadBalancer", json!({"ingress": [{"hostname": "h"}]})),
        ] {
            assert_eq!(with(path, value), as_it_was, "{path}");
        }
    }

    #[test]
    fn what_remains_of_a_service_has_its_names_and_annotations() {
        let remains = with("", Value::Null).remains("default", "web", "u1");
        assert_eq!(remains.metadata.annotations.as_ref().unwrap()["a"], "1");
        assert_eq!(
            super::super::super::action::action(&remains),
            super::super::super::action::ServiceAction::Ensure
        );
    }
}
