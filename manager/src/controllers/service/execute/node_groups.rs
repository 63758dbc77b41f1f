//! Writes the rules of the Nodes' security groups, one load balancer at a time for each group.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{IpPermission, SecurityGroup};
use outrigger_aws::{Filter, Kind};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::super::context::Context;
use super::super::error::{Environment, Error};
use super::super::plan::Plan;
use super::super::plan::claims::{Change, Claim, ClaimSteps, Claims, Decision, View};
use super::super::plan::rule_writes::{Purpose, State};
use super::super::settings::HealthProbe;
use super::super::spec::annotations::Annotations;
use super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, load_balancer, uid};
use super::super::spec::permissions::{self, count};
use super::{Created, Executor, RuleChange, is, is_quota};

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
            claims.begin(owner, claim);
        }
        Ok(plan)
    })
}

/// Claims nothing for a Service that has no load balancer yet.
pub fn claim_nothing(context: &Context, service: &Service) {
    claim(context, service, &Claim::default());
}

/// Claims the existing rules with the name of the load balancer, and those that open ports of the Service or of its health
/// checks: nothing is known about the load balancer.
pub fn claim_as_is(context: &Context, service: &Service) {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let ports = ports.filter_map(|port| port.node_port);
    let chosen = Annotations::of(service)
        .get("healthcheck-port")
        .and_then(|port| port.parse().ok());
    let shared = match context.settings.health_probe {
        HealthProbe::Shared { port, .. } => Some(port),
        HealthProbe::ServiceNodePort => None,
    };
    let checked = [spec.and_then(|spec| spec.health_check_node_port), chosen, shared];
    let as_is = Claim {
        ports: ports.chain(checked.into_iter().flatten()).collect(),
        keeps_named: true,
        ..Claim::default()
    };
    claim(context, service, &as_is);
}

/// How often a Service fails before it claims what is known of it: for half a minute.
const FAILURES: u32 = 3;

/// Lets a Service claim that goes on failing before AWS is read. Without its claim no rule of the cluster is revoked.
pub fn claim_after_failures(context: &Context, service: &Service) {
    let owner = load_balancer(uid(service));
    let has_claimed = context.node_groups.with(|claims| claims.has(&owner));
    let failures = context.states.with(uid(service), |state| state.failures);
    if !has_claimed && failures >= FAILURES {
        claim_as_is(context, service);
    }
}

fn claim(context: &Context, service: &Service, claim: &Claim) {
    let owner = load_balancer(uid(service));
    context.node_groups.with(|claims| claims.widen(&owner, claim));
}

/// Revokes the rules of a load balancer without a Service in one group. A rule that another one needs gets the description of
/// that one. Returns whether that waits until all Services have claimed.
pub async fn narrow_orphaned(context: &Context, load_balancer: &str, group: &str) -> Result<bool, Error> {
    let nothing = ClaimSteps::default().claim(Claim::default(), Claim::default(), Instant::now());
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
    /// Narrows the claim after all steps have succeeded, and the groups in which rules may be left.
    pub(super) async fn end_claim(&self, made: &mut Created) -> Result<(), Error> {
        let Some(after) = self.claim.and_then(|claim| claim.after.as_ref()) else {
            return Ok(());
        };

        let claims = &self.context.node_groups;
        let left = claims.with(|claims| claims.narrow(self.load_balancer, after));
        for group in left {
            self.narrow(&group, false, made).await?;
        }
        Ok(())
    }

    /// Adds rules to a group, as far as it lacks them.
    pub(super) async fn widen(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let _lock = self.context.node_groups.lock(group).await;
        let rules = self.lacking(group, rules);
        let quota = self.context.settings.rules_quota;
        if quota.enforced
            && !rules.is_empty()
            && let Some(now) = self.described(group, Purpose::Add).await?
            && count(&now.ingress) + count(&rules) > quota.rules
        {
            let refused = Environment::TooManyRules {
                group: group.to_owned(),
                rules: count(&now.ingress) + count(&rules),
                quota: quota.rules,
            };
            return self.swap(now, &rules, Error::Environment(refused)).await;
        }

        match self.add(group, &rules).await {
            Err(error) if is_quota(&error) => match self.described(group, Purpose::Add).await? {
                Some(now) => self.add_to_full_group(now, &self.lacking(group, &rules), error).await,
                None => Err(error),
            },
            done => done,
        }
    }

    /// Adds as many kinds of rules as fit, if no revocation makes room for all: the one with most rules first. The first refusal
    /// ends it: if that kind does not fit, the group gets no others either.
    async fn add_to_full_group(&self, now: SecurityGroup, rules: &[IpPermission], refused: Error) -> Result<(), Error> {
        let group = now.id.clone();
        let kinds = by_kind(rules);
        match self.swap(now, rules, refused).await {
            Err(refused) if is_quota(&refused) && kinds.len() > 1 => {
                for rules in kinds {
                    self.add(&group, &rules).await?;
                }
                Ok(())
            }
            done => done,
        }
    }

    /// The rules without those that this process has added since the plan was made: for another load balancer, or a part of
    /// them before AWS refused another part.
    fn lacking(&self, group: &str, rules: &[IpPermission]) -> Vec<IpPermission> {
        let since = self.claim.map_or_else(Instant::now, |claim| claim.since);
        let mut lacking = permissions::by_rule(rules);
        self.context
            .node_groups
            .with(|claims| lacking.retain(|key, _| !claims.writes.has_added(group, key, since)));
        lacking.into_values().collect()
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
            self.change(&now.id, &change).await?;
            return self.add(&now.id, rules).await;
        }

        Err(refused)
    }

    /// Revokes or describes the rules that no load balancer needs. `is_narrowed`: this one needs no more than it claims after
    /// its steps; otherwise all claims count as they are.
    pub(super) async fn narrow(&self, group: &str, is_narrowed: bool, made: &mut Created) -> Result<(), Error> {
        let _lock = self.context.node_groups.lock(group).await;
        if let Some(now) = self.described(group, Purpose::Revoke).await? {
            match self.decide(&now, is_narrowed, |_| true) {
                Decision::Nothing => {}
                Decision::Deferred => {
                    made.deferred.insert(group.to_owned());
                    return Ok(());
                }
                Decision::Change(change) => {
                    self.change(group, &change).await?;
                    if change.is_left_to(self.load_balancer) {
                        return Ok(());
                    }
                }
            }
        }

        let claims = &self.context.node_groups;
        claims.with(|claims| claims.narrowed(self.load_balancer, group));
        Ok(())
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
                claims.writes.note(&now.id, &change.revoke, State::InDoubt, None);
            }
            decision
        })
    }

    async fn change(&self, group: &str, change: &Change) -> Result<(), Error> {
        let mut done = self.describe(group, &change.describe).await;
        if !change.revoke.is_empty() {
            let rules = permissions::joined(change.revoke.iter().cloned());
            let revoked = self.write_rules(RuleChange::Revoke, group, &rules).await;
            let claims = &self.context.node_groups;
            claims.with(|claims| claims.writes.end(group, &rules, Instant::now()));
            done = done.and(revoked);
        }
        done
    }

    async fn add(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        if rules.is_empty() {
            return Ok(());
        }
        let rules = permissions::joined(rules.iter().cloned());
        self.write_rules(RuleChange::Authorize, group, &rules).await
    }

    /// A role for v1.37 lacks the action. Then the rule keeps the description of the other load balancer.
    async fn describe(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        if rules.is_empty() {
            return Ok(());
        }

        let rules = permissions::joined(rules.iter().cloned());
        let described = self.write_rules(RuleChange::Describe, group, &rules).await;
        self.context.aws.shared.groups_written();
        match described {
            Err(Error::Aws(error)) if error.is_denied_action() => {
                tracing::warn!(
                    group,
                    "keeping the descriptions of rules that another load balancer needs"
                );
                self.context.node_groups.with(Claims::keep_descriptions);
                Ok(())
            }
            done => done,
        }
    }

    /// The group as it is now, with the own writes that EC2 does not list yet; `None`: it is deleted.
    async fn described(&self, group: &str, purpose: Purpose) -> Result<Option<SecurityGroup>, Error> {
        let (since, filter) = (Instant::now(), Filter::new("group-id", [group]));
        let found = self.context.aws.ec2.security_groups(&[filter]).await?;
        let claims = &self.context.node_groups;
        let described = |found: SecurityGroup| claims.with(|claims| claims.writes.applied_to(&found, since, purpose));
        Ok(found.into_iter().next().map(described))
    }

    /// Writes rules. Until the write has ended, and after an error that is no answer of EC2, its effect is in doubt. A refusal
    /// has no effect.
    pub(super) async fn recorded(
        &self,
        (group, rules): (&str, &[IpPermission]),
        state: State,
        write: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let claims = &self.context.node_groups;
        let former = claims.with(|claims| claims.writes.begin(group, rules));
        let done = write.await;
        self.context.aws.shared.groups_written();

        let is_gone = state == State::Absent && count(rules) == 1 && is(&done, Kind::NotFound);
        let ended = Some(Instant::now());
        claims.with(|claims| match &done {
            Ok(()) => claims.writes.note(group, rules, state, ended),
            Err(_) if is_gone => claims.writes.note(group, rules, State::Absent, ended),
            Err(error) if is_refusal(error) => claims.writes.restore(group, former),
            Err(_) => claims.writes.note(group, rules, State::InDoubt, ended),
        });
        done
    }
}

/// Whether EC2 has certainly changed nothing.
fn is_refusal(error: &Error) -> bool {
    const KINDS: [Kind; 3] = [Kind::QuotaExceeded, Kind::AlreadyExists, Kind::NotFound];
    matches!(error, Error::Aws(error) if KINDS.contains(&error.kind()) || error.is_denied_action())
}

/// The rules of each kind, the most first: for health checks, for clients, and others.
fn by_kind(rules: &[IpPermission]) -> Vec<Vec<IpPermission>> {
    let place = |rule: &IpPermission| {
        let text = permissions::description(rule);
        let kinds = [HEALTH_RULE, CLIENT_RULE];
        let kind = kinds.iter().position(|kind| text.starts_with(kind));
        kind.unwrap_or(kinds.len())
    };
    let mut kinds: BTreeMap<usize, Vec<IpPermission>> = BTreeMap::new();
    for rule in rules {
        kinds.entry(place(rule)).or_default().push(rule.clone());
    }

    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by_key(|rules| std::cmp::Reverse(count(rules)));
    kinds
}
