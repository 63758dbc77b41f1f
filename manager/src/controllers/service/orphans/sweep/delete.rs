//! Deletes orphaned resources one by one. If AWS refuses a deletion, the next sweep retries it.

use outrigger_aws::limit::Priority;
use outrigger_aws::{Filter, Kind};

use super::super::super::context::Context;
use super::super::super::error::Error;
use super::super::super::execute::node_groups::narrow_orphaned;
use super::super::super::plan::{GroupStep, Planned, Step, group_deletion};
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
                // Load balancers wait for the group meanwhile.
                let load_balancer = description.split_once('=').unwrap_or_default().1;
                let narrow = narrow_orphaned(context, load_balancer, &group.id);
                if Box::pin(Priority::Lifecycle.run(narrow)).await? {
                    let group = group.id.clone();
                    return Err(Error::RulesDeferred { group });
                }
            }
        }
        Resource::Group(id) => delete_group(context, id).await?,
    }

    Ok(())
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
