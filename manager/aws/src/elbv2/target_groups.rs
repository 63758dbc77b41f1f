//! Target groups and their targets by way of the AWS SDK.

use aws_sdk_elasticloadbalancingv2::types::{ProtocolEnum, TargetTypeEnum};

use super::adapter::{SdkElbv2, made};
use super::{
    Attributes, HealthCheckChange, NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth, convert,
};
use crate::sdk::failed;
use crate::{Error, Page};

impl SdkElbv2 {
    pub(super) async fn read_target_groups(
        &self,
        query: TargetGroupQuery<'_>,
        token: Option<String>,
    ) -> Result<Page<TargetGroup>, Error> {
        const OPERATION: &str = "DescribeTargetGroups";

        let call = self.client.describe_target_groups().set_marker(token);
        let call = match query {
            TargetGroupQuery::All => call,
            TargetGroupQuery::UsedBy(arn) => call.load_balancer_arn(arn),
            TargetGroupQuery::Names(names) => call.set_names(Some(names.to_vec())),
        };
        let answer = call.send().await.map_err(|error| failed(OPERATION, error))?;
        let found = answer.target_groups.unwrap_or_default().into_iter();
        let found: Result<_, _> = found.map(|found| convert::target_group(OPERATION, found)).collect();

        Ok(Page::new(found?, answer.next_marker))
    }

    pub(super) async fn send_create_target_group(&self, new: &NewTargetGroup) -> Result<String, Error> {
        const OPERATION: &str = "CreateTargetGroup";

        let check = &new.health_check;
        let answer = self
            .client
            .create_target_group()
            .name(&new.name)
            .port(new.port)
            .protocol(ProtocolEnum::from(new.protocol.as_str()))
            .vpc_id(&new.vpc_id)
            .target_type(TargetTypeEnum::Instance)
            .health_check_protocol(ProtocolEnum::from(check.protocol.as_str()))
            .health_check_port(&check.port)
            // AWS refuses a path beside a check that knows none.
            .set_health_check_path(check.path.clone().filter(|_| check.protocol != "TCP"))
            .health_check_interval_seconds(check.interval)
            .healthy_threshold_count(check.healthy_threshold)
            .unhealthy_threshold_count(check.unhealthy_threshold)
            .set_tags(Some(convert::sdk_tags(&new.tags)))
            .send()
            .await
            .map_err(|error| failed(OPERATION, error))?;

        Ok(convert::target_group(OPERATION, made(OPERATION, answer.target_groups)?)?.arn)
    }

    pub(super) async fn send_modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<(), Error> {
        let call = self
            .client
            .modify_target_group()
            .target_group_arn(arn)
            .set_health_check_port(change.port.clone())
            .set_health_check_path(change.path.clone())
            .set_healthy_threshold_count(change.healthy_threshold)
            .set_unhealthy_threshold_count(change.unhealthy_threshold);

        let modified = call.send().await.map(drop);
        modified.map_err(|error| failed("ModifyTargetGroup", error))
    }

    /// AWS returns all targets in one response: this action has no pages.
    pub(super) async fn read_target_health(&self, arn: &str) -> Result<Vec<TargetHealth>, Error> {
        const OPERATION: &str = "DescribeTargetHealth";
        let answer = self.client.describe_target_health().target_group_arn(arn).send().await;
        let answer = answer.map_err(|error| failed(OPERATION, error))?;
        let targets = answer.target_health_descriptions.unwrap_or_default().into_iter();
        targets
            .map(|target| convert::target_health(OPERATION, target))
            .collect()
    }

    pub(super) async fn send_register(&self, arn: &str, targets: &[Target]) -> Result<(), Error> {
        let call = self
            .client
            .register_targets()
            .target_group_arn(arn)
            .set_targets(Some(convert::sdk_targets(targets)));
        let registered = call.send().await.map(drop);
        registered.map_err(|error| failed("RegisterTargets", error))
    }

    pub(super) async fn send_deregister(&self, arn: &str, targets: &[Target]) -> Result<(), Error> {
        let call = self
            .client
            .deregister_targets()
            .target_group_arn(arn)
            .set_targets(Some(convert::sdk_targets(targets)));
        let deregistered = call.send().await.map(drop);
        deregistered.map_err(|error| failed("DeregisterTargets", error))
    }

    pub(super) async fn read_target_group_attributes(&self, arn: &str) -> Result<Attributes, Error> {
        let call = self.client.describe_target_group_attributes().target_group_arn(arn);
        let answer = call.send().await;
        let answer = answer.map_err(|error| failed("DescribeTargetGroupAttributes", error))?;
        let attributes = answer.attributes.unwrap_or_default().into_iter();
        Ok(attributes
            .filter_map(|one| convert::attribute(one.key, one.value))
            .collect())
    }

    pub(super) async fn send_modify_target_group_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> Result<(), Error> {
        let call = self
            .client
            .modify_target_group_attributes()
            .target_group_arn(arn)
            .set_attributes(Some(convert::sdk_target_group_attributes(attributes)));
        let modified = call.send().await.map(drop);
        modified.map_err(|error| failed("ModifyTargetGroupAttributes", error))
    }
}
