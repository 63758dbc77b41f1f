//! Deletes orphaned resources one by one. If AWS refuses a deletion, the next sweep retries it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, IpRange, SecurityGroup};
use outrigger_aws::limit::Priority;
use outrigger_aws::{Filter, Kind};

use super::super::super::context::Context;
use super::super::super::error::Error;
use super::super::super::execute::apply;
use super::super::super::inventory::Reader;
use super::super::super::inventory::account::Search;
use super::super::super::inventory::network::other_clients;
use super::super::super::inventory::target_groups::other_users;
use super::super::super::plan::network::{hand_over, keep_for_others};
use super::super::super::plan::security_groups::{OtherClients, check, checks_of};
use super::super::super::plan::{GroupStep, Plan, Planned, Step, group_deletion};
use super::super::super::spec::names::{CLIENT_RULE, HEALTH_RULE};
use super::super::super::spec::permissions::without_sources;
use super::decide::{Inventory, OrphanedResource, Resource};
use crate::aws_write;

/// Fails when leadership has ended.
pub(super) async fn delete_resources(
    context: &Context,
    inventory: &Inventory,
    orphaned_resources: &[OrphanedResource],
) -> Result<(), Error> {
    for resource in orphaned_resources {
        let (kind, id, of) = (resource.what.kind(), resource.what.id(), &resource.of);
        tracing::info!(kind, id, of, "deleting orphaned AWS resource");
        match delete_resource(context, inventory, &resource.what).await {
            Ok(()) => {}
            Err(Error::NotLeader(lost)) => return Err(Error::NotLeader(lost)),
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    kind,
                    id,
                    of,
                    error,
                    "cannot delete orphaned AWS resource; the next sweep retries"
                );
            }
        }
    }
    Ok(())
}

async fn delete_resource(context: &Context, inventory: &Inventory, what: &Resource) -> Result<(), Error> {
    let (aws, permit) = (&context.aws, &context.permit);
    match what {
        Resource::Classic(name) => aws_write::write(permit, "DeleteLoadBalancer", aws.elb.delete(name)).await??,
        Resource::Network(arn) => {
            let delete = aws.elbv2.delete_load_balancer(arn);
            aws_write::write(permit, "DeleteLoadBalancer", delete).await??;
        }
        Resource::TargetGroup(arn) => {
            let delete = aws.elbv2.delete_target_group(arn);
            aws_write::write(permit, "DeleteTargetGroup", delete).await??;
        }
        Resource::Rules(group, description) => {
            let group = inventory.groups.iter().find(|other| other.id == *group);
            if let Some(group) = group.filter(|_| !context.settings.disable_security_group_ingress) {
                // Other deletions wait for the lock that this takes.
                Box::pin(Priority::Lifecycle.run(delete_rules(context, group, description))).await?;
            }
        }
        Resource::Group(id) => delete_group(context, id).await?,
    }

    Ok(())
}

/// Deletes rules of a load balancer; those that other load balancers need are handed over.
async fn delete_rules(context: &Context, group: &SecurityGroup, description: &str) -> Result<(), Error> {
    let _alone = context.deleting.lock().await;
    let (kind, load_balancer) = description.split_once('=').unwrap_or_default();
    let checks = match kind {
        HEALTH_RULE => checks_of([group].into_iter(), load_balancer),
        _ => BTreeSet::new(),
    };
    let (reader, settings) = (Reader::fresh(&context.aws), &context.settings);
    let other_users = other_users(&reader, settings, load_balancer, &checks, Search::Now).await?;
    let mut steps = hand_over(&group.id, load_balancer, checks, &other_users);

    let other_clients = match kind {
        CLIENT_RULE => other_clients(&context.aws, settings, load_balancer),
        _ => OtherClients::new(),
    };
    steps.extend(keep_for_others(group, load_balancer, &other_clients));

    let is_needed = |rule: &IpPermission, range: &IpRange| {
        let checked = check(rule, range).is_some_and(|check| other_users.contains_key(&check));
        let ports = rule.from_port.zip(rule.to_port);
        let key = ports.map(|(from, to)| (rule.protocol.clone(), from, to, range.cidr.clone()));
        checked || key.is_some_and(|key| other_clients.contains_key(&key))
    };
    let rest = described(group, description, |rule, range| !is_needed(rule, range));
    if !rest.is_empty() {
        let step = GroupStep::Revoke(group.id.clone(), rest);
        steps.push(Planned::new(step, "its Service does not exist"));
    }

    let (nobody, plan) = (Service::default(), Plan::of(steps));
    apply(context, &nobody, load_balancer, &plan).await.map(drop)
}

/// Whether a network interface uses a group: that of an instance or of any load balancer. True if AWS denies the read.
async fn is_used(context: &Context, group: &str) -> Result<bool, Error> {
    match context.aws.ec2.interfaces_of_group(group).await {
        Ok(interfaces) => Ok(!interfaces.is_empty()),
        Err(error) if error.kind() == Kind::AccessDenied => {
            let action = "ec2:DescribeNetworkInterfaces";
            tracing::warn!(
                group,
                action,
                "keeping security group and rules that name it: this action is not allowed"
            );
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the rules that name a group, then the group. If the rules are not managed, or the group is in use, all of it
/// stays.
async fn delete_group(context: &Context, id: &str) -> Result<(), Error> {
    let naming = [Filter::new("ip-permission.group-id", [id])];
    let referencing = context.aws.ec2.security_groups(&naming).await?;
    let steps = group_deletion(id, &referencing, &context.settings, "its Service does not exist");
    let revokes = |planned: &Planned| matches!(planned.step, Step::Group(GroupStep::Revoke(..)));
    // Without rules to revoke, the deletion itself fails if the group is in use.
    if steps.is_empty() || (steps.iter().any(revokes) && is_used(context, id).await?) {
        return Err(Error::GroupInUse { group: id.to_owned() });
    }

    for planned in steps {
        if let Step::Group(GroupStep::Revoke(group, rules)) = planned.step {
            let revoke = context.aws.ec2.revoke_ingress(&group, &rules);
            aws_write::write(&context.permit, "RevokeSecurityGroupIngress", revoke).await??;
        }
    }

    let delete = context.aws.ec2.delete_security_group(id);
    match aws_write::write(&context.permit, "DeleteSecurityGroup", delete).await? {
        Err(error) if error.kind() == Kind::DependencyViolation => Err(Error::GroupInUse { group: id.to_owned() }),
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        done => Ok(done?),
    }
}

/// The rules of a group with this description, with only the sources that have it and are `wanted`.
fn described(
    group: &SecurityGroup,
    description: &str,
    wanted: impl Fn(&IpPermission, &IpRange) -> bool,
) -> Vec<IpPermission> {
    let with = |rule: &IpPermission| {
        let ranges = rule.ranges.iter();
        let ranges = ranges.filter(|range| range.description.as_deref() == Some(description));
        let ranges = ranges.filter(|range| wanted(rule, range));
        let ranges: Vec<_> = ranges.cloned().collect();

        (!ranges.is_empty()).then(|| IpPermission {
            ranges,
            ..without_sources(rule)
        })
    };
    group.ingress.iter().filter_map(with).collect()
}
