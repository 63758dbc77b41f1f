//! Observes a network load balancer for its deletion.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::{Error, InstanceId};

use super::super::model::network::OwnedResources;
use super::super::plan::health_rules::checks_of;
use super::super::settings::Settings;
use super::super::spec::annotations::Annotations;
use super::super::spec::names;
use super::super::spec::network::names::{Owner, TargetGroupNames, security_group};
use super::super::spec::network::ports::target_group_names;
use super::super::spec::owner::other_owner;
use super::node_groups::{groups_with_rules_of, node_groups};
use super::shared_health_rules::other_users;
use super::target_group_list::Search;
use super::unused_target_groups::{GroupOwner, unused};
use super::{Aws, Reader, group_by_name, network_load_balancer, referencing};

/// The resources of a Service's network load balancer.
///
/// Always searched for: the annotation may have changed, and after an interrupted deletion no load balancer leads to
/// the rest. `given`: exact names of the Service's target groups so far.
///
/// # Errors
/// The first call that failed.
pub async fn owned_resources(
    aws: &Aws,
    service: &Service,
    settings: &Settings,
    nodes: &BTreeSet<InstanceId>,
    given: &BTreeSet<String>,
) -> Result<OwnedResources, Error> {
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    let (namespace, name) = names::namespaced(service);
    let owner = Owner { namespace, name, uid };
    let reader = Reader::fresh(aws);
    let load_balancer = network_load_balancer(&reader, &names::load_balancer(uid)).await?;
    let mut owned_resources = OwnedResources {
        name: names::load_balancer(uid),
        load_balancer: load_balancer.map(|(balancer, _)| balancer.arn),
        ..OwnedResources::default()
    };
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let group_owner = GroupOwner {
        names: &TargetGroupNames::of(owner),
        given: &(given | &target_group_names(service, settings)),
        service_tag: &format!("{namespace}/{name}"),
        cluster_tags: &cluster_tags,
        settings,
        balancer: None,
        gone: owned_resources
            .load_balancer
            .is_none()
            .then_some(owned_resources.name.as_str()),
    };
    if let Some(arn) = &owned_resources.load_balancer {
        let tags = aws.tag_reads.allowed(aws.elbv2.tags(std::slice::from_ref(arn)).await)?;
        owned_resources.tags = tags.map(|mut tags| tags.remove(arn).unwrap_or_default());
    }
    // Target groups of another cluster's load balancer belong to that cluster.
    let other = other_owner(owned_resources.tags.as_ref(), settings);
    if let Some(arn) = owned_resources.load_balancer.as_ref().filter(|_| other.is_none()) {
        owned_resources.target_groups = aws.elbv2.target_groups(arn).await?;
        owned_resources
            .target_groups
            .retain(|group| group_owner.names.has(&group.name));
    }
    owned_resources
        .target_groups
        .extend(unused(aws, group_owner, Search::Now).await?);
    if !settings.disable_security_group_ingress {
        let instances = aws.instances.look_up(nodes).await?;
        owned_resources.groups = node_groups(&reader, settings, &instances).await?;
        owned_resources
            .groups
            .extend(groups_with_rules_of(&reader, settings, &owned_resources.name).await?);
        let checks = checks_of(owned_resources.groups.values(), &owned_resources.name);
        // All target groups were listed a moment ago.
        owned_resources.other_users =
            other_users(&reader, settings, &owned_resources.name, &checks, Search::Earlier).await?;
    }
    let own = security_group(&settings.cluster_name, owner);
    owned_resources.own_group = group_by_name(&reader, &settings.vpc_id, &own).await?;
    let sources = owned_resources.own_group.iter().map(|group| group.id.clone()).collect();
    owned_resources.referencing = referencing(&reader, sources).await?;
    owned_resources.listed = Annotations::of(service).list("security-groups").unwrap_or_default();
    Ok(owned_resources)
}
