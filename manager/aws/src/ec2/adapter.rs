//! [`Ec2`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_ec2::types::{ResourceType, TagSpecification};

use super::{
    AvailabilityZone, Ec2, FargateEni, Filter, Instance, InstanceId, InstanceQuery, IpPermission, NewSecurityGroup,
    RouteTable, SecurityGroup, Subnet, convert, topology,
};
use crate::sdk::failed;
use crate::{Error, Page, Tags};

/// The SDK's EC2 client.
#[derive(Debug, Clone)]
pub struct SdkEc2 {
    pub(super) client: aws_sdk_ec2::Client,
}

impl SdkEc2 {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: aws_sdk_ec2::Client) -> Self {
        Self { client }
    }
}

/// Refuses a read of everything in the account: in a large one it times out, and EC2 allows few of them.
fn need_filters(operation: &'static str, filters: &[Filter]) -> Result<(), Error> {
    if filters.is_empty() || filters.iter().any(|filter| filter.values.is_empty()) {
        return Err(Error::unusable(
            operation,
            "refused: a filter with at least one value is needed",
        ));
    }
    Ok(())
}

#[async_trait]
impl Ec2 for SdkEc2 {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Option<String>) -> Result<Page<Instance>, Error> {
        self.read_instances(query, token).await
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        let answer = self.client.describe_availability_zones().send().await;
        let answer = answer.map_err(|error| failed("DescribeAvailabilityZones", error))?;
        Ok(answer
            .availability_zones
            .unwrap_or_default()
            .into_iter()
            .filter_map(convert::availability_zone)
            .collect())
    }

    async fn subnets_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<Subnet>, Error> {
        need_filters("DescribeSubnets", filters)?;

        let answer = self
            .client
            .describe_subnets()
            .set_filters(Some(convert::sdk_filters(filters)))
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| failed("DescribeSubnets", error))?;

        let items = answer
            .subnets
            .unwrap_or_default()
            .into_iter()
            .filter_map(convert::subnet);

        Ok(Page::new(items.collect(), answer.next_token))
    }

    async fn security_groups_page(
        &self,
        filters: &[Filter],
        token: Option<String>,
    ) -> Result<Page<SecurityGroup>, Error> {
        need_filters("DescribeSecurityGroups", filters)?;

        let answer = self
            .client
            .describe_security_groups()
            .set_filters(Some(convert::sdk_filters(filters)))
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| failed("DescribeSecurityGroups", error))?;

        let items = answer
            .security_groups
            .unwrap_or_default()
            .into_iter()
            .filter_map(convert::security_group);

        Ok(Page::new(items.collect(), answer.next_token))
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String, Error> {
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::SecurityGroup)
            .set_tags(Some(convert::sdk_tags(&group.tags)))
            .build();
        let answer = self
            .client
            .create_security_group()
            .group_name(&group.name)
            .description(&group.description)
            .vpc_id(&group.vpc_id)
            .tag_specifications(tags)
            .send()
            .await
            .map_err(|error| failed("CreateSecurityGroup", error))?;

        answer
            .group_id
            .filter(|id| !id.is_empty())
            .ok_or_else(|| Error::unusable("CreateSecurityGroup", "AWS answered without the new group's ID"))
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let rules = convert::sdk_permissions(rules);
        let call = self
            .client
            .authorize_security_group_ingress()
            .group_id(group_id)
            .set_ip_permissions(Some(rules));

        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("AuthorizeSecurityGroupIngress", error))
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let rules = convert::sdk_permissions(rules);
        let call = self
            .client
            .revoke_security_group_ingress()
            .group_id(group_id)
            .set_ip_permissions(Some(rules));

        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("RevokeSecurityGroupIngress", error))
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<(), Error> {
        let call = self.client.delete_security_group().group_id(group_id);
        call.send()
            .await
            .map(drop)
            .map_err(|error| failed("DeleteSecurityGroup", error))
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        let call = self
            .client
            .create_tags()
            .set_resources(Some(resources.to_vec()))
            .set_tags(Some(convert::sdk_tags(tags)));
        call.send().await.map(drop).map_err(|error| failed("CreateTags", error))
    }

    async fn instance_topology_page(
        &self,
        ids: &[InstanceId],
        token: Option<String>,
    ) -> Result<Page<(InstanceId, Vec<String>)>, Error> {
        topology::describe(&self.client, ids, token).await
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<RouteTable>, Error> {
        need_filters("DescribeRouteTables", filters)?;

        let answer = self
            .client
            .describe_route_tables()
            .set_filters(Some(convert::sdk_filters(filters)))
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| failed("DescribeRouteTables", error))?;

        let items = answer
            .route_tables
            .unwrap_or_default()
            .into_iter()
            .map(convert::route_table);

        Ok(Page::new(items.collect(), answer.next_token))
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.send_create_route(table_id, cidr, instance).await
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.send_replace_route(table_id, cidr, instance).await
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<(), Error> {
        self.send_delete_route(table_id, cidr).await
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<(), Error> {
        self.send_source_dest_check_off(instance).await
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        let call = self
            .client
            .delete_tags()
            .set_resources(Some(resources.to_vec()))
            .set_tags(Some(convert::sdk_tags(tags)));
        call.send().await.map(drop).map_err(|error| failed("DeleteTags", error))
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        self.read_by_plain_id(ids).await
    }

    async fn fargate_interfaces_page(
        &self,
        vpc_id: &str,
        ips: &[String],
        token: Option<String>,
    ) -> Result<Page<FargateEni>, Error> {
        self.read_fargate_interfaces(vpc_id, ips, token).await
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Option<String>) -> Result<Page<String>, Error> {
        self.read_interfaces_of_group(group_id, token).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfiltered_read_is_refused_before_it_is_sent() {
        assert!(need_filters("DescribeSubnets", &[]).is_err());
        assert!(need_filters("DescribeSubnets", &[Filter::new("group-id", Vec::<String>::new())]).is_err());
        assert!(need_filters("DescribeSubnets", &[Filter::new("vpc-id", ["vpc-1"])]).is_ok());
    }
}
