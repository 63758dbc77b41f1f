//! [`Ec2`] within its budget.

use async_trait::async_trait;

use super::super::shape::BY_PLAIN_ID;
use super::Limited;
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, IpPermission, MAX_FILTER_VALUES, NewSecurityGroup,
    RouteTable, SecurityGroup, Subnet,
};
use crate::{Ec2, Error, Tags};

impl Limited<dyn Ec2> {
    /// Sends a call of one action when its turn has come.
    async fn call<T>(&self, action: &'static str, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.gates.call(&[action], call).await
    }
}

#[async_trait]
impl Ec2 for Limited<dyn Ec2> {
    async fn instances_by_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MAX_FILTER_VALUES) {
            found.extend(
                self.call("DescribeInstances", self.inner.instances_by_id(chunk))
                    .await?,
            );
        }
        Ok(found)
    }

    async fn instances_by_private_dns_name(&self, names: &[String]) -> Result<Vec<Instance>, Error> {
        let mut found = Vec::with_capacity(names.len());
        for chunk in names.chunks(MAX_FILTER_VALUES) {
            let call = self.inner.instances_by_private_dns_name(chunk);
            found.extend(self.call("DescribeInstances", call).await?);
        }
        Ok(found)
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        self.call("DescribeAvailabilityZones", self.inner.availability_zones())
            .await
    }

    async fn subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, Error> {
        self.call("DescribeSubnets", self.inner.subnets(filters)).await
    }

    async fn route_tables(&self, vpc_id: &str) -> Result<Vec<RouteTable>, Error> {
        self.call("DescribeRouteTables", self.inner.route_tables(vpc_id)).await
    }

    async fn security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>, Error> {
        self.call("DescribeSecurityGroups", self.inner.security_groups(filters))
            .await
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String, Error> {
        self.call("CreateSecurityGroup", self.inner.create_security_group(group))
            .await
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = self.inner.authorize_ingress(group_id, rules);
        self.call("AuthorizeSecurityGroupIngress", call).await
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = self.inner.revoke_ingress(group_id, rules);
        self.call("RevokeSecurityGroupIngress", call).await
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<(), Error> {
        self.call("DeleteSecurityGroup", self.inner.delete_security_group(group_id))
            .await
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.call("CreateTags", self.inner.create_tags(resources, tags)).await
    }

    async fn instance_topology(&self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<String>)>, Error> {
        self.call("DescribeInstanceTopology", self.inner.instance_topology(ids))
            .await
    }

    async fn route_tables_by(&self, filters: &[Filter]) -> Result<Vec<RouteTable>, Error> {
        self.call("DescribeRouteTables", self.inner.route_tables_by(filters))
            .await
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.call("CreateRoute", self.inner.create_route(table_id, cidr, instance))
            .await
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.call("ReplaceRoute", self.inner.replace_route(table_id, cidr, instance))
            .await
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<(), Error> {
        self.call("DeleteRoute", self.inner.delete_route(table_id, cidr)).await
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<(), Error> {
        let call = self.inner.disable_source_dest_check(instance);
        self.call("ModifyInstanceAttribute", call).await
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.call("DeleteTags", self.inner.delete_tags(resources, tags)).await
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let call = self.inner.instances_by_plain_id(ids);
        self.gates.call(&["DescribeInstances", BY_PLAIN_ID], call).await
    }

    async fn instances_by_private_ip(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<Instance>, Error> {
        let call = self.inner.instances_by_private_ip(vpc_id, ips);
        self.call("DescribeInstances", call).await
    }

    async fn fargate_interfaces(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>, Error> {
        let call = self.inner.fargate_interfaces(vpc_id, ips);
        self.call("DescribeNetworkInterfaces", call).await
    }

    async fn running_instances(&self, vpc_id: &str, tag: &Filter) -> Result<Vec<(InstanceId, Option<i64>)>, Error> {
        let call = self.inner.running_instances(vpc_id, tag);
        self.call("DescribeInstances", call).await
    }

    async fn interfaces_of_group(&self, group_id: &str) -> Result<Vec<String>, Error> {
        let call = self.inner.interfaces_of_group(group_id);
        self.call("DescribeNetworkInterfaces", call).await
    }
}
