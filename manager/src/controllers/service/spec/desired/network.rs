//! The desired network load balancer, derived from a Service and the settings only.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elbv2::{Attributes, ListenerSettings, NewTargetGroup, TargetHealthCheck};

use super::super::super::error::Invalid;
use super::super::super::settings::{HealthProbe, Settings};
use super::super::annotations::Annotations;
use super::super::names::{self, Owner, TCP, TLS, TargetGroupNames, UDP};
use super::super::permissions;
use super::super::request::{
    self, Subnets, TRAFFIC_PORT, is_local, node_port, protocol, takes_certificate, wrong_ports,
};

const HTTP: &str = "HTTP";
const HTTPS: &str = "HTTPS";

const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const LOGS: &str = "access_logs.s3.enabled";
const LOGS_BUCKET: &str = "access_logs.s3.bucket";
const LOGS_PREFIX: &str = "access_logs.s3.prefix";

const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL: &str = "proxy_protocol_v2.enabled";

const TARGET_GROUPS: &str = "target-group-attributes";

/// The security groups of a load balancer (`NLBSecurityGroupMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// The existing ones; a new load balancer gets none.
    Kept,
    Managed,
    /// Given ones, whose rules are not managed.
    Given(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub name: String,
    /// Only reachable within the VPC. Fixed at creation.
    pub internal: bool,
    /// Listeners and target groups; none where no port has a node port.
    pub ports: Vec<Port>,
    pub subnets: Subnets,
    /// Allocation IDs of elastic addresses, one for each subnet. Fixed at creation.
    pub elastic_addresses: Option<Vec<String>>,
    /// Addresses within the subnets, one for each. Fixed at creation.
    pub private_addresses: Option<Vec<String>>,
    pub groups: Groups,
    pub own_group: NewSecurityGroup,
    pub ingress: Vec<IpPermission>,
    pub networks: BTreeSet<String>,
    pub attributes: Attributes,
    /// Attributes of all target groups; `None`: unchanged.
    pub target_group_attributes: Option<Attributes>,
    /// Tags of the load balancer, its listeners and target groups.
    pub tags: Tags,
    /// The cluster's tags among them.
    pub cluster_tags: Tags,
    pub target_groups: TargetGroupNames,
    pub node_labels: BTreeMap<String, String>,
}

impl Desired {
    /// Whether Nodes get packets from the load balancer's addresses, so that rules of Nodes cannot tell clients apart:
    /// <https://docs.aws.amazon.com/elasticloadbalancing/latest/network/edit-target-group-attributes.html#client-ip-preservation>.
    pub fn hides_clients(&self) -> bool {
        let preserves = self
            .target_group_attributes
            .as_ref()
            .and_then(|of| of.get(PRESERVE_CLIENT_IP));
        preserves.is_some_and(|value| value == "false")
    }

    pub fn is_for_everyone(&self) -> bool {
        self.networks.iter().any(|network| network.ends_with("/0"))
    }
}

/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let annotations = Annotations::of(service);
    if annotations.get("extra-security-groups").is_some() {
        let expected =
            "network load balancers take no extra security groups; list them in aws-load-balancer-security-groups";
        return Err(annotations.wrong("extra-security-groups", expected));
    }

    let user_tags = request::user_tags(annotations, &settings.cluster_id)?;
    let target_group_attributes = target_group_attributes(service)?;
    request::refuse_affinity(service)?;

    let listed = request::ports(service)?;
    let networks = request::source_ranges(service)?;
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let tags = request::tags(service, &user_tags, &cluster_tags);
    let created = |tags: &Tags| names::creation_tags(tags, settings.cluster_uid.as_deref(), names::MOST_TAGS);
    let ports = wanted_ports(service, listed, settings, &created(&tags))?;
    request::refuse_fixed_address(service)?;

    let owner = Owner::of(service);
    let own_tags = created(&user_tags.into_iter().chain(cluster_tags.clone()).collect());

    Ok(Desired {
        name: names::load_balancer(owner.uid),
        internal: annotations.internal(),
        subnets: request::subnets(annotations)?,
        elastic_addresses: untrimmed(annotations, "eip-allocations"),
        private_addresses: untrimmed(annotations, "private-ipv4-addresses"),
        groups: groups(annotations, settings),
        own_group: NewSecurityGroup {
            name: names::network_security_group(&settings.cluster_name, owner),
            description: names::GROUP_DESCRIPTION.to_owned(),
            vpc_id: settings.vpc_id.clone(),
            tags: own_tags,
        },
        ingress: ingress(&ports, &networks),
        networks,
        attributes: wanted_attributes(annotations)?,
        target_group_attributes,
        target_groups: TargetGroupNames::of(owner),
        node_labels: annotations.pairs("target-node-labels"),
        tags,
        cluster_tags,
        ports,
    })
}

/// The items of a comma list, untrimmed; the empty value is one empty item.
fn untrimmed(annotations: Annotations<'_>, suffix: &str) -> Option<Vec<String>> {
    let items = annotations.get(suffix)?.split(',');
    Some(items.map(str::to_owned).collect())
}

/// Without `NLBSecurityGroupMode=Managed` the annotation has no effect.
fn groups(annotations: Annotations<'_>, settings: &Settings) -> Groups {
    if !settings.nlb_security_groups_managed {
        return Groups::Kept;
    }

    let given = annotations.list("security-groups").unwrap_or_default();
    if given.is_empty() {
        Groups::Managed
    } else {
        Groups::Given(given)
    }
}

/// Ingress of its own group. A security group has no protocol TLS, only TCP.
fn ingress(ports: &[Port], networks: &BTreeSet<String>) -> Vec<IpPermission> {
    let protocol = |port: &Port| if port.listener.protocol == UDP { "udp" } else { "tcp" };
    permissions::ingress_of(ports.iter().map(|port| (protocol(port), port.listener.port)), networks)
}

/// A port: one listener and the target group behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The listener; its target group is the one below.
    pub listener: ListenerSettings,
    pub target_group: NewTargetGroup,
}

impl Port {
    /// The port of health checks on each Node; `None`: it is no number, which the health check excludes.
    pub fn health_port(&self) -> Option<i32> {
        let check = &self.target_group.health_check;
        if check.port == TRAFFIC_PORT {
            return Some(self.target_group.port);
        }
        check.port.parse().ok()
    }
}

/// Listeners and target groups. A port without a node port has none, since no instance would listen.
/// Fails when a protocol is neither TCP nor UDP, or an annotation makes no health check.
fn wanted_ports(
    service: &Service,
    ports: &[ServicePort],
    settings: &Settings,
    tags: &Tags,
) -> Result<Vec<Port>, Invalid> {
    let annotations = Annotations::of(service);
    let mut made = Vec::new();
    for port in ports {
        if !matches!(protocol(port), TCP | UDP) {
            let expected = "a network load balancer supports TCP and UDP only";
            return Err(wrong_ports(protocol(port), expected));
        }
        let Some(node_port) = node_port(port) else {
            continue;
        };

        let check = wanted_health_check(service, annotations, &settings.health_probe)?;
        let (listener, protocol) = listener(port, annotations);
        let target_group = target_group(service, settings, &listener, (node_port, protocol), check, tags);
        made.push(Port { listener, target_group });
    }

    Ok(made)
}

pub fn without_node_port(service: &Service) -> impl Iterator<Item = i32> {
    let ports = request::ports(service).unwrap_or_default().iter();
    ports.filter(|port| node_port(port).is_none()).map(|port| port.port)
}

/// The names of the target groups that the Service requests; none for an invalid spec.
pub fn target_group_names(service: &Service, settings: &Settings) -> BTreeSet<String> {
    let wanted = request::ports(service).and_then(|ports| wanted_ports(service, ports, settings, &Tags::new()));
    let names = wanted.into_iter().flatten().map(|port| port.target_group.name);
    names.collect()
}

fn listener(port: &ServicePort, annotations: Annotations<'_>) -> (ListenerSettings, &'static str) {
    let plain = |protocol: &'static str| {
        let listener = ListenerSettings {
            port: port.port,
            protocol: protocol.to_owned(),
            ..ListenerSettings::default()
        };
        (listener, protocol)
    };
    if protocol(port) == UDP {
        return plain(UDP);
    }

    // Unlike for classic load balancers, the case of the name counts.
    let name = port.name.as_deref().unwrap_or_default();
    let certificate = annotations.filled("ssl-cert");
    let certificate = certificate.filter(|_| takes_certificate(port, name, annotations));
    let Some(certificate) = certificate else {
        return plain(TCP);
    };

    let (mut listener, _) = plain(TLS);
    listener.certificate = Some(certificate.to_owned());
    listener.ssl_policy = annotations.filled("ssl-negotiation-policy").map(str::to_owned);

    let encrypted = annotations.get("backend-protocol") == Some("ssl");
    (listener, if encrypted { TLS } else { TCP })
}

fn target_group(
    service: &Service,
    settings: &Settings,
    listener: &ListenerSettings,
    (node_port, protocol): (i32, &str),
    health_check: TargetHealthCheck,
    tags: &Tags,
) -> NewTargetGroup {
    let mut group = NewTargetGroup {
        name: String::new(),
        port: node_port,
        protocol: protocol.to_owned(),
        vpc_id: settings.vpc_id.clone(),
        health_check,
        tags: tags.clone(),
    };

    group.name = names::target_group(&settings.cluster_id, Owner::of(service), listener.port, &group);
    group
}

/// The requested attributes; others stay unchanged. AWS accepts no empty bucket, so bucket and prefix are requested
/// only while logs are on. Fails when an annotation is no boolean.
fn wanted_attributes(annotations: Annotations<'_>) -> Result<Attributes, Invalid> {
    let cross_zone = annotations.flag("cross-zone-load-balancing-enabled")?.unwrap_or(false);
    let logs = annotations.flag("access-log-enabled")?.unwrap_or(false);
    let mut wanted = pairs(&[(CROSS_ZONE, &cross_zone.to_string()), (LOGS, &logs.to_string())]);

    if logs {
        let text = |suffix| annotations.get(suffix).unwrap_or_default();
        wanted.extend(pairs(&[
            (LOGS_BUCKET, text("access-log-s3-bucket-name")),
            (LOGS_PREFIX, text("access-log-s3-bucket-prefix")),
        ]));
    }

    Ok(wanted)
}

pub fn attributes_of_new_balancer() -> Attributes {
    pairs(&[
        (CROSS_ZONE, "false"),
        (LOGS, "false"),
        (LOGS_BUCKET, ""),
        (LOGS_PREFIX, ""),
    ])
}

/// The wanted attributes that differ at AWS. An attribute that AWS does not list counts as empty.
pub fn attribute_differences(wanted: &Attributes, actual: &Attributes) -> Attributes {
    let differs = |(key, wanted): &(&String, &String)| {
        let actual = actual.get(*key).map(String::as_str).unwrap_or_default();
        actual != wanted.as_str()
    };
    cloned(wanted.iter().filter(differs))
}

/// The attributes of target groups that annotation `target-group-attributes` requests; `None`: it is absent, and they
/// stay unchanged. Fails when it names another attribute, or a value other than `true` and `false`, or would hide
/// clients from UDP targets.
fn target_group_attributes(service: &Service) -> Result<Option<Attributes>, Invalid> {
    let annotations = Annotations::of(service);
    if annotations.get(TARGET_GROUPS).is_none() {
        return Ok(None);
    }

    let wanted = annotations.pairs(TARGET_GROUPS);
    let wrong = |text: String| Err(annotations.wrong(TARGET_GROUPS, text));
    for (key, value) in &wanted {
        if value.is_empty() {
            return wrong(format!("the value of {key} is empty; expected true or false"));
        }
        if key != PRESERVE_CLIENT_IP && key != PROXY_PROTOCOL {
            let known = format!("expected {PRESERVE_CLIENT_IP} or {PROXY_PROTOCOL}");
            return wrong(format!("attribute {key} is not supported; {known}"));
        }
        if value != "true" && value != "false" {
            return wrong(format!("the value of {key} is {value:?}; expected true or false"));
        }
        if key == PRESERVE_CLIENT_IP && value == "false" && has_udp(service) {
            return wrong(format!("{key} cannot be false with UDP ports"));
        }
    }

    Ok(Some(wanted))
}

fn has_udp(service: &Service) -> bool {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut protocols = ports.map(protocol);
    protocols.any(|protocol| matches!(protocol, UDP | "TCP_UDP"))
}

/// The attributes of a new target group of instances at AWS. A wrong guess costs one repair.
pub fn attributes_of_new_target_group() -> Attributes {
    pairs(&[(PRESERVE_CLIENT_IP, "true"), (PROXY_PROTOCOL, "false")])
}

/// The wanted attributes that differ at AWS. An attribute that AWS does not list is not supported by this group.
pub fn target_group_differences(wanted: &Attributes, actual: &Attributes) -> Attributes {
    let differs = |(key, wanted): &(&String, &String)| actual.get(*key).is_some_and(|actual| actual != *wanted);
    cloned(wanted.iter().filter(differs))
}

fn cloned<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Attributes {
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// The health check of all ports of a Service.
///
/// If Nodes are checked by one shared endpoint, the annotations for protocol, port and path have no effect; those for
/// numbers have. A Service with `externalTrafficPolicy: Local` has its own endpoint on each Node in any case. Fails
/// when an annotation makes no health check, or the Service has no port for its own one.
fn wanted_health_check(
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
    use super::*;
    use serde_json::json;

    use super::super::super::annotations::PREFIX;

    fn service(annotations: &[(&str, &str)], protocol: &str, name: &str, node_port: i32) -> Service {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations, "name": "web", "namespace": "default"},
            "spec": {"ports": [{"port": 443, "nodePort": node_port, "name": name, "protocol": protocol}]},
        }))
        .unwrap()
    }

    fn read(service: &Service) -> Result<Vec<String>, Invalid> {
        let made = wanted_ports(service, request::ports(service)?, &Settings::default(), &Tags::new())?;
        let text = |port: &Port| {
            let certificate = port.listener.certificate.as_deref().unwrap_or("-");
            let policy = port.listener.ssl_policy.as_deref().unwrap_or("-");
            let group = &port.target_group;
            format!(
                "{}:{}->{}:{} {certificate} {policy}",
                port.listener.protocol, port.listener.port, group.protocol, group.port
            )
        };
        Ok(made.iter().map(text).collect())
    }

    fn one(annotations: &[(&str, &str)], protocol: &str, name: &str) -> String {
        read(&service(annotations, protocol, name, 30443)).unwrap().join(" ")
    }

    #[test]
    fn certificate_and_backend_protocol_choose_the_protocols() {
        let cert = ("ssl-cert", "arn:c");
        for (annotations, protocol, expected) in [
            (&[][..], "TCP", "TCP:443->TCP:30443 - -"),
            (&[("backend-protocol", "ssl")], "TCP", "TCP:443->TCP:30443 - -"),
            (&[("ssl-negotiation-policy", "p")], "TCP", "TCP:443->TCP:30443 - -"),
            (&[cert], "TCP", "TLS:443->TCP:30443 arn:c -"),
            (
                &[cert, ("backend-protocol", "tcp")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (
                &[cert, ("backend-protocol", "SSL")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (
                &[cert, ("backend-protocol", "ssl")],
                "TCP",
                "TLS:443->TLS:30443 arn:c -",
            ),
            (
                &[cert, ("ssl-negotiation-policy", "p")],
                "TCP",
                "TLS:443->TCP:30443 arn:c p",
            ),
            (
                &[cert, ("ssl-negotiation-policy", "")],
                "TCP",
                "TLS:443->TCP:30443 arn:c -",
            ),
            (&[cert, ("backend-protocol", "ssl")], "UDP", "UDP:443->UDP:30443 - -"),
        ] {
            assert_eq!(one(annotations, protocol, ""), expected, "{annotations:?}");
        }
    }

    #[test]
    fn ssl_ports_choose_by_number_and_by_exact_name() {
        let with = |ports: &str, name| one(&[("ssl-cert", "c"), ("ssl-ports", ports)], "TCP", name);
        for (ports, name, encrypted) in [
            ("*", "", true),
            ("", "", true),
            ("443", "", true),
            ("80,443", "", true),
            ("80", "", false),
            ("80, 443", "", false),
            ("web", "web", true),
            ("WEB", "web", false),
        ] {
            assert_eq!(with(ports, name).starts_with("TLS"), encrypted, "{ports:?} {name:?}");
        }
    }

    #[test]
    fn a_port_without_node_port_is_passed_over_and_other_protocols_are_refused() {
        assert_eq!(read(&service(&[], "TCP", "", 0)), Ok(vec![]));
        let error = read(&service(&[], "SCTP", "", 1)).unwrap_err().to_string();
        assert!(error.contains("SCTP"), "{error}");
        let mixed: Service = serde_json::from_value(json!({"spec": {"ports": [
            {"port": 53, "nodePort": 1, "protocol": "TCP"}, {"port": 53, "nodePort": 1, "protocol": "UDP"},
        ]}}))
        .unwrap();
        assert!(read(&mixed).is_err());
        assert!(read(&Service::default()).is_err());
    }

    #[test]
    fn health_checks_come_in_at_the_node_port_or_the_port_of_the_check() {
        let port = |annotations: &[(&str, &str)]| {
            let service = service(annotations, "TCP", "", 30443);
            let ports = request::ports(&service).unwrap();
            wanted_ports(&service, ports, &Settings::default(), &Tags::new()).unwrap()[0].health_port()
        };
        assert_eq!(port(&[]), Some(30443));
        assert_eq!(port(&[("healthcheck-port", "8080")]), Some(8080));
    }
}

#[cfg(test)]
mod attribute_tests {
    use serde_json::json;

    use super::super::super::annotations::PREFIX;
    use super::*;
    use super::{
        attribute_differences as differences, attributes_of_new_balancer as of_new_balancer,
        target_group_attributes as of_target_groups, wanted_attributes as wanted,
    };

    fn service(annotations: &[(&str, &str)], protocol: &str) -> Service {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        let ports = [json!({"port": 80, "protocol": protocol})];
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": {"ports": ports}})).unwrap()
    }

    fn balancer(annotations: &[(&str, &str)]) -> Result<Attributes, Invalid> {
        wanted(Annotations::of(&service(annotations, "TCP")))
    }

    #[test]
    fn bucket_and_prefix_are_asked_for_only_while_logs_are_on() {
        let off = balancer(&[("access-log-s3-bucket-name", "b")]).unwrap();
        assert_eq!(off, pairs(&[(CROSS_ZONE, "false"), (LOGS, "false")]));
        let on = balancer(&[
            ("access-log-enabled", "T"),
            ("access-log-s3-bucket-name", "b"),
            ("cross-zone-load-balancing-enabled", "1"),
        ]);
        let expected = pairs(&[
            (CROSS_ZONE, "true"),
            (LOGS, "true"),
            (LOGS_BUCKET, "b"),
            (LOGS_PREFIX, ""),
        ]);
        assert_eq!(on, Ok(expected.clone()));
        let error = balancer(&[("cross-zone-load-balancing-enabled", "yes")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cross-zone-load-balancing-enabled") && error.contains("yes"),
            "{error}"
        );
        let changed = differences(&expected, &of_new_balancer());
        assert_eq!(
            changed,
            pairs(&[(CROSS_ZONE, "true"), (LOGS, "true"), (LOGS_BUCKET, "b")])
        );
        assert_eq!(differences(&off, &of_new_balancer()), Attributes::new());
    }

    #[test]
    fn attributes_of_target_groups_are_checked_before_any_call() {
        let read = |value: &str, protocol| of_target_groups(&service(&[(TARGET_GROUPS, value)], protocol));
        for (value, protocol, fits) in [
            ("", "TCP", true),
            ("preserve_client_ip.enabled=false", "TCP", true),
            (
                "preserve_client_ip.enabled=true,proxy_protocol_v2.enabled=true",
                "UDP",
                true,
            ),
            (" preserve_client_ip.enabled=true , ", "TCP", true),
            ("preserve_client_ip.enabled=false", "UDP", false),
            ("preserve_client_ip.enabled=false", "TCP_UDP", false),
            ("proxy_protocol_v2.enabled=false", "UDP", true),
            ("preserve_client_ip.enabled", "TCP", false),
            ("preserve_client_ip.enabled=", "TCP", false),
            ("preserve_client_ip.enabled=True", "TCP", false),
            ("preserve_client_ip.enabled= true ", "TCP", false),
            ("proxy_protocol_v2.enabled=1", "TCP", false),
            ("deregistration_delay.timeout_seconds=1", "TCP", false),
            (
                "preserve_client_ip.enabled=true,preserve_client_ip.enabled=false",
                "TCP",
                true,
            ),
        ] {
            assert_eq!(read(value, protocol).is_ok(), fits, "{value:?} {protocol}");
        }
        let last = read(
            "preserve_client_ip.enabled=true,preserve_client_ip.enabled=false",
            "TCP",
        );
        assert_eq!(last, Ok(Some(pairs(&[(PRESERVE_CLIENT_IP, "false")]))));
        assert_eq!(of_target_groups(&service(&[], "TCP")), Ok(None));
    }

    #[test]
    fn a_target_group_keeps_what_it_cannot_have() {
        let wanted = pairs(&[(PRESERVE_CLIENT_IP, "false"), (PROXY_PROTOCOL, "true")]);
        let actual = pairs(&[(PROXY_PROTOCOL, "false")]);
        assert_eq!(
            target_group_differences(&wanted, &actual),
            pairs(&[(PROXY_PROTOCOL, "true")])
        );
        assert_eq!(target_group_differences(&wanted, &wanted), Attributes::new());
    }
}

#[cfg(test)]
mod health_check_tests {
    use serde_json::{Value, json};

    use super::super::super::annotations::PREFIX;
    use super::wanted_health_check as wanted;
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
