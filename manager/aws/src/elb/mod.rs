//! The classic Elastic Load Balancing API as the service controller sees it.

mod adapter;
mod convert;
mod model;

use async_trait::async_trait;

pub use adapter::SdkElb;
pub use model::{AccessLog, Attributes, HealthCheck, Listener, LoadBalancer, NewLoadBalancer, NewPolicy};

use crate::{Error, InstanceId, Tags};

/// What the service controller asks of classic load balancers. `name` is always the load balancer's name.
#[async_trait]
pub trait Elb: Send + Sync {
    /// The load balancer, or `None` when AWS says that there is none of that name.
    async fn describe(&self, name: &str) -> Result<Option<LoadBalancer>, Error>;

    /// Makes a load balancer, tagged in the same call, and returns its DNS name.
    ///
    /// AWS repeats its answer for a name that exists with the same settings, and refuses one with others
    /// ([`crate::Kind::AlreadyExists`]), so this call can be sent again after a lost answer.
    async fn create(&self, load_balancer: &NewLoadBalancer) -> Result<String, Error>;

    /// Deletes it; deleting one that does not exist succeeds.
    async fn delete(&self, name: &str) -> Result<(), Error>;

    /// The attributes that the service controller cares for.
    async fn attributes(&self, name: &str) -> Result<Attributes, Error>;

    /// Sets these attributes; the ones that [`Attributes`] does not know stay as they are.
    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<(), Error>;

    /// Sets the health check.
    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<(), Error>;

    /// Adds targets; those that are there already stay.
    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error>;

    /// Takes targets away; those that are not there are passed over.
    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error>;

    /// Adds listeners.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when a port has a listener with other settings.
    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<(), Error>;

    /// Removes the listeners of these load balancer ports.
    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<(), Error>;

    /// Adds subnets, at most one in a zone.
    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error>;

    /// Takes subnets away; AWS does not let the last one go.
    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error>;

    /// Replaces the list of security groups.
    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<(), Error>;

    /// Sets tags; others stay.
    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<(), Error>;

    /// Its tags; empty when there is no such load balancer.
    async fn describe_tags(&self, name: &str) -> Result<Tags, Error>;

    /// Makes a policy.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when the load balancer has a policy of that name with other settings.
    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<(), Error>;

    /// Replaces the policies of the backend that listens on `instance_port`; empty: none.
    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<(), Error>;

    /// Replaces the policies of the listener on `port`.
    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<(), Error>;
}
