//! EC2 as the controllers see it: instances, subnets, route tables, zones, security groups.

pub(crate) mod adapter;
mod convert;
mod model;

use async_trait::async_trait;

pub use model::{
    AvailabilityZone, FargateEni, GroupPair, Instance, InstanceId, InstanceLayers, InstanceState, IpPermission,
    IpRange, NetworkInterface, NewSecurityGroup, Route, RouteTable, RouteTarget, SecurityGroup, Subnet,
};

use crate::{Page, Result, Tags, Token, page};

/// Most values that EC2 accepts in one filter of a describe call.
pub const MAX_FILTER_VALUES: usize = 200;

/// Most IDs that EC2 accepts in one `DescribeInstanceTopology`.
pub const MAX_TOPOLOGY_IDS: usize = 100;

/// Most plain IDs that EC2 accepts in one describe call.
pub const MAX_IDS: usize = 1000;

/// A filter of a describe call: the resource's `name` must equal one of `values` (which may hold wildcards).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// As EC2 documents it for the call, for example `vpc-id`.
    pub name: String,
    /// At most [`MAX_FILTER_VALUES`] values.
    pub values: Vec<String>,
}

impl Filter {
    #[must_use]
    pub fn new<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().map(Into::into).collect(),
        }
    }
}

/// Which instances a `DescribeInstances` with filters is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceQuery<'a> {
    /// Those of these IDs, in any state, at most [`MAX_FILTER_VALUES`].
    Ids(&'a [InstanceId]),
    /// Those, not yet terminated, with one of these private DNS names, at most [`MAX_FILTER_VALUES`].
    PrivateDnsNames(&'a [String]),
    /// Those of a VPC, not yet terminated, with one of these primary private IPv4 addresses, at most
    /// [`MAX_FILTER_VALUES`].
    PrivateIps { vpc_id: &'a str, ips: &'a [String] },
    /// Those of a VPC that run and pass a filter by tag.
    Running { vpc_id: &'a str, tag: &'a Filter },
}

/// The calls of EC2 that the controllers send.
///
/// A method whose name ends in `page` sends one call and returns one page. The first call has no token, each further
/// call has the token of the page before. The other methods read all pages.
#[async_trait]
pub trait Ec2: Send + Sync {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Token) -> Result<Page<Instance>>;

    /// The instances of these IDs that EC2 knows, in no particular order. IDs that it does not know are simply
    /// absent: that is no proof of absence, since EC2 is eventually consistent.
    /// Asks by filter `instance-id`, at most [`MAX_FILTER_VALUES`] in a call; no ID: no call.
    async fn instances_by_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MAX_FILTER_VALUES) {
            let query = InstanceQuery::Ids(chunk);
            found.extend(page::all("DescribeInstances", |token| self.instances_page(query, token)).await?);
        }
        Ok(found)
    }

    /// Instances, not yet terminated, whose private DNS name is one of these.
    async fn instances_by_private_dns_name(&self, names: &[String]) -> Result<Vec<Instance>> {
        let mut found = Vec::with_capacity(names.len());
        for chunk in names.chunks(MAX_FILTER_VALUES) {
            let query = InstanceQuery::PrivateDnsNames(chunk);
            found.extend(page::all("DescribeInstances", |token| self.instances_page(query, token)).await?);
        }
        Ok(found)
    }

    /// The zones of the region that are open to this account, with their types.
    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>>;

    async fn subnets_page(&self, filters: &[Filter], token: Token) -> Result<Page<Subnet>>;

    /// Subnets that pass all filters. At least one filter is needed.
    async fn subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>> {
        page::all("DescribeSubnets", |token| self.subnets_page(filters, token)).await
    }

    /// The route tables of a VPC.
    async fn route_tables(&self, vpc_id: &str) -> Result<Vec<RouteTable>> {
        self.route_tables_by(&[Filter::new("vpc-id", [vpc_id])]).await
    }

    async fn security_groups_page(&self, filters: &[Filter], token: Token) -> Result<Page<SecurityGroup>>;

    /// Security groups that pass all filters. At least one filter is needed.
    async fn security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>> {
        page::all("DescribeSecurityGroups", |token| {
            self.security_groups_page(filters, token)
        })
        .await
    }

    /// Makes a security group, tagged in the same call, and returns its ID.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when the VPC has a group of that name.
    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String>;

    /// Adds ingress rules.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when one of the rules is there already; then none was added.
    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()>;

    /// Takes ingress rules away.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when one of the rules is not there.
    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()>;

    /// Replaces the descriptions of existing ingress rules, which protocol, ports and source identify.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when one of the rules is not there.
    async fn describe_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()>;

    /// Deletes a security group.
    ///
    /// # Errors
    /// Of [`crate::Kind::DependencyViolation`] while anything still refers to it.
    async fn delete_security_group(&self, group_id: &str) -> Result<()>;

    /// Sets tags on resources; other tags stay.
    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<()>;

    /// A page of the network nodes above each of these instances, at most [`MAX_TOPOLOGY_IDS`].
    async fn instance_topology_page(&self, ids: &[InstanceId], token: Token) -> Result<Page<InstanceLayers>>;

    /// The network nodes above each of these instances.
    /// Instances of types that EC2 does not place in its network are absent. At most [`MAX_TOPOLOGY_IDS`] IDs in a call; no
    /// ID: no call. The account may call this once a second.
    ///
    /// # Errors
    /// Of code `UnsupportedOperation` where the region has no topology, and of [`crate::Kind::NotFound`] for the whole
    /// call when one of the IDs does not exist.
    async fn instance_topology(&self, ids: &[InstanceId]) -> Result<Vec<InstanceLayers>> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MAX_TOPOLOGY_IDS) {
            let page = |token| self.instance_topology_page(chunk, token);
            found.extend(page::all("DescribeInstanceTopology", page).await?);
        }
        Ok(found)
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Token) -> Result<Page<RouteTable>>;

    /// Route tables, with their routes, that pass all filters. At least one filter is needed.
    async fn route_tables_by(&self, filters: &[Filter]) -> Result<Vec<RouteTable>> {
        page::all("DescribeRouteTables", |token| self.route_tables_page(filters, token)).await
    }

    /// Adds a route for an IPv4 range to an instance.
    ///
    /// # Errors
    /// Of [`crate::Kind::AlreadyExists`] when the table has a route for this range, to any target.
    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()>;

    /// Replaces the target of the route for an IPv4 range atomically: the range always has a route.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when the table has no route for this range.
    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()>;

    /// Deletes the route for an IPv4 range.
    ///
    /// # Errors
    /// Of [`crate::Kind::NotFound`] when the table has no route for this range.
    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<()>;

    /// Turns an instance's source/destination check off, so that the instance forwards packets of other addresses.
    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<()>;

    /// Deletes tags of resources, each only if it still has this value; other tags stay. A missing tag is not an error.
    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<()>;

    /// The instances of these IDs, at most [`MAX_IDS`], described by plain IDs in one call. All IDs must exist: one
    /// unknown ID fails the whole call.
    ///
    /// # Errors
    /// With code `InvalidInstanceID.NotFound` or `InvalidInstanceID.Malformed` when EC2 refuses some of the IDs. Its
    /// message names them.
    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>>;

    /// Instances of the VPC, not yet terminated, whose primary private IPv4 address is one of these, at most
    /// [`MAX_FILTER_VALUES`].
    async fn instances_by_private_ip(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<Instance>> {
        let query = InstanceQuery::PrivateIps { vpc_id, ips };
        page::all("DescribeInstances", |token| self.instances_page(query, token)).await
    }

    async fn fargate_interfaces_page(&self, vpc_id: &str, ips: &[String], token: Token) -> Result<Page<FargateEni>>;

    /// Attached network interfaces of the VPC whose primary private IPv4 address is one of these, at most
    /// [`MAX_FILTER_VALUES`]. Fargate nodes have nothing else that EC2 would show.
    async fn fargate_interfaces(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>> {
        page::all("DescribeNetworkInterfaces", |token| {
            self.fargate_interfaces_page(vpc_id, ips, token)
        })
        .await
    }

    /// Running instances of the VPC that pass a filter by tag, each with the time of its last start in seconds since 1970. Of a
    /// large cluster these are thousands, so no more is kept of each page than is asked for.
    async fn running_instances(&self, vpc_id: &str, tag: &Filter) -> Result<Vec<(InstanceId, Option<i64>)>> {
        let query = InstanceQuery::Running { vpc_id, tag };
        let read = |token| async move {
            let page = self.instances_page(query, token).await?;
            Ok(page.map(|instance| (instance.id, instance.launched)))
        };

        page::all("DescribeInstances", read).await
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Token) -> Result<Page<String>>;

    /// IDs of the network interfaces that have a security group.
    async fn interfaces_of_group(&self, group_id: &str) -> Result<Vec<String>> {
        page::all("DescribeNetworkInterfaces", |token| {
            self.interfaces_of_group_page(group_id, token)
        })
        .await
    }
}
