//! [`Ec2`] within its budget.

use async_trait::async_trait;

use super::super::bucket_size::BY_PLAIN_ID;
use super::super::limiters::Buckets;
use super::Limited;
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, InstanceQuery, IpPermission, NewSecurityGroup,
    RouteTable, SecurityGroup, Subnet,
};
use crate::{Ec2, Error, Page, Tags};

impl Limited<dyn Ec2> {
    /// Sends a call of one action when its bucket has a token.
    async fn call<T, F>(&self, action: &'static str, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.limiters.call(Buckets::throttling(&[action]), call).await
    }
}

#[async_trait]
impl Ec2 for Limited<dyn Ec2> {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Option<String>) -> Result<Page<Instance>, Error> {
        let call = || self.inner.instances_page(query, token.clone());
        self.call("DescribeInstances", call).await
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        let call = || self.inner.availability_zones();
        self.call("DescribeAvailabilityZones", call).await
    }

    async fn subnets_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<Subnet>, Error> {
        let call = || self.inner.subnets_page(filters, token.clone());
        self.call("DescribeSubnets", call).await
    }

    async fn security_groups_page(
        &self,
        filters: &[Filter],
        token: Option<String>,
    ) -> Result<Page<SecurityGroup>, Error> {
        let call = || self.inner.security_groups_page(filters, token.clone());
        self.call("DescribeSecurityGroups", call).await
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String, Error> {
        let call = || self.inner.create_security_group(group);
        self.call("CreateSecurityGroup", call).await
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = || self.inner.authorize_ingress(group_id, rules);
        self.call("AuthorizeSecurityGroupIngress", call).await
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = || self.inner.revoke_ingress(group_id, rules);
        self.call("RevokeSecurityGroupIngress", call).await
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<(), Error> {
        let call = || self.inner.delete_security_group(group_id);
        self.call("DeleteSecurityGroup", call).await
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        let call = || self.inner.create_tags(resources, tags);
        self.call("CreateTags", call).await
    }

    async fn instance_topology_page(
        &self,
        ids: &[InstanceId],
        token: Option<String>,
    ) -> Result<Page<(InstanceId, Vec<String>)>, Error> {
        let call = || self.inner.instance_topology_page(ids, token.clone());
        self.call("DescribeInstanceTopology", call).await
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<RouteTable>, Error> {
        let call = || self.inner.route_tables_page(filters, token.clone());
        self.call("DescribeRouteTables", call).await
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        let call = || self.inner.create_route(table_id, cidr, instance);
        self.call("CreateRoute", call).await
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        let call = || self.inner.replace_route(table_id, cidr, instance);
        self.call("ReplaceRoute", call).await
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<(), Error> {
        let call = || self.inner.delete_route(table_id, cidr);
        self.call("DeleteRoute", call).await
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<(), Error> {
        let call = || self.inner.disable_source_dest_check(instance);
        self.call("ModifyInstanceAttribute", call).await
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        let call = || self.inner.delete_tags(resources, tags);
        self.call("DeleteTags", call).await
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let call = || self.inner.instances_by_plain_id(ids);
        let buckets = Buckets::throttling(&["DescribeInstances", BY_PLAIN_ID]);
        self.limiters.call(buckets, call).await
    }

    async fn fargate_interfaces_page(
        &self,
        vpc_id: &str,
        ips: &[String],
        token: Option<String>,
    ) -> Result<Page<FargateEni>, Error> {
        let call = || self.inner.fargate_interfaces_page(vpc_id, ips, token.clone());
        self.call("DescribeNetworkInterfaces", call).await
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Option<String>) -> Result<Page<String>, Error> {
        let call = || self.inner.interfaces_of_group_page(group_id, token.clone());
        self.call("DescribeNetworkInterfaces", call).await
    }
}
