//! Checks that a load balancer belongs to this cluster before the first change.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;

use super::context::Context;
use super::error::{Environment, Error};
use super::model;
use super::model::classic::KnownTags;
use super::plan::Plan;
use super::spec::names;
use super::spec::names::uid;
use super::spec::owner::other_uid;

/// The properties of a load balancer that tell which cluster owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerIdentity {
    /// Its DNS name, which is never reused.
    pub dns_name: String,
    /// The ARN; `None` for a classic load balancer.
    pub arn: Option<String>,
    /// Its tags, if they were read.
    pub tags: Option<Tags>,
}

impl LoadBalancerIdentity {
    pub fn classic(existing: &model::classic::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: None,
            tags: match &existing.tags {
                KnownTags::Read(tags) => Some(tags.clone()),
                KnownTags::Unknown { .. } => None,
            },
        }
    }

    /// The same, with tags that were not read.
    pub fn without_tags(self) -> Self {
        Self { tags: None, ..self }
    }

    pub fn network(existing: &model::network::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: Some(existing.described.arn.clone()),
            tags: existing.tags.clone(),
        }
    }
}

/// Checks that a plan changes no load balancer of another cluster. Tags that the observation did not read are read
/// here, once per load balancer and process.
/// Fails with [`Environment::ForeignLoadBalancer`], or when a read fails. After a denied read the load balancer counts
/// as this cluster's.
pub(super) async fn check_owner(
    context: &Context,
    service: &Service,
    identity: Option<&LoadBalancerIdentity>,
    plan: &Plan,
) -> Result<(), Error> {
    let (Some(identity), Some(own)) = (identity, &context.settings.cluster_uid) else {
        return Ok(());
    };

    let known = context.states.of(uid(service)).owned.as_ref() == Some(&identity.dns_name);
    if identity.tags.is_none() && (known || plan.steps.is_empty()) {
        return Ok(());
    }

    let name = names::load_balancer(uid(service));
    let tags = match (&identity.tags, &identity.arn) {
        (Some(tags), _) => Some(tags.clone()),
        (None, Some(arn)) => {
            let read = context.aws.elbv2.tags(std::slice::from_ref(arn)).await;
            let read = context.aws.tag_reads.allowed(read)?;
            read.map(|mut tags| tags.remove(arn).unwrap_or_default())
        }
        (None, None) => context
            .aws
            .tag_reads
            .allowed(context.aws.elb.describe_tags(&name).await)?,
    };

    let other = tags.as_ref().and_then(|tags| other_uid(tags, &context.settings));
    if let Some(other) = other {
        return Err(Error::Environment(Environment::ForeignLoadBalancer {
            load_balancer: name,
            other: other.to_owned(),
            own: own.clone(),
        }));
    }

    remember_owned(context, service, &identity.dns_name);

    Ok(())
}

pub(super) fn remember_owned(context: &Context, service: &Service, dns_name: &str) {
    context
        .states
        .update(uid(service), |state| state.owned = Some(dns_name.to_owned()));
}
