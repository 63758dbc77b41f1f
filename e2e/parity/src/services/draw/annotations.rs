//! Annotations with usual values and common mistakes.

use super::rng::Rng;

/// The prefix of all annotations of AWS load balancers.
pub(super) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
/// The kind of load balancer.
pub(super) const TYPE: &str = "type";

/// Selects the Nodes that are targets.
pub(super) const NODE_LABELS: &str = "target-node-labels";

pub(super) struct Known {
    pub(super) suffix: &'static str,
    /// Whether it applies to classic and to network load balancers.
    classic: bool,
    network: bool,
    good: &'static [&'static str],
    /// Unusual values, accepted or refused.
    odd: &'static [&'static str],
}

impl Known {
    pub(super) fn is_for(&self, network: bool) -> bool {
        if network { self.network } else { self.classic }
    }

    /// A value, and whether it is a usual one.
    pub(super) fn value(&self, rng: &mut Rng, odd: usize) -> (&'static str, bool) {
        if !self.odd.is_empty() && rng.chance(odd) {
            return (rng.pick(self.odd), false);
        }
        (rng.pick(self.good), true)
    }
}

const fn both(suffix: &'static str, good: &'static [&'static str], odd: &'static [&'static str]) -> Known {
    Known {
        suffix,
        classic: true,
        network: true,
        good,
        odd,
    }
}

const fn classic(suffix: &'static str, good: &'static [&'static str], odd: &'static [&'static str]) -> Known {
    Known {
        suffix,
        classic: true,
        network: false,
        good,
        odd,
    }
}

const fn network(suffix: &'static str, good: &'static [&'static str], odd: &'static [&'static str]) -> Known {
    Known {
        suffix,
        classic: false,
        network: true,
        good,
        odd,
    }
}

/// `true` and `false` according to [strconv.ParseBool](https://pkg.go.dev/strconv#ParseBool).
const BOOLEANS: &[&str] = &["true", "false", "true", "True", "t", "1", "0", "F"];
const NO_BOOLEANS: &[&str] = &["yes", "", " true", "tRue", "on"];
const NO_NUMBERS: &[&str] = &[
    "ten", "", " 10", "10 ", "3.3", "1e1", "0x10", "1_0", "010", "-1", "-5", "0", "+7",
];
/// For health checks: also numbers beyond 32 bits, one of which has the lower 32 bits of 2.
const NO_COUNTS: &[&str] = &[
    "ten",
    "",
    " 10",
    "10 ",
    "3.3",
    "1e1",
    "0x10",
    "1_0",
    "010",
    "-1",
    "-5",
    "0",
    "+7",
    "300",
    "99999999999",
    "4294967298",
    "-4294967293",
    "99999999999999999999",
];

/// All annotations but the type. Missing are values with an intended difference in `docs/parity.md`: an empty policy,
/// repeated groups, and subnets in another order than that of AWS.
pub(super) const KNOWN: [Known; 29] = [
    both(
        "internal",
        &["true", "true", "0.0.0.0/0", "false", ""],
        &["False", "0", "no"],
    ),
    both(
        "subnets",
        &["<subnet-a>", "<subnet-a>,<subnet-b>", "<subnet-b>"],
        &[
            "",
            " , ",
            "subnet-0123456789abcdef0",
            "nobody",
            "<subnet-a>,<subnet-a>",
            "<subnet-a>,,<subnet-b>",
        ],
    ),
    both(
        "security-groups",
        &[
            "<sg:shared>",
            "<sg:extra>",
            "<sg:shared>,<sg:extra>",
            " <sg:extra> , <sg:shared>",
            "",
            ",",
        ],
        &[],
    ),
    classic(
        "extra-security-groups",
        &["<sg:shared>", "<sg:extra>", "<sg:extra>, <sg:shared>", "", ", ,,"],
        &[],
    ),
    both("ssl-cert", &[CERTIFICATE, CERTIFICATE, ANOTHER, ""], &["one", " "]),
    both(
        "ssl-ports",
        &["*", "443", "https", "443,https", "80,443", "a,b"],
        &["", " 443", "HTTPS", "443, 80", "444"],
    ),
    both(
        "ssl-negotiation-policy",
        &["ELBSecurityPolicy-TLS-1-2-2017-01", "ELBSecurityPolicy-2016-08"],
        &["ELBSecurityPolicy-None"],
    ),
    both(
        "backend-protocol",
        &["http", "https", "ssl", "tcp"],
        &["", "HTTP", "SSL", "bacon", "http "],
    ),
    classic("proxy-protocol", &["*"], &["", "true", "* "]),
    both("access-log-enabled", BOOLEANS, NO_BOOLEANS),
    classic(
        "access-log-emit-interval",
        &["5", "60"],
        &["ten", "", " 5", "0", "-5", "7", "99999999999"],
    ),
    both("access-log-s3-bucket-name", &["logs", "other-logs"], &[""]),
    both("access-log-s3-bucket-prefix", &["prefix", "a/b"], &[""]),
    classic("connection-draining-enabled", BOOLEANS, NO_BOOLEANS),
    classic("connection-draining-timeout", &["60", "120"], NO_NUMBERS),
    classic("connection-idle-timeout", &["60", "30", "600"], NO_NUMBERS),
    both("cross-zone-load-balancing-enabled", BOOLEANS, NO_BOOLEANS),
    both(
        "additional-resource-tags",
        &["team=web", "team=web,env=prod", "a=b=c, d", "env=test"],
        &[
            "",
            ",",
            "=x",
            "team",
            "kubernetes.io/cluster/parity=shared",
            "kubernetes.io/service-name=other",
            "KubernetesCluster=other",
            "Name=my lb, a = b ,a=c",
        ],
    ),
    both(
        "healthcheck-protocol",
        &["http", "HTTP", "https", "TCP", "tcp", "Https"],
        &["ssl", "SSL", "udp", "", "http ", " TCP", "GRPC"],
    ),
    both(
        "healthcheck-port",
        &["traffic-port", "8080", "30080", "10256"],
        &[
            "http",
            "",
            " 80",
            "70000",
            "0",
            "-80",
            "80.0",
            "Traffic-Port",
            "traffic-port ",
            "99999999999",
        ],
    ),
    both(
        "healthcheck-path",
        &["/", "/ready", "/a?b=c"],
        &["", "ready", " /", "/a b", "//"],
    ),
    both("healthcheck-healthy-threshold", &["2", "3", "5", "10"], NO_COUNTS),
    both("healthcheck-unhealthy-threshold", &["2", "3", "5", "10"], NO_COUNTS),
    both("healthcheck-timeout", &["2", "5", "10"], NO_COUNTS),
    both("healthcheck-interval", &["10", "30", "20"], NO_COUNTS),
    network(
        "target-group-attributes",
        &[
            "preserve_client_ip.enabled=false",
            "proxy_protocol_v2.enabled=true",
            "preserve_client_ip.enabled=true,proxy_protocol_v2.enabled=false",
        ],
        &[
            "",
            "preserve_client_ip.enabled",
            "preserve_client_ip.enabled=True",
            "stickiness.enabled=true",
            "=true",
            "deregistration_delay.timeout_seconds=30",
            "proxy_protocol_v2.enabled=true,proxy_protocol_v2.enabled=false",
            " proxy_protocol_v2.enabled=true , ",
        ],
    ),
    network(
        "eip-allocations",
        &["<eip-1>,<eip-2>"],
        &[
            "",
            ",",
            "<eip-1>",
            "<eip-1>, <eip-2>",
            "<eip-1>,<eip-2>,<eip-1>",
            "eipalloc-0123456789abcdef0,<eip-1>",
        ],
    ),
    network(
        "private-ipv4-addresses",
        &["172.31.0.10,172.31.16.10"],
        &[
            "",
            "172.31.0.10",
            "172.31.0.10,",
            "172.31.0.10, 172.31.16.10",
            "172.31.0.10,172.31.16.10,172.31.16.11",
            "10.9.9.9,x",
        ],
    ),
    both(
        NODE_LABELS,
        &["role=edge", "role=edge", "role", "role=edge,tier="],
        &["", "role=none", "=", ","],
    ),
];

const CERTIFICATE: &str = "arn:aws:iam::123456789012:server-certificate/one";
const ANOTHER: &str = "arn:aws:iam::123456789012:server-certificate/two";

/// Annotations that belong together.
pub(super) const SETS: [&[&str]; 7] = [
    &["ssl-cert", "ssl-ports"],
    &["ssl-cert", "backend-protocol", "ssl-negotiation-policy"],
    &[
        "access-log-enabled",
        "access-log-emit-interval",
        "access-log-s3-bucket-name",
        "access-log-s3-bucket-prefix",
    ],
    &[
        "connection-draining-enabled",
        "connection-draining-timeout",
        "connection-idle-timeout",
    ],
    &["healthcheck-protocol", "healthcheck-port", "healthcheck-path"],
    &[
        "healthcheck-healthy-threshold",
        "healthcheck-unhealthy-threshold",
        "healthcheck-timeout",
        "healthcheck-interval",
    ],
    &["internal", "subnets"],
];

/// Annotations without their prefix: a part of a set, or any.
pub(super) fn drawn(rng: &mut Rng, is_network: bool, odd: usize) -> (Vec<(&'static str, &'static str)>, bool) {
    let mut suffixes: Vec<&'static str> = Vec::new();
    if rng.chance(60) {
        suffixes.extend(rng.pick(&SETS));
        let fewer = rng.below(suffixes.len()) + 1;
        suffixes = rng.some(&suffixes, fewer.max(2));
    }

    for _ in 0..rng.below(4) {
        suffixes.extend(KNOWN.get(rng.below(KNOWN.len())).map(|known| known.suffix));
    }

    let mut values: Vec<(&'static str, &'static str)> = Vec::new();
    let mut good = true;
    for known in KNOWN.iter().filter(|known| suffixes.contains(&known.suffix)) {
        // A fifth of those for the other kind stay, and are ignored or refused.
        if !known.is_for(is_network) && (odd == 0 || !rng.chance(20)) {
            continue;
        }
        let (value, is_good) = known.value(rng, odd);
        good &= is_good && known.is_for(is_network);
        values.push((known.suffix, value));
    }

    (values, good)
}
