//! Executes a plan, step by step, while leadership lasts. It makes no decisions.

mod steps;
pub mod target_batches;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::IpPermission;
use outrigger_aws::{Ec2, Elb, Elbv2, Error as AwsError, Kind};
use outrigger_leader::Permit;

use super::context::Context;
use super::error::Error;
use super::inventory::shared::Shared;
use super::plan::{GroupRef, GroupStep, Plan, Planned, Step, quota, security_groups};
use super::queue::creation_queue::CreationQueues;
use super::spec::names::uid;
use crate::aws_write;
use target_batches::RejectedTarget;

/// Backoff in seconds while restoring rules that were revoked to be handed over.
const HAND_OVER_BACKOFF: [u64; 4] = [1, 2, 4, 8];

/// Writes to AWS. The permit is checked before each write.
pub struct Executor<'a> {
    pub ec2: &'a dyn Ec2,
    pub elb: &'a dyn Elb,
    pub elbv2: &'a dyn Elbv2,
    pub permit: &'a Permit,
    pub load_balancer: &'a str,
    /// Shared answers, which writes invalidate.
    pub shared: &'a Shared,
    /// A created load balancer ends the Service's slot: from then on AWS's budget counts it.
    pub creation_queues: &'a CreationQueues,
    pub uid: &'a str,
}

/// Resources that a plan has created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Created {
    pub group: Option<String>,
    /// The DNS name of the created load balancer.
    pub dns_name: Option<String>,
    /// The ARN of the created network load balancer.
    pub load_balancer: Option<String>,
    /// The ARNs of created target groups, by name.
    pub target_groups: BTreeMap<String, String>,
    /// Targets that AWS did not register or deregister.
    pub refused: Vec<RejectedTarget>,
}

/// Executes all steps. A group that is still in use, or an action that AWS denies, stops only the later steps that
/// depend on it.
/// Fails at the first step that fails for another reason, or when leadership has ended; the steps before it are done.
/// If several steps failed, the error of the first denied one is returned.
pub async fn apply(plan: &Plan, executor: &Executor<'_>) -> Result<Created, Error> {
    let (mut made, mut held) = (Created::default(), None);
    let mut omitted: Vec<&Step> = Vec::new();
    let mut steps: Vec<&Planned> = plan.steps.iter().rev().collect();

    while let Some(planned) = steps.pop() {
        let (action, step) = (planned.step.action(), &planned.step);
        if omitted.iter().any(|omitted| step.depends_on(omitted)) {
            tracing::warn!(
                action,
                load_balancer = executor.load_balancer,
                ?step,
                "omitted a step: AWS has denied an earlier one that it depends on"
            );
            omitted.push(step);
            continue;
        }

        tracing::info!(action, load_balancer = executor.load_balancer, ?step, reason = %planned.reason, "writing to AWS");
        if step.creates_balancer() {
            executor.creation_queues.done(executor.uid);
        }

        let done = executor.step(step, &mut made).await;
        executor.shared.written(executor.load_balancer, step);
        if is(&done, Kind::QuotaExceeded) && quota::revoke_after_refusal(planned, &mut steps) {
            tracing::info!(
                action,
                load_balancer = executor.load_balancer,
                "security group is at its rule quota; revoking old rules before adding new ones"
            );
            continue;
        }

        match done {
            Ok(()) => {}
            Err(error) if is_isolated(&error) => {
                let text = error.chain();
                tracing::warn!(
                    action,
                    load_balancer = executor.load_balancer,
                    error = text,
                    "AWS has denied or deferred a step"
                );
                omitted.push(step);
                held = Some(more_telling(held, error));
            }
            Err(error @ Error::NotLeader(_)) => return Err(error),
            Err(error) => {
                let text = error.chain();
                tracing::warn!(
                    action,
                    load_balancer = executor.load_balancer,
                    error = text,
                    "step failed; omitting the remaining steps"
                );
                // The denied step may be the cause.
                return Err(held.unwrap_or(error));
            }
        }
    }

    held.map_or(Ok(made), Err)
}

/// Whether later steps may run after this error: a resource is still in use, or AWS denies an action.
fn is_isolated(error: &Error) -> bool {
    is_in_use(error) || matches!(error, Error::Aws(error) if error.is_denied_action())
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

impl<'a> Executor<'a> {
    pub fn new(context: &'a Context, service: &'a Service, load_balancer: &'a str) -> Self {
        Self {
            ec2: context.aws.ec2.as_ref(),
            elb: context.aws.elb.as_ref(),
            elbv2: context.aws.elbv2.as_ref(),
            permit: &context.permit,
            load_balancer,
            shared: &context.aws.shared,
            creation_queues: &context.creation_queues,
            uid: uid(service),
        }
    }
}

impl Executor<'_> {
    pub(super) async fn write<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, AwsError>>,
    ) -> Result<T, Error> {
        Ok(aws_write::write(self.permit, action, call).await??)
    }

    async fn step(&self, step: &Step, made: &mut Created) -> Result<(), Error> {
        match step {
            Step::Group(step) => self.group_step(step, made).await,
            Step::Classic(step) => self.classic_step(step, made).await,
            Step::Network(step) => self.network_step(step, made).await,
        }
    }

    async fn group_step(&self, step: &GroupStep, made: &mut Created) -> Result<(), Error> {
        let action = step.action();
        match step {
            GroupStep::Create(new) => {
                made.group = Some(self.write(action, self.ec2.create_security_group(new)).await?);
                Ok(())
            }
            GroupStep::Tag(id, tags) => {
                self.write(action, self.ec2.create_tags(std::slice::from_ref(id), tags))
                    .await
            }
            GroupStep::Authorize(group, rules) => self.authorize(&resolve(group, made)?, rules).await,
            GroupStep::LetIn { node_group, from } => {
                self.authorize(node_group, &[security_groups::all_from(&resolve(from, made)?)])
                    .await
            }
            GroupStep::Revoke(id, rules) => self.revoke(id, rules).await,
            GroupStep::HandOver { group, rules, to } => self.hand_over(group, rules, to).await,
            GroupStep::Delete(id) => self.delete_group(id).await,
        }
    }

    /// EC2 refuses all rules of a call if one exists already, which happens if its reads lag behind an earlier write.
    /// Then each rule is added alone.
    async fn authorize(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "AuthorizeSecurityGroupIngress";

        let all = self.write(ACTION, self.ec2.authorize_ingress(group, rules)).await;
        if !is(&all, Kind::AlreadyExists) {
            return all;
        }

        for rule in security_groups::one_source_each(rules) {
            let one = self.write(ACTION, self.ec2.authorize_ingress(group, &[rule])).await;
            done_if(one, Kind::AlreadyExists)?;
        }

        Ok(())
    }

    /// Revokes rules one by one if some are gone already.
    async fn revoke(&self, group: &str, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "RevokeSecurityGroupIngress";

        let all = self.write(ACTION, self.ec2.revoke_ingress(group, rules)).await;
        if !is(&all, Kind::NotFound) {
            return all;
        }

        for rule in security_groups::one_source_each(rules) {
            done_if(
                self.write(ACTION, self.ec2.revoke_ingress(group, &[rule])).await,
                Kind::NotFound,
            )?;
        }

        Ok(())
    }

    /// A revoked rule has no description any more by which it is found again. So it is restored with retries, also if
    /// it is unknown whether it was revoked.
    async fn hand_over(&self, group: &str, rules: &[IpPermission], to: &[IpPermission]) -> Result<(), Error> {
        let revoked = self.revoke(group, rules).await;
        if matches!(revoked, Err(Error::NotLeader(_))) || is(&revoked, Kind::AccessDenied) {
            return revoked;
        }

        let mut pauses = HAND_OVER_BACKOFF.iter();
        loop {
            let back = self.authorize(group, to).await;
            let passing = [Kind::Throttled, Kind::Transport, Kind::Other];
            match pauses.next().filter(|_| passing.iter().any(|kind| is(&back, *kind))) {
                None => return back.and(revoked),
                Some(pause) => tokio::time::sleep(Duration::from_secs(*pause)).await,
            }
        }
    }

    /// A group in use is no failure: AWS releases the interfaces of a deleted load balancer some seconds later. The
    /// Service is requeued instead of blocking a worker.
    async fn delete_group(&self, id: &str) -> Result<(), Error> {
        let deleted = self
            .write("DeleteSecurityGroup", self.ec2.delete_security_group(id))
            .await;
        if is(&deleted, Kind::DependencyViolation) {
            return Err(Error::GroupInUse { group: id.to_owned() });
        }
        done_if(deleted, Kind::NotFound)
    }
}

/// Whether a write failed for this reason.
pub(super) fn is<T>(result: &Result<T, Error>, kind: Kind) -> bool {
    matches!(result, Err(Error::Aws(error)) if error.kind() == kind)
}

/// An error is success if it says that the effect of the step exists already.
pub(super) fn done_if(result: Result<(), Error>, kind: Kind) -> Result<(), Error> {
    if is(&result, kind) { Ok(()) } else { result }
}

pub(super) fn resolve(group: &GroupRef, made: &Created) -> Result<String, Error> {
    match group {
        GroupRef::Id(id) => Ok(id.clone()),
        GroupRef::Created => made.group.clone().ok_or_else(|| {
            Error::Aws(AwsError::unusable(
                "CreateSecurityGroup",
                "the plan uses a group that it does not create",
            ))
        }),
    }
}

pub(super) fn resolve_all(groups: &[GroupRef], made: &Created) -> Result<Vec<String>, Error> {
    groups.iter().map(|group| resolve(group, made)).collect()
}
