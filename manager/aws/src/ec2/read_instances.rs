//! Reading instances and the interfaces that stand in for them.

use aws_sdk_ec2::types::NetworkInterface;

use super::adapter::SdkEc2;
use super::{FargateEni, Filter, Instance, InstanceId, InstanceQuery, convert};
use crate::sdk::failed;
use crate::{Error, Page};

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

impl SdkEc2 {
    pub(super) async fn read_instances(
        &self,
        query: InstanceQuery<'_>,
        token: Option<String>,
    ) -> Result<Page<Instance>, Error> {
        let answer = self
            .client
            .describe_instances()
            .set_filters(Some(convert::sdk_filters(&filters(query))))
            .max_results(PAGE)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| failed("DescribeInstances", error))?;

        let instances = convert::instances(answer.reservations).collect();
        Ok(Page::new(instances, answer.next_token))
    }

    /// EC2 accepts no page size beside IDs; one answer holds them all.
    pub(super) async fn read_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let answer = self
            .client
            .describe_instances()
            .set_instance_ids(Some(ids))
            .set_filters(Some(convert::sdk_filters(&[Filter::new("instance-state-name", ANY)])))
            .send()
            .await
            .map_err(|error| failed("DescribeInstances", error))?;

        Ok(convert::instances(answer.reservations).collect())
    }

    pub(super) async fn read_interfaces_of_group(
        &self,
        group_id: &str,
        token: Option<String>,
    ) -> Result<Page<String>, Error> {
        let page = self
            .read_interfaces(&[Filter::new("group-id", [group_id])], token)
            .await?;
        // One without an ID still has the group.
        Ok(page.map(|interface| interface.network_interface_id.unwrap_or_default()))
    }

    pub(super) async fn read_fargate_interfaces(
        &self,
        vpc_id: &str,
        ips: &[String],
        token: Option<String>,
    ) -> Result<Page<FargateEni>, Error> {
        let filters = [
            Filter::new("attachment.status", ["attached"]),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("private-ip-address", ips.iter().cloned()),
        ];
        let page = self.read_interfaces(&filters, token).await?;
        Ok(page.map(convert::fargate_eni))
    }

    async fn read_interfaces(
        &self,
        filters: &[Filter],
        token: Option<String>,
    ) -> Result<Page<NetworkInterface>, Error> {
        let answer = self
            .client
            .describe_network_interfaces()
            .set_filters(Some(convert::sdk_filters(filters)))
            .max_results(PAGE)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| failed("DescribeNetworkInterfaces", error))?;
        Ok(Page::new(
            answer.network_interfaces.unwrap_or_default(),
            answer.next_token,
        ))
    }
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
