//! [`Elbv2`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_elasticloadbalancingv2::types::{LoadBalancerSchemeEnum, LoadBalancerTypeEnum, ProtocolEnum};

use super::{
    Attributes, Elbv2, HealthCheckChange, Listener, ListenerSettings, NetworkLoadBalancer, NewNetworkLoadBalancer,
    NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth, convert,
};
use crate::sdk::failed;
use crate::{Error, Kind, Page, Tags};

/// The SDK's client of network load balancers.
#[derive(Debug, Clone)]
pub struct SdkElbv2 {
    pub(super) client: aws_sdk_elasticloadbalancingv2::Client,
}

impl SdkElbv2 {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: aws_sdk_elasticloadbalancingv2::Client) -> Self {
        Self { client }
    }
}

/// Deleting what is gone already has had its effect.
pub(super) fn gone(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        deleted => deleted,
    }
}

/// The one resource that AWS created.
pub(super) fn made<T>(operation: &'static str, answer: Option<Vec<T>>) -> Result<T, Error> {
    let made = answer.unwrap_or_default().into_iter().next();
    made.ok_or_else(|| Error::unusable(operation, "AWS answered without the created resource"))
}

#[async_trait]
impl Elbv2 for SdkElbv2 {
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>, Error> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let found = answer.load_balancers.unwrap_or_default().into_iter();
        found.map(|found| convert::network(OPERATION, found)).collect()
    }

    async fn all_load_balancers_page(&self, token: Option<String>) -> Result<Page<NetworkLoadBalancer>, Error> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_marker(token);
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let found = answer.load_balancers.unwrap_or_default().into_iter();
        let found = found.filter(|found| found.r#type == Some(LoadBalancerTypeEnum::Network));
        let found: Result<_, _> = found.map(|found| convert::load_balancer(OPERATION, found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer, Error> {
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
            .map_err(|error| failed(OPERATION, error))?;

        convert::network(OPERATION, made(OPERATION, answer.load_balancers)?)
    }

    async fn delete_load_balancer(&self, arn: &str) -> Result<(), Error> {
        let call = self.client.delete_load_balancer().load_balancer_arn(arn);
        let deleted = call.send().await.map(drop);
        gone(deleted.map_err(|error| failed("DeleteLoadBalancer", error)))
    }

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .set_security_groups()
            .load_balancer_arn(arn)
            .set_security_groups(Some(groups.to_vec()));
        let set = call.send().await.map(drop);
        set.map_err(|error| failed("SetSecurityGroups", error))
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes, Error> {
        let call = self.client.describe_load_balancer_attributes().load_balancer_arn(arn);
        let answer = call.send().await;
        let answer = answer.map_err(|error| failed("DescribeLoadBalancerAttributes", error))?;
        let attributes = answer.attributes.unwrap_or_default().into_iter();
        Ok(attributes
            .filter_map(|one| convert::attribute(one.key, one.value))
            .collect())
    }

    async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<(), Error> {
        let call = self
            .client
            .modify_load_balancer_attributes()
            .load_balancer_arn(arn)
            .set_attributes(Some(convert::sdk_load_balancer_attributes(attributes)));
        let modified = call.send().await.map(drop);
        modified.map_err(|error| failed("ModifyLoadBalancerAttributes", error))
    }

    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>, Error> {
        const OPERATION: &str = "DescribeTags";
        let call = self.client.describe_tags().set_resource_arns(Some(arns.to_vec()));
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let described = answer.tag_descriptions.unwrap_or_default().into_iter();
        described.map(|of_one| convert::tagged(OPERATION, of_one)).collect()
    }

    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<(), Error> {
        let call = self
            .client
            .add_tags()
            .set_resource_arns(Some(arns.to_vec()))
            .set_tags(Some(convert::sdk_tags(tags)));
        let added = call.send().await.map(drop);
        added.map_err(|error| failed("AddTags", error))
    }

    async fn listeners_page(&self, load_balancer_arn: &str, token: Option<String>) -> Result<Page<Listener>, Error> {
        const OPERATION: &str = "DescribeListeners";
        let call = self.client.describe_listeners().load_balancer_arn(load_balancer_arn);
        let answer = call.set_marker(token).send().await;
        let answer = answer.map_err(|error| failed(OPERATION, error))?;
        let found = answer.listeners.unwrap_or_default().into_iter();
        let found: Result<_, _> = found.map(|found| convert::listener(OPERATION, found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create_listener(
        &self,
        load_balancer_arn: &str,
        listener: &ListenerSettings,
        tags: &Tags,
    ) -> Result<String, Error> {
        const OPERATION: &str = "CreateListener";

        let answer = self
            .client
            .create_listener()
            .load_balancer_arn(load_balancer_arn)
            .port(listener.port)
            .protocol(ProtocolEnum::from(listener.protocol.as_str()))
            .set_default_actions(convert::sdk_forward(listener))
            .set_ssl_policy(listener.ssl_policy.clone())
            .set_certificates(convert::sdk_certificates(listener))
            .set_tags(Some(convert::sdk_tags(tags)))
            .send()
            .await
            .map_err(|error| failed(OPERATION, error))?;

        Ok(convert::listener(OPERATION, made(OPERATION, answer.listeners)?)?.arn)
    }

    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<(), Error> {
        let call = self
            .client
            .modify_listener()
            .listener_arn(arn)
            .port(listener.port)
            .protocol(ProtocolEnum::from(listener.protocol.as_str()))
            .set_default_actions(convert::sdk_forward(listener))
            .set_ssl_policy(listener.ssl_policy.clone())
            .set_certificates(convert::sdk_certificates(listener));

        let modified = call.send().await.map(drop);
        modified.map_err(|error| failed("ModifyListener", error))
    }

    async fn delete_listener(&self, arn: &str) -> Result<(), Error> {
        let deleted = self.client.delete_listener().listener_arn(arn).send().await.map(drop);
        gone(deleted.map_err(|error| failed("DeleteListener", error)))
    }

    async fn target_groups_page(
        &self,
        query: TargetGroupQuery<'_>,
        token: Option<String>,
    ) -> Result<Page<TargetGroup>, Error> {
        self.read_target_groups(query, token).await
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String, Error> {
        self.send_create_target_group(new).await
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<(), Error> {
        self.send_modify_target_group(arn, change).await
    }

    async fn delete_target_group(&self, arn: &str) -> Result<(), Error> {
        let call = self.client.delete_target_group().target_group_arn(arn);
        let deleted = call.send().await.map(drop);
        gone(deleted.map_err(|error| failed("DeleteTargetGroup", error)))
    }

    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>, Error> {
        self.read_target_health(target_group_arn).await
    }

    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<(), Error> {
        self.send_register(target_group_arn, targets).await
    }

    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<(), Error> {
        self.send_deregister(target_group_arn, targets).await
    }

    async fn target_group_attributes(&self, arn: &str) -> Result<Attributes, Error> {
        self.read_target_group_attributes(arn).await
    }

    async fn modify_target_group_attributes(&self, arn: &str, attributes: &Attributes) -> Result<(), Error> {
        self.send_modify_target_group_attributes(arn, attributes).await
    }
}
