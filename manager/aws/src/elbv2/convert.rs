//! Converts between the SDK's types for network load balancers and this crate's. A field that is missing in a response
//! is absent or empty. A missing identifier is an error: a resource that is skipped would seem not to exist.

use aws_sdk_elasticloadbalancingv2::types as sdk;

use super::{
    Attributes, Listener, ListenerSettings, NetworkLoadBalancer, SubnetMapping, Target, TargetGroup, TargetHealth,
    TargetHealthCheck,
};
use crate::sdk::told;
use crate::{Error, InstanceId, Result, Tags};

/// The value of a required field.
fn needed<T>(operation: &'static str, what: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::unusable(operation, format!("AWS's answer lacks {what}")))
}

pub(super) fn tags(tags: Option<Vec<sdk::Tag>>) -> Tags {
    let tags = tags.into_iter().flatten();
    tags.filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default())))
        .collect()
}

pub(super) fn tagged(operation: &'static str, of_one: sdk::TagDescription) -> Result<(String, Tags)> {
    let arn = needed(operation, "the ARN of tags", told(of_one.resource_arn))?;
    Ok((arn, tags(of_one.tags)))
}

pub(super) fn sdk_tags(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter()
        .map(|(key, value)| sdk::Tag::builder().key(key).value(value).build())
        .collect()
}

pub(super) fn load_balancer(operation: &'static str, from: sdk::LoadBalancer) -> Result<NetworkLoadBalancer> {
    let zones = from.availability_zones.into_iter().flatten();
    let state = from.state.and_then(|state| state.code);
    Ok(NetworkLoadBalancer {
        arn: needed(operation, "the ARN of a load balancer", told(from.load_balancer_arn))?,
        name: needed(operation, "the name of a load balancer", told(from.load_balancer_name))?,
        dns_name: from.dns_name.unwrap_or_default(),
        state: state.map(|code| code.as_str().to_owned()),
        scheme: from.scheme.map(|scheme| scheme.as_str().to_owned()),
        vpc_id: told(from.vpc_id),
        subnets: zones.filter_map(|zone| told(zone.subnet_id)).collect(),
        security_groups: from.security_groups.unwrap_or_default(),
    })
}

/// A description that must be a network load balancer's: a name is unique among the types of load balancers of this API.
pub(super) fn network(operation: &'static str, from: sdk::LoadBalancer) -> Result<NetworkLoadBalancer> {
    match &from.r#type {
        None | Some(sdk::LoadBalancerTypeEnum::Network) => load_balancer(operation, from),
        Some(other) => {
            let name = from.load_balancer_name.as_deref().unwrap_or("without a name");
            let message = format!(
                "the load balancer {name} is of type {other}, not network; delete it, since AWS allows a name only once"
            );
            Err(Error::unusable(operation, message))
        }
    }
}

pub(super) fn sdk_subnet(mapping: &SubnetMapping) -> sdk::SubnetMapping {
    sdk::SubnetMapping::builder()
        .subnet_id(&mapping.subnet_id)
        .set_allocation_id(mapping.allocation_id.clone())
        .set_private_ipv4_address(mapping.private_ipv4_address.clone())
        .build()
}

pub(super) fn listener(operation: &'static str, from: sdk::Listener) -> Result<Listener> {
    let mut certificates = from.certificates.into_iter().flatten();
    let protocol = from.protocol.map(|protocol| protocol.as_str().to_owned());
    Ok(Listener {
        arn: needed(operation, "the ARN of a listener", told(from.listener_arn))?,
        settings: ListenerSettings {
            port: needed(operation, "the port of a listener", from.port)?,
            protocol: needed(operation, "the protocol of a listener", protocol)?,
            target_group_arn: from.default_actions.and_then(forwarded_to),
            certificate: certificates.find_map(|one| told(one.certificate_arn)),
            ssl_policy: told(from.ssl_policy),
        },
    })
}

/// The one target group that all traffic is forwarded to.
fn forwarded_to(actions: Vec<sdk::Action>) -> Option<String> {
    let forward = actions
        .into_iter()
        .find(|action| matches!(action.r#type, None | Some(sdk::ActionTypeEnum::Forward)))?;
    let listed = forward.forward_config.and_then(|config| config.target_groups);
    told(forward.target_group_arn).or_else(|| match listed?.as_slice() {
        [only] => only.target_group_arn.clone(),
        _ => None,
    })
}

pub(super) fn sdk_forward(listener: &ListenerSettings) -> Option<Vec<sdk::Action>> {
    let arn = listener.target_group_arn.as_ref()?;
    let forward = sdk::Action::builder().r#type(sdk::ActionTypeEnum::Forward);
    Some(vec![forward.target_group_arn(arn).build()])
}

pub(super) fn sdk_certificates(listener: &ListenerSettings) -> Option<Vec<sdk::Certificate>> {
    let arn = listener.certificate.as_ref()?;
    Some(vec![sdk::Certificate::builder().certificate_arn(arn).build()])
}

/// A target group of any kind: those of functions have neither port nor protocol.
pub(super) fn target_group(operation: &'static str, from: sdk::TargetGroup) -> Result<TargetGroup> {
    let text = |protocol: Option<sdk::ProtocolEnum>| protocol.map(|p| p.as_str().to_owned()).unwrap_or_default();
    Ok(TargetGroup {
        arn: needed(operation, "the ARN of a target group", told(from.target_group_arn))?,
        name: needed(operation, "the name of a target group", told(from.target_group_name))?,
        port: from.port.unwrap_or_default(),
        protocol: text(from.protocol),
        target_type: from.target_type.map(|kind| kind.as_str().to_owned()),
        vpc_id: told(from.vpc_id),
        health_check: TargetHealthCheck {
            protocol: text(from.health_check_protocol),
            port: from.health_check_port.unwrap_or_default(),
            path: told(from.health_check_path),
            interval: from.health_check_interval_seconds.unwrap_or_default(),
            healthy_threshold: from.healthy_threshold_count.unwrap_or_default(),
            unhealthy_threshold: from.unhealthy_threshold_count.unwrap_or_default(),
        },
        load_balancers: from.load_balancer_arns.into_iter().flatten().collect(),
    })
}

pub(super) fn sdk_targets(targets: &[Target]) -> Vec<sdk::TargetDescription> {
    let target = |target: &Target| {
        let builder = sdk::TargetDescription::builder().id(target.id.as_str());
        builder.port(target.port).build()
    };
    targets.iter().map(target).collect()
}

pub(super) fn target_health(operation: &'static str, from: sdk::TargetHealthDescription) -> Result<TargetHealth> {
    let target = needed(operation, "a target", from.target)?;
    let health = from.target_health;
    Ok(TargetHealth {
        target: Target {
            id: InstanceId::new(needed(operation, "the ID of a target", told(target.id))?),
            port: needed(operation, "the port of a target", target.port)?,
        },
        state: health
            .as_ref()
            .and_then(|health| Some(health.state.as_ref()?.as_str().to_owned())),
        reason: health.and_then(|health| Some(health.reason?.as_str().to_owned())),
    })
}

pub(super) fn attribute(key: Option<String>, value: Option<String>) -> Option<(String, String)> {
    Some((key?, value.unwrap_or_default()))
}

pub(super) fn sdk_load_balancer_attributes(attributes: &Attributes) -> Vec<sdk::LoadBalancerAttribute> {
    let one = |(key, value)| sdk::LoadBalancerAttribute::builder().key(key).value(value).build();
    attributes.iter().map(one).collect()
}

pub(super) fn sdk_target_group_attributes(attributes: &Attributes) -> Vec<sdk::TargetGroupAttribute> {
    let one = |(key, value)| sdk::TargetGroupAttribute::builder().key(key).value(value).build();
    attributes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:x/1";

    #[test]
    fn what_identifies_a_thing_must_be_there() {
        let lacks = |error: Error, what: &str| {
            assert!(error.to_string().contains(what), "{error}");
        };
        let bare = sdk::LoadBalancer::builder();
        lacks(
            load_balancer("D", bare.clone().build()).unwrap_err(),
            "the ARN of a load balancer",
        );
        lacks(
            load_balancer("D", bare.load_balancer_arn(ARN).build()).unwrap_err(),
            "the name of a load balancer",
        );
        let bare = sdk::TargetGroup::builder();
        lacks(
            target_group("D", bare.clone().build()).unwrap_err(),
            "the ARN of a target group",
        );
        lacks(
            target_group("D", bare.target_group_arn(ARN).build()).unwrap_err(),
            "the name of a target group",
        );
        let bare = sdk::Listener::builder();
        lacks(
            listener("D", bare.clone().build()).unwrap_err(),
            "the ARN of a listener",
        );
        let bare = bare.listener_arn(ARN);
        lacks(
            listener("D", bare.clone().build()).unwrap_err(),
            "the port of a listener",
        );
        lacks(
            listener("D", bare.port(80).build()).unwrap_err(),
            "the protocol of a listener",
        );
        let bare = sdk::TargetHealthDescription::builder();
        lacks(target_health("D", bare.clone().build()).unwrap_err(), "a target");
        let target = sdk::TargetDescription::builder();
        lacks(
            target_health("D", bare.clone().target(target.clone().build()).build()).unwrap_err(),
            "the ID of a target",
        );
        lacks(
            target_health("D", bare.target(target.id("i-1").build()).build()).unwrap_err(),
            "the port of a target",
        );
        lacks(
            tagged("D", sdk::TagDescription::builder().build()).unwrap_err(),
            "the ARN of tags",
        );
    }

    #[test]
    fn everything_else_may_be_left_out() {
        let bare = sdk::LoadBalancer::builder()
            .load_balancer_arn(ARN)
            .load_balancer_name("a1");
        let wanted = NetworkLoadBalancer {
            arn: ARN.into(),
            name: "a1".into(),
            ..NetworkLoadBalancer::default()
        };
        assert_eq!(network("D", bare.build()).unwrap(), wanted);
        let bare = sdk::TargetGroup::builder()
            .target_group_arn(ARN)
            .target_group_name("k8s-1");
        let wanted = TargetGroup {
            arn: ARN.into(),
            name: "k8s-1".into(),
            ..TargetGroup::default()
        };
        assert_eq!(target_group("D", bare.build()).unwrap(), wanted);
        let target = sdk::TargetDescription::builder().id("i-1").port(80).build();
        let health = target_health("D", sdk::TargetHealthDescription::builder().target(target).build()).unwrap();
        assert_eq!((health.state, health.reason), (None, None));
        let nameless = sdk::Tag::builder().value("v").build();
        let empty = sdk::Tag::builder().key("k").build();
        assert_eq!(
            tags(Some(vec![nameless, empty])),
            Tags::from([("k".into(), String::new())])
        );
    }

    #[test]
    fn a_load_balancer_of_another_type_is_named() {
        let other = sdk::LoadBalancer::builder()
            .load_balancer_arn(ARN)
            .load_balancer_name("a1")
            .r#type(sdk::LoadBalancerTypeEnum::Application);
        let error = network("DescribeLoadBalancers", other.build()).unwrap_err().to_string();
        assert!(error.contains("a1 is of type application"), "{error}");
    }

    #[test]
    fn a_listener_forwards_to_one_target_group_or_to_none_of_ours() {
        let group = |arn: &str| sdk::TargetGroupTuple::builder().target_group_arn(arn).build();
        let config = |groups: Vec<sdk::TargetGroupTuple>| {
            sdk::ForwardActionConfig::builder()
                .set_target_groups(Some(groups))
                .build()
        };
        let forward = || sdk::Action::builder().r#type(sdk::ActionTypeEnum::Forward);
        let redirect = sdk::Action::builder()
            .r#type(sdk::ActionTypeEnum::Redirect)
            .target_group_arn("x");
        for (action, wanted) in [
            (forward().target_group_arn("tg-1"), Some("tg-1")),
            (forward().forward_config(config(vec![group("tg-1")])), Some("tg-1")),
            (
                forward().forward_config(config(vec![group("tg-1"), group("tg-2")])),
                None,
            ),
            (forward(), None),
            (redirect, None),
        ] {
            assert_eq!(forwarded_to(vec![action.build()]).as_deref(), wanted);
        }
        assert_eq!(forwarded_to(Vec::new()), None);
    }
}
