//! Reading at AWS what a deletion is planned from.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::{Error, Filter, InstanceId};

use super::super::annotations::Annotations;
use super::super::reads::{Aws, Look, group_by_name, network_load_balancer, referencing};
use super::super::settings::Settings;
use super::super::{names, request};
use super::heirs::heirs;
use super::listing::{self, Search, Whose};
use super::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, Owner, prefix, rule, security_group};
use super::observe::node_groups;
use super::plan::Doomed;

/// What is left of a Service's network load balancer.
///
/// All of it is looked for in any case: the annotation may have changed since, and a deletion that was cut off after the load
/// balancer's own has nothing left that tells of it.
///
/// # Errors
/// The first call that failed.
pub async fn doomed(
    aws: &Aws,
    service: &Service,
    settings: &Settings,
    nodes: &BTreeSet<InstanceId>,
) -> Result<Doomed, Error> {
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    let (namespace, name) = request::namespaced(service);
    let owner = Owner { namespace, name, uid };
    let look = Look::fresh(aws);
    let load_balancer = network_load_balancer(&look, &names::load_balancer(uid)).await?;
    let mut doomed = Doomed {
        name: names::load_balancer(uid),
        load_balancer: load_balancer.map(|balancer| balancer.arn),
        ..Doomed::default()
    };
    let cluster_tags = names::cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let whose = Whose {
        prefix: &prefix(owner),
        service_tag: &format!("{namespace}/{name}"),
        cluster_tags: &cluster_tags,
    };
    if let Some(arn) = &doomed.load_balancer {
        doomed.target_groups = aws.elbv2.target_groups(arn).await?;
    }
    let unused = listing::unused(aws.elbv2.as_ref(), &aws.target_groups, whose, Search::Now).await?;
    doomed.target_groups.extend(unused);
    if !settings.disable_security_group_ingress {
        let instances = aws.instances.look_up(nodes).await?;
        doomed.groups = node_groups(&look, settings, &instances).await?;
        doomed.groups.extend(forgotten(aws, settings, &doomed.name).await?);
        let all = aws.target_groups.all(aws.elbv2.as_ref(), Search::Earlier).await?;
        let (name, groups) = (&doomed.name, &doomed.groups);
        doomed.heirs = heirs(aws.elbv2.as_ref(), &all, name, groups, &settings.cluster_id).await?;
    }
    let own = security_group(&settings.cluster_name, owner);
    doomed.own_group = group_by_name(&look, &settings.vpc_id, &own).await?;
    let sources = doomed.own_group.iter().map(|group| group.id.clone()).collect();
    doomed.referencing = referencing(&look, sources).await?;
    doomed.listed = Annotations::of(service).list("security-groups").unwrap_or_default();
    Ok(doomed)
}

/// The groups of the VPC with a rule for this load balancer, or with one that no load balancer needs any more, whatever
/// their tags: a group without the cluster's tag is not found by its nodes once they are gone.
async fn forgotten(aws: &Aws, settings: &Settings, name: &str) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let ours = [CLIENT_RULE, HEALTH_RULE].map(|kind| rule(kind, name));
    let of_vpc = Filter::new("vpc-id", [&settings.vpc_id]);
    let mut groups = aws.ec2.security_groups(&[of_vpc]).await?;
    groups.retain(|group| {
        let ranges = group.ingress.iter().flat_map(|rule| &rule.ranges);
        let texts: Vec<&str> = ranges.filter_map(|range| range.description.as_deref()).collect();
        let orphaned = texts.contains(&MTU_RULE) && !texts.iter().any(|text| text.contains(CLIENT_RULE));
        orphaned || texts.iter().any(|text| ours.iter().any(|own| own == text))
    });
    Ok(groups.into_iter().map(|group| (group.id.clone(), group)).collect())
}
