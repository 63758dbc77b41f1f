//! Clients of AWS within their budgets.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::bucket_size::{self, BY_PLAIN_ID, Share};
use super::limiters::Limiters;
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, InstanceLayers, InstanceQuery, IpPermission,
    NewSecurityGroup, RouteTable, SecurityGroup, Subnet,
};
use crate::elb::{HealthCheck, LoadBalancer, NewLoadBalancer, NewPolicy};
use crate::elbv2::{
    HealthCheckChange, ListenerSettings, NetworkLoadBalancer, NewNetworkLoadBalancer, NewTargetGroup, Target,
    TargetGroup, TargetGroupQuery, TargetHealth,
};
use crate::{Ec2, Elb, Elbv2, Page, Result, Tags, Token, elb, elbv2};

/// An [`Ec2`], [`Elb`] or [`Elbv2`] whose calls wait until there is budget for them, in the priority of
/// [`super::Priority::run`].
///
/// Each page of a list is a call. A call that AWS throttles had no effect: it waits until the pause of its bucket is over
/// and is sent again, up to five times within a minute, and only then fails.
pub struct Limited<T: ?Sized = dyn Ec2> {
    inner: Arc<T>,
    limiters: Limiters,
}

impl Limited<dyn Ec2> {
    /// Calls of EC2; of the reads only this share of the account's budget is taken. EC2 has a bucket for each action.
    #[must_use]
    pub fn new(inner: Arc<dyn Ec2>, share: Share) -> Self {
        let limiters = Limiters::new(move |action| bucket_size::ec2(action, share));
        Self { inner, limiters }
    }

    /// Sends a call of one action when its bucket has a token.
    async fn call<T, F>(&self, action: &'static str, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.limiters.call(&[action], &[], call).await
    }
}

impl Limited<dyn Elb> {
    /// Calls about classic load balancers; of the reads only this share of the account's budget is taken.
    #[must_use]
    pub fn elb(inner: Arc<dyn Elb>, share: Share) -> Self {
        let limiters = load_balancing(share);
        Self { inner, limiters }
    }
}

impl Limited<dyn Elbv2> {
    /// Calls about network load balancers; of the reads only this share of the account's budget is taken.
    #[must_use]
    pub fn elbv2(inner: Arc<dyn Elbv2>, share: Share) -> Self {
        let limiters = load_balancing(share);
        Self { inner, limiters }
    }
}

fn load_balancing(share: Share) -> Limiters {
    Limiters::new(move |bucket| bucket_size::load_balancing(bucket, share)).with_reads(bucket_size::READS)
}

impl<T: ?Sized> Limited<T> {
    /// Sends a call of an action of Elastic Load Balancing, which has a bucket for each kind of action, and one for all
    /// calls together. AWS's throttling is put down to the kind; reads give way too, because they may have used up the common
    /// one.
    async fn balanced<R, F>(&self, action: &'static str, call: impl Fn() -> F) -> Result<R>
    where
        F: Future<Output = Result<R>>,
    {
        let kind = bucket_size::kind_of_action(action);
        self.limiters.call(&[kind], &[bucket_size::ALL], call).await
    }
}

#[async_trait]
impl Ec2 for Limited<dyn Ec2> {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Token) -> Result<Page<Instance>> {
        let call = || self.inner.instances_page(query, token.clone());
        self.call("DescribeInstances", call).await
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>> {
        let call = || self.inner.availability_zones();
        self.call("DescribeAvailabilityZones", call).await
    }

    async fn subnets_page(&self, filters: &[Filter], token: Token) -> Result<Page<Subnet>> {
        let call = || self.inner.subnets_page(filters, token.clone());
        self.call("DescribeSubnets", call).await
    }

    async fn security_groups_page(&self, filters: &[Filter], token: Token) -> Result<Page<SecurityGroup>> {
        let call = || self.inner.security_groups_page(filters, token.clone());
        self.call("DescribeSecurityGroups", call).await
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String> {
        let call = || self.inner.create_security_group(group);
        self.call("CreateSecurityGroup", call).await
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = || self.inner.authorize_ingress(group_id, rules);
        self.call("AuthorizeSecurityGroupIngress", call).await
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = || self.inner.revoke_ingress(group_id, rules);
        self.call("RevokeSecurityGroupIngress", call).await
    }

    async fn describe_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = || self.inner.describe_ingress(group_id, rules);
        self.call("UpdateSecurityGroupRuleDescriptionsIngress", call).await
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<()> {
        let call = || self.inner.delete_security_group(group_id);
        self.call("DeleteSecurityGroup", call).await
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        let call = || self.inner.create_tags(resources, tags);
        self.call("CreateTags", call).await
    }

    async fn instance_topology_page(&self, ids: &[InstanceId], token: Token) -> Result<Page<InstanceLayers>> {
        let call = || self.inner.instance_topology_page(ids, token.clone());
        self.call("DescribeInstanceTopology", call).await
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Token) -> Result<Page<RouteTable>> {
        let call = || self.inner.route_tables_page(filters, token.clone());
        self.call("DescribeRouteTables", call).await
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        let call = || self.inner.create_route(table_id, cidr, instance);
        self.call("CreateRoute", call).await
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        let call = || self.inner.replace_route(table_id, cidr, instance);
        self.call("ReplaceRoute", call).await
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<()> {
        let call = || self.inner.delete_route(table_id, cidr);
        self.call("DeleteRoute", call).await
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<()> {
        let call = || self.inner.disable_source_dest_check(instance);
        self.call("ModifyInstanceAttribute", call).await
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        let call = || self.inner.delete_tags(resources, tags);
        self.call("DeleteTags", call).await
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>> {
        let call = || self.inner.instances_by_plain_id(ids);
        self.limiters.call(&["DescribeInstances", BY_PLAIN_ID], &[], call).await
    }

    async fn fargate_interfaces_page(&self, vpc_id: &str, ips: &[String], token: Token) -> Result<Page<FargateEni>> {
        let call = || self.inner.fargate_interfaces_page(vpc_id, ips, token.clone());
        self.call("DescribeNetworkInterfaces", call).await
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Token) -> Result<Page<String>> {
        let call = || self.inner.interfaces_of_group_page(group_id, token.clone());
        self.call("DescribeNetworkInterfaces", call).await
    }
}

#[async_trait]
impl Elb for Limited<dyn Elb> {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        let call = || self.inner.describe_once(names);
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn all_page(&self, token: Token) -> Result<Page<LoadBalancer>> {
        let call = || self.inner.all_page(token.clone());
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn create(&self, load_balancer: &NewLoadBalancer) -> Result<String> {
        let call = || self.inner.create(load_balancer);
        self.balanced("CreateLoadBalancer", call).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let call = || self.inner.delete(name);
        self.balanced("DeleteLoadBalancer", call).await
    }

    async fn attributes(&self, name: &str) -> Result<elb::Attributes> {
        let call = || self.inner.attributes(name);
        self.balanced("DescribeLoadBalancerAttributes", call).await
    }

    async fn modify_attributes(&self, name: &str, attributes: &elb::Attributes) -> Result<()> {
        let call = || self.inner.modify_attributes(name, attributes);
        self.balanced("ModifyLoadBalancerAttributes", call).await
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<()> {
        let call = || self.inner.configure_health_check(name, check);
        self.balanced("ConfigureHealthCheck", call).await
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        let call = || self.inner.register(name, instances);
        self.balanced("RegisterInstancesWithLoadBalancer", call).await
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        let call = || self.inner.deregister(name, instances);
        self.balanced("DeregisterInstancesFromLoadBalancer", call).await
    }

    async fn create_listeners(&self, name: &str, listeners: &[elb::Listener]) -> Result<()> {
        let call = || self.inner.create_listeners(name, listeners);
        self.balanced("CreateLoadBalancerListeners", call).await
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<()> {
        let call = || self.inner.delete_listeners(name, ports);
        self.balanced("DeleteLoadBalancerListeners", call).await
    }

    async fn set_listener_certificate(&self, name: &str, port: i32, certificate: &str) -> Result<()> {
        let call = || self.inner.set_listener_certificate(name, port, certificate);
        self.balanced("SetLoadBalancerListenerSSLCertificate", call).await
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let call = || self.inner.attach_subnets(name, subnets);
        self.balanced("AttachLoadBalancerToSubnets", call).await
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let call = || self.inner.detach_subnets(name, subnets);
        self.balanced("DetachLoadBalancerFromSubnets", call).await
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<()> {
        let call = || self.inner.apply_security_groups(name, groups);
        self.balanced("ApplySecurityGroupsToLoadBalancer", call).await
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<()> {
        let call = || self.inner.add_tags(name, tags);
        self.balanced("AddTags", call).await
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>> {
        let call = || self.inner.tags_once(names);
        self.balanced("DescribeTags", call).await
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()> {
        let call = || self.inner.create_policy(name, policy);
        self.balanced("CreateLoadBalancerPolicy", call).await
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<()> {
        let call = || self.inner.set_backend_policies(name, instance_port, policies);
        self.balanced("SetLoadBalancerPoliciesForBackendServer", call).await
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<()> {
        let call = || self.inner.set_listener_policies(name, port, policies);
        self.balanced("SetLoadBalancerPoliciesOfListener", call).await
    }

    fn expected_wait(&self, action: &str, ahead: u32) -> Duration {
        self.limiters.expected_wait(bucket_size::kind_of_action(action), ahead)
    }
}

#[async_trait]
impl Elbv2 for Limited<dyn Elbv2> {
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>> {
        let call = || self.inner.load_balancers_once(names);
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn all_load_balancers_page(&self, token: Token) -> Result<Page<NetworkLoadBalancer>> {
        let call = || self.inner.all_load_balancers_page(token.clone());
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer> {
        let call = || self.inner.create_load_balancer(new);
        self.balanced("CreateLoadBalancer", call).await
    }

    async fn delete_load_balancer(&self, arn: &str) -> Result<()> {
        let call = || self.inner.delete_load_balancer(arn);
        self.balanced("DeleteLoadBalancer", call).await
    }

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<()> {
        let call = || self.inner.set_security_groups(arn, groups);
        self.balanced("SetSecurityGroups", call).await
    }

    async fn attributes(&self, arn: &str) -> Result<elbv2::Attributes> {
        let call = || self.inner.attributes(arn);
        self.balanced("DescribeLoadBalancerAttributes", call).await
    }

    async fn modify_attributes(&self, arn: &str, attributes: &elbv2::Attributes) -> Result<()> {
        let call = || self.inner.modify_attributes(arn, attributes);
        self.balanced("ModifyLoadBalancerAttributes", call).await
    }

    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>> {
        let call = || self.inner.tags_once(arns);
        self.balanced("DescribeTags", call).await
    }

    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<()> {
        let call = || self.inner.add_tags(arns, tags);
        self.balanced("AddTags", call).await
    }

    async fn listeners_page(&self, load_balancer_arn: &str, token: Token) -> Result<Page<elbv2::Listener>> {
        let call = || self.inner.listeners_page(load_balancer_arn, token.clone());
        self.balanced("DescribeListeners", call).await
    }

    async fn create_listener(&self, balancer_arn: &str, listener: &ListenerSettings, tags: &Tags) -> Result<String> {
        let call = || self.inner.create_listener(balancer_arn, listener, tags);
        self.balanced("CreateListener", call).await
    }

    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<()> {
        let call = || self.inner.modify_listener(arn, listener);
        self.balanced("ModifyListener", call).await
    }

    async fn delete_listener(&self, arn: &str) -> Result<()> {
        let call = || self.inner.delete_listener(arn);
        self.balanced("DeleteListener", call).await
    }

    async fn target_groups_page(&self, query: TargetGroupQuery<'_>, token: Token) -> Result<Page<TargetGroup>> {
        let call = || self.inner.target_groups_page(query, token.clone());
        self.balanced("DescribeTargetGroups", call).await
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String> {
        let call = || self.inner.create_target_group(new);
        self.balanced("CreateTargetGroup", call).await
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<()> {
        let call = || self.inner.modify_target_group(arn, change);
        self.balanced("ModifyTargetGroup", call).await
    }

    async fn delete_target_group(&self, arn: &str) -> Result<()> {
        let call = || self.inner.delete_target_group(arn);
        self.balanced("DeleteTargetGroup", call).await
    }

    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>> {
        let call = || self.inner.target_health(target_group_arn);
        self.balanced("DescribeTargetHealth", call).await
    }

    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        let call = || self.inner.register_targets(target_group_arn, targets);
        self.balanced("RegisterTargets", call).await
    }

    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        let call = || self.inner.deregister_targets(target_group_arn, targets);
        self.balanced("DeregisterTargets", call).await
    }

    async fn target_group_attributes(&self, arn: &str) -> Result<elbv2::Attributes> {
        let call = || self.inner.target_group_attributes(arn);
        self.balanced("DescribeTargetGroupAttributes", call).await
    }

    async fn modify_target_group_attributes(&self, arn: &str, attributes: &elbv2::Attributes) -> Result<()> {
        let call = || self.inner.modify_target_group_attributes(arn, attributes);
        self.balanced("ModifyTargetGroupAttributes", call).await
    }

    fn expected_wait(&self, action: &str, ahead: u32) -> Duration {
        self.limiters.expected_wait(bucket_size::kind_of_action(action), ahead)
    }
}

#[cfg(test)]
mod tests;
