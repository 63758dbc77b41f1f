//! The changes during which the manager is killed. Each has a way there and a way back.

use serde_json::{Value, json};

/// Of a certificate in IAM, which the simulated AWS takes without asking.
const CERTIFICATE: &str = "arn:aws:iam::123456789012:server-certificate/web";
/// The clients of the plain Service. Not everybody: the rules of the health check that a range needs stay, as in the
/// incumbent, when everybody may come, and the way back would not end where it began.
const RANGE: &str = "198.51.100.0/24";

/// A change of the Service or its cluster.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Creates the Service.
    Create(Value),
    Delete,
    /// Changes it by a merge patch.
    Patch(Value),
    /// The Node of the spare instance joins.
    Join,
    Leave,
}

/// A change and its way back.
#[derive(Debug, Clone)]
pub struct Change {
    /// For the reader.
    pub name: &'static str,
    /// The way there.
    pub there: Edit,
    /// The way back.
    pub back: Edit,
}

/// Which API of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Classic load balancers.
    Classic,
    /// Network load balancers.
    Network,
}

impl Kind {
    /// The Service's name.
    pub fn service(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Network => "network",
        }
    }

    fn kind_annotation(self) -> Option<(&'static str, &'static str)> {
        (self == Self::Network).then_some(("type", "nlb"))
    }

    /// A Service with as much to write as there is, and its deletion.
    pub fn everything(self) -> Change {
        let annotations: &[(&str, &str)] = match self {
            Self::Classic => &[
                ("ssl-cert", CERTIFICATE),
                ("ssl-ports", "443"),
                ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
                ("proxy-protocol", "*"),
                ("connection-idle-timeout", "90"),
                ("healthcheck-interval", "20"),
                ("additional-resource-tags", "team=web"),
            ],
            Self::Network => &[
                ("ssl-cert", CERTIFICATE),
                ("ssl-ports", "443"),
                ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS13-1-2-2021-06"),
                ("cross-zone-load-balancing-enabled", "true"),
                ("target-group-attributes", "preserve_client_ip.enabled=false"),
                ("healthcheck-interval", "20"),
                ("additional-resource-tags", "team=web"),
            ],
        };
        let ports = json!([port(80, 31080), port(443, 31443)]);
        let mut service = self.base(ports);
        service["metadata"]["annotations"] = self.annotations(annotations);
        service["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8", "192.0.2.0/24"]);
        Change {
            name: "a Service with everything",
            there: Edit::Create(service),
            back: Edit::Delete,
        }
    }

    /// The Service that the updates start from.
    pub fn plain(self) -> Edit {
        let mut service = self.base(json!([port(80, 31080)]));
        service["metadata"]["annotations"] = self.annotations(&[]);
        service["spec"]["loadBalancerSourceRanges"] = json!([RANGE]);
        Edit::Create(service)
    }

    fn base(self, ports: Value) -> Value {
        json!({
            "metadata": {"name": self.service()},
            "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports},
        })
    }

    fn annotations(self, annotations: &[(&str, &str)]) -> Value {
        let all = self.kind_annotation().into_iter().chain(annotations.iter().copied());
        all.map(|(key, value)| (full(key), value.into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The updates of the plain Service.
    pub fn updates(self, given_group: &str) -> Vec<Change> {
        let one = || ports(json!([port(80, 31080)]));
        let mut changes = vec![
            change("another port", ports(json!([port(80, 31080), port(443, 31443)])), one()),
            change("node port", ports(json!([port(80, 31081)])), one()),
            change(
                "source ranges",
                Edit::Patch(json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]}})),
                Edit::Patch(json!({"spec": {"loadBalancerSourceRanges": [RANGE]}})),
            ),
            annotated("a certificate", &[("ssl-cert", CERTIFICATE)]),
            annotated("health check protocol", &[("healthcheck-protocol", "http")]),
            annotated("health check threshold", &[("healthcheck-healthy-threshold", "5")]),
            annotated("attributes", &[("cross-zone-load-balancing-enabled", "true")]),
            annotated("a security group that is given", &[("security-groups", given_group)]),
            change("a Node", Edit::Join, Edit::Leave),
            change(
                "no load balancer any more",
                Edit::Patch(json!({"spec": {"type": "ClusterIP", "loadBalancerSourceRanges": null}})),
                Edit::Patch(json!({"spec": {
                    "type": "LoadBalancer", "loadBalancerSourceRanges": [RANGE], "ports": [port(80, 31080)],
                }})),
            ),
        ];
        if self == Self::Network {
            let mut udp = port(80, 31080);
            udp["protocol"] = "UDP".into();
            changes.push(change("another protocol", ports(json!([udp])), one()));
        }
        changes
    }
}

fn change(name: &'static str, there: Edit, back: Edit) -> Change {
    Change { name, there, back }
}

fn port(port: u16, node_port: u16) -> Value {
    json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"})
}

fn ports(ports: Value) -> Edit {
    Edit::Patch(json!({"spec": {"ports": ports}}))
}

/// Sets annotations, and takes them away.
fn annotated(name: &'static str, annotations: &[(&str, &str)]) -> Change {
    let patch = |value: fn(&str) -> Value| {
        let fields = annotations.iter().map(|(key, text)| (full(key), value(text)));
        let fields: serde_json::Map<_, _> = fields.collect();
        Edit::Patch(json!({"metadata": {"annotations": fields}}))
    };
    change(name, patch(|text| text.into()), patch(|_| Value::Null))
}

fn full(annotation: &str) -> String {
    format!("service.beta.kubernetes.io/aws-load-balancer-{annotation}")
}
