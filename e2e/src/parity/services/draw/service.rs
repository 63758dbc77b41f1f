//! A Service as it stands at some step: what is drawn, and how it is written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::annotations::{self, NODE_LABELS, PREFIX, TYPE};
use super::dice::Dice;

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
/// Client networks as the API server takes them; some with bits beyond their length, some within others.
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
/// In so many values out of a hundred something is odd, in a case that may have odd ones.
const ODD: usize = 35;

/// A port.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Port {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) node_port: u16,
    pub(super) udp: bool,
}

/// A Service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) network: bool,
    /// With their whole names.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) ports: Vec<Port>,
    pub(super) ranges: Vec<String>,
    pub(super) local: bool,
    /// Session affinity, which AWS does not have.
    pub(super) sticky: bool,
    /// Asks for an address, which AWS does not give.
    pub(super) addressed: bool,
    /// Odd values may be drawn.
    pub(super) odd: bool,
    /// Nothing odd has been drawn so far.
    pub(super) good: bool,
    pub(super) wanted: bool,
}

impl Draft {
    pub(super) fn drawn(dice: &mut Dice) -> Self {
        let network = dice.chance(50);
        let mut draft = Self {
            network,
            annotations: BTreeMap::new(),
            ports: Vec::new(),
            ranges: Vec::new(),
            local: dice.chance(15),
            sticky: false,
            addressed: false,
            odd: dice.chance(35),
            good: true,
            wanted: true,
        };
        draft.kind(dice);
        draft.annotate(dice);
        for _ in 0..dice.pick(&[1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5]) {
            draft.port(dice);
        }
        let udp = network && dice.chance(25);
        for port in &mut draft.ports {
            port.udp = udp;
        }
        if draft.odd && dice.chance(8) {
            draft.ports[0].udp = !udp;
            draft.good = false;
        }
        if draft.odd && dice.chance(6) {
            draft.sticky = true;
            draft.good = false;
        }
        if draft.odd && dice.chance(4) {
            draft.addressed = true;
            draft.good = false;
        }
        if draft.ports.len() > 1 && dice.chance(5) {
            draft.ports[0].node_port = 0;
            draft.good = false;
        }
        if dice.chance(30) {
            draft.ranged(dice);
        }
        draft
    }

    fn odd_percent(&self) -> usize {
        if self.odd { ODD } else { 0 }
    }

    /// The annotation of the kind, as it is now.
    pub(super) fn kind(&mut self, dice: &mut Dice) {
        let value = match (self.network, self.odd) {
            (true, _) => "nlb",
            (false, true) => dice.pick(&["", "elb", "NLB", "nlb ", "external", "nlb-ip", "none", "none", "none"]),
            (false, false) => dice.pick(&["none", "none", "none", "elb"]),
        };
        self.good &= !["external", "nlb-ip"].contains(&value);
        let key = format!("{PREFIX}{TYPE}");
        if value == "none" {
            self.annotations.remove(&key);
        } else {
            self.annotations.insert(key, value.to_owned());
        }
    }

    /// More annotations, or other values.
    pub(super) fn annotate(&mut self, dice: &mut Dice) {
        let (drawn, good) = annotations::drawn(dice, self.network, self.odd_percent());
        // A choice of Nodes does not change: ours looks twice before it takes away many targets.
        let later = !self.ports.is_empty();
        for (suffix, value) in drawn {
            if later && suffix == NODE_LABELS {
                continue;
            }
            self.annotations.insert(format!("{PREFIX}{suffix}"), value.to_owned());
        }
        self.good &= good;
    }

    /// One port more, if there is room.
    pub(super) fn port(&mut self, dice: &mut Dice) {
        let free = |(port, _): &&(u16, &str)| self.ports.iter().all(|there| there.port != *port);
        let free: Vec<(u16, &'static str)> = PORTS.iter().filter(free).copied().collect();
        let (port, name) = dice.pick(&free);
        let node_port = self.free_node_port(dice);
        let udp = self.ports.first().is_some_and(|first| first.udp);
        if self.ports.len() < 5 && port != 0 && node_port != 0 {
            self.ports.push(Port {
                name,
                port,
                node_port,
                udp,
            });
        }
    }

    /// A node port that no port has; 0 if there is none.
    pub(super) fn free_node_port(&self, dice: &mut Dice) -> u16 {
        let free = |node_port: &&u16| self.ports.iter().all(|there| there.node_port != **node_port);
        let free: Vec<u16> = NODE_PORTS.iter().filter(free).copied().collect();
        dice.pick(&free)
    }

    /// Other client networks: in the field, in the annotation, or in both.
    pub(super) fn ranged(&mut self, dice: &mut Dice) {
        let count = dice.pick(&[1, 1, 2, 3, 6]);
        self.ranges = dice.some(&NETWORKS, count).into_iter().map(str::to_owned).collect();
        if dice.chance(30) {
            let annotation = dice.pick(&["10.0.0.0/8", "192.0.2.0/24, 198.51.100.0/24", " ", " 10.0.0.0/8 ", ""]);
            self.annotations.insert(RANGES.to_owned(), annotation.to_owned());
            if dice.chance(70) {
                self.ranges.clear();
            }
        }
    }

    /// The whole of it.
    pub(super) fn manifest(&self) -> Value {
        let mut metadata = Map::new();
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
            let protocol = if port.udp { "UDP" } else { "TCP" };
            let mut port_of = json!({"name": port.name, "port": port.port, "protocol": protocol});
            if port.node_port != 0 {
                port_of["nodePort"] = json!(port.node_port);
            }
            port_of
        };
        let unallocated = self.ports.iter().any(|port| port.node_port == 0);
        spec["allocateLoadBalancerNodePorts"] = json!(!unallocated);
        spec["loadBalancerIP"] = json!(self.addressed.then_some("192.0.2.1"));
        spec["type"] = json!("LoadBalancer");
        spec["ports"] = self.ports.iter().map(port).collect();
        spec["sessionAffinity"] = json!(self.sticky.then_some("ClientIP"));
        spec["externalTrafficPolicy"] = json!(if self.local { "Local" } else { "Cluster" });
        spec["healthCheckNodePort"] = json!(self.local.then_some(32213));
        spec
    }
}
