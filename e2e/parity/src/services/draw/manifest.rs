//! A Service as it is written: whole, and as a change of what was before.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::service::{Draft, Port};

impl Draft {
    /// The whole of it.
    pub(super) fn manifest(&self) -> Value {
        let mut metadata = Map::new();
        if self.kept {
            metadata.insert("finalizers".into(), json!(["example.com/kept", "example.com/other"]));
        }

        if !self.annotations.is_empty() {
            metadata.insert("annotations".into(), json!(self.annotations));
        }

        let mut spec = self.spec();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|_, value| !value.is_null());
        }

        json!({"metadata": metadata, "spec": spec})
    }

    /// What makes it of what was before: a JSON merge patch.
    pub(super) fn patch(&self, before: &Self) -> Value {
        let mut annotations: BTreeMap<&String, Option<&String>> =
            before.annotations.keys().map(|key| (key, None)).collect();
        annotations.extend(self.annotations.iter().map(|(key, value)| (key, Some(value))));
        annotations.retain(|key, value| before.annotations.get(*key) != *value);

        let (old, new) = (before.spec(), self.spec());
        let back = self.wanted && !before.wanted;
        let fields = new.as_object().into_iter().flatten();
        let spec = fields.filter(|(key, value)| back || old.get(*key) != Some(*value));
        let spec: Map<String, Value> = spec.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut patch = Map::new();

        if !annotations.is_empty() {
            patch.insert("metadata".into(), json!({"annotations": annotations}));
        }

        if !spec.is_empty() {
            patch.insert("spec".into(), Value::Object(spec));
        }

        Value::Object(patch)
    }

    /// The fields that a case may change; `null` where one is not set.
    fn spec(&self) -> Value {
        let ranges = self.wanted && !self.ranges.is_empty();
        let mut spec = json!({"loadBalancerSourceRanges": ranges.then_some(&self.ranges)});
        if !self.wanted {
            // What belongs to load balancers only, the API server takes away by itself.
            spec["type"] = json!("ClusterIP");
            return spec;
        }

        let port = |port: &Port| {
            let mut port_of = json!({"name": port.name, "port": port.port, "protocol": port.protocol});
            if port.node_port != 0 {
                port_of["nodePort"] = json!(port.node_port);
            }
            port_of
        };
        let unallocated = self.ports.iter().any(|port| port.node_port == 0);
        spec["allocateLoadBalancerNodePorts"] = json!(!unallocated);
        spec["loadBalancerIP"] = json!(self.addressed.then_some("192.0.2.1"));
        spec["type"] = json!("LoadBalancer");
        spec["loadBalancerClass"] = json!(self.class.then_some("example.com/other"));
        spec["ports"] = self.ports.iter().map(port).collect();
        spec["sessionAffinity"] = json!(self.sticky.then_some("ClientIP"));
        spec["externalTrafficPolicy"] = json!(if self.local { "Local" } else { "Cluster" });
        spec["healthCheckNodePort"] = json!(self.local.then_some(32213));

        spec
    }
}
