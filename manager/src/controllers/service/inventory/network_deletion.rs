//! Reading at AWS what a deletion is planned from.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::{Error, InstanceId};

use super::super::model::network::Doomed;
use super::super::plan::health_rules::checks_of;
use super::super::settings::Settings;
use super::super::spec::annotations::Annotations;
use super::super::spec::names;
use super::super::spec::network::names::{Owner, TargetGroupNames, security_group};
use super::super::spec::network::ports::target_group_names;
use super::super::spec::owner::other_owner;
use super::node_groups::{forgotten, node_groups};
use super::shared_health_rules::heirs;
use super::target_group_list::Search;
use super::unused_target_groups::{Whose, unused};
use super::{Aws, Look, group_by_name, network_load_balancer, referencing};

/// What is left of a Service's network load balancer.
///
/// All of it is looked for in any case: the annotation may have changed since, and a deletion that was cut off after the load
/// balancer's own has nothing left that tells of it. `given` are exact names that target groups of this Service have had.
///
/// # Errors
/// The first call that failed.
pub async fn doomed(
    aws: &Aws,
    service: &Service,
    settings: &Settings,
    nodes: &BTreeSet<InstanceId>,
    given: &BTreeSet<String>,
) -> Result<Doomed, Error> {
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    let (namespace, name) = names::namespaced(service);
    let owner = Owner { namespace, name, uid };
    let look = Look::fresh(aws);
    let load_balancer = network_load_balancer(&look, &names::load_balancer(uid)).await?;
    let mut doomed = Doomed {
        name: names::load_balancer(uid),
        load_balancer: load_balancer.map(|(balancer, _)| balancer.arn),
        ..Doomed::default()
    };
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let whose = Whose {
        names: &TargetGroupNames::of(owner),
        given: &(given | &target_group_names(service, settings)),
        service_tag: &format!("{namespace}/{name}"),
        cluster_tags: &cluster_tags,
        settings,
        balancer: None,
        gone: doomed.load_balancer.is_none().then_some(doomed.name.as_str()),
    };
    if let Some(arn) = &doomed.load_balancer {
        let tags = aws.tag_reads.allowed(aws.elbv2.tags(std::slice::from_ref(arn)).await)?;
        doomed.tags = tags.map(|mut tags| tags.remove(arn).unwrap_or_default());
    }
    // What another cluster's load balancer uses is not this cluster's to delete either.
    let other = other_owner(doomed.tags.as_ref(), settings);
    if let Some(arn) = doomed.load_balancer.as_ref().filter(|_| other.is_none()) {
        doomed.target_groups = aws.elbv2.target_groups(arn).await?;
        doomed.target_groups.retain(|group| whose.names.has(&group.name));
    }
    doomed.target_groups.extend(unused(aws, whose, Search::Now).await?);
    if !settings.disable_security_group_ingress {
        let instances = aws.instances.look_up(nodes).await?;
        doomed.groups = node_groups(&look, settings, &instances).await?;
        doomed.groups.extend(forgotten(&look, settings, &doomed.name).await?);
        let checks = checks_of(doomed.groups.values(), &doomed.name);
        // All target groups were listed a moment ago.
        doomed.heirs = heirs(&look, settings, &doomed.name, &checks, Search::Earlier).await?;
    }
    let own = security_group(&settings.cluster_name, owner);
    doomed.own_group = group_by_name(&look, &settings.vpc_id, &own).await?;
    let sources = doomed.own_group.iter().map(|group| group.id.clone()).collect();
    doomed.referencing = referencing(&look, sources).await?;
    doomed.listed = Annotations::of(service).list("security-groups").unwrap_or_default();
    Ok(doomed)
}
