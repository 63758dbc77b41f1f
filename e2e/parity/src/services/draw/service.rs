//! A Service as it stands at some step: what is drawn, and how it is written.

use std::collections::BTreeMap;

use super::annotations::{self, PREFIX, TYPE};
use super::rng::Rng;

/// Protocols of ports; AWS has no load balancer for the third.
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
const MOST_PORTS: usize = 5;
/// Annotations whose lists have to be as long as that of the subnets, which are drawn by themselves.
const NEED_A_NUMBER: [&str; 2] = ["eip-allocations", "private-ipv4-addresses"];
/// In so many values out of a hundred something is odd, in a case that may have odd ones.
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
    /// With their whole names.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) ports: Vec<Port>,
    pub(super) ranges: Vec<String>,
    pub(super) local: bool,
    /// Session affinity, which AWS does not have.
    pub(super) sticky: bool,
    /// Asks for an address, which AWS does not give.
    pub(super) addressed: bool,
    /// Others hold it too, by finalizers of theirs.
    pub(super) kept: bool,
    /// Has a class, so that it is for another controller.
    pub(super) class: bool,
    /// Odd values may be drawn.
    pub(super) odd: bool,
    /// Nothing odd has been drawn so far.
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

    /// Ports of different protocols, one of them on the same number as another.
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

    /// The API server takes no number twice of one protocol.
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

    /// The annotation of the kind, as it is now.
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

    /// More annotations, or other values.
    pub(super) fn annotate(&mut self, rng: &mut Rng) {
        let (drawn, good) = annotations::drawn(rng, self.network, self.odd_percent());
        for (suffix, value) in drawn {
            self.annotations.insert(format!("{PREFIX}{suffix}"), value.to_owned());
            self.good &= !NEED_A_NUMBER.contains(&suffix);
        }
        self.good &= good;
    }

    /// One port more, if there is room.
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

    /// A node port that no port has; 0 if there is none.
    pub(super) fn free_node_port(&self, rng: &mut Rng) -> u16 {
        let free = |node_port: &&u16| self.ports.iter().all(|there| there.node_port != **node_port);
        let free: Vec<u16> = NODE_PORTS.iter().filter(free).copied().collect();
        rng.pick(&free)
    }

    /// Other client networks: in the field, in the annotation, or in both.
    pub(super) fn ranged(&mut self, rng: &mut Rng) {
        let count = rng.pick(&[1, 1, 2, 3, 6]);
        self.ranges = rng.some(&NETWORKS, count).into_iter().map(str::to_owned).collect();
        if rng.chance(8) {
            let many = rng.pick(&[12, 30, 70]); // a group has room for 60 rules
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
}
