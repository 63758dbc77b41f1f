//! [`Ec2`] by way of the AWS SDK.

use async_trait::async_trait;
use aws_sdk_ec2::types::{self as sdk, AttributeBooleanValue, ResourceType, TagSpecification};

use super::{
    AvailabilityZone, Ec2, FargateEni, Filter, Instance, InstanceId, InstanceLayers, InstanceQuery, IpPermission,
    NewSecurityGroup, RouteTable, SecurityGroup, Subnet, convert,
};
use crate::sdk::{failed, told};
use crate::{Error, Page, Result, Tags, Token};

/// Page size of filtered calls. EC2 counts paged calls in the larger of its two request buckets.
const PAGE: i32 = 1000;

/// All states but terminated: what counts when a node is looked up by name or address.
const LIVING: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// Every state. As a filter it leaves nothing out, but a call that has a filter is not an unfiltered one to EC2.
const ANY: [&str; 6] = [
    "pending",
    "running",
    "shutting-down",
    "terminated",
    "stopping",
    "stopped",
];

#[derive(Debug, Clone)]
pub(crate) struct SdkEc2 {
    pub(crate) client: aws_sdk_ec2::Client,
}

/// Refuses a read of everything in the account: in a large one it times out, and EC2 allows few of them.
fn need_filters(operation: &'static str, filters: &[Filter]) -> Result<()> {
    if filters.is_empty() || filters.iter().any(|filter| filter.values.is_empty()) {
        let message = "refused: a filter with at least one value is needed";
        return Err(Error::unusable(operation, message));
    }
    Ok(())
}

fn filters(query: InstanceQuery<'_>) -> Vec<Filter> {
    let living = Filter::new("instance-state-name", LIVING);
    match query {
        InstanceQuery::Ids(ids) => vec![Filter::new("instance-id", ids.iter().map(InstanceId::as_str))],
        InstanceQuery::PrivateDnsNames(names) => {
            vec![Filter::new("private-dns-name", names.iter().cloned()), living]
        }
        InstanceQuery::PrivateIps { vpc_id, ips } => vec![
            Filter::new("private-ip-address", ips.iter().cloned()),
            Filter::new("vpc-id", [vpc_id]),
            living,
        ],
        InstanceQuery::Running { vpc_id, tag } => vec![
            tag.clone(),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("instance-state-name", ["running"]),
        ],
    }
}

impl SdkEc2 {
    async fn interfaces(&self, filters: &[Filter], token: Token) -> Result<Page<sdk::NetworkInterface>> {
        let call = self.client.describe_network_interfaces().max_results(PAGE);
        let call = call.set_filters(Some(convert::sdk_filters(filters)));
        let answer = call.set_next_token(token).send().await;
        let answer = answer.map_err(failed("DescribeNetworkInterfaces"))?;
        Ok(Page::new(
            answer.network_interfaces.unwrap_or_default(),
            answer.next_token,
        ))
    }
}

#[async_trait]
impl Ec2 for SdkEc2 {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Token) -> Result<Page<Instance>> {
        let call = self.client.describe_instances().max_results(PAGE);
        let call = call.set_filters(Some(convert::sdk_filters(&filters(query))));
        let answer = call.set_next_token(token).send().await;
        let answer = answer.map_err(failed("DescribeInstances"))?;
        Ok(Page::new(convert::instances(answer.reservations), answer.next_token))
    }

    /// EC2 accepts no page size beside IDs; one answer holds them all.
    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>> {
        let any = convert::sdk_filters(&[Filter::new("instance-state-name", ANY)]);
        let call = self.client.describe_instances().set_filters(Some(any));
        let answer = call.set_instance_ids(Some(convert::sdk_ids(ids))).send().await;
        let answer = answer.map_err(failed("DescribeInstances"))?;
        Ok(convert::instances(answer.reservations).collect())
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>> {
        let answer = self.client.describe_availability_zones().send().await;
        let answer = answer.map_err(failed("DescribeAvailabilityZones"))?;
        let zones = answer.availability_zones.into_iter().flatten();
        Ok(zones.filter_map(convert::availability_zone).collect())
    }

    async fn subnets_page(&self, filters: &[Filter], token: Token) -> Result<Page<Subnet>> {
        need_filters("DescribeSubnets", filters)?;

        let call = self.client.describe_subnets().set_next_token(token);
        let answer = call.set_filters(Some(convert::sdk_filters(filters))).send().await;
        let answer = answer.map_err(failed("DescribeSubnets"))?;
        let subnets = answer.subnets.into_iter().flatten();

        Ok(Page::new(subnets.filter_map(convert::subnet), answer.next_token))
    }

    async fn security_groups_page(&self, filters: &[Filter], token: Token) -> Result<Page<SecurityGroup>> {
        need_filters("DescribeSecurityGroups", filters)?;

        let call = self.client.describe_security_groups().set_next_token(token);
        let answer = call.set_filters(Some(convert::sdk_filters(filters))).send().await;
        let answer = answer.map_err(failed("DescribeSecurityGroups"))?;
        let groups = answer.security_groups.into_iter().flatten();

        Ok(Page::new(groups.filter_map(convert::security_group), answer.next_token))
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String> {
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
            .map_err(failed("CreateSecurityGroup"))?;

        told(answer.group_id)
            .ok_or_else(|| Error::unusable("CreateSecurityGroup", "AWS answered without the new group's ID"))
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = self.client.authorize_security_group_ingress().group_id(group_id);
        let call = call.set_ip_permissions(Some(convert::sdk_permissions(rules)));
        let authorized = call.send().await;
        authorized.map(drop).map_err(failed("AuthorizeSecurityGroupIngress"))
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = self.client.revoke_security_group_ingress().group_id(group_id);
        let call = call.set_ip_permissions(Some(convert::sdk_permissions(rules)));
        let revoked = call.send().await;
        revoked.map(drop).map_err(failed("RevokeSecurityGroupIngress"))
    }

    async fn describe_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        let call = self.client.update_security_group_rule_descriptions_ingress();
        let call = call.group_id(group_id);
        let call = call.set_ip_permissions(Some(convert::sdk_permissions(rules)));
        let described = call.send().await.map(drop);
        described.map_err(failed("UpdateSecurityGroupRuleDescriptionsIngress"))
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<()> {
        let call = self.client.delete_security_group().group_id(group_id);
        call.send().await.map(drop).map_err(failed("DeleteSecurityGroup"))
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        let call = self.client.create_tags().set_resources(Some(resources.to_vec()));
        let call = call.set_tags(Some(convert::sdk_tags(tags)));
        call.send().await.map(drop).map_err(failed("CreateTags"))
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        let call = self.client.delete_tags().set_resources(Some(resources.to_vec()));
        let call = call.set_tags(Some(convert::sdk_tags(tags)));
        call.send().await.map(drop).map_err(failed("DeleteTags"))
    }

    /// EC2 takes no page size beside IDs and pages as it likes.
    async fn instance_topology_page(&self, ids: &[InstanceId], token: Token) -> Result<Page<InstanceLayers>> {
        let call = self.client.describe_instance_topology().set_next_token(token);
        let answer = call.set_instance_ids(Some(convert::sdk_ids(ids))).send().await;
        let answer = answer.map_err(failed("DescribeInstanceTopology"))?;
        let instances = answer.instances.into_iter().flatten();
        Ok(Page::new(instances.filter_map(convert::layers), answer.next_token))
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Token) -> Result<Page<RouteTable>> {
        need_filters("DescribeRouteTables", filters)?;

        let call = self.client.describe_route_tables().set_next_token(token);
        let answer = call.set_filters(Some(convert::sdk_filters(filters))).send().await;
        let answer = answer.map_err(failed("DescribeRouteTables"))?;
        let tables = answer.route_tables.into_iter().flatten();

        Ok(Page::new(tables.map(convert::route_table), answer.next_token))
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        let call = self.client.create_route().route_table_id(table_id);
        let call = call.destination_cidr_block(cidr).instance_id(instance.as_str());
        call.send().await.map(drop).map_err(failed("CreateRoute"))
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        let call = self.client.replace_route().route_table_id(table_id);
        let call = call.destination_cidr_block(cidr).instance_id(instance.as_str());
        call.send().await.map(drop).map_err(failed("ReplaceRoute"))
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<()> {
        let call = self.client.delete_route().route_table_id(table_id);
        let call = call.destination_cidr_block(cidr);
        call.send().await.map(drop).map_err(failed("DeleteRoute"))
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<()> {
        let off = AttributeBooleanValue::builder().value(false).build();
        let call = self.client.modify_instance_attribute().instance_id(instance.as_str());
        let modified = call.source_dest_check(off).send().await;
        modified.map(drop).map_err(failed("ModifyInstanceAttribute"))
    }

    async fn fargate_interfaces_page(&self, vpc_id: &str, ips: &[String], token: Token) -> Result<Page<FargateEni>> {
        let filters = [
            Filter::new("attachment.status", ["attached"]),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("private-ip-address", ips.iter().cloned()),
        ];
        let page = self.interfaces(&filters, token).await?;
        Ok(page.map(convert::fargate_eni))
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Token) -> Result<Page<String>> {
        let page = self.interfaces(&[Filter::new("group-id", [group_id])], token).await?;
        // One without an ID still has the group.
        Ok(page.map(|interface| interface.network_interface_id.unwrap_or_default()))
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
