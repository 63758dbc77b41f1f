//! Services: ports, annotations with good values mostly and with odd ones sometimes, client networks, policies.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::super::super::spec::annotations::PREFIX;
use super::super::fixture::UID;

/// The kind of load balancer that a Service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Classic,
    Network,
}

impl Kind {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Classic => Self::Network,
            Self::Network => Self::Classic,
        }
    }
}

/// One port: its number, its node port (0: none), its name.
pub type Port = (i32, i32, &'static str);

/// The spec of a Service.
#[derive(Debug, Clone)]
pub struct Wish {
    pub ports: Vec<Port>,
    pub protocol: &'static str,
    pub annotations: BTreeMap<&'static str, &'static str>,
    pub ranges: Vec<&'static str>,
    /// `healthCheckNodePort` of `externalTrafficPolicy: Local`.
    pub local: Option<i32>,
    pub affinity: &'static str,
    /// Something in it is wrong, or refused by AWS.
    pub odd: bool,
}

/// An annotation with values that are good together with all other good ones, and with odd ones.
struct Row(&'static str, &'static [&'static str], &'static [&'static str]);

const CERTIFICATE: &str = "arn:aws:acm:eu-central-1:1:certificate/x";

const COMMON: &[Row] = &[
    Row("internal", &["true", "false", "0.0.0.0/0"], &[]),
    Row(
        "subnets",
        &["subnet-a", "subnet-b, Third", "subnet-a2"],
        &["", "subnet-x", "subnet-a,subnet-a2"],
    ),
    Row(
        "additional-resource-tags",
        &["team=a", "team=b,cost=1", "kubernetes.io/cluster/prod=shared"],
        &["=,,"],
    ),
    Row(
        "ssl-cert",
        &[CERTIFICATE, "arn:aws:acm:eu-central-1:1:certificate/y"],
        &[""],
    ),
    Row("ssl-ports", &["*", "443", "http,8080"], &["443, http"]),
    Row("access-log-enabled", &["true", "false"], &["yes"]),
    Row("access-log-s3-bucket-name", &["logs", "more-logs"], &[""]),
    Row("access-log-s3-bucket-prefix", &["a"], &[]),
    Row("cross-zone-load-balancing-enabled", &["true", "false"], &["on"]),
    Row("healthcheck-protocol", &["tcp", "HTTP", "https"], &["icmp", ""]),
    Row("healthcheck-port", &["traffic-port", "8081"], &["x", "70000", ""]),
    Row("healthcheck-path", &["/healthz", "/"], &["", "healthz"]),
    Row("healthcheck-healthy-threshold", &["2", "5"], &["1", "eleven"]),
    Row("healthcheck-unhealthy-threshold", &["2", "7"], &["11"]),
    Row("healthcheck-interval", &["10", "30"], &["4", "301"]),
    Row("target-node-labels", &["pool=web", "pool"], &["pool=web,nowhere"]),
    Row("security-groups", &["sg-mine", "sg-mine, sg-more"], &[" , ", "sg-none"]),
    Row("beat", &["1", "2"], &[]),
];

const CLASSIC: &[Row] = &[
    Row("extra-security-groups", &["sg-more", ", ,"], &["sg-none"]),
    Row("backend-protocol", &["http", "https", "ssl", "tcp"], &["bacon", "HTTP"]),
    Row(
        "ssl-negotiation-policy",
        &["ELBSecurityPolicy-2016-08", "ELBSecurityPolicy-TLS-1-2-2017-01"],
        &[""],
    ),
    Row("proxy-protocol", &["*"], &["on", ""]),
    Row("access-log-emit-interval", &["5", "60"], &["7"]),
    Row("connection-draining-enabled", &["true", "false"], &["maybe"]),
    Row("connection-draining-timeout", &["60", "300"], &["0", "1e3"]),
    Row("connection-idle-timeout", &["30", "60"], &["0", "soon"]),
    Row("healthcheck-timeout", &["2", "6"], &["1", "61"]),
    Row("target-group-attributes", &[], &["preserve_client_ip.enabled=true"]),
];

const NETWORK: &[Row] = &[
    Row("extra-security-groups", &[], &["sg-more"]),
    Row("backend-protocol", &["ssl", "tcp"], &["bacon"]),
    Row(
        "ssl-negotiation-policy",
        &["ELBSecurityPolicy-2016-08", "ELBSecurityPolicy-TLS13-1-2-2021-06", ""],
        &["Nope"],
    ),
    Row(
        "target-group-attributes",
        &[
            "preserve_client_ip.enabled=true",
            "proxy_protocol_v2.enabled=true,preserve_client_ip.enabled=false",
            "",
        ],
        &["x=true", "proxy_protocol_v2.enabled=True"],
    ),
    Row(
        "eip-allocations",
        &["eipalloc-1", "eipalloc-1,eipalloc-2,eipalloc-3"],
        &[""],
    ),
    Row("private-ipv4-addresses", &["10.1.0.9"], &[""]),
    Row("healthcheck-timeout", &["2", "6"], &["x"]),
];

/// One of the annotation's values in `often` of 100 Services; in one of 40 of these an odd one.
fn annotation(row: &'static Row, often: f64) -> impl Strategy<Value = Option<(&'static str, &'static str, bool)>> {
    let Row(key, good, odd) = *row;
    let pick = any::<(prop::sample::Index, u8)>().prop_map(move |(at, die)| {
        let (from, is_odd) = if good.is_empty() || (die < 6 && !odd.is_empty()) {
            (odd, true)
        } else {
            (good, false)
        };
        (key, from[at.index(from.len())], is_odd)
    });
    prop::option::weighted(if good.is_empty() { often / 20.0 } else { often }, pick)
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    const NUMBERS: &[(i32, &str)] = &[(80, "http"), (443, "https"), (8080, ""), (53, "dns")];
    const NODE_PORTS: &[i32] = &[30080, 30443, 31000, 31001];
    let node_ports = subsequence(NODE_PORTS, 4).prop_shuffle();
    let numbers = subsequence(NUMBERS, 1..=3).prop_shuffle();
    (numbers, node_ports, 0..30_usize).prop_map(|(numbers, node_ports, without)| {
        let port = |(at, ((number, name), node_port)): (usize, ((i32, &'static str), i32))| {
            (number, if at == without { 0 } else { node_port }, name)
        };
        numbers.into_iter().zip(node_ports).enumerate().map(port).collect()
    })
}

/// Services that ask for a load balancer of this kind.
pub fn wishes(kind: Kind) -> impl Strategy<Value = Wish> {
    let own = match kind {
        Kind::Classic => CLASSIC,
        Kind::Network => NETWORK,
    };
    let annotations: Vec<_> = COMMON.iter().chain(own).map(|row| annotation(row, 0.2)).collect();
    let ranges = subsequence(&["10.0.0.0/8", "192.168.1.1/16", "203.0.113.7/32"][..], 0..=2);
    let local = prop::option::weighted(0.2, select(&[32000, 32001][..]));
    let rare = (prop::bool::weighted(0.01), prop::bool::weighted(0.2));
    (ports(), annotations, ranges, local, rare).prop_map(move |(ports, annotations, ranges, local, (affine, udp))| {
        let mut odd = affine || annotations.iter().flatten().any(|(_, _, odd)| *odd);
        let mut annotations: BTreeMap<_, _> = annotations.into_iter().flatten().map(|(k, v, _)| (k, v)).collect();
        if annotations.get("access-log-enabled") == Some(&"true") {
            annotations.entry("access-log-s3-bucket-name").or_insert("logs");
        }
        if kind == Kind::Network {
            annotations.insert("type", "nlb");
            let internal = annotations.get("internal").is_some_and(|value| *value != "false");
            let wrong = if internal {
                "eip-allocations"
            } else {
                "private-ipv4-addresses"
            };
            odd |= annotations.contains_key(wrong);
        }
        let affinity = if affine { "ClientIP" } else { "None" };
        let protocol = if udp && kind == Kind::Network { "UDP" } else { "TCP" };
        Wish {
            ports,
            protocol,
            annotations,
            ranges,
            local,
            affinity,
            odd,
        }
    })
}

impl Wish {
    /// The Service as the API server has it, without status and finalizers.
    pub fn service(&self) -> Service {
        let mut annotations: BTreeMap<String, Value> = BTreeMap::new();
        for (key, value) in &self.annotations {
            annotations.insert(format!("{PREFIX}{key}"), json!(value));
        }
        let port = |(number, node_port, name): &Port| json!({"name": name, "port": number, "nodePort": node_port, "protocol": self.protocol});
        let policy = if self.local.is_some() { "Local" } else { "Cluster" };
        let service = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": UID, "annotations": annotations},
            "spec": {
                "type": "LoadBalancer",
                "sessionAffinity": self.affinity,
                "ports": self.ports.iter().map(port).collect::<Vec<_>>(),
                "loadBalancerSourceRanges": self.ranges,
                "externalTrafficPolicy": policy,
                "healthCheckNodePort": self.local,
            },
        });
        serde_json::from_value(service).unwrap()
    }

    /// The kind that it asks for.
    pub fn kind(&self) -> Kind {
        match self.annotations.get("type") {
            Some(&"nlb") => Kind::Network,
            _ => Kind::Classic,
        }
    }

    /// The groups that the annotations list.
    pub fn listed_groups(&self) -> Vec<String> {
        let lists = ["security-groups", "extra-security-groups"].map(|key| self.annotations.get(key));
        let items = lists.into_iter().flatten().flat_map(|list| list.split(','));
        items
            .map(str::trim)
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect()
    }
}
