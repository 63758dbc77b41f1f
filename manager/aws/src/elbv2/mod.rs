//! The Elastic Load Balancing v2 API as the service controller sees it: network load balancers.

pub(crate) mod adapter;
mod convert;
mod model;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

pub use model::{
    Attributes, HealthCheckChange, Listener, ListenerSettings, NetworkLoadBalancer, NewNetworkLoadBalancer,
    NewTargetGroup, SubnetMapping, Target, TargetGroup, TargetHealth, TargetHealthCheck,
};

use crate::{Page, Result, Tags, Token, by_name, page};

/// Most targets that one call registers or deregisters.
pub const MAX_TARGETS: usize = 100;

/// Resources that one call of [`Elbv2::tags_once`] or [`Elbv2::add_tags`] takes at most.
pub const MAX_TAGGED: usize = 20;

/// Names that one describe takes at most.
pub const MAX_NAMES: usize = 20;

/// Which target groups a `DescribeTargetGroups` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetGroupQuery<'a> {
    /// All of account and region, whatever they are for.
    All,
    /// The target groups of the load balancer with this ARN.
    UsedBy(&'a str),
    /// The target groups with these names, at most [`MAX_NAMES`].
    Names(&'a [String]),
}

/// The calls for network load balancers that the service controller sends.
///
/// A method whose name ends in `page` sends one call and returns one page. The first call has no token, each further
/// call has the token of the page before. The other methods read all pages.
#[async_trait]
pub trait Elbv2: Send + Sync {
    /// One call for the network load balancers of at most [`MAX_NAMES`] names.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know one of them; it does not say which. Also when a name belongs
    /// to a load balancer of another type, which the error names.
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>>;

    /// The network load balancers of these names; names that AWS does not know are absent from the answer.
    ///
    /// # Errors
    /// Also when a name belongs to a load balancer of another type, which the error names.
    async fn load_balancers(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>> {
        let ask = |part: Vec<String>| async move { self.load_balancers_once(&part).await };
        by_name::known(names, MAX_NAMES, ask).await
    }

    /// A page of all network load balancers of account and region. A page holds 400 load balancers of all types, so it may
    /// be empty.
    async fn all_load_balancers_page(&self, token: Token) -> Result<Page<NetworkLoadBalancer>>;

    async fn all_load_balancers(&self) -> Result<Vec<NetworkLoadBalancer>> {
        page::all("DescribeLoadBalancers", |token| self.all_load_balancers_page(token)).await
    }

    /// Creates a load balancer, tagged in the same call. Idempotent: the same settings return the existing one.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when one of that name has other settings.
    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer>;

    /// Deletes a load balancer with its listeners. Succeeds if it does not exist.
    async fn delete_load_balancer(&self, arn: &str) -> Result<()>;

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<()>;

    async fn attributes(&self, arn: &str) -> Result<Attributes>;

    /// Sets these attributes; others stay.
    async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()>;

    /// One call for the tags of at most [`MAX_TAGGED`] load balancers, target groups or listeners, by ARN.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know one of them; it does not say which.
    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>>;

    /// Tags of load balancers, target groups or listeners by ARN; ARNs that AWS does not know are absent from the answer.
    async fn tags(&self, arns: &[String]) -> Result<BTreeMap<String, Tags>> {
        let ask = |part: Vec<String>| async move { self.tags_once(&part).await };
        Ok(by_name::known(arns, MAX_TAGGED, ask).await?.into_iter().collect())
    }

    /// Sets tags of at most [`MAX_TAGGED`] load balancers, target groups or listeners; others stay.
    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<()>;

    async fn listeners_page(&self, load_balancer_arn: &str, token: Token) -> Result<Page<Listener>>;

    async fn listeners(&self, load_balancer_arn: &str) -> Result<Vec<Listener>> {
        page::all("DescribeListeners", |token| {
            self.listeners_page(load_balancer_arn, token)
        })
        .await
    }

    /// Creates a listener, tagged in the same call, and returns its ARN.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when the port has a listener, of any protocol.
    async fn create_listener(&self, balancer_arn: &str, listener: &ListenerSettings, tags: &Tags) -> Result<String>;

    /// Gives a listener these settings, its port and protocol included.
    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<()>;

    /// Deletes a listener. Succeeds if it does not exist.
    async fn delete_listener(&self, arn: &str) -> Result<()>;

    /// A page of target groups, 400 in a call.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know the load balancer, or one of the names; it does not say which.
    async fn target_groups_page(&self, query: TargetGroupQuery<'_>, token: Token) -> Result<Page<TargetGroup>>;

    /// The target groups that a load balancer uses.
    async fn target_groups(&self, load_balancer_arn: &str) -> Result<Vec<TargetGroup>> {
        let query = TargetGroupQuery::UsedBy(load_balancer_arn);
        page::all("DescribeTargetGroups", |token| self.target_groups_page(query, token)).await
    }

    /// All target groups of account and region, of any use.
    async fn all_target_groups(&self) -> Result<Vec<TargetGroup>> {
        let query = TargetGroupQuery::All;
        page::all("DescribeTargetGroups", |token| self.target_groups_page(query, token)).await
    }

    /// The target groups of at most [`MAX_NAMES`] names.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when AWS does not know one of them; it does not say which.
    async fn target_groups_once(&self, names: &[String]) -> Result<Vec<TargetGroup>> {
        let query = TargetGroupQuery::Names(names);
        page::all("DescribeTargetGroups", |token| self.target_groups_page(query, token)).await
    }

    /// The target groups of these names; names that AWS does not know are absent from the answer.
    async fn target_groups_named(&self, names: &[String]) -> Result<Vec<TargetGroup>> {
        let ask = |part: Vec<String>| async move { self.target_groups_once(&part).await };
        by_name::known(names, MAX_NAMES, ask).await
    }

    /// Creates a target group, tagged in the same call, and returns its ARN. Idempotent: the same settings return the
    /// existing one.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when one of that name has other settings.
    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String>;

    /// Changes a target group's health check.
    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<()>;

    /// Deletes a target group. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Of [`crate::Kind::DependencyViolation`] while a listener uses it.
    async fn delete_target_group(&self, arn: &str) -> Result<()>;

    /// Registered targets, including draining ones.
    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>>;

    /// Registers at most [`MAX_TARGETS`] targets. Targets that are registered already stay.
    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()>;

    /// Deregisters at most [`MAX_TARGETS`] targets. Targets that are not registered are ignored.
    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()>;

    async fn target_group_attributes(&self, arn: &str) -> Result<Attributes>;

    /// Sets these attributes of a target group; others stay.
    async fn modify_target_group_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()>;

    /// The expected wait of a call of this AWS action, for example `CreateLoadBalancer`, after `ahead` other calls,
    /// because of AWS's rate limit: see [`crate::limit::Limited`]. Zero without a limiter.
    fn expected_wait(&self, _action: &str, _ahead: u32) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests;
