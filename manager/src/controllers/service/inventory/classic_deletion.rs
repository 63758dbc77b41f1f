//! Observes a classic load balancer for its deletion.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Error;

use super::super::model::classic::OwnedResources;
use super::super::settings::Settings;
use super::super::spec::annotations::Annotations;
use super::super::spec::names::{self, uid};
use super::{Aws, Reader, group_by_name, referencing};

/// The resources of a Service's classic load balancer.
///
/// # Errors
/// The first call that failed.
pub async fn owned_resources(aws: &Aws, service: &Service, settings: &Settings) -> Result<OwnedResources, Error> {
    let name = &names::load_balancer(uid(service));
    let load_balancer = aws.elb.describe(name).await?.is_some();
    let tags = match load_balancer {
        true => aws.tag_reads.allowed(aws.elb.describe_tags(name).await)?,
        false => None,
    };
    let group = names::security_group(name);
    let reader = Reader::fresh(aws);
    let own_group = group_by_name(&reader, &settings.vpc_id, &group).await?;
    let sources: BTreeSet<String> = own_group.iter().map(|group| group.id.clone()).collect();
    let referencing = referencing(&reader, sources).await?;
    let annotations = Annotations::of(service);
    let lists = [
        annotations.list("security-groups"),
        annotations.list("extra-security-groups"),
    ];
    let listed = lists.into_iter().flatten().flatten().collect();
    Ok(OwnedResources {
        load_balancer,
        tags,
        own_group,
        referencing,
        listed,
    })
}
