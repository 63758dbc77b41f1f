//! [`Elb`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_elasticloadbalancing::error::BuildError;
use aws_sdk_elasticloadbalancing::types::{LoadBalancerDescription, PolicyAttribute};

use super::{Attributes, Elb, HealthCheck, Listener, LoadBalancer, NewLoadBalancer, NewPolicy, convert};
use crate::sdk::failed;
use crate::{Error, InstanceId, Page, Result, Tags, Token};

#[derive(Debug, Clone)]
pub(crate) struct SdkElb {
    pub(crate) client: aws_sdk_elasticloadbalancing::Client,
}

/// A request that lacks a field. This crate's types always have it, so this is a difference between them and the SDK.
fn unbuilt(operation: &'static str) -> impl Fn(BuildError) -> Error {
    move |error| Error::unusable(operation, "the request could not be built").with_source(error)
}

/// The name in an answer. It may be absent only if one load balancer was requested.
fn name(operation: &'static str, names: &[String], answered: Option<String>) -> Result<String> {
    match (answered, names) {
        (Some(name), _) => Ok(name),
        (None, [name]) => Ok(name.clone()),
        _ => Err(Error::unusable(
            operation,
            "AWS answered with a load balancer that has no name",
        )),
    }
}

fn named(operation: &'static str, names: &[String], found: LoadBalancerDescription) -> Result<LoadBalancer> {
    let name = name(operation, names, found.load_balancer_name.clone())?;
    Ok(convert::load_balancer(&name, found))
}

#[async_trait]
impl Elb for SdkElb {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers();
        let call = call.set_load_balancer_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let found = answer.load_balancer_descriptions.into_iter().flatten();
        found.map(|found| named(OPERATION, names, found)).collect()
    }

    async fn all_page(&self, token: Token) -> Result<Page<LoadBalancer>> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_marker(token);
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let found = answer.load_balancer_descriptions.into_iter().flatten();
        let found: Result<Vec<_>> = found.map(|found| named(OPERATION, &[], found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create(&self, wanted: &NewLoadBalancer) -> Result<String> {
        const OPERATION: &str = "CreateLoadBalancer";

        let listeners = convert::sdk_listeners(&wanted.listeners).map_err(unbuilt(OPERATION))?;
        let tags = convert::sdk_tags(&wanted.tags).map_err(unbuilt(OPERATION))?;
        let answer = self
            .client
            .create_load_balancer()
            .load_balancer_name(&wanted.name)
            .set_scheme(wanted.internal.then(|| "internal".to_owned()))
            .set_listeners(Some(listeners))
            .set_subnets(Some(wanted.subnets.clone()))
            .set_security_groups(Some(wanted.security_groups.clone()))
            .set_tags(Some(tags))
            .send()
            .await
            .map_err(failed(OPERATION))?;

        Ok(answer.dns_name.unwrap_or_default())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let call = self.client.delete_load_balancer().load_balancer_name(name);
        call.send().await.map(drop).map_err(failed("DeleteLoadBalancer"))
    }

    async fn attributes(&self, name: &str) -> Result<Attributes> {
        let call = self.client.describe_load_balancer_attributes();
        let answer = call.load_balancer_name(name).send().await;
        let answer = answer.map_err(failed("DescribeLoadBalancerAttributes"))?;
        Ok(convert::attributes(answer.load_balancer_attributes))
    }

    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<()> {
        const OPERATION: &str = "ModifyLoadBalancerAttributes";
        let attributes = convert::sdk_attributes(attributes).map_err(unbuilt(OPERATION))?;
        let call = self.client.modify_load_balancer_attributes().load_balancer_name(name);
        let call = call.load_balancer_attributes(attributes);
        call.send().await.map(drop).map_err(failed(OPERATION))
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<()> {
        const OPERATION: &str = "ConfigureHealthCheck";
        let check = convert::sdk_health_check(check).map_err(unbuilt(OPERATION))?;
        let call = self.client.configure_health_check().load_balancer_name(name);
        let call = call.health_check(check);
        call.send().await.map(drop).map_err(failed(OPERATION))
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        let call = self.client.register_instances_with_load_balancer();
        let call = call.set_instances(Some(convert::sdk_instances(instances)));
        let registered = call.load_balancer_name(name).send().await;
        registered
            .map(drop)
            .map_err(failed("RegisterInstancesWithLoadBalancer"))
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        let call = self.client.deregister_instances_from_load_balancer();
        let call = call.set_instances(Some(convert::sdk_instances(instances)));
        let done = call.load_balancer_name(name).send().await;
        done.map(drop).map_err(failed("DeregisterInstancesFromLoadBalancer"))
    }

    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<()> {
        const OPERATION: &str = "CreateLoadBalancerListeners";
        let listeners = convert::sdk_listeners(listeners).map_err(unbuilt(OPERATION))?;
        let call = self.client.create_load_balancer_listeners().load_balancer_name(name);
        let call = call.set_listeners(Some(listeners));
        call.send().await.map(drop).map_err(failed(OPERATION))
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<()> {
        let call = self.client.delete_load_balancer_listeners().load_balancer_name(name);
        let deleted = call.set_load_balancer_ports(Some(ports.to_vec())).send().await;
        deleted.map(drop).map_err(failed("DeleteLoadBalancerListeners"))
    }

    async fn set_listener_certificate(&self, name: &str, port: i32, certificate: &str) -> Result<()> {
        self.client
            .set_load_balancer_listener_ssl_certificate()
            .load_balancer_name(name)
            .load_balancer_port(port)
            .ssl_certificate_id(certificate)
            .send()
            .await
            .map(drop)
            .map_err(failed("SetLoadBalancerListenerSSLCertificate"))
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let call = self.client.attach_load_balancer_to_subnets().load_balancer_name(name);
        let attached = call.set_subnets(Some(subnets.to_vec())).send().await;
        attached.map(drop).map_err(failed("AttachLoadBalancerToSubnets"))
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let call = self.client.detach_load_balancer_from_subnets().load_balancer_name(name);
        let detached = call.set_subnets(Some(subnets.to_vec())).send().await;
        detached.map(drop).map_err(failed("DetachLoadBalancerFromSubnets"))
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<()> {
        let call = self.client.apply_security_groups_to_load_balancer();
        let call = call.load_balancer_name(name).set_security_groups(Some(groups.to_vec()));
        let applied = call.send().await;
        applied.map(drop).map_err(failed("ApplySecurityGroupsToLoadBalancer"))
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<()> {
        const OPERATION: &str = "AddTags";
        let tags = convert::sdk_tags(tags).map_err(unbuilt(OPERATION))?;
        let call = self.client.add_tags().load_balancer_names(name).set_tags(Some(tags));
        call.send().await.map(drop).map_err(failed(OPERATION))
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>> {
        const OPERATION: &str = "DescribeTags";

        let call = self.client.describe_tags();
        let call = call.set_load_balancer_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(failed(OPERATION))?;
        let described = answer.tag_descriptions.into_iter().flatten();

        described
            .map(|of_one| {
                let name = name(OPERATION, names, of_one.load_balancer_name)?;
                Ok((name, convert::tags(of_one.tags)))
            })
            .collect()
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()> {
        let attribute = |(key, value): (&String, &String)| {
            let builder = PolicyAttribute::builder().attribute_name(key);
            builder.attribute_value(value).build()
        };
        self.client
            .create_load_balancer_policy()
            .load_balancer_name(name)
            .policy_name(&policy.name)
            .policy_type_name(&policy.type_name)
            .set_policy_attributes(Some(policy.attributes.iter().map(attribute).collect()))
            .send()
            .await
            .map(drop)
            .map_err(failed("CreateLoadBalancerPolicy"))
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<()> {
        self.client
            .set_load_balancer_policies_for_backend_server()
            .load_balancer_name(name)
            .instance_port(instance_port)
            .set_policy_names(Some(policies.to_vec()))
            .send()
            .await
            .map(drop)
            .map_err(failed("SetLoadBalancerPoliciesForBackendServer"))
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<()> {
        self.client
            .set_load_balancer_policies_of_listener()
            .load_balancer_name(name)
            .load_balancer_port(port)
            .set_policy_names(Some(policies.to_vec()))
            .send()
            .await
            .map(drop)
            .map_err(failed("SetLoadBalancerPoliciesOfListener"))
    }
}
