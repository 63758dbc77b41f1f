//! Deleting what is left over. Each thing goes for itself: what AWS does not let go yet is found again by the next sweep.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use outrigger_aws::limit::Priority;
use outrigger_aws::{Filter, Kind};

use super::super::apply::apply;
use super::super::error::Error;
use super::super::network;
use super::super::network::heirs::{Check, check, checks_of, shares};
use super::super::network::listing::Search;
use super::super::network::names::HEALTH_RULE;
use super::super::network::plan::as_permissions;
use super::super::plan::{GroupStep, Plan, Planned, Step, group_deletion};
use super::super::reads::Look;
use super::super::sync::Reconciler;
use super::decide::{Inventory, Leftover, What};
use crate::aws_write;

impl Reconciler {
    /// Deletes these, in their order.
    ///
    /// # Errors
    /// When the right to write has ended.
    pub(super) async fn delete_leftovers(&self, inventory: &Inventory, leftovers: &[Leftover]) -> Result<(), Error> {
        for leftover in leftovers {
            let (kind, id, of) = (leftover.what.kind(), leftover.what.id(), &leftover.of);
            tracing::info!(kind, id, of, "deleting what is left over at AWS");
            match self.delete_leftover(inventory, &leftover.what).await {
                Ok(()) => {}
                Err(Error::NotLeader(lost)) => return Err(Error::NotLeader(lost)),
                Err(error) => {
                    let error = error.chain();
                    tracing::warn!(
                        kind,
                        id,
                        of,
                        error,
                        "it could not be deleted; the next sweep tries again"
                    );
                }
            }
        }
        Ok(())
    }

    async fn delete_leftover(&self, inventory: &Inventory, what: &What) -> Result<(), Error> {
        let (aws, permit) = (&self.aws, &self.permit);
        match what {
            What::Classic(name) => aws_write::write(permit, "DeleteLoadBalancer", aws.elb.delete(name)).await??,
            What::Network(arn) => {
                let delete = aws.elbv2.delete_load_balancer(arn);
                aws_write::write(permit, "DeleteLoadBalancer", delete).await??;
            }
            What::TargetGroup(arn) => {
                let delete = aws.elbv2.delete_target_group(arn);
                aws_write::write(permit, "DeleteTargetGroup", delete).await??;
            }
            What::Rules(group, description) => {
                let group = inventory.groups.iter().find(|other| other.id == *group);
                if let Some(group) = group.filter(|_| !self.hands_off()) {
                    // Others wait for the lock that this takes.
                    Box::pin(Priority::Lifecycle.run(self.delete_rules(group, description))).await?;
                }
            }
            What::Group(id) => self.delete_group(id).await?,
        }
        Ok(())
    }

    /// Rules for health checks that others need too are handed over.
    async fn delete_rules(&self, group: &SecurityGroup, description: &str) -> Result<(), Error> {
        let _alone = self.deleting.lock().await;
        let (kind, load_balancer) = description.split_once('=').unwrap_or_default();
        let mut checks = BTreeSet::new();
        if kind == HEALTH_RULE {
            checks = checks_of([group].into_iter(), load_balancer);
        }
        let (look, settings) = (Look::fresh(&self.aws), &self.settings);
        let heirs = network::heirs::heirs(&look, settings, load_balancer, &checks, Search::Now).await?;
        let mut steps = Vec::new();
        for (heir, checks) in shares(&heirs, checks.into_iter()) {
            let step = GroupStep::HandOver {
                group: group.id.clone(),
                rules: as_permissions(&checks, load_balancer),
                to: as_permissions(&checks, heir),
            };
            steps.push(Planned::new(step, format!("{heir} needs the rule")));
        }
        let rest = described(group, description, |check| !heirs.contains_key(check));
        if !rest.is_empty() {
            let step = GroupStep::Revoke(group.id.clone(), rest);
            steps.push(Planned::new(step, "it is left over"));
        }
        let plan = Plan {
            steps,
            ..Plan::default()
        };
        let nobody = Service::default();
        apply(&plan, &self.executor(&nobody, load_balancer)).await.map(drop)
    }

    fn hands_off(&self) -> bool {
        self.settings.disable_security_group_ingress
    }

    async fn revoke(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        if rules.is_empty() {
            return Ok(());
        }
        let revoke = self.aws.ec2.revoke_ingress(group, rules);
        aws_write::write(&self.permit, "RevokeSecurityGroupIngress", revoke).await??;
        Ok(())
    }

    /// Whether a network interface has a group: an instance or a load balancer of any kind. Where that may not be asked, it
    /// may.
    async fn is_used(&self, group: &str) -> Result<bool, Error> {
        match self.aws.ec2.interfaces_of_group(group).await {
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

    /// Rules that name a group go before it; where they may not be touched, or the group is in use, it stays with them.
    async fn delete_group(&self, id: &str) -> Result<(), Error> {
        let naming = [Filter::new("ip-permission.group-id", [id])];
        let referencing = self.aws.ec2.security_groups(&naming).await?;
        let steps = group_deletion(id, &referencing, &self.settings, "it is left over");
        let revokes = |planned: &Planned| matches!(planned.step, Step::Group(GroupStep::Revoke(..)));
        // Without rules to revoke AWS itself says whether the group is in use.
        if steps.is_empty() || (steps.iter().any(revokes) && self.is_used(id).await?) {
            return Err(Error::GroupInUse { group: id.to_owned() });
        }
        for planned in steps {
            if let Step::Group(GroupStep::Revoke(group, rules)) = planned.step {
                self.revoke(&group, &rules).await?;
            }
        }
        let delete = self.aws.ec2.delete_security_group(id);
        match aws_write::write(&self.permit, "DeleteSecurityGroup", delete).await? {
            Err(error) if error.kind() == Kind::DependencyViolation => Err(Error::GroupInUse { group: id.to_owned() }),
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }
}

/// The rules of a group with this description, reduced to the sources that carry it, but for those that let in a check which
/// is not `wanted`.
fn described(group: &SecurityGroup, description: &str, wanted: impl Fn(&Check) -> bool) -> Vec<IpPermission> {
    let with = |rule: &IpPermission| {
        let ranges = rule.ranges.iter();
        let ranges: Vec<_> = ranges
            .filter(|range| range.description.as_deref() == Some(description))
            .filter(|range| check(rule, range).is_none_or(|check| wanted(&check)))
            .cloned()
            .collect();
        (!ranges.is_empty()).then(|| IpPermission {
            protocol: rule.protocol.clone(),
            from_port: rule.from_port,
            to_port: rule.to_port,
            ranges,
            ..IpPermission::default()
        })
    };
    group.ingress.iter().filter_map(with).collect()
}
