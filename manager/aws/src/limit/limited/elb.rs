//! [`Elb`] within its budget.

use std::time::Duration;

use async_trait::async_trait;

use super::super::bucket_size;
use super::Limited;
use crate::elb::{Attributes, HealthCheck, Listener, LoadBalancer, NewLoadBalancer, NewPolicy};
use crate::{Elb, Error, InstanceId, Page, Tags};

#[async_trait]
impl Elb for Limited<dyn Elb> {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>, Error> {
        let call = || self.inner.describe_once(names);
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn all_page(&self, token: Option<String>) -> Result<Page<LoadBalancer>, Error> {
        let call = || self.inner.all_page(token.clone());
        self.balanced("DescribeLoadBalancers", call).await
    }

    async fn create(&self, load_balancer: &NewLoadBalancer) -> Result<String, Error> {
        let call = || self.inner.create(load_balancer);
        self.balanced("CreateLoadBalancer", call).await
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        let call = || self.inner.delete(name);
        self.balanced("DeleteLoadBalancer", call).await
    }

    async fn attributes(&self, name: &str) -> Result<Attributes, Error> {
        let call = || self.inner.attributes(name);
        self.balanced("DescribeLoadBalancerAttributes", call).await
    }

    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<(), Error> {
        let call = || self.inner.modify_attributes(name, attributes);
        self.balanced("ModifyLoadBalancerAttributes", call).await
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<(), Error> {
        let call = || self.inner.configure_health_check(name, check);
        self.balanced("ConfigureHealthCheck", call).await
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        let call = || self.inner.register(name, instances);
        self.balanced("RegisterInstancesWithLoadBalancer", call).await
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        let call = || self.inner.deregister(name, instances);
        self.balanced("DeregisterInstancesFromLoadBalancer", call).await
    }

    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<(), Error> {
        let call = || self.inner.create_listeners(name, listeners);
        self.balanced("CreateLoadBalancerListeners", call).await
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<(), Error> {
        let call = || self.inner.delete_listeners(name, ports);
        self.balanced("DeleteLoadBalancerListeners", call).await
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        let call = || self.inner.attach_subnets(name, subnets);
        self.balanced("AttachLoadBalancerToSubnets", call).await
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        let call = || self.inner.detach_subnets(name, subnets);
        self.balanced("DetachLoadBalancerFromSubnets", call).await
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<(), Error> {
        let call = || self.inner.apply_security_groups(name, groups);
        self.balanced("ApplySecurityGroupsToLoadBalancer", call).await
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        let call = || self.inner.add_tags(name, tags);
        self.balanced("AddTags", call).await
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>, Error> {
        let call = || self.inner.tags_once(names);
        self.balanced("DescribeTags", call).await
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<(), Error> {
        let call = || self.inner.create_policy(name, policy);
        self.balanced("CreateLoadBalancerPolicy", call).await
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<(), Error> {
        let call = || self.inner.set_backend_policies(name, instance_port, policies);
        self.balanced("SetLoadBalancerPoliciesForBackendServer", call).await
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<(), Error> {
        let call = || self.inner.set_listener_policies(name, port, policies);
        self.balanced("SetLoadBalancerPoliciesOfListener", call).await
    }

    fn expected_wait(&self, action: &str, ahead: u32) -> Duration {
        self.limiters.expected_wait(bucket_size::kind_of_action(action), ahead)
    }
}
