//! A Service at some step: its drawn values, its manifest, and its patches.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::annotations::{self, PREFIX, TYPE};
use super::rng::Rng;

/// Protocols of ports. AWS has no load balancer for SCTP.
pub(super) const TCP: &str = "TCP";
pub(super) const UDP: &str = "UDP";
const SCTP: &str = "SCTP";
/// The annotation beside `spec.loadBalancerSourceRanges`.
pub(super) const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Ports and their names.
const PORTS: [(u16, &str); 8] = [
    (80, "http"),
    (443, "https"),
    (8080, "a"),
    (8443, "b"),
    (53, "dns"),
    (9000, "metrics"),
    (9001, "long-name-0123"),
    (444, "c"),
];
const NODE_PORTS: [u16; 8] = [30080, 30443, 30081, 30082, 30083, 30084, 31000, 32000];
/// Client networks that the API server accepts; some contain others.
const NETWORKS: [&str; 9] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.168.0.0/16",
    "203.0.113.7/32",
    "198.51.100.0/24",
    "0.0.0.0/0",
    "172.16.0.0/12",
    "100.64.0.0/10",
    "192.0.2.128/25",
];
const MOST_PORTS: usize = 5;
/// Annotations with a list as long as that of the subnets, which are drawn separately.
const NEED_A_NUMBER: [&str; 2] = ["eip-allocations", "private-ipv4-addresses"];
/// Percentage of unusual values in a case that may have some.
const ODD: usize = 35;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Port {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) node_port: u16,
    pub(super) protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) network: bool,
    /// By their full names.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) ports: Vec<Port>,
    pub(super) ranges: Vec<String>,
    pub(super) local: bool,
    /// Session affinity, which AWS does not support.
    pub(super) sticky: bool,
    /// Requests an address, which AWS does not support.
    pub(super) addressed: bool,
    /// Has finalizers of other controllers.
    pub(super) kept: bool,
    /// Has the class of another controller.
    pub(super) class: bool,
    /// Unusual values may be drawn.
    pub(super) odd: bool,
    /// No unusual value has been drawn so far.
    pub(super) good: bool,
    pub(super) wanted: bool,
}

impl Draft {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let network = rng.chance(50);
        let mut draft = Self {
            network,
            annotations: BTreeMap::new(),
            ports: Vec::new(),
            ranges: Vec::new(),
            local: rng.chance(15),
            sticky: false,
            addressed: false,
            kept: rng.chance(5),
            class: rng.chance(2),
            odd: rng.chance(35),
            good: true,
            wanted: true,
        };

        draft.kind(rng);
        draft.annotate(rng);
        for _ in 0..rng.pick(&[1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5]) {
            draft.port(rng);
        }

        let udp = network && rng.chance(25);
        for port in &mut draft.ports {
            port.protocol = if udp { UDP } else { TCP };
        }

        if draft.odd && rng.chance(8) {
            draft.mix(rng);
        }

        if draft.odd && rng.chance(6) {
            draft.sticky = true;
            draft.good = false;
        }

        if draft.odd && rng.chance(4) {
            draft.addressed = true;
            draft.good = false;
        }

        if draft.ports.len() > 1 && rng.chance(5) {
            draft.ports[0].node_port = 0;
            draft.good = false;
        }

        if rng.chance(30) {
            draft.ranged(rng);
        }

        draft.good &= !draft.class;

        draft
    }

    /// Ports of different protocols, perhaps two with the same number.
    fn mix(&mut self, rng: &mut Rng) {
        self.good = false;

        let first = self.ports[0];
        let other = if first.protocol == UDP { TCP } else { UDP };
        match rng.below(3) {
            1 => self.ports[0].protocol = SCTP,
            2 if self.ports.len() < MOST_PORTS => self.ports.push(Port {
                name: "again",
                protocol: other,
                ..first
            }),
            _ => self.ports[0].protocol = other,
        }
    }

    /// The API server accepts a number once for a protocol.
    pub(super) fn without_doubles(&mut self) {
        let mut kept: Vec<Port> = Vec::new();
        for port in &self.ports {
            let same = |there: &Port| {
                let number = there.port == port.port || (port.node_port != 0 && there.node_port == port.node_port);
                there.protocol == port.protocol && number
            };
            if !kept.iter().any(same) {
                kept.push(*port);
            }
        }

        self.ports = kept;
    }

    fn odd_percent(&self) -> usize {
        if self.odd { ODD } else { 0 }
    }

    /// Sets the annotation of the kind.
    pub(super) fn kind(&mut self, rng: &mut Rng) {
        let value = match (self.network, self.odd) {
            (true, _) => "nlb",
            (false, true) => rng.pick(&["", "elb", "NLB", "nlb ", "external", "nlb-ip", "none", "none", "none"]),
            (false, false) => rng.pick(&["none", "none", "none", "elb"]),
        };

        self.good &= !["external", "nlb-ip"].contains(&value);

        let key = format!("{PREFIX}{TYPE}");
        if value == "none" {
            self.annotations.remove(&key);
        } else {
            self.annotations.insert(key, value.to_owned());
        }
    }

    /// Adds annotations or changes values.
    pub(super) fn annotate(&mut self, rng: &mut Rng) {
        let (drawn, good) = annotations::drawn(rng, self.network, self.odd_percent());
        for (suffix, value) in drawn {
            self.annotations.insert(format!("{PREFIX}{suffix}"), value.to_owned());
            self.good &= !NEED_A_NUMBER.contains(&suffix);
        }
        self.good &= good;
    }

    /// Adds a port, up to [`MOST_PORTS`].
    pub(super) fn port(&mut self, rng: &mut Rng) {
        let free = |(port, _): &&(u16, &str)| self.ports.iter().all(|there| there.port != *port);
        let free: Vec<(u16, &'static str)> = PORTS.iter().filter(free).copied().collect();
        let (port, name) = rng.pick(&free);
        let node_port = self.free_node_port(rng);
        let protocol = self.ports.first().map_or(TCP, |first| first.protocol);

        if self.ports.len() < MOST_PORTS && port != 0 && node_port != 0 {
            self.ports.push(Port {
                name,
                port,
                node_port,
                protocol,
            });
        }
    }

    /// An unused node port; 0 without one.
    pub(super) fn free_node_port(&self, rng: &mut Rng) -> u16 {
        let free = |node_port: &&u16| self.ports.iter().all(|there| there.node_port != **node_port);
        let free: Vec<u16> = NODE_PORTS.iter().filter(free).copied().collect();
        rng.pick(&free)
    }

    /// Changes client networks in the field, in the annotation, or in both.
    pub(super) fn ranged(&mut self, rng: &mut Rng) {
        let count = rng.pick(&[1, 1, 2, 3, 6]);
        self.ranges = rng.some(&NETWORKS, count).into_iter().map(str::to_owned).collect();
        if rng.chance(8) {
            let many = rng.pick(&[12, 30, 70]); // the quota of a group is 60 rules
            self.ranges = (0..many).map(|number| format!("10.{number}.0.0/16")).collect();
        }

        if self.odd && rng.chance(8) {
            self.ranges.push("2001:db8::/32".to_owned());
            self.good = false;
        }

        if rng.chance(30) {
            let annotation = rng.pick(&["10.0.0.0/8", "192.0.2.0/24, 198.51.100.0/24", " ", " 10.0.0.0/8 ", ""]);
            self.annotations.insert(RANGES.to_owned(), annotation.to_owned());
            if rng.chance(70) {
                self.ranges.clear();
            }
        }
    }

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

    /// The JSON merge patch from `before`.
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

    /// The fields that a case may change; `null` for one that is not set.
    fn spec(&self) -> Value {
        let ranges = self.wanted && !self.ranges.is_empty();
        let mut spec = json!({"loadBalancerSourceRanges": ranges.then_some(&self.ranges)});
        if !self.wanted {
            // The API server deletes the fields of load balancers itself.
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
