//! Attributes of a network load balancer and of its target groups.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::elbv2::Attributes;

use super::super::super::error::Invalid;
use super::super::annotations::Annotations;
use super::names::UDP;

const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const LOGS: &str = "access_logs.s3.enabled";
const LOGS_BUCKET: &str = "access_logs.s3.bucket";
const LOGS_PREFIX: &str = "access_logs.s3.prefix";

const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL: &str = "proxy_protocol_v2.enabled";

const TARGET_GROUPS: &str = "target-group-attributes";

/// The requested attributes; others stay unchanged. AWS accepts no empty bucket, so bucket and prefix are requested
/// only while logs are on. Fails when an annotation is no boolean.
pub fn wanted(annotations: Annotations<'_>) -> Result<Attributes, Invalid> {
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

/// The attributes of a new load balancer at AWS.
pub fn of_new_balancer() -> Attributes {
    pairs(&[
        (CROSS_ZONE, "false"),
        (LOGS, "false"),
        (LOGS_BUCKET, ""),
        (LOGS_PREFIX, ""),
    ])
}

/// The wanted attributes that differ at AWS. An attribute that AWS does not list counts as empty.
pub fn differences(wanted: &Attributes, actual: &Attributes) -> Attributes {
    let differs = |(key, wanted): &(&String, &String)| {
        let actual = actual.get(*key).map(String::as_str).unwrap_or_default();
        actual != wanted.as_str()
    };
    clone(wanted.iter().filter(differs))
}

/// The attributes of target groups that annotation `target-group-attributes` requests; `None`: it is absent, and they
/// stay unchanged. Fails when it names another attribute, or a value other than `true` and `false`, or would hide
/// clients from UDP targets.
pub fn of_target_groups(service: &Service) -> Result<Option<Attributes>, Invalid> {
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
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let is_udp = |protocol: Option<&str>| matches!(protocol, Some(UDP | "TCP_UDP"));
    ports.into_iter().flatten().any(|port| is_udp(port.protocol.as_deref()))
}

/// The attributes of a new target group of instances at AWS. A wrong guess costs one repair.
pub fn of_new_target_group() -> Attributes {
    pairs(&[(PRESERVE_CLIENT_IP, "true"), (PROXY_PROTOCOL, "false")])
}

/// The wanted attributes that differ at AWS. An attribute that AWS does not list is not supported by this group.
pub fn target_group_differences(wanted: &Attributes, actual: &Attributes) -> Attributes {
    let differs = |(key, wanted): &(&String, &String)| actual.get(*key).is_some_and(|actual| actual != *wanted);
    clone(wanted.iter().filter(differs))
}

fn clone<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Attributes {
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::annotations::PREFIX;
    use super::*;

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
