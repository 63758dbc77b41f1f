//! [`Elbv2`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_elasticloadbalancingv2::types::{
    LoadBalancerSchemeEnum, LoadBalancerTypeEnum, ProtocolEnum, TargetTypeEnum,
};

use super::{
    Attributes, Elbv2, HealthCheckChange, Listener, ListenerSettings, NetworkLoadBalancer, NewNetworkLoadBalancer,
    NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth, convert,
};
use crate::sdk::failed;
use crate::{Error, Kind, Page, Result, Tags, Token};

#[derive(Debug, Clone)]
pub(crate) struct SdkElbv2 {
    pub(crate) client: aws_sdk_elasticloadbalancingv2::Client,
}

/// Deleting what is gone already has had its effect.
fn gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        deleted => deleted,
    }
}

/// The one resource that AWS created.
fn made<T>(operation: &'static str, answer: Option<Vec<T>>) -> Result<T> {
    let made = answer.into_iter().flatten().next();
    made.ok_or_else(|| Error::unusable(operation, "AWS answered without the created resource"))
}

#[async_trait]
impl Elbv2 for SdkElbv2 {
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let found = answer.load_balancers.into_iter().flatten();
        found.map(|found| convert::network(OPERATION, found)).collect()
    }

    async fn all_load_balancers_page(&self, token: Token) -> Result<Page<NetworkLoadBalancer>> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_marker(token);
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let found = answer.load_balancers.into_iter().flatten();
        let found = found.filter(|found| found.r#type == Some(LoadBalancerTypeEnum::Network));
        let found: Result<Vec<_>> = found.map(|found| convert::load_balancer(OPERATION, found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer> {
        const OPERATION: &str = "CreateLoadBalancer";

        let groups = Some(new.security_groups.clone()).filter(|groups| !groups.is_empty());
        let answer = self
            .client
            .create_load_balancer()
            .r#type(LoadBalancerTypeEnum::Network)
            .name(&new.name)
            .set_scheme(new.internal.then_some(LoadBalancerSchemeEnum::Internal))
            .set_subnet_mappings(Some(new.subnets.iter().map(convert::sdk_subnet).collect()))
            .set_security_groups(groups)
            .set_tags(Some(convert::sdk_tags(&new.tags)))
            .send()
            .await
            .map_err(failed(OPERATION))?;

        convert::network(OPERATION, made(OPERATION, answer.load_balancers)?)
    }

    async fn delete_load_balancer(&self, arn: &str) -> Result<()> {
        let call = self.client.delete_load_balancer().load_balancer_arn(arn);
        gone(call.send().await.map(drop).map_err(failed("DeleteLoadBalancer")))
    }

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<()> {
        let call = self.client.set_security_groups().load_balancer_arn(arn);
        let call = call.set_security_groups(Some(groups.to_vec()));
        call.send().await.map(drop).map_err(failed("SetSecurityGroups"))
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes> {
        let call = self.client.describe_load_balancer_attributes().load_balancer_arn(arn);
        let answer = call.send().await;
        let answer = answer.map_err(failed("DescribeLoadBalancerAttributes"))?;
        let attributes = answer.attributes.into_iter().flatten();
        Ok(attributes
            .filter_map(|one| convert::attribute(one.key, one.value))
            .collect())
    }

    async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()> {
        let attributes = convert::sdk_load_balancer_attributes(attributes);
        let call = self.client.modify_load_balancer_attributes().load_balancer_arn(arn);
        let modified = call.set_attributes(Some(attributes)).send().await;
        modified.map(drop).map_err(failed("ModifyLoadBalancerAttributes"))
    }

    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>> {
        const OPERATION: &str = "DescribeTags";
        let call = self.client.describe_tags().set_resource_arns(Some(arns.to_vec()));
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let described = answer.tag_descriptions.into_iter().flatten();
        described.map(|of_one| convert::tagged(OPERATION, of_one)).collect()
    }

    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<()> {
        let call = self.client.add_tags().set_resource_arns(Some(arns.to_vec()));
        let call = call.set_tags(Some(convert::sdk_tags(tags)));
        call.send().await.map(drop).map_err(failed("AddTags"))
    }

    async fn listeners_page(&self, load_balancer_arn: &str, token: Token) -> Result<Page<Listener>> {
        const OPERATION: &str = "DescribeListeners";
        let call = self.client.describe_listeners().load_balancer_arn(load_balancer_arn);
        let answer = call.set_marker(token).send().await.map_err(failed(OPERATION))?;
        let found = answer.listeners.into_iter().flatten();
        let found: Result<Vec<_>> = found.map(|found| convert::listener(OPERATION, found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create_listener(&self, balancer_arn: &str, listener: &ListenerSettings, tags: &Tags) -> Result<String> {
        const OPERATION: &str = "CreateListener";

        let answer = self
            .client
            .create_listener()
            .load_balancer_arn(balancer_arn)
            .port(listener.port)
            .protocol(ProtocolEnum::from(listener.protocol.as_str()))
            .set_default_actions(convert::sdk_forward(listener))
            .set_ssl_policy(listener.ssl_policy.clone())
            .set_certificates(convert::sdk_certificates(listener))
            .set_tags(Some(convert::sdk_tags(tags)))
            .send()
            .await
            .map_err(failed(OPERATION))?;

        Ok(convert::listener(OPERATION, made(OPERATION, answer.listeners)?)?.arn)
    }

    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<()> {
        self.client
            .modify_listener()
            .listener_arn(arn)
            .port(listener.port)
            .protocol(ProtocolEnum::from(listener.protocol.as_str()))
            .set_default_actions(convert::sdk_forward(listener))
            .set_ssl_policy(listener.ssl_policy.clone())
            .set_certificates(convert::sdk_certificates(listener))
            .send()
            .await
            .map(drop)
            .map_err(failed("ModifyListener"))
    }

    async fn delete_listener(&self, arn: &str) -> Result<()> {
        let call = self.client.delete_listener().listener_arn(arn);
        gone(call.send().await.map(drop).map_err(failed("DeleteListener")))
    }

    async fn target_groups_page(&self, query: TargetGroupQuery<'_>, token: Token) -> Result<Page<TargetGroup>> {
        const OPERATION: &str = "DescribeTargetGroups";

        let call = self.client.describe_target_groups().set_marker(token);
        let call = match query {
            TargetGroupQuery::All => call,
            TargetGroupQuery::UsedBy(arn) => call.load_balancer_arn(arn),
            TargetGroupQuery::Names(names) => call.set_names(Some(names.to_vec())),
        };
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let found = answer.target_groups.into_iter().flatten();
        let found: Result<Vec<_>> = found.map(|found| convert::target_group(OPERATION, found)).collect();

        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String> {
        const OPERATION: &str = "CreateTargetGroup";

        let check = &new.health_check;
        let answer = self
            .client
            .create_target_group()
            .name(&new.name)
            .port(new.port)
            .protocol(ProtocolEnum::from(new.protocol.as_str()))
            .vpc_id(&new.vpc_id)
            .target_type(TargetTypeEnum::Instance)
            .health_check_protocol(ProtocolEnum::from(check.protocol.as_str()))
            .health_check_port(&check.port)
            // AWS refuses a path beside a check that knows none.
            .set_health_check_path(check.path.clone().filter(|_| check.protocol != "TCP"))
            .health_check_interval_seconds(check.interval)
            .healthy_threshold_count(check.healthy_threshold)
            .unhealthy_threshold_count(check.unhealthy_threshold)
            .set_tags(Some(convert::sdk_tags(&new.tags)))
            .send()
            .await
            .map_err(failed(OPERATION))?;

        Ok(convert::target_group(OPERATION, made(OPERATION, answer.target_groups)?)?.arn)
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<()> {
        self.client
            .modify_target_group()
            .target_group_arn(arn)
            .set_health_check_port(change.port.clone())
            .set_health_check_path(change.path.clone())
            .set_healthy_threshold_count(change.healthy_threshold)
            .set_unhealthy_threshold_count(change.unhealthy_threshold)
            .send()
            .await
            .map(drop)
            .map_err(failed("ModifyTargetGroup"))
    }

    async fn delete_target_group(&self, arn: &str) -> Result<()> {
        let call = self.client.delete_target_group().target_group_arn(arn);
        gone(call.send().await.map(drop).map_err(failed("DeleteTargetGroup")))
    }

    /// AWS returns all targets in one response: this action has no pages.
    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>> {
        const OPERATION: &str = "DescribeTargetHealth";
        let call = self.client.describe_target_health().target_group_arn(target_group_arn);
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let targets = answer.target_health_descriptions.into_iter().flatten();
        targets
            .map(|target| convert::target_health(OPERATION, target))
            .collect()
    }

    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        let call = self.client.register_targets().target_group_arn(target_group_arn);
        let call = call.set_targets(Some(convert::sdk_targets(targets)));
        call.send().await.map(drop).map_err(failed("RegisterTargets"))
    }

    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        let call = self.client.deregister_targets().target_group_arn(target_group_arn);
        let call = call.set_targets(Some(convert::sdk_targets(targets)));
        call.send().await.map(drop).map_err(failed("DeregisterTargets"))
    }

    async fn target_group_attributes(&self, arn: &str) -> Result<Attributes> {
        let call = self.client.describe_target_group_attributes().target_group_arn(arn);
        let answer = call.send().await;
        let answer = answer.map_err(failed("DescribeTargetGroupAttributes"))?;
        let attributes = answer.attributes.into_iter().flatten();
        Ok(attributes
            .filter_map(|one| convert::attribute(one.key, one.value))
            .collect())
    }

    async fn modify_target_group_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()> {
        let attributes = convert::sdk_target_group_attributes(attributes);
        let call = self.client.modify_target_group_attributes().target_group_arn(arn);
        let modified = call.set_attributes(Some(attributes)).send().await;
        modified.map(drop).map_err(failed("ModifyTargetGroupAttributes"))
    }
}
