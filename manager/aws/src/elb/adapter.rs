//! [`Elb`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_elasticloadbalancing::error::BuildError;
use aws_sdk_elasticloadbalancing::types::{LoadBalancerDescription, PolicyAttribute};

use super::{Attributes, Elb, HealthCheck, Listener, LoadBalancer, NewLoadBalancer, NewPolicy, convert};
use crate::sdk::failed;
use crate::{Error, InstanceId, Page, Tags};

/// The SDK's client of classic load balancers.
#[derive(Debug, Clone)]
pub struct SdkElb {
    client: aws_sdk_elasticloadbalancing::Client,
}

impl SdkElb {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: aws_sdk_elasticloadbalancing::Client) -> Self {
        Self { client }
    }
}

/// A request that lacks a field. This crate's types always have it, so this is a difference between them and the SDK.
fn unbuilt(operation: &'static str) -> impl Fn(BuildError) -> Error {
    move |error| Error::unusable(operation, "the request could not be built").with_source(error)
}

/// The requested name, if it was the only one.
fn only(names: &[String]) -> Option<String> {
    match names {
        [name] => Some(name.clone()),
        _ => None,
    }
}

fn nameless(operation: &'static str) -> Error {
    Error::unusable(operation, "AWS answered with a load balancer that has no name")
}

/// A description. Its name may be absent only if one load balancer was requested.
fn named(operation: &'static str, names: &[String], found: LoadBalancerDescription) -> Result<LoadBalancer, Error> {
    let name = found.load_balancer_name.clone().or_else(|| only(names));
    let name = name.ok_or_else(|| nameless(operation))?;
    Ok(convert::load_balancer(&name, found))
}

#[async_trait]
impl Elb for SdkElb {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>, Error> {
        const OPERATION: &str = "DescribeLoadBalancers";

        let call = self
            .client
            .describe_load_balancers()
            .set_load_balancer_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let found = answer.load_balancer_descriptions.unwrap_or_default().into_iter();

        found.map(|found| named(OPERATION, names, found)).collect()
    }

    async fn all_page(&self, token: Option<String>) -> Result<Page<LoadBalancer>, Error> {
        const OPERATION: &str = "DescribeLoadBalancers";
        let call = self.client.describe_load_balancers().set_marker(token);
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let found = answer.load_balancer_descriptions.unwrap_or_default().into_iter();
        let found: Result<_, _> = found.map(|found| named(OPERATION, &[], found)).collect();
        Ok(Page::new(found?, answer.next_marker))
    }

    async fn create(&self, wanted: &NewLoadBalancer) -> Result<String, Error> {
        const OPERATION: &str = "CreateLoadBalancer";

        let answer = self
            .client
            .create_load_balancer()
            .load_balancer_name(&wanted.name)
            .set_scheme(wanted.internal.then(|| "internal".to_owned()))
            .set_listeners(Some(
                convert::sdk_listeners(&wanted.listeners).map_err(unbuilt(OPERATION))?,
            ))
            .set_subnets(Some(wanted.subnets.clone()))
            .set_security_groups(Some(wanted.security_groups.clone()))
            .set_tags(Some(convert::sdk_tags(&wanted.tags).map_err(unbuilt(OPERATION))?))
            .send()
            .await
            .map_err(|error| failed(OPERATION, error))?;

        Ok(answer.dns_name.unwrap_or_default())
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        let call = self.client.delete_load_balancer().load_balancer_name(name);
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("DeleteLoadBalancer", error))
    }

    async fn attributes(&self, name: &str) -> Result<Attributes, Error> {
        let answer = self
            .client
            .describe_load_balancer_attributes()
            .load_balancer_name(name)
            .send()
            .await;
        let answer = answer.map_err(|error| failed("DescribeLoadBalancerAttributes", error))?;
        Ok(convert::attributes(answer.load_balancer_attributes))
    }

    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<(), Error> {
        const OPERATION: &str = "ModifyLoadBalancerAttributes";

        let attributes = convert::sdk_attributes(attributes).map_err(unbuilt(OPERATION))?;
        let call = self
            .client
            .modify_load_balancer_attributes()
            .load_balancer_name(name)
            .load_balancer_attributes(attributes);

        call.send().await.map(drop).map_err(|error| failed(OPERATION, error))
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<(), Error> {
        const OPERATION: &str = "ConfigureHealthCheck";

        let check = convert::sdk_health_check(check).map_err(unbuilt(OPERATION))?;
        let call = self
            .client
            .configure_health_check()
            .load_balancer_name(name)
            .health_check(check);

        call.send().await.map(drop).map_err(|error| failed(OPERATION, error))
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        let call = self
            .client
            .register_instances_with_load_balancer()
            .load_balancer_name(name)
            .set_instances(Some(convert::sdk_instances(instances)));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("RegisterInstancesWithLoadBalancer", error))
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        let call = self
            .client
            .deregister_instances_from_load_balancer()
            .load_balancer_name(name)
            .set_instances(Some(convert::sdk_instances(instances)));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("DeregisterInstancesFromLoadBalancer", error))
    }

    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<(), Error> {
        const OPERATION: &str = "CreateLoadBalancerListeners";

        let listeners = convert::sdk_listeners(listeners).map_err(unbuilt(OPERATION))?;
        let call = self
            .client
            .create_load_balancer_listeners()
            .load_balancer_name(name)
            .set_listeners(Some(listeners));

        call.send().await.map(drop).map_err(|error| failed(OPERATION, error))
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<(), Error> {
        let call = self
            .client
            .delete_load_balancer_listeners()
            .load_balancer_name(name)
            .set_load_balancer_ports(Some(ports.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("DeleteLoadBalancerListeners", error))
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .attach_load_balancer_to_subnets()
            .load_balancer_name(name)
            .set_subnets(Some(subnets.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("AttachLoadBalancerToSubnets", error))
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .detach_load_balancer_from_subnets()
            .load_balancer_name(name)
            .set_subnets(Some(subnets.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("DetachLoadBalancerFromSubnets", error))
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .apply_security_groups_to_load_balancer()
            .load_balancer_name(name)
            .set_security_groups(Some(groups.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("ApplySecurityGroupsToLoadBalancer", error))
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        const OPERATION: &str = "AddTags";
        let tags = convert::sdk_tags(tags).map_err(unbuilt(OPERATION))?;
        let call = self.client.add_tags().load_balancer_names(name).set_tags(Some(tags));
        call.send().await.map(drop).map_err(|error| failed(OPERATION, error))
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>, Error> {
        const OPERATION: &str = "DescribeTags";

        let call = self
            .client
            .describe_tags()
            .set_load_balancer_names(Some(names.to_vec()));
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let described = answer.tag_descriptions.unwrap_or_default().into_iter();

        described
            .map(|of_one| {
                let name = of_one.load_balancer_name.or_else(|| only(names));
                let name = name.ok_or_else(|| nameless(OPERATION))?;
                Ok((name, convert::tags(of_one.tags)))
            })
            .collect()
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<(), Error> {
        let attributes = policy.attributes.iter().map(|(key, value)| {
            PolicyAttribute::builder()
                .attribute_name(key)
                .attribute_value(value)
                .build()
        });
        let call = self
            .client
            .create_load_balancer_policy()
            .load_balancer_name(name)
            .policy_name(&policy.name)
            .policy_type_name(&policy.type_name)
            .set_policy_attributes(Some(attributes.collect()));

        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("CreateLoadBalancerPolicy", error))
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .set_load_balancer_policies_for_backend_server()
            .load_balancer_name(name)
            .instance_port(instance_port)
            .set_policy_names(Some(policies.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("SetLoadBalancerPoliciesForBackendServer", error))
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<(), Error> {
        let call = self
            .client
            .set_load_balancer_policies_of_listener()
            .load_balancer_name(name)
            .load_balancer_port(port)
            .set_policy_names(Some(policies.to_vec()));
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("SetLoadBalancerPoliciesOfListener", error))
    }
}
