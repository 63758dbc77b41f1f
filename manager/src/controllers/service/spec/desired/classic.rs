//! The desired classic load balancer, derived from a Service and the settings only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elb::{AccessLog, Attributes, HealthCheck, Listener};

use super::super::super::error::Invalid;
use super::super::super::settings::{HealthProbe, Settings};
use super::super::annotations::Annotations;
use super::super::names;
use super::super::permissions;
use super::super::request::{self, Subnets, TRAFFIC_PORT, is_local};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// One of its own, and further ones that are only attached.
    Own { extra: Vec<String> },
    /// Given ones, whose rules are not managed.
    Given(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub name: String,
    /// Only reachable within the VPC. Fixed at creation.
    pub internal: bool,
    /// Listeners, at least one.
    pub listeners: Vec<Listener>,
    pub subnets: Subnets,
    pub groups: Groups,
    pub own_group: NewSecurityGroup,
    pub ingress: Vec<IpPermission>,
    pub attributes: Attributes,
    pub health_check: HealthCheck,
    pub tags: Tags,
    /// The cluster's tags among them.
    pub cluster_tags: Tags,
    /// The annotation's tags among them.
    pub annotated_tags: Tags,
    pub proxy_protocol: bool,
    /// AWS's name of the TLS policy for listeners with a certificate.
    pub tls_policy: Option<String>,
    pub node_labels: BTreeMap<String, String>,
}

/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let annotations = Annotations::of(service);
    if annotations.get("target-group-attributes").is_some() {
        let expected = "only network load balancers have target groups";
        return Err(annotations.wrong("target-group-attributes", expected));
    }

    let user_tags = request::user_tags(annotations, &settings.cluster_id)?;
    request::refuse_affinity(service)?;

    let ports = checked(service)?;
    let networks = request::source_ranges(service)?;
    let listeners = listeners(ports, annotations)?;
    request::refuse_fixed_address(service)?;

    let first = listeners.first().ok_or(Invalid::NotBuilt {
        what: "a load balancer without listeners",
    })?;
    let proxy_protocol = proxy_protocol(annotations)?;
    let attributes = wanted_attributes(annotations)?;
    let subnets = request::subnets(annotations)?;
    let health_check = wanted_health_check(service, annotations, &settings.health_probe, first)?;
    let name = names::load_balancer(names::uid(service));
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);

    Ok(Desired {
        internal: annotations.internal(),
        ingress: permissions::ingress(ports, &networks),
        subnets,
        groups: groups(annotations, settings),
        own_group: own_group(service, settings, &name, &user_tags, &cluster_tags),
        attributes,
        health_check,
        tags: request::tags(service, &user_tags, &cluster_tags),
        annotated_tags: request::annotated_tags(user_tags, &cluster_tags),
        cluster_tags,
        proxy_protocol,
        tls_policy: annotations.get("ssl-negotiation-policy").map(str::to_owned),
        node_labels: annotations.pairs("target-node-labels"),
        name,
        listeners,
    })
}

fn groups(annotations: Annotations<'_>, settings: &Settings) -> Groups {
    let extra = annotations.list("extra-security-groups").unwrap_or_default();
    let mut given = annotations.list("security-groups").unwrap_or_default();
    if given.is_empty() {
        let configured = settings.elb_security_group.clone();
        given.extend(configured.filter(|group| !group.is_empty()));
    }

    if given.is_empty() {
        return Groups::Own { extra };
    }

    given.extend(extra);

    Groups::Given(given)
}

fn own_group(
    service: &Service,
    settings: &Settings,
    load_balancer: &str,
    user_tags: &BTreeMap<String, String>,
    cluster_tags: &Tags,
) -> NewSecurityGroup {
    let (namespace, name) = names::namespaced(service);
    let mut tags = user_tags.clone();
    tags.extend(cluster_tags.clone());

    NewSecurityGroup {
        name: names::security_group(load_balancer),
        description: names::security_group_description(load_balancer, namespace, name),
        vpc_id: settings.vpc_id.clone(),
        tags: names::creation_tags(&tags, settings.cluster_uid.as_deref(), names::MOST_TAGS),
    }
}

fn proxy_protocol(annotations: Annotations<'_>) -> Result<bool, Invalid> {
    match annotations.filled("proxy-protocol") {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(_) => Err(annotations.wrong("proxy-protocol", "expected *, the proxy protocol on all ports")),
    }
}

fn checked(service: &Service) -> Result<&[ServicePort], Invalid> {
    let ports = request::ports(service)?;
    match ports.iter().map(request::protocol).find(|protocol| *protocol != "TCP") {
        Some(other) => Err(request::wrong_ports(other, "a classic load balancer supports TCP only")),
        None => Ok(ports),
    }
}

/// The listeners for these ports. A port without a node port has none, since no instance would listen.
/// Fails when an annotation has a value that makes no listener, or no port has a node port.
pub fn listeners(ports: &[ServicePort], annotations: Annotations<'_>) -> Result<Vec<Listener>, Invalid> {
    let reachable = ports.iter().filter_map(|port| Some((port, request::node_port(port)?)));
    let listeners: Vec<Listener> = reachable
        .map(|(port, node_port)| listener(port, node_port, annotations))
        .collect::<Result<_, _>>()?;
    if listeners.is_empty() {
        return Err(Invalid::Field {
            field: "spec.ports[*].nodePort",
            value: String::new(),
            expected: "a classic load balancer reaches instances by node ports; set spec.allocateLoadBalancerNodePorts",
        });
    }

    Ok(listeners)
}

fn listener(port: &ServicePort, node_port: i32, annotations: Annotations<'_>) -> Result<Listener, Invalid> {
    let backend = annotations.filled("backend-protocol");
    let name = port.name.as_deref().unwrap_or_default().to_lowercase();
    let certificate = annotations.filled("ssl-cert");
    let certificate = certificate.filter(|_| request::takes_certificate(port, &name, annotations));
    let (front, back) = match (certificate, backend) {
        (None, Some("http")) => ("http", "http"),
        (None, _) => ("tcp", "tcp"),
        (Some(_), None | Some("tcp")) => ("ssl", "tcp"),
        (Some(_), Some("ssl")) => ("ssl", "ssl"),
        (Some(_), Some("http")) => ("https", "http"),
        (Some(_), Some("https")) => ("https", "https"),
        (Some(arn), Some(_)) => {
            let expected = format!("expected http, https, ssl or tcp with certificate {arn} in annotation ssl-cert");
            return Err(annotations.wrong("backend-protocol", expected));
        }
    };

    Ok(Listener {
        port: port.port,
        protocol: front.to_owned(),
        instance_port: node_port,
        instance_protocol: back.to_owned(),
        certificate: certificate.map(str::to_owned),
    })
}

/// Seconds after which AWS, and both providers, close an idle connection by default.
const IDLE_TIMEOUT: i32 = 60;
/// Seconds for which connections drain, and minutes between two access logs, by default at AWS. The in-tree provider
/// does not send them at a sync, so that they return when an annotation is removed.
const DRAINING_TIMEOUT: i32 = 300;
const EMIT_INTERVAL: i32 = 60;

/// The requested attributes. Without any annotation they are those of a new load balancer. Fails when an annotation is
/// no boolean or no number.
fn wanted_attributes(annotations: Annotations<'_>) -> Result<Attributes, Invalid> {
    let text = |suffix| annotations.filled(suffix).map(str::to_owned);
    // In the in-tree provider's order, which decides which of several wrong values is reported.
    let emit_interval = annotations.integer("access-log-emit-interval")?;
    let logs = annotations.flag("access-log-enabled")?;
    let draining = annotations.flag("connection-draining-enabled")?;
    let draining_timeout = annotations.integer("connection-draining-timeout")?;
    let idle_timeout = annotations.integer("connection-idle-timeout")?;
    let cross_zone = annotations.flag("cross-zone-load-balancing-enabled")?;

    Ok(Attributes {
        cross_zone: Some(cross_zone.unwrap_or(false)),
        access_log: Some(AccessLog {
            enabled: logs.unwrap_or(false),
            emit_interval,
            bucket: text("access-log-s3-bucket-name"),
            prefix: text("access-log-s3-bucket-prefix"),
        }),
        connection_draining: Some(draining.unwrap_or(false)),
        connection_draining_timeout: draining_timeout.or((draining == Some(true)).then_some(DRAINING_TIMEOUT)),
        idle_timeout: Some(idle_timeout.unwrap_or(IDLE_TIMEOUT)),
    })
}

/// The names of the wanted attributes that differ at AWS. Fields that are not requested do not count: AWS returns more
/// than was ever set, and a comparison of the whole would always find a difference. The details of logs and of draining
/// count only while these are on.
pub fn attribute_differences(wanted: &Attributes, actual: &Attributes) -> Vec<&'static str> {
    let draining = wanted.connection_draining == Some(true);
    let (log, now) = (wanted.access_log.clone(), actual.access_log.clone());
    let (log, now) = (log.unwrap_or_default(), now.unwrap_or_default());
    let details = |log: &AccessLog| {
        let (bucket, prefix) = (log.bucket.clone(), log.prefix.clone());
        let interval = log.emit_interval.unwrap_or(EMIT_INTERVAL);
        (bucket.unwrap_or_default(), prefix.unwrap_or_default(), interval)
    };

    let timeout = met(wanted.connection_draining_timeout, actual.connection_draining_timeout);
    let compared = [
        ("cross-zone", met(wanted.cross_zone, actual.cross_zone)),
        ("idle time-out", met(wanted.idle_timeout, actual.idle_timeout)),
        (
            "connection draining",
            met(wanted.connection_draining, actual.connection_draining),
        ),
        ("connection draining time-out", !draining || timeout),
        ("access log", log.enabled == now.enabled),
        ("access log details", !log.enabled || details(&log) == details(&now)),
    ];

    let differ = compared.into_iter().filter(|(_, same)| !same);
    differ.map(|(name, _)| name).collect()
}

/// Whether AWS has the wanted value, or none is wanted.
fn met<T: PartialEq>(wanted: Option<T>, actual: Option<T>) -> bool {
    wanted.is_none() || wanted == actual
}

/// The health check of a Service whose first listener is `first`.
/// Fails when an annotation is no number, or too small a one.
fn wanted_health_check(
    service: &Service,
    annotations: Annotations<'_>,
    probe: &HealthProbe,
    first: &Listener,
) -> Result<HealthCheck, Invalid> {
    let (mut protocol, mut port, mut path) = base_check(service, annotations, probe, first);
    if let Some(text) = annotations.get("healthcheck-protocol") {
        protocol = text.to_ascii_uppercase();
    }

    let chosen = annotations.get("healthcheck-port");
    if chosen.is_some_and(|text| text != TRAFFIC_PORT) {
        port = annotations.present_integer("healthcheck-port")?.unwrap_or(port);
    }

    if matches!(protocol.as_str(), "HTTP" | "HTTPS") {
        let chosen = annotations.filled("healthcheck-path").map(str::to_owned);
        path = chosen.unwrap_or(if path.is_empty() { "/".to_owned() } else { path });
    } else {
        path.clear();
    }

    Ok(HealthCheck {
        target: format!("{protocol}:{port}{path}"),
        interval: number(annotations, "healthcheck-interval", 10, 5)?,
        timeout: number(annotations, "healthcheck-timeout", 5, 2)?,
        unhealthy_threshold: number(annotations, "healthcheck-unhealthy-threshold", 6, 2)?,
        healthy_threshold: number(annotations, "healthcheck-healthy-threshold", 2, 2)?,
    })
}

/// Whether two checks are the same. v1.37 sends the protocol as the annotation spells it, and AWS accepts any case:
/// its load balancers stay unchanged.
pub fn same_health_check(a: &HealthCheck, b: &HealthCheck) -> bool {
    let target = |check: &HealthCheck| {
        let (protocol, rest) = check.target.split_once(':').unwrap_or((check.target.as_str(), ""));
        (protocol.to_ascii_uppercase(), rest.to_owned())
    };
    let numbers = |check: &HealthCheck| {
        (
            check.interval,
            check.timeout,
            check.unhealthy_threshold,
            check.healthy_threshold,
        )
    };

    target(a) == target(b) && numbers(a) == numbers(b)
}

/// Protocol, port and path before the annotations of the health check.
fn base_check(
    service: &Service,
    annotations: Annotations<'_>,
    probe: &HealthProbe,
    first: &Listener,
) -> (String, i32, String) {
    // With `externalTrafficPolicy: Local` each Node reports at this port whether it has endpoints.
    let local_port = service.spec.as_ref().and_then(|spec| spec.health_check_node_port);
    if let Some(port) = local_port.filter(|port| is_local(service) && *port != 0) {
        let traffic = annotations.get("healthcheck-port") == Some(TRAFFIC_PORT);
        let port = if traffic { first.instance_port } else { port };
        return ("HTTP".into(), port, "/healthz".into());
    }
    if let HealthProbe::Shared { port, path } = probe {
        return ("HTTP".into(), *port, path.clone());
    }

    let backend = annotations.get("backend-protocol").map(str::to_ascii_lowercase);
    let protocol = match backend.as_deref() {
        Some("https" | "ssl") => "SSL",
        _ => "TCP",
    };

    (protocol.into(), first.instance_port, String::new())
}

/// The number of an annotation, or its default. `smallest`: the least value that AWS accepts:
/// <https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/API_HealthCheck.html>.
fn number(annotations: Annotations<'_>, annotation: &str, default: i32, smallest: i32) -> Result<i32, Invalid> {
    match annotations.present_integer(annotation)? {
        None => Ok(default),
        Some(value) if value >= smallest => Ok(value),
        Some(_) => Err(annotations.wrong(annotation, format!("expected at least {smallest}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(annotations: &[(&str, &str)], port: i32, name: &str) -> Result<String, Invalid> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{}{k}", super::super::super::annotations::PREFIX), json!(v)))
            .collect();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"ports": [{"port": port, "nodePort": 7999, "name": name, "protocol": "TCP"}]},
        }))
        .unwrap();
        let made = listeners(checked(&service)?, Annotations::of(&service))?;
        let certificate = if made[0].certificate.is_some() { "+cert" } else { "" };
        Ok(format!(
            "{}->{}{certificate}",
            made[0].protocol, made[0].instance_protocol
        ))
    }

    #[test]
    fn certificate_and_backend_protocol_choose_the_protocols() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "tcp->tcp"),
            (&[("ssl-cert", "c")], "ssl->tcp+cert"),
            (&[("backend-protocol", "https")], "tcp->tcp"),
            (&[("ssl-cert", "c"), ("backend-protocol", "https")], "https->https+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "http")], "https->http+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "ssl")], "ssl->ssl+cert"),
            (&[("ssl-cert", "c"), ("backend-protocol", "tcp")], "ssl->tcp+cert"),
            (&[("backend-protocol", "http")], "http->http"),
        ];
        for (annotations, expected) in table {
            assert_eq!(read(annotations, 80, "").as_deref(), Ok(*expected), "{annotations:?}");
        }
        for backend in ["bacon", "HTTP"] {
            assert!(read(&[("ssl-cert", "c"), ("backend-protocol", backend)], 80, "").is_err());
        }
    }

    #[test]
    fn ssl_ports_choose_by_number_and_by_lower_case_name() {
        let with = |ports: &str, port, name| read(&[("ssl-cert", "c"), ("ssl-ports", ports)], port, name).unwrap();
        assert_eq!(with("1234,5678", 1234, ""), "ssl->tcp+cert");
        assert_eq!(with("1234,5678", 443, ""), "tcp->tcp");
        assert_eq!(with("foo,bar", 80, "bar"), "ssl->tcp+cert");
        assert_eq!(with("foo,bar", 80, ""), "tcp->tcp");
        assert_eq!(with("foo, 80", 80, ""), "tcp->tcp");
        for empty_item in ["443,8443,", ","] {
            assert_eq!(
                with(empty_item, 80, ""),
                "ssl->tcp+cert",
                "a name for a port without one"
            );
            assert_eq!(with(empty_item, 80, "web"), "tcp->tcp");
        }
    }

    #[test]
    fn other_protocols_and_mixtures_are_refused() {
        let service = |protocols: &[&str]| -> Service {
            let ports: Vec<_> = protocols
                .iter()
                .map(|p| json!({"port": 1, "nodePort": 2, "protocol": p}))
                .collect();
            serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap()
        };
        assert!(checked(&service(&["TCP", "TCP"])).is_ok());
        for bad in [&["UDP"][..], &["TCP", "UDP"], &[]] {
            assert!(checked(&service(bad)).is_err(), "{bad:?}");
        }
    }
}

#[cfg(test)]
mod attribute_tests {
    use super::*;
    use super::{attribute_differences as differences, wanted_attributes as wanted};

    fn of_aws() -> Attributes {
        Attributes {
            cross_zone: Some(false),
            access_log: Some(AccessLog {
                emit_interval: Some(60),
                ..AccessLog::default()
            }),
            connection_draining: Some(false),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        }
    }

    #[test]
    fn what_aws_adds_by_itself_is_no_difference() {
        let service = k8s_openapi::api::core::v1::Service::default();
        let mut wanted = wanted(Annotations::of(&service)).unwrap();
        let mut actual = of_aws();
        assert_eq!(differences(&wanted, &actual), Vec::<&str>::new());
        (wanted.connection_draining, actual.connection_draining) = (Some(true), Some(true));
        wanted.access_log = Some(AccessLog {
            enabled: true,
            bucket: Some("logs".into()),
            ..AccessLog::default()
        });
        actual.access_log = Some(AccessLog {
            emit_interval: Some(60),
            ..wanted.access_log.clone().unwrap()
        });
        assert_eq!(
            differences(&wanted, &actual),
            Vec::<&str>::new(),
            "time-out and interval were not asked for"
        );
    }

    #[test]
    fn details_of_what_is_off_are_no_difference() {
        let of = |timeout, interval| Attributes {
            connection_draining_timeout: Some(timeout),
            access_log: Some(AccessLog {
                emit_interval: Some(interval),
                ..AccessLog::default()
            }),
            ..of_aws()
        };
        assert_eq!(differences(&of(120, 5), &of(300, 60)), Vec::<&str>::new());
    }

    #[test]
    fn details_whose_annotations_are_taken_off_are_as_aws_has_them_by_default() {
        let annotated = |more: &[(&str, &str)]| {
            let on = [("access-log-enabled", "true"), ("connection-draining-enabled", "true")];
            let all = on.iter().chain(more);
            let key = |suffix: &str| format!("service.beta.kubernetes.io/aws-load-balancer-{suffix}");
            let mut service = k8s_openapi::api::core::v1::Service::default();
            let all = all.map(|(suffix, value)| (key(suffix), (*value).to_owned()));
            service.metadata.annotations = Some(all.collect());
            wanted(Annotations::of(&service)).unwrap()
        };
        let details = [
            ("connection-draining-timeout", "120", "connection draining time-out"),
            ("access-log-emit-interval", "5", "access log details"),
            ("access-log-s3-bucket-prefix", "a/b", "access log details"),
            ("access-log-s3-bucket-name", "logs", "access log details"),
        ];
        let plain = annotated(&[]);
        for (suffix, value, name) in details {
            let before = annotated(&[(suffix, value)]);
            assert_eq!(differences(&plain, &before), [name], "{suffix} is gone");
            assert_eq!(differences(&before, &before), Vec::<&str>::new());
        }
        let (mut of_aws, mut log) = (of_aws(), plain.access_log.clone().unwrap());
        log.prefix = Some(String::new());
        (of_aws.connection_draining, of_aws.access_log) = (Some(true), Some(log));
        assert_eq!(
            differences(&plain, &of_aws),
            Vec::<&str>::new(),
            "nothing was asked for"
        );
    }

    #[test]
    fn each_attribute_that_differs_is_named() {
        let wanted = Attributes {
            cross_zone: Some(true),
            access_log: Some(AccessLog {
                enabled: true,
                bucket: Some("logs".into()),
                ..AccessLog::default()
            }),
            connection_draining: Some(true),
            connection_draining_timeout: Some(60),
            idle_timeout: Some(30),
        };
        assert_eq!(differences(&wanted, &of_aws()).len(), 6);
        assert_eq!(differences(&wanted, &wanted), Vec::<&str>::new());
    }
}

#[cfg(test)]
mod health_check_tests {
    use serde_json::json;

    use super::super::super::annotations::PREFIX;
    use super::*;
    use super::{same_health_check as same, wanted_health_check as wanted};

    fn check(spec: serde_json::Value, annotations: &[(&str, &str)], probe: &HealthProbe) -> Result<String, Invalid> {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), json!(v)))
            .collect();
        let service: Service =
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap();
        let first = Listener {
            port: 80,
            protocol: "tcp".into(),
            instance_port: 8080,
            instance_protocol: "tcp".into(),
            certificate: None,
        };
        let made = wanted(&service, Annotations::of(&service), probe, &first)?;
        Ok(format!(
            "{} {}/{}/{}/{}",
            made.target, made.interval, made.timeout, made.unhealthy_threshold, made.healthy_threshold
        ))
    }

    fn cluster(annotations: &[(&str, &str)]) -> Result<String, Invalid> {
        check(json!({}), annotations, &HealthProbe::ServiceNodePort)
    }

    #[test]
    fn defaults_and_annotations_give_the_in_tree_targets() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "TCP:8080 10/5/6/2"),
            (&[("healthcheck-protocol", "HTTP")], "HTTP:8080/ 10/5/6/2"),
            (
                &[
                    ("healthcheck-protocol", "HTTPS"),
                    ("healthcheck-path", "/healthz"),
                    ("healthcheck-port", "31224"),
                ],
                "HTTPS:31224/healthz 10/5/6/2",
            ),
            (
                &[
                    ("healthcheck-protocol", "SSL"),
                    ("healthcheck-path", "/x"),
                    ("healthcheck-port", "3124"),
                ],
                "SSL:3124 10/5/6/2",
            ),
            (&[("healthcheck-port", "traffic-port")], "TCP:8080 10/5/6/2"),
            (&[("backend-protocol", "HTTPS")], "SSL:8080 10/5/6/2"),
            (
                &[("healthcheck-interval", "23"), ("healthcheck-healthy-threshold", "7")],
                "TCP:8080 23/5/6/7",
            ),
        ];
        for (annotations, expected) in table {
            assert_eq!(cluster(annotations).as_deref(), Ok(*expected), "{annotations:?}");
        }
    }

    #[test]
    fn the_case_of_the_protocol_is_no_difference_and_that_of_the_path_is() {
        let check = |target: &str, interval| HealthCheck {
            target: target.into(),
            interval,
            timeout: 5,
            unhealthy_threshold: 6,
            healthy_threshold: 2,
        };
        assert!(same(&check("http:80/a", 10), &check("HTTP:80/a", 10)));
        assert!(same(&check("TCP:80", 10), &check("TCP:80", 10)));
        for other in ["HTTP:80/A", "HTTP:81/a", "HTTPS:80/a"] {
            assert!(!same(&check("HTTP:80/a", 10), &check(other, 10)), "{other}");
        }
        assert!(!same(&check("TCP:80", 10), &check("TCP:80", 11)));
    }

    #[test]
    fn local_traffic_is_checked_at_its_own_port() {
        let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32213});
        let probe = HealthProbe::Shared {
            port: 10256,
            path: "/healthz".into(),
        };
        assert_eq!(
            check(spec.clone(), &[], &probe).as_deref(),
            Ok("HTTP:32213/healthz 10/5/6/2")
        );
        let traffic = [("healthcheck-port", "traffic-port")];
        assert_eq!(
            check(spec, &traffic, &probe).as_deref(),
            Ok("HTTP:8080/healthz 10/5/6/2")
        );
        assert_eq!(
            check(json!({}), &[], &probe).as_deref(),
            Ok("HTTP:10256/healthz 10/5/6/2")
        );
    }

    #[test]
    fn numbers_that_are_none_or_too_small_are_refused_with_their_annotation() {
        for (annotation, value) in [
            ("healthcheck-timeout", "1"),
            ("healthcheck-timeout", "3.3"),
            ("healthcheck-interval", "4"),
            ("healthcheck-port", ""),
        ] {
            let error = cluster(&[(annotation, value)]).unwrap_err().to_string();
            assert!(error.contains(annotation), "{error}");
        }
    }
}
