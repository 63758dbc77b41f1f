//! Converts between the SDK's types for classic load balancers and this crate's. A field that is missing in a response
//! is absent or empty.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_elasticloadbalancing::error::BuildError;
use aws_sdk_elasticloadbalancing::types as sdk;

use super::{AccessLog, Attributes, HealthCheck, Listener, LoadBalancer};
use crate::sdk::told;
use crate::{InstanceId, Tags};

pub(super) fn tags(tags: Option<Vec<sdk::Tag>>) -> Tags {
    let tags = tags.into_iter().flatten();
    tags.map(|tag| (tag.key, tag.value.unwrap_or_default())).collect()
}

pub(super) fn sdk_tags(tags: &Tags) -> Result<Vec<sdk::Tag>, BuildError> {
    tags.iter()
        .map(|(key, value)| sdk::Tag::builder().key(key).value(value).build())
        .collect()
}

pub(super) fn load_balancer(name: &str, from: sdk::LoadBalancerDescription) -> LoadBalancer {
    let descriptions = from.listener_descriptions.unwrap_or_default();
    let backends = from.backend_server_descriptions.unwrap_or_default();
    let policies = from.policies.and_then(|policies| policies.other_policies);
    let instances = from.instances.into_iter().flatten();
    let instances = instances.filter_map(|instance| told(instance.instance_id));
    let listeners = descriptions
        .iter()
        .filter_map(|description| description.listener.clone());
    LoadBalancer {
        name: told(from.load_balancer_name).unwrap_or_else(|| name.to_owned()),
        dns_name: from.dns_name.unwrap_or_default(),
        scheme: told(from.scheme),
        vpc_id: told(from.vpc_id),
        listener_policies: by_port(descriptions.iter().filter_map(|description| {
            let port = description.listener.as_ref()?.load_balancer_port;
            Some((port, description.policy_names.as_deref()))
        })),
        backend_policies: by_port(
            backends
                .iter()
                .filter_map(|backend| Some((backend.instance_port?, backend.policy_names.as_deref()))),
        ),
        policies: policies.into_iter().flatten().collect(),
        listeners: listeners.map(listener).collect(),
        subnets: from.subnets.into_iter().flatten().collect(),
        security_groups: from.security_groups.unwrap_or_default(),
        instances: instances.map(InstanceId::new).collect(),
        health_check: from.health_check.map(health_check),
    }
}

fn by_port<'a>(entries: impl Iterator<Item = (i32, Option<&'a [String]>)>) -> BTreeMap<i32, BTreeSet<String>> {
    entries
        .filter_map(|(port, names)| Some((port, names?.iter().cloned().collect::<BTreeSet<_>>())))
        .filter(|(_, names)| !names.is_empty())
        .collect()
}

pub(super) fn sdk_instances(ids: &[InstanceId]) -> Vec<sdk::Instance> {
    ids.iter()
        .map(|id| sdk::Instance::builder().instance_id(id.as_str()).build())
        .collect()
}

fn listener(from: sdk::Listener) -> Listener {
    let protocol = from.protocol.to_ascii_lowercase();
    Listener {
        port: from.load_balancer_port,
        instance_port: from.instance_port,
        instance_protocol: told(from.instance_protocol).map_or_else(|| protocol.clone(), |p| p.to_ascii_lowercase()),
        protocol,
        certificate: told(from.ssl_certificate_id),
    }
}

pub(super) fn sdk_listeners(listeners: &[Listener]) -> Result<Vec<sdk::Listener>, BuildError> {
    let build = |listener: &Listener| {
        sdk::Listener::builder()
            .load_balancer_port(listener.port)
            .protocol(&listener.protocol)
            .instance_port(listener.instance_port)
            .instance_protocol(&listener.instance_protocol)
            .set_ssl_certificate_id(listener.certificate.clone())
            .build()
    };
    listeners.iter().map(build).collect()
}

fn health_check(from: sdk::HealthCheck) -> HealthCheck {
    HealthCheck {
        target: from.target,
        interval: from.interval,
        timeout: from.timeout,
        unhealthy_threshold: from.unhealthy_threshold,
        healthy_threshold: from.healthy_threshold,
    }
}

pub(super) fn sdk_health_check(check: &HealthCheck) -> Result<sdk::HealthCheck, BuildError> {
    sdk::HealthCheck::builder()
        .target(&check.target)
        .interval(check.interval)
        .timeout(check.timeout)
        .unhealthy_threshold(check.unhealthy_threshold)
        .healthy_threshold(check.healthy_threshold)
        .build()
}

pub(super) fn attributes(from: Option<sdk::LoadBalancerAttributes>) -> Attributes {
    let Some(from) = from else { return Attributes::default() };
    Attributes {
        cross_zone: from.cross_zone_load_balancing.map(|cross_zone| cross_zone.enabled),
        access_log: from.access_log.map(|log| AccessLog {
            enabled: log.enabled,
            emit_interval: log.emit_interval,
            bucket: told(log.s3_bucket_name),
            prefix: told(log.s3_bucket_prefix),
        }),
        connection_draining: from.connection_draining.as_ref().map(|draining| draining.enabled),
        connection_draining_timeout: from.connection_draining.and_then(|draining| draining.timeout),
        idle_timeout: from.connection_settings.map(|settings| settings.idle_timeout),
    }
}

pub(super) fn sdk_attributes(attributes: &Attributes) -> Result<sdk::LoadBalancerAttributes, BuildError> {
    let cross_zone = attributes
        .cross_zone
        .map(|enabled| sdk::CrossZoneLoadBalancing::builder().enabled(enabled).build());
    let access_log = attributes.access_log.as_ref().map(|log| {
        sdk::AccessLog::builder()
            .enabled(log.enabled)
            .set_emit_interval(log.emit_interval)
            .set_s3_bucket_name(log.bucket.clone())
            .set_s3_bucket_prefix(log.prefix.clone())
            .build()
    });

    let draining = attributes.connection_draining.map(|enabled| {
        sdk::ConnectionDraining::builder()
            .enabled(enabled)
            .set_timeout(attributes.connection_draining_timeout)
            .build()
    });
    let settings = attributes.idle_timeout;
    let settings = settings.map(|idle| sdk::ConnectionSettings::builder().idle_timeout(idle).build());

    Ok(sdk::LoadBalancerAttributes::builder()
        .set_cross_zone_load_balancing(cross_zone)
        .set_access_log(access_log)
        .set_connection_draining(draining)
        .set_connection_settings(settings.transpose()?)
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_without_any_field_is_a_bare_load_balancer() {
        let bare = sdk::LoadBalancerDescription::builder().build();
        assert_eq!(
            load_balancer("a1", bare),
            LoadBalancer {
                name: "a1".into(),
                ..LoadBalancer::default()
            }
        );
    }

    #[test]
    fn an_absent_instance_protocol_is_the_front_protocol_in_lower_case() {
        let from = sdk::Listener::builder()
            .protocol("TCP")
            .load_balancer_port(80)
            .instance_port(30000)
            .build()
            .unwrap();
        let read = listener(from);
        assert_eq!(
            (read.protocol.as_str(), read.instance_protocol.as_str()),
            ("tcp", "tcp")
        );
    }

    #[test]
    fn nil_listeners_are_passed_over_and_empty_policy_lists_are_absent() {
        let from = sdk::LoadBalancerDescription::builder()
            .listener_descriptions(sdk::ListenerDescription::builder().policy_names("orphan").build())
            .backend_server_descriptions(
                sdk::BackendServerDescription::builder()
                    .instance_port(1)
                    .set_policy_names(Some(vec![]))
                    .build(),
            )
            .build();
        let read = load_balancer("a1", from);
        assert!(read.listeners.is_empty() && read.listener_policies.is_empty() && read.backend_policies.is_empty());
    }

    #[test]
    fn attributes_survive_the_way_to_the_sdk_and_back() {
        let wanted = Attributes {
            cross_zone: Some(true),
            access_log: Some(AccessLog {
                enabled: true,
                emit_interval: Some(5),
                bucket: Some("b".into()),
                prefix: None,
            }),
            connection_draining: Some(true),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        };
        assert_eq!(attributes(Some(sdk_attributes(&wanted).unwrap())), wanted);
        assert_eq!(
            attributes(Some(sdk_attributes(&Attributes::default()).unwrap())),
            Attributes::default()
        );
    }
}
