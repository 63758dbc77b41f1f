//! Writes the rules of the Nodes' security groups, one load balancer at a time for each group.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use outrigger_aws::{Filter, Kind};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::super::context::Context;
use super::super::error::{Environment, Error};
use super::super::plan::Plan;
use super::super::plan::claims::{Change, Claim, Claims, Decision, PlannedClaim, View};
use super::super::plan::rule_writes::{Effect, InDoubt};
use super::super::spec::names::{load_balancer, uid};
use super::super::spec::permissions::{self, count};
use super::{Created, Executor, done_if, is_quota};

/// The claims of all load balancers, and the locks of the groups.
#[derive(Debug, Default)]
pub struct NodeGroups {
    claims: Mutex<Claims>,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl NodeGroups {
    pub fn with<T>(&self, change: impl FnOnce(&mut Claims) -> T) -> T {
        change(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other load balancer writes to the group.
    async fn lock(&self, group: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(group.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Makes a plan, and widens the claim of the load balancer by that of the plan. No other claim changes between.
/// `since`: the moment before AWS was read.
pub fn plan_with_claims<E>(
    context: &Context,
    (owner, since): (&str, Instant),
    plan: impl FnOnce(View<'_>) -> Result<Plan, E>,
) -> Result<Plan, E> {
    let services = &(context.aws.services)();
    context.node_groups.with(|claims| {
        let plan = plan(View {
            claims,
            since,
            services,
        })?;
        if let Some(claim) = &plan.claim {
            claims.widen(owner, &claim.during);
        }
        Ok(plan)
    })
}

/// Claims nothing for a Service that has no load balancer yet.
pub fn claim_nothing(context: &Context, service: &Service) {
    let owner = load_balancer(uid(service));
    context
        .node_groups
        .with(|claims| claims.widen(&owner, &Claim::default()));
}

/// Claims the existing rules with the name of the load balancer, and those that open ports of the Service: nothing is known
/// about the load balancer.
pub fn claim_as_is(context: &Context, service: &Service) {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let ports = ports.filter_map(|port| port.node_port);
    let claim = Claim {
        ports: ports.chain(spec.and_then(|spec| spec.health_check_node_port)).collect(),
        keeps_named: true,
        ..Claim::default()
    };
    let owner = load_balancer(uid(service));
    context.node_groups.with(|claims| claims.widen(&owner, &claim));
}

/// Revokes the rules of a load balancer without a Service in one group. A rule that another one needs gets the description of
/// that one. Returns whether that waits until all Services have claimed.
pub async fn narrow_orphaned(context: &Context, load_balancer: &str, group: &str) -> Result<bool, Error> {
    let nothing = PlannedClaim {
        during: Claim::default(),
        after: Some(Claim::default()),
        since: Instant::now(),
    };
    let executor = Executor {
        context,
        load_balancer,
        claim: Some(&nothing),
    };
    let mut made = Created::default();
    executor.narrow(group, true, &mut made).await?;
    Ok(!made.deferred.is_empty())
}

impl Executor<'_> {
    /// Narrows the claim after all steps have succeeded, and revokes what others have left to it meanwhile.
    pub(super) async fn end_claim(&self, made: &mut Created) -> Result<(), Error> {
        let Some((planned, after)) = self.claim.and_then(|claim| Some((claim, claim.after.as_ref()?))) else {
            return Ok(());
        };

        let claims = &self.context.node_groups;
        let left = claims.with(|claims| claims.narrow(self.load_balancer, after, planned.since));
        for group in left {
            self.narrow(&group, false, made).await?;
        }
        Ok(())
    }

    /// Adds rules to a group, as far as it lacks them.
    pub(super) async fn widen(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let _lock = self.context.node_groups.lock(group).await;
        let quota = self.context.settings.rules_quota;
        let rules = self.lacking(group, rules);
        if rules.is_empty() {
            return Ok(());
        }

        if quota.enforced
            && let Some(now) = self.described(group, InDoubt::Absent).await?
            && count(&now.ingress) + count(&rules) > quota.rules
        {
            let refused = Environment::TooManyRules {
                group: group.to_owned(),
                rules: count(&now.ingress) + count(&rules),
                quota: quota.rules,
            };
            return self.swap(now, &rules, Error::Environment(refused)).await;
        }

        match self.authorize(group, &rules).await {
            Err(error) if is_quota(&error) => match self.described(group, InDoubt::Absent).await? {
                Some(now) => self.swap(now, &rules, error).await,
                None => Err(error),
            },
            done => done,
        }
    }

    /// The rules without those that another load balancer has added since the plan was made.
    fn lacking(&self, group: &str, rules: &[IpPermission]) -> Vec<IpPermission> {
        let unknown = SecurityGroup {
            id: group.to_owned(),
            ..SecurityGroup::default()
        };
        let added = self.context.node_groups.with(|claims| {
            let writes = &claims.writes;
            writes.applied_to(&unknown, Instant::now(), InDoubt::Absent)
        });
        permissions::missing(rules, &added.ingress)
    }

    /// Revokes rules before it adds others to a full group: first those that no load balancer needs, then those that this
    /// one does not need after its steps. Changes nothing if the others may not fit then.
    async fn swap(&self, now: SecurityGroup, rules: &[IpPermission], refused: Error) -> Result<(), Error> {
        let (has, quota) = (count(&now.ingress), self.context.settings.rules_quota.rules);
        for is_narrowed in [false, true] {
            let decision = self.decide(&now, is_narrowed, |change| {
                let after = (has + count(rules)).saturating_sub(count(&change.revoke));
                !change.revoke.is_empty() && after <= has.max(quota)
            });
            let Decision::Change(change) = decision else {
                continue;
            };

            tracing::info!(
                group = now.id,
                "security group is at its rule quota; revoking old rules before adding new ones"
            );
            self.change(&now, &change).await?;
            return self.authorize(&now.id, rules).await;
        }

        Err(refused)
    }

    /// Revokes or describes the rules that no load balancer needs. `is_narrowed`: this one needs no more than it claims after
    /// its steps; otherwise all claims count as they are.
    pub(super) async fn narrow(&self, group: &str, is_narrowed: bool, made: &mut Created) -> Result<(), Error> {
        let _lock = self.context.node_groups.lock(group).await;
        let Some(now) = self.described(group, InDoubt::Present).await? else {
            return Ok(());
        };

        match self.decide(&now, is_narrowed, |_| true) {
            Decision::Nothing => Ok(()),
            Decision::Deferred => {
                made.deferred.insert(group.to_owned());
                Ok(())
            }
            Decision::Change(change) => self.change(&now, &change).await,
        }
    }

    /// The change of a group, if it is usable. It counts as made for all claims from now on.
    fn decide(&self, now: &SecurityGroup, is_narrowed: bool, is_usable: impl FnOnce(&Change) -> bool) -> Decision {
        let after = self
            .claim
            .filter(|_| is_narrowed)
            .and_then(|claim| claim.after.as_ref());
        let services = (self.context.aws.services)();
        self.context.node_groups.with(|claims| {
            let owner = (self.load_balancer, after);
            let decision = claims.decide(owner, now, (&services, &self.context.settings), is_usable);
            if let Decision::Change(change) = &decision {
                claims.writes.begin(&now.id, &change.revoke, Effect::Revoked);
                claims.writes.begin(&now.id, &change.describe, Effect::Added);
            }
            decision
        })
    }

    async fn change(&self, group: &SecurityGroup, change: &Change) -> Result<(), Error> {
        let described = match change.describe.is_empty() {
            true => Ok(()),
            false => self.describe(group, &change.describe).await,
        };
        let revoked = match change.revoke.is_empty() {
            true => Ok(()),
            false => self.revoke(&group.id, &change.revoke).await,
        };
        described.and(revoked)
    }

    /// A role for v1.37 lacks the action. Then the rule keeps the description of the other load balancer.
    async fn describe(&self, group: &SecurityGroup, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "UpdateSecurityGroupRuleDescriptionsIngress";

        let described = self.context.aws.ec2.describe_ingress(&group.id, rules);
        let described = self.write(ACTION, described).await;
        self.note_end((&group.id, rules), described.is_ok());
        if described.is_err() {
            let kept = permissions::common(&group.ingress, rules);
            let claims = &self.context.node_groups;
            claims.with(|claims| claims.writes.found(&group.id, &kept, Instant::now()));
        }
        if matches!(&described, Err(Error::Aws(error)) if error.is_denied_action()) {
            tracing::warn!(
                group = group.id,
                "keeping the descriptions of rules that another load balancer needs"
            );
            self.context.node_groups.with(Claims::keep_descriptions);
            return Ok(());
        }
        done_if(described, Kind::NotFound)
    }

    /// The group as it is now, with the own writes that EC2 does not list yet; `None`: it is deleted.
    async fn described(&self, group: &str, in_doubt: InDoubt) -> Result<Option<SecurityGroup>, Error> {
        let (since, filter) = (Instant::now(), Filter::new("group-id", [group]));
        let found = self.context.aws.ec2.security_groups(&[filter]).await?;
        let found = found.into_iter().next();
        let claims = &self.context.node_groups;
        Ok(found.map(|found| claims.with(|claims| claims.writes.applied_to(&found, since, in_doubt))))
    }

    /// Records that a write of rules begins.
    pub(super) fn note_begin(&self, (group, rules): (&str, &[IpPermission]), effect: Effect) {
        let claims = &self.context.node_groups;
        claims.with(|claims| claims.writes.begin(group, rules, effect));
    }

    /// Records that a write of rules has ended.
    pub(super) fn note_end(&self, (group, rules): (&str, &[IpPermission]), is_done: bool) {
        self.context.aws.shared.groups_written();
        let claims = &self.context.node_groups;
        claims.with(|claims| claims.writes.end(group, rules, is_done, Instant::now()));
    }
}
