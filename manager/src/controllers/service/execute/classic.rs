//! Executes the steps for a classic load balancer.

use outrigger_aws::{InstanceId, Kind};

use super::super::error::Error;
use super::super::plan::classic::Step;
use super::target_batches::hand_over;
use super::{Created, Executor, done_if, resolve_all};

impl Executor<'_> {
    pub(in super::super) async fn classic_step(&self, step: &Step, made: &mut Created) -> Result<(), Error> {
        let (action, name, elb) = (step.action(), self.load_balancer, self.elb);
        match step {
            Step::CreateLoadBalancer { new, groups } => {
                let mut new = new.clone();
                new.security_groups = resolve_all(groups, made)?;
                made.dns_name = Some(self.write(action, elb.create(&new)).await?);
                Ok(())
            }
            Step::AttachSubnets(ids) => self.write(action, elb.attach_subnets(name, ids)).await,
            Step::DetachSubnets(ids) => self.write(action, elb.detach_subnets(name, ids)).await,
            Step::ApplyGroups(groups) => {
                let ids = resolve_all(groups, made)?;
                self.write(action, elb.apply_security_groups(name, &ids)).await
            }
            Step::AddTags(tags) => self.write(action, elb.add_tags(name, tags)).await,
            Step::DeleteListeners(ports) => self.write(action, elb.delete_listeners(name, ports)).await,
            Step::CreateListeners(listeners) => self.write(action, elb.create_listeners(name, listeners)).await,
            Step::CreatePolicy(policy) => done_if(
                self.write(action, elb.create_policy(name, policy)).await,
                Kind::AlreadyExists,
            ),
            Step::SetBackendPolicies(port, policies) => {
                self.write(action, elb.set_backend_policies(name, *port, policies))
                    .await
            }
            Step::SetListenerPolicies(port, policies) => {
                self.write(action, elb.set_listener_policies(name, *port, policies))
                    .await
            }
            Step::ModifyAttributes(attributes) => self.write(action, elb.modify_attributes(name, attributes)).await,
            Step::ConfigureHealthCheck(check) => self.write(action, elb.configure_health_check(name, check)).await,
            Step::Register { instances, needed } => {
                let call = |batch: Vec<InstanceId>| async move { self.write(action, elb.register(name, &batch)).await };
                let refused = hand_over(action, instances, usize::MAX, *needed, call).await?;
                made.refused.extend(refused);
                Ok(())
            }
            Step::Deregister(instances) => {
                let call =
                    |batch: Vec<InstanceId>| async move { self.write(action, elb.deregister(name, &batch)).await };
                let refused = hand_over(action, instances, usize::MAX, false, call).await?;
                made.refused.extend(refused);
                Ok(())
            }
            Step::DeleteLoadBalancer => self.write(action, elb.delete(name)).await,
        }
    }
}
