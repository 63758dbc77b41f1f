//! Executes the steps for load balancers.

use outrigger_aws::elbv2::{ListenerSettings, MAX_TARGETS, Target};
use outrigger_aws::{Error as AwsError, InstanceId, Kind};

use super::super::error::Error;
use super::super::plan::classic::Step as ClassicStep;
use super::super::plan::network::{BalancerRef, Step, TargetGroupRef};
use super::target_batches::{RejectedTarget, hand_over};
use super::{Created, Executor, done_if, is, resolve_all};

const TOO_MANY_TARGETS: &str = "TooManyTargets";

impl Executor<'_> {
    pub(in super::super) async fn classic_step(&self, step: &ClassicStep, made: &mut Created) -> Result<(), Error> {
        let (action, name, elb) = (step.action(), self.load_balancer, self.elb);
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
            ClassicStep::CreatePolicy(policy) => done_if(
                self.write(action, elb.create_policy(name, policy)).await,
                Kind::AlreadyExists,
            ),
            ClassicStep::SetBackendPolicies(port, policies) => {
                self.write(action, elb.set_backend_policies(name, *port, policies))
                    .await
            }
            ClassicStep::SetListenerPolicies(port, policies) => {
                self.write(action, elb.set_listener_policies(name, *port, policies))
                    .await
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
                let refused = hand_over(action, instances, usize::MAX, false, call).await?;
                made.refused.extend(refused);
                Ok(())
            }
            ClassicStep::DeleteLoadBalancer => self.write(action, elb.delete(name)).await,
        }
    }
}

impl Executor<'_> {
    pub(in super::super) async fn network_step(&self, step: &Step, made: &mut Created) -> Result<(), Error> {
        let (action, elb) = (step.action(), self.elbv2);
        match step {
            Step::CreateLoadBalancer { new, groups } => {
                let mut new = new.clone();
                new.security_groups = resolve_all(groups, made)?;
                let balancer = self.write(action, elb.create_load_balancer(&new)).await?;
                made.dns_name = Some(balancer.dns_name);
                made.load_balancer = Some(balancer.arn);
                Ok(())
            }
            Step::SetSecurityGroups(arn, groups) => {
                let groups = resolve_all(groups, made)?;
                self.write(action, elb.set_security_groups(arn, &groups)).await
            }
            Step::ModifyAttributes(of, attributes) => {
                let arn = balancer(of, made)?;
                self.write(action, elb.modify_attributes(&arn, attributes)).await
            }
            Step::DeleteLoadBalancer(arn) => self.write(action, elb.delete_load_balancer(arn)).await,
            Step::CreateListener { .. } | Step::ModifyListener { .. } | Step::DeleteListener { .. } => {
                self.listener_step(step, made).await
            }
            Step::CreateTargetGroup(_)
            | Step::ModifyTargetGroupAttributes(..)
            | Step::ModifyTargetGroup(..)
            | Step::ChangeTargets { .. }
            | Step::DeleteTargetGroup(_) => self.target_group_step(step, made).await,
        }
    }

    async fn listener_step(&self, step: &Step, made: &Created) -> Result<(), Error> {
        let (action, elb) = (step.action(), self.elbv2);
        match step {
            Step::CreateListener {
                balancer: of,
                listener,
                group,
                tags,
            } => {
                let (arn, listener) = (balancer(of, made)?, forwarding(listener, group, made)?);
                self.write(action, elb.create_listener(&arn, &listener, tags)).await?;
                Ok(())
            }
            Step::ModifyListener {
                arn, listener, group, ..
            } => {
                let listener = forwarding(listener, group, made)?;
                self.write(action, elb.modify_listener(arn, &listener)).await
            }
            Step::DeleteListener { arn, .. } => self.write(action, elb.delete_listener(arn)).await,
            _ => Ok(()),
        }
    }

    async fn target_group_step(&self, step: &Step, made: &mut Created) -> Result<(), Error> {
        let (action, elb) = (step.action(), self.elbv2);
        match step {
            Step::CreateTargetGroup(new) => {
                let arn = self.write(action, elb.create_target_group(new)).await?;
                made.target_groups.insert(new.name.clone(), arn);
                Ok(())
            }
            Step::ModifyTargetGroupAttributes(group, attributes) => {
                let arn = target_group(group, made)?;
                self.write(action, elb.modify_target_group_attributes(&arn, attributes))
                    .await
            }
            Step::ModifyTargetGroup(arn, change) => self.write(action, elb.modify_target_group(arn, change)).await,
            Step::ChangeTargets {
                group,
                add,
                remove,
                needed,
            } => {
                let arn = target_group(group, made)?;
                let refused = self.change_targets(&arn, add, remove, *needed).await?;
                made.refused.extend(refused);
                Ok(())
            }
            Step::DeleteTargetGroup(arn) => self.delete_target_group(arn).await,
            _ => Ok(()),
        }
    }

    /// Registers targets before it deregisters others, so that there are never too few. In a full group the order is
    /// reversed. Returns the targets that AWS refused.
    async fn change_targets(
        &self,
        group: &str,
        add: &[Target],
        remove: &[Target],
        needed: bool,
    ) -> Result<Vec<RejectedTarget>, Error> {
        let (first, second) = match self.register(group, add, needed).await {
            Err(Error::Aws(error)) if error.code() == Some(TOO_MANY_TARGETS) && !remove.is_empty() => {
                tracing::info!(
                    group,
                    "target group is full; deregistering targets before registering others"
                );
                let first = self.deregister(group, remove).await?;
                (first, self.register(group, add, needed).await?)
            }
            registered => (registered?, self.deregister(group, remove).await?),
        };
        Ok([first, second].concat())
    }

    async fn register(&self, group: &str, targets: &[Target], needed: bool) -> Result<Vec<RejectedTarget>, Error> {
        const ACTION: &str = "RegisterTargets";
        let call =
            |batch: Vec<Target>| async move { self.write(ACTION, self.elbv2.register_targets(group, &batch)).await };
        hand_over(ACTION, targets, MAX_TARGETS, needed, call).await
    }

    async fn deregister(&self, group: &str, targets: &[Target]) -> Result<Vec<RejectedTarget>, Error> {
        const ACTION: &str = "DeregisterTargets";
        let call =
            |batch: Vec<Target>| async move { self.write(ACTION, self.elbv2.deregister_targets(group, &batch)).await };
        hand_over(ACTION, targets, MAX_TARGETS, false, call).await
    }

    /// AWS releases a deleted listener's target group some seconds later. The Service is requeued instead of blocking a
    /// worker.
    async fn delete_target_group(&self, arn: &str) -> Result<(), Error> {
        let deleted = self
            .write("DeleteTargetGroup", self.elbv2.delete_target_group(arn))
            .await;
        if is(&deleted, Kind::DependencyViolation) {
            return Err(Error::TargetGroupInUse { arn: arn.to_owned() });
        }
        deleted
    }
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
    Error::Aws(AwsError::unusable(
        action,
        "the plan uses a resource that it does not create",
    ))
}

fn forwarding(listener: &ListenerSettings, group: &TargetGroupRef, made: &Created) -> Result<ListenerSettings, Error> {
    Ok(ListenerSettings {
        target_group_arn: Some(target_group(group, made)?),
        ..listener.clone()
    })
}
