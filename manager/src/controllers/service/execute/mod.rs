//! Executes a plan, step by step, while leadership lasts. It makes no decisions.

mod listeners;
pub mod node_groups;
pub mod target_batches;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::IpPermission;
use outrigger_aws::elbv2::{ListenerSettings, MAX_TARGETS, Target};
use outrigger_aws::{Error as AwsError, InstanceId, Kind};
use tokio::time::Instant;

use super::context::Context;
use super::error::Error;
use super::plan::claims::PlannedClaim;
use super::plan::rule_writes::State;
use super::plan::{
    BalancerRef, ClassicStep, GroupRef, GroupStep, NetworkStep, Plan, Planned, Step, TargetGroupRef, quota,
};
use super::spec::names::uid;
use super::spec::permissions;
use crate::aws_write;
use quota::RuleCounts;
use target_batches::{RejectedTarget, hand_over};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Created {
    pub group: Option<String>,
    pub dns_name: Option<String>,
    /// The ARN of the created network load balancer.
    pub load_balancer: Option<String>,
    /// The ARNs of created target groups, by name.
    pub target_groups: BTreeMap<String, String>,
    pub refused: Vec<RejectedTarget>,
    /// The number of created listeners of a network load balancer.
    pub listeners: usize,
    /// The number of existing security groups that got rules.
    pub opened: usize,
    /// Security groups whose quota of rules is too small for the plan.
    pub full_groups: Vec<String>,
    /// Security groups with rules to revoke when all Services have claimed.
    pub deferred: BTreeSet<String>,
}

/// The result of a plan.
#[derive(Debug)]
#[must_use = "a step may have failed"]
pub struct Applied {
    pub created: Created,
    pub failure: Option<Error>,
}

/// Executes all steps, as [`apply_within`], of a plan that does not revoke rules to add others.
pub async fn apply(context: &Context, service: &Service, load_balancer: &str, plan: &Plan) -> Result<Created, Error> {
    let Applied { created, failure } =
        apply_within(context, service, load_balancer, plan, &RuleCounts::default()).await;
    failure.map_or(Ok(created), Err)
}

/// Executes all steps. A group that is still in use, an action that AWS denies, or a quota stops only the later steps
/// that depend on it.
/// Ends at the first step that fails for another reason, or when leadership has ended; the steps before it are done.
/// If several steps failed, the error of the first denied one is returned.
pub async fn apply_within(
    context: &Context,
    service: &Service,
    load_balancer: &str,
    plan: &Plan,
    counts: &RuleCounts,
) -> Applied {
    let mut created = Created::default();
    let executor = Executor {
        context,
        load_balancer,
        claim: plan.claim.as_ref(),
    };
    let steps = plan.steps.iter().rev().collect();
    let mut done = execute(&executor, service, steps, counts, &mut created).await;
    if done.is_ok() && plan.refused.is_none() {
        done = Box::pin(executor.end_claim(&mut created)).await;
    }

    let failure = done.err();
    Applied { created, failure }
}

/// `steps`: the next one last.
async fn execute(
    executor: &Executor<'_>,
    service: &Service,
    mut steps: Vec<&Planned>,
    counts: &RuleCounts,
    made: &mut Created,
) -> Result<(), Error> {
    let (context, load_balancer) = (executor.context, executor.load_balancer);
    let mut held = None;
    let mut omitted: Vec<&Step> = Vec::new();

    while let Some(planned) = steps.pop() {
        let (action, step) = (planned.step.action(), &planned.step);
        let is_full = step
            .opened_group()
            .is_some_and(|group| made.full_groups.iter().any(|full| full == group));
        if is_full || omitted.iter().any(|omitted| step.depends_on(omitted)) {
            tracing::warn!(
                action,
                load_balancer,
                ?step,
                "omitted a step: AWS has denied or refused an earlier one that it depends on"
            );
            omitted.push(step);
            continue;
        }

        tracing::info!(action, load_balancer, ?step, reason = %planned.reason, "writing to AWS");
        if step.creates_balancer() {
            // The Service's slot ends: from now on AWS's budget counts the load balancer.
            context.creation_queues.done(uid(service));
        }

        let done = executor.step(step, made).await;
        context.aws.shared.written(load_balancer, step);
        if is(&done, Kind::QuotaExceeded) && quota::revoke_after_refusal(planned, &mut steps, counts) {
            tracing::info!(
                action,
                load_balancer,
                "security group is at its rule quota; revoking old rules before adding new ones"
            );
            continue;
        }

        match done {
            Ok(()) => {}
            Err(error) if is_isolated(&error, step) => {
                let text = error.chain();
                tracing::warn!(action, load_balancer, error = text, "AWS has denied or deferred a step");
                if let Some(group) = step.opened_group().filter(|_| is_quota(&error)) {
                    made.full_groups.push(group.to_owned());
                }
                omitted.push(step);
                held = Some(more_telling(held, error));
            }
            Err(error @ Error::NotLeader(_)) => return Err(error),
            Err(error) => {
                let text = error.chain();
                tracing::warn!(
                    action,
                    load_balancer,
                    error = text,
                    "step failed; omitting the remaining steps"
                );
                // The denied step may be the cause.
                return Err(held.unwrap_or(error));
            }
        }
    }

    held.map_or(Ok(()), Err)
}

/// Whether later steps may run after this error: a resource is still in use, AWS denies an action, or a quota allows no
/// more. Without the rules of its new security group a load balancer is of no use, as in v1.37.
fn is_isolated(error: &Error, step: &Step) -> bool {
    let opens_new_group = matches!(step, Step::Group(GroupStep::Authorize(GroupRef::Created, _)));
    is_in_use(error)
        || matches!(error, Error::Aws(error) if error.is_denied_action())
        || (is_quota(error) && !opens_new_group)
}

/// Whether AWS allows no more of something.
pub fn is_quota(error: &Error) -> bool {
    matches!(error, Error::Aws(error) if error.kind() == Kind::QuotaExceeded)
}

fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::TargetGroupInUse { .. } | Error::GroupInUse { .. })
}

/// The first denial, else the first error: a resource that is in use may be free at the next try.
fn more_telling(held: Option<Error>, error: Error) -> Error {
    match held {
        Some(held) if is_in_use(&held) && !is_in_use(&error) => error,
        Some(held) => held,
        None => error,
    }
}

/// A change of the rules of a security group.
#[derive(Debug, Clone, Copy)]
enum RuleChange {
    Authorize,
    Revoke,
    Describe,
}

impl RuleChange {
    /// EC2's answer if a rule was written before, or is gone.
    fn done_already(self) -> Kind {
        match self {
            Self::Authorize => Kind::AlreadyExists,
            Self::Revoke | Self::Describe => Kind::NotFound,
        }
    }
}

/// Writes to AWS. The permit is checked before each write.
struct Executor<'a> {
    context: &'a Context,
    load_balancer: &'a str,
    /// The claim of the plan on the groups of Nodes; `None`: it does not change.
    claim: Option<&'a PlannedClaim>,
}

impl Executor<'_> {
    async fn write<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, AwsError>>,
    ) -> Result<T, Error> {
        Ok(aws_write::write(&self.context.permit, action, call).await??)
    }

    async fn step(&self, step: &Step, made: &mut Created) -> Result<(), Error> {
        match step {
            Step::Group(step) => self.group_step(step, made).await,
            Step::Classic(step) => self.classic_step(step, made).await,
            Step::Network(step) => self.network_step(step, made).await,
        }
    }

    async fn group_step(&self, step: &GroupStep, made: &mut Created) -> Result<(), Error> {
        let (action, ec2) = (step.action(), &self.context.aws.ec2);
        match step {
            GroupStep::Create(new) => {
                made.group = Some(self.write(action, ec2.create_security_group(new)).await?);
                Ok(())
            }
            GroupStep::Tag(id, tags) => {
                let ids = std::slice::from_ref(id);
                self.write(action, ec2.create_tags(ids, tags)).await
            }
            GroupStep::Authorize(group, rules) => {
                let group_id = resolve(group, made)?;
                self.write_rules(RuleChange::Authorize, &group_id, rules).await?;
                made.opened += usize::from(*group != GroupRef::Created);
                Ok(())
            }
            GroupStep::LetIn { node_group, from } => {
                let rule = permissions::all_from(&resolve(from, made)?);
                Box::pin(self.widen(node_group, &[rule])).await?;
                made.opened += 1;
                Ok(())
            }
            GroupStep::Widen(group, rules) => {
                Box::pin(self.widen(group, rules)).await?;
                made.opened += 1;
                Ok(())
            }
            GroupStep::Narrow(group, _) => Box::pin(self.narrow(group, true, made)).await,
            GroupStep::Revoke(id, rules) => self.write_rules(RuleChange::Revoke, id, rules).await,
            // A group in use is no failure: AWS releases the interfaces of a deleted load balancer some seconds later.
            // The Service is requeued instead of blocking a worker.
            GroupStep::Delete(id) => match self.write(action, ec2.delete_security_group(id)).await {
                deleted if is(&deleted, Kind::DependencyViolation) => Err(Error::GroupInUse { group: id.clone() }),
                deleted => {
                    done_if(deleted, Kind::NotFound)?;
                    self.context.node_groups.with(|claims| claims.writes.forget_group(id));
                    Ok(())
                }
            },
        }
    }

    /// Writes all rules at once. EC2 refuses all rules of a call if one exists already, or is gone already, which happens if
    /// its reads lag behind an earlier write. Then each rule is written alone.
    async fn write_rules(&self, change: RuleChange, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let all = Box::pin(self.write_rules_once(change, group, rules)).await;
        if !is(&all, change.done_already()) {
            return all;
        }

        for rule in permissions::one_source_each(rules) {
            let one = Box::pin(self.write_rules_once(change, group, &[rule])).await;
            done_if(one, change.done_already())?;
        }
        Ok(())
    }

    async fn write_rules_once(&self, change: RuleChange, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let ec2 = &self.context.aws.ec2;
        match change {
            RuleChange::Authorize => {
                let write = self.write("AuthorizeSecurityGroupIngress", ec2.authorize_ingress(group, rules));
                self.recorded((group, rules), State::Present, write).await
            }
            RuleChange::Revoke => {
                let write = self.write("RevokeSecurityGroupIngress", ec2.revoke_ingress(group, rules));
                self.recorded((group, rules), State::Absent, write).await
            }
            RuleChange::Describe => {
                let call = ec2.describe_ingress(group, rules);
                self.write("UpdateSecurityGroupRuleDescriptionsIngress", call).await?;
                let now = Some(Instant::now());
                let claims = &self.context.node_groups;
                claims.with(|claims| claims.writes.note(group, rules, State::Present, now));
                Ok(())
            }
        }
    }

    async fn classic_step(&self, step: &ClassicStep, made: &mut Created) -> Result<(), Error> {
        let (action, name, elb) = (step.action(), self.load_balancer, &self.context.aws.elb);
        match step {
            ClassicStep::CreateLoadBalancer { new, groups } => {
                let mut new = new.clone();
                new.security_groups = resolve_all(groups, made)?;
                made.dns_name = Some(self.write(action, elb.create(&new)).await?);
                Ok(())
            }
            ClassicStep::AttachSubnets(ids) => self.write(action, elb.attach_subnets(name, ids)).await,
            ClassicStep::DetachSubnets(ids) => self.write(action, elb.detach_subnets(name, ids)).await,
            ClassicStep::ApplyGroups(groups) => {
                let ids = resolve_all(groups, made)?;
                self.write(action, elb.apply_security_groups(name, &ids)).await
            }
            ClassicStep::AddTags(tags) => self.write(action, elb.add_tags(name, tags)).await,
            ClassicStep::DeleteListeners(ports) => self.write(action, elb.delete_listeners(name, ports)).await,
            ClassicStep::CreateListeners(listeners) => self.write(action, elb.create_listeners(name, listeners)).await,
            ClassicStep::SetCertificate { listener, certificate } => self.set_certificate(listener, certificate).await,
            ClassicStep::ReplaceListeners { old, new } => self.replace_listeners(old, new).await,
            ClassicStep::CreatePolicy(policy) => {
                let created = self.write(action, elb.create_policy(name, policy)).await;
                done_if(created, Kind::AlreadyExists)
            }
            ClassicStep::SetBackendPolicies(port, policies) => {
                let call = elb.set_backend_policies(name, *port, policies);
                self.write(action, call).await
            }
            ClassicStep::SetListenerPolicies(port, policies) => {
                let call = elb.set_listener_policies(name, *port, policies);
                self.write(action, call).await
            }
            ClassicStep::ModifyAttributes(attributes) => {
                self.write(action, elb.modify_attributes(name, attributes)).await
            }
            ClassicStep::ConfigureHealthCheck(check) => {
                self.write(action, elb.configure_health_check(name, check)).await
            }
            ClassicStep::Register { instances, needed } => {
                let call = |batch: Vec<InstanceId>| async move { self.write(action, elb.register(name, &batch)).await };
                let refused = hand_over(action, instances, usize::MAX, *needed, call).await?;
                made.refused.extend(refused);
                Ok(())
            }
            ClassicStep::Deregister(instances) => {
                let call =
                    |batch: Vec<InstanceId>| async move { self.write(action, elb.deregister(name, &batch)).await };
                // AWS refuses an instance that it has removed by itself after its end.
                let refused = hand_over(action, instances, usize::MAX, false, call).await?;
                if !refused.is_empty() {
                    tracing::debug!(?refused, "instances were no targets any more");
                }
                Ok(())
            }
            ClassicStep::DeleteLoadBalancer => self.write(action, elb.delete(name)).await,
        }
    }

    async fn network_step(&self, step: &NetworkStep, made: &mut Created) -> Result<(), Error> {
        let (action, elb) = (step.action(), &self.context.aws.elbv2);
        match step {
            NetworkStep::CreateLoadBalancer { new, groups } => {
                let mut new = new.clone();
                new.security_groups = resolve_all(groups, made)?;
                let balancer = self.write(action, elb.create_load_balancer(&new)).await?;
                made.dns_name = Some(balancer.dns_name);
                made.load_balancer = Some(balancer.arn);
                Ok(())
            }
            NetworkStep::SetSecurityGroups(arn, groups) => {
                let groups = resolve_all(groups, made)?;
                self.write(action, elb.set_security_groups(arn, &groups)).await
            }
            NetworkStep::ModifyAttributes(of, attributes) => {
                let arn = balancer(of, made)?;
                self.write(action, elb.modify_attributes(&arn, attributes)).await
            }
            NetworkStep::CreateListener {
                balancer: of,
                listener,
                group,
                tags,
            } => {
                let (arn, listener) = (balancer(of, made)?, forwarding(listener, group, made)?);
                let call = elb.create_listener(&arn, &listener, tags);
                self.write(action, call).await?;
                made.listeners += 1;
                Ok(())
            }
            NetworkStep::ModifyListener {
                arn, listener, group, ..
            } => {
                let listener = forwarding(listener, group, made)?;
                self.write(action, elb.modify_listener(arn, &listener)).await
            }
            NetworkStep::DeleteListener { arn, .. } => self.write(action, elb.delete_listener(arn)).await,
            NetworkStep::CreateTargetGroup(_)
            | NetworkStep::ModifyTargetGroupAttributes(..)
            | NetworkStep::ModifyTargetGroup(..)
            | NetworkStep::ChangeTargets { .. }
            | NetworkStep::DeleteTargetGroup(_) => self.target_group_step(step, made).await,
            NetworkStep::DeleteLoadBalancer(arn) => self.write(action, elb.delete_load_balancer(arn)).await,
        }
    }

    async fn target_group_step(&self, step: &NetworkStep, made: &mut Created) -> Result<(), Error> {
        let (action, elb) = (step.action(), &self.context.aws.elbv2);
        match step {
            NetworkStep::CreateTargetGroup(new) => {
                let arn = self.write(action, elb.create_target_group(new)).await?;
                made.target_groups.insert(new.name.clone(), arn);
                Ok(())
            }
            NetworkStep::ModifyTargetGroupAttributes(of, attributes) => {
                let arn = target_group(of, made)?;
                let call = elb.modify_target_group_attributes(&arn, attributes);
                self.write(action, call).await
            }
            NetworkStep::ModifyTargetGroup(arn, change) => {
                self.write(action, elb.modify_target_group(arn, change)).await
            }
            NetworkStep::ChangeTargets {
                group,
                add,
                remove,
                needed,
            } => {
                let arn = target_group(group, made)?;
                let refused = self.change_targets(&arn, (add, remove), *needed).await?;
                made.refused.extend(refused);
                Ok(())
            }
            // AWS releases a deleted listener's target group some seconds later. The Service is requeued instead of
            // blocking a worker.
            NetworkStep::DeleteTargetGroup(arn) => match self.write(action, elb.delete_target_group(arn)).await {
                deleted if is(&deleted, Kind::DependencyViolation) => Err(Error::TargetGroupInUse { arn: arn.clone() }),
                deleted => deleted,
            },
            _ => Ok(()),
        }
    }

    /// Registers targets before it deregisters others, so that there are never too few. If a quota allows no more, others
    /// are deregistered all the same, and the rest is registered in their place. Returns the targets that AWS refused.
    async fn change_targets(
        &self,
        group: &str,
        (add, remove): (&[Target], &[Target]),
        needed: bool,
    ) -> Result<Vec<RejectedTarget>, Error> {
        let mut refused = match self.register(group, add, needed).await {
            Err(error) if is_quota(&error) && !remove.is_empty() => return self.replace(group, (add, remove)).await,
            registered => registered?,
        };
        refused.extend(self.deregister(group, remove).await?);

        let left = |target: &&Target| {
            refused
                .iter()
                .any(|refused| refused.exceeds_quota && refused.instance == target.id)
        };
        let left: Vec<Target> = add.iter().filter(left).cloned().collect();
        if !left.is_empty() && !remove.is_empty() {
            refused.retain(|refused| !refused.exceeds_quota);
            refused.extend(self.register(group, &left, false).await?);
        }

        Ok(refused)
    }

    /// Deregisters targets before it registers others: AWS has allowed not one more, and no other target stays.
    async fn replace(&self, group: &str, (add, remove): (&[Target], &[Target])) -> Result<Vec<RejectedTarget>, Error> {
        tracing::info!(
            group,
            "no target may be added; deregistering targets before registering others"
        );
        let first = self.deregister(group, remove).await?;
        let second = self.register(group, add, true).await?;
        Ok([first, second].concat())
    }

    async fn register(&self, group: &str, targets: &[Target], needed: bool) -> Result<Vec<RejectedTarget>, Error> {
        const ACTION: &str = "RegisterTargets";
        let elb = &self.context.aws.elbv2;
        let call = |batch: Vec<Target>| async move { self.write(ACTION, elb.register_targets(group, &batch)).await };
        hand_over(ACTION, targets, MAX_TARGETS, needed, call).await
    }

    async fn deregister(&self, group: &str, targets: &[Target]) -> Result<Vec<RejectedTarget>, Error> {
        const ACTION: &str = "DeregisterTargets";
        let elb = &self.context.aws.elbv2;
        let call = |batch: Vec<Target>| async move { self.write(ACTION, elb.deregister_targets(group, &batch)).await };
        hand_over(ACTION, targets, MAX_TARGETS, false, call).await
    }
}

fn is<T>(result: &Result<T, Error>, kind: Kind) -> bool {
    matches!(result, Err(Error::Aws(error)) if error.kind() == kind)
}

/// An error is success if it says that the effect of the step exists already.
fn done_if(result: Result<(), Error>, kind: Kind) -> Result<(), Error> {
    if is(&result, kind) { Ok(()) } else { result }
}

fn resolve(group: &GroupRef, made: &Created) -> Result<String, Error> {
    match group {
        GroupRef::Id(id) => Ok(id.clone()),
        GroupRef::Created => {
            let text = "the plan uses a group that it does not create";
            let group = made.group.clone();
            group.ok_or_else(|| Error::Aws(AwsError::unusable("CreateSecurityGroup", text)))
        }
    }
}

fn resolve_all(groups: &[GroupRef], made: &Created) -> Result<Vec<String>, Error> {
    groups.iter().map(|group| resolve(group, made)).collect()
}

fn balancer(of: &BalancerRef, made: &Created) -> Result<String, Error> {
    match of {
        BalancerRef::Arn(arn) => Ok(arn.clone()),
        BalancerRef::Created => made.load_balancer.clone().ok_or_else(|| unmade("CreateLoadBalancer")),
    }
}

fn target_group(group: &TargetGroupRef, made: &Created) -> Result<String, Error> {
    match group {
        TargetGroupRef::Arn(arn) => Ok(arn.clone()),
        TargetGroupRef::Created(name) => {
            let arn = made.target_groups.get(name).cloned();
            arn.ok_or_else(|| unmade("CreateTargetGroup"))
        }
    }
}

fn unmade(action: &'static str) -> Error {
    let text = "the plan uses a resource that it does not create";
    Error::Aws(AwsError::unusable(action, text))
}

fn forwarding(listener: &ListenerSettings, group: &TargetGroupRef, made: &Created) -> Result<ListenerSettings, Error> {
    Ok(ListenerSettings {
        target_group_arn: Some(target_group(group, made)?),
        ..listener.clone()
    })
}
