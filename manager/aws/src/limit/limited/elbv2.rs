//! [`Elbv2`] within its budget.

use std::time::Duration;

use async_trait::async_trait;

use super::super::bucket_size;
use super::Limited;
use crate::elbv2::{
    Attributes, HealthCheckChange, Listener, ListenerSettings, NetworkLoadBalancer, NewNetworkLoadBalancer,
    NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth,
};
use crate::{Elbv2, Error, Page, Tags};

#[async_trait]
impl Elbv2 for Limited<dyn Elbv2> {
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>, Error> {
        let call = || self.inner.load_balancers_once(names);
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn all_load_balancers_page(&self, token: Option<String>) -> Result<Page<NetworkLoadBalancer>, Error> {
        let call = || self.inner.all_load_balancers_page(token.clone());
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer, Error> {
        let call = || self.inner.create_load_balancer(new);
        self.balanced("CreateLoadBalancer", call).await
    }

    async fn delete_load_balancer(&self, arn: &str) -> Result<(), Error> {
        let call = || self.inner.delete_load_balancer(arn);
        self.balanced("DeleteLoadBalancer", call).await
    }

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<(), Error> {
        let call = || self.inner.set_security_groups(arn, groups);
        self.balanced("SetSecurityGroups", call).await
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes, Error> {
        let call = || self.inner.attributes(arn);
        self.balanced("DescribeLoadBalancerAttributes", call).await
    }

    async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<(), Error> {
        let call = || self.inner.modify_attributes(arn, attributes);
        self.balanced("ModifyLoadBalancerAttributes", call).await
    }

    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>, Error> {
        let call = || self.inner.tags_once(arns);
        self.balanced("DescribeTags", call).await
    }

    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<(), Error> {
        let call = || self.inner.add_tags(arns, tags);
        self.balanced("AddTags", call).await
    }

    async fn listeners_page(&self, load_balancer_arn: &str, token: Option<String>) -> Result<Page<Listener>, Error> {
        let call = || self.inner.listeners_page(load_balancer_arn, token.clone());
        self.balanced("DescribeListeners", call).await
    }

    async fn create_listener(
        &self,
        load_balancer_arn: &str,
        listener: &ListenerSettings,
        tags: &Tags,
    ) -> Result<String, Error> {
        let call = || self.inner.create_listener(load_balancer_arn, listener, tags);
        self.balanced("CreateListener", call).await
    }

    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<(), Error> {
        let call = || self.inner.modify_listener(arn, listener);
        self.balanced("ModifyListener", call).await
    }

    async fn delete_listener(&self, arn: &str) -> Result<(), Error> {
        let call = || self.inner.delete_listener(arn);
        self.balanced("DeleteListener", call).await
    }

    async fn target_groups_page(
        &self,
        query: TargetGroupQuery<'_>,
        token: Option<String>,
    ) -> Result<Page<TargetGroup>, Error> {
        let call = || self.inner.target_groups_page(query, token.clone());
        self.balanced("DescribeTargetGroups", call).await
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String, Error> {
        let call = || self.inner.create_target_group(new);
        self.balanced("CreateTargetGroup", call).await
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<(), Error> {
        let call = || self.inner.modify_target_group(arn, change);
        self.balanced("ModifyTargetGroup", call).await
    }

    async fn delete_target_group(&self, arn: &str) -> Result<(), Error> {
        let call = || self.inner.delete_target_group(arn);
        self.balanced("DeleteTargetGroup", call).await
    }

    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>, Error> {
        let call = || self.inner.target_health(target_group_arn);
        self.balanced("DescribeTargetHealth", call).await
    }

    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<(), Error> {
        let call = || self.inner.register_targets(target_group_arn, targets);
        self.balanced("RegisterTargets", call).await
    }

    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<(), Error> {
        let call = || self.inner.deregister_targets(target_group_arn, targets);
        self.balanced("DeregisterTargets", call).await
    }

    async fn target_group_attributes(&self, arn: &str) -> Result<Attributes, Error> {
        let call = || self.inner.target_group_attributes(arn);
        self.balanced("DescribeTargetGroupAttributes", call).await
    }

    async fn modify_target_group_attributes(&self, arn: &str, attributes: &Attributes) -> Result<(), Error> {
        let call = || self.inner.modify_target_group_attributes(arn, attributes);
        self.balanced("ModifyTargetGroupAttributes", call).await
    }

    fn expected_wait(&self, action: &str, ahead: u32) -> Duration {
        self.limiters.expected_wait(bucket_size::kind_of_action(action), ahead)
    }
}
