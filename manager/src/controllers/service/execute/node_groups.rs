//! Writes the rules of the Nodes' security groups, one load balancer at a time for each group.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use outrigger_aws::{Filter, Kind};
use tokio::sync::OwnedMutexGuard;

use super::super::context::Context;
use super::super::error::{Environment, Error};
use super::super::plan::claims::{Change, Claim, Claims, NodeRules, View, plan_group};
use super::super::plan::{GroupStep, Planned};
use super::super::spec::permissions::{self, count};
use super::{Executor, done_if, is_quota};

/// The claims of all load balancers, and who writes to which group.
#[derive(Debug, Default)]
pub struct NodeGroups {
    claims: Mutex<Claims>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl NodeGroups {
    pub fn with<T>(&self, change: impl FnOnce(&mut Claims) -> T) -> T {
        change(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other load balancer writes to the group.
    async fn turn(&self, group: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(group.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

/// Calls `plan` with the claims. `since`: the moment before AWS was read.
pub fn with_claims<T>(context: &Context, since: u64, plan: impl FnOnce(View<'_>) -> T) -> T {
    let services = &(context.aws.services)();
    context.node_groups.with(|claims| {
        plan(View {
            claims,
            since,
            services,
        })
    })
}

/// Claims nothing for a load balancer that does not exist yet.
pub fn claim_nothing(context: &Context, load_balancer: &str) {
    context
        .node_groups
        .with(|claims| claims.widen(load_balancer, &Claim::default(), 0));
}

/// Claims what exists for a load balancer of which nothing more is known.
pub fn claim_as_is(context: &Context, load_balancer: &str) {
    let claim = Claim::as_is([].into());
    context
        .node_groups
        .with(|claims| claims.widen(load_balancer, &claim, 0));
}

/// Revokes the rules of a load balancer without a Service in one group. A rule that another one needs gets the description of that one. It
/// is not remembered: in groups that other clusters use its rules may be theirs.
pub async fn narrow_orphaned(context: &Context, load_balancer: &str, group: &str) -> Result<(), Error> {
    let executor = Executor {
        context,
        load_balancer,
        nodes: Some(&NodeRules::default()),
    };
    executor.narrow(group, true).await
}

impl Executor<'_> {
    /// Widens the claim. Returns the steps for groups that may have lost a rule since they were read.
    pub(super) fn claim(&self) -> Vec<Planned> {
        let Some(nodes) = self.nodes else {
            return Vec::new();
        };

        let groups = self.context.node_groups.with(|claims| {
            claims.defer(nodes.deferred.iter().cloned());
            claims.widen(self.load_balancer, &nodes.claim, nodes.since)
        });
        let step = |group: String| {
            let rules = nodes.claim.groups.get(&group)?.permissions(self.load_balancer);
            let step = GroupStep::Widen(group, rules);
            Some(Planned::new(step, "rules of the group were revoked meanwhile"))
        };
        groups.into_iter().filter_map(step).collect()
    }

    /// Narrows the claim after all steps have succeeded, and revokes what waited for it.
    pub(super) async fn end_claim(&self, is_done: bool) {
        let Some(nodes) = self.nodes else {
            return;
        };

        let services = (self.context.aws.services)();
        let groups = self.context.node_groups.with(|claims| {
            let mut groups = match is_done {
                true => claims.narrow(self.load_balancer, &nodes.claim, nodes.since),
                false => [].into(),
            };
            if claims.has_deferred() && claims.are_complete(&services, self.load_balancer) {
                groups.extend(claims.take_deferred());
            }
            groups
        });
        for group in groups {
            if let Err(error) = self.narrow(&group, false).await {
                let error = error.chain();
                tracing::warn!(
                    group,
                    error,
                    "cannot revoke rules that no load balancer needs; retrying later"
                );
                self.context.node_groups.with(|claims| claims.defer([group]));
            }
        }
    }

    /// Adds rules to a group, as far as it lacks them.
    pub(super) async fn widen(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let _turn = self.context.node_groups.turn(group).await;
        let quota = self.context.settings.rules_quota;
        let mut rules = rules.to_vec();
        if quota.enforced || self.is_written_since(group) {
            let Some(now) = self.described(group).await? else {
                return Ok(());
            };
            rules = permissions::missing(&rules, &now.ingress);
            if rules.is_empty() {
                return Ok(());
            }
            if quota.enforced && count(&now.ingress) + count(&rules) > quota.rules {
                let refused = Environment::TooManyRules {
                    group: group.to_owned(),
                    rules: count(&now.ingress) + count(&rules),
                    quota: quota.rules,
                };
                return self.swap(now, &rules, Error::Environment(refused)).await;
            }
        }

        let done = self.authorize(group, &rules).await;
        self.note_write(group, false);
        match done {
            Err(error) if is_quota(&error) => match self.described(group).await? {
                Some(now) => self.swap(now, &rules, error).await,
                None => Err(error),
            },
            done => done,
        }
    }

    /// Revokes rules before it adds others to a full group: first those that no load balancer needs, then those that this
    /// one does not need after its steps. Changes nothing if the others may not fit then.
    async fn swap(&self, now: SecurityGroup, rules: &[IpPermission], refused: Error) -> Result<(), Error> {
        let (has, quota) = (count(&now.ingress), self.context.settings.rules_quota.rules);
        for is_narrowed in [false, true] {
            let change = self.decide(&now, is_narrowed, |change| {
                let after = (has + count(rules)).saturating_sub(count(&change.revoke));
                !change.revoke.is_empty() && after <= has.max(quota)
            });
            let Some(change) = change else {
                continue;
            };

            tracing::info!(
                group = now.id,
                "security group is at its rule quota; revoking old rules before adding new ones"
            );
            self.change(&now.id, &change).await?;
            let done = self.authorize(&now.id, rules).await;
            self.note_write(&now.id, false);
            return done;
        }

        Err(refused)
    }

    /// Revokes or describes the rules that the load balancer does not need. `is_narrowed`: it needs no more than it claims
    /// in the plan; otherwise all claims count as they are.
    pub(super) async fn narrow(&self, group: &str, is_narrowed: bool) -> Result<(), Error> {
        let _turn = self.context.node_groups.turn(group).await;
        let planned = self.nodes.and_then(|nodes| nodes.groups.get(group));
        let now = match planned.filter(|_| !self.is_written_since(group)) {
            Some(planned) => Some(planned.clone()),
            None => self.described(group).await?,
        };
        let change = now.and_then(|now| self.decide(&now, is_narrowed, |_| true));
        match change {
            Some(change) => self.change(group, &change).await,
            None => Ok(()),
        }
    }

    /// The change of a group, if it is usable. The decision is made while no claim changes: a load balancer that widens its
    /// claim later reads the group again.
    fn decide(
        &self,
        now: &SecurityGroup,
        is_narrowed: bool,
        is_usable: impl FnOnce(&Change) -> bool,
    ) -> Option<Change> {
        let (owner, settings) = (self.load_balancer, &self.context.settings);
        let claim = self.nodes.map(|nodes| &nodes.claim).filter(|_| is_narrowed);
        let services = (self.context.aws.services)();
        self.context.node_groups.with(|claims| {
            let wanted = claims.wanted(&now.id, claim.map(|claim| (owner, claim)));
            let change = plan_group(now, &wanted, settings);
            if change.is_empty() || !is_usable(&change) {
                return None;
            }
            if !claims.are_complete(&services, owner) {
                claims.defer([now.id.clone()]);
                return None;
            }

            if let Some(claim) = claim {
                claims.narrow_in(owner, claim, &now.id);
            }
            claims.note_write(&now.id, true);
            Some(change)
        })
    }

    async fn change(&self, group: &str, change: &Change) -> Result<(), Error> {
        let described = match change.describe.is_empty() {
            true => Ok(()),
            false => self.describe(group, &change.describe).await,
        };
        let revoked = match change.revoke.is_empty() {
            true => Ok(()),
            false => self.revoke(group, &change.revoke).await,
        };
        self.note_write(group, true);
        described.and(revoked)
    }

    /// A role for v1.37 lacks the action. Then the rule keeps the description of the other load balancer.
    async fn describe(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "UpdateSecurityGroupRuleDescriptionsIngress";

        let described = self.context.aws.ec2.describe_ingress(group, rules);
        let described = self.write(ACTION, described).await;
        if matches!(&described, Err(Error::Aws(error)) if error.is_denied_action()) {
            tracing::warn!(
                group,
                "keeping the descriptions of rules that another load balancer needs"
            );
            self.context.node_groups.with(Claims::keep_descriptions);
            return Ok(());
        }
        done_if(described, Kind::NotFound)
    }

    fn is_written_since(&self, group: &str) -> bool {
        let since = self.nodes.map_or(0, |nodes| nodes.since);
        self.context
            .node_groups
            .with(|claims| claims.is_written_since(group, since))
    }

    fn note_write(&self, group: &str, revokes: bool) {
        self.context.aws.shared.groups_written();
        self.context
            .node_groups
            .with(|claims| claims.note_write(group, revokes));
    }

    /// The group as it is now; `None`: it is deleted.
    async fn described(&self, group: &str) -> Result<Option<SecurityGroup>, Error> {
        let filter = Filter::new("group-id", [group]);
        let found = self.context.aws.ec2.security_groups(&[filter]).await?;
        Ok(found.into_iter().next())
    }
}
