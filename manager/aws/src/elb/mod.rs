//! The classic Elastic Load Balancing API as the service controller sees it.

pub(crate) mod adapter;
mod convert;
mod model;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

pub use model::{AccessLog, Attributes, HealthCheck, Listener, LoadBalancer, NewLoadBalancer, NewPolicy};

use crate::{InstanceId, Kind, Page, Result, Tags, Token, by_name, page};

/// Names that one call takes at most. AWS names this number for tags only; for descriptions it is known to be taken.
pub const MAX_NAMES: usize = 20;

/// The calls for classic load balancers that the service controller sends. `name` is always the load balancer's name.
#[async_trait]
pub trait Elb: Send + Sync {
    /// One call for the load balancers of at most [`MAX_NAMES`] names.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know one of them; it does not say which.
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>>;

    /// The load balancer, or `None` when AWS says that there is none of that name.
    async fn describe(&self, name: &str) -> Result<Option<LoadBalancer>> {
        match self.describe_once(&[name.to_owned()]).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            // Several would be a fault of AWS; the incumbent takes the last one.
            answer => Ok(answer?.into_iter().rfind(|found| found.name == name)),
        }
    }

    /// The load balancers of these names; names that AWS does not know are absent from the answer.
    async fn describe_many(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        let ask = |part: Vec<String>| async move { self.describe_once(&part).await };
        by_name::known(names, MAX_NAMES, ask).await
    }

    /// A page of all classic load balancers of account and region, 400 in a call: the first without a token, then each
    /// with the token of the one before.
    async fn all_page(&self, token: Token) -> Result<Page<LoadBalancer>>;

    /// All classic load balancers of account and region.
    async fn all(&self) -> Result<Vec<LoadBalancer>> {
        page::all("DescribeLoadBalancers", |token| self.all_page(token)).await
    }

    /// Creates a load balancer, tagged in the same call, and returns its DNS name.
    ///
    /// The call is idempotent, so it can be retried after a lost response: AWS returns the load balancer of that name
    /// if its settings are the same, and else [`crate::Kind::AlreadyExists`].
    async fn create(&self, load_balancer: &NewLoadBalancer) -> Result<String>;

    /// Deletes a load balancer. Succeeds if it does not exist.
    async fn delete(&self, name: &str) -> Result<()>;

    /// The attributes that the service controller manages.
    async fn attributes(&self, name: &str) -> Result<Attributes>;

    /// Sets these attributes; the ones that [`Attributes`] does not know stay as they are.
    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<()>;

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<()>;

    /// Registers targets. Targets that are registered already stay.
    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<()>;

    /// Deregisters targets. Targets that are not registered are ignored.
    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<()>;

    /// Adds listeners.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when a port has a listener with other settings.
    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<()>;

    /// Removes the listeners of these load balancer ports.
    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<()>;

    /// Replaces the certificate of the `https` or `ssl` listener on `port`. Connections and policies stay. A refused
    /// certificate leaves the old one.
    async fn set_listener_certificate(&self, name: &str, port: i32, certificate: &str) -> Result<()>;

    /// Adds subnets, at most one in a zone.
    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<()>;

    /// Takes subnets away; AWS does not let the last one go.
    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<()>;

    /// Replaces the list of security groups.
    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<()>;

    /// Sets tags; others stay.
    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<()>;

    /// One call for the tags of at most [`MAX_NAMES`] load balancers, by name.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know one of them; it does not say which.
    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>>;

    /// Its tags; empty when there is no such load balancer.
    async fn describe_tags(&self, name: &str) -> Result<Tags> {
        let names = [name.to_owned()];
        Ok(self.tags_of_many(&names).await?.remove(name).unwrap_or_default())
    }

    /// Tags of these load balancers by name; names that AWS does not know are absent from the answer.
    async fn tags_of_many(&self, names: &[String]) -> Result<BTreeMap<String, Tags>> {
        let ask = |part: Vec<String>| async move { self.tags_once(&part).await };
        Ok(by_name::known(names, MAX_NAMES, ask).await?.into_iter().collect())
    }

    /// Makes a policy.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when the load balancer has a policy of that name with other settings.
    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()>;

    /// Replaces the policies of the backend that listens on `instance_port`; empty: none.
    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<()>;

    /// Replaces the policies of the listener on `port`.
    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<()>;

    /// The expected wait of a call of this AWS action, for example `CreateLoadBalancer`, after `ahead` other calls,
    /// because of AWS's rate limit: see [`crate::limit::Limited`]. Zero without a limiter.
    fn expected_wait(&self, _action: &str, _ahead: u32) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests;
