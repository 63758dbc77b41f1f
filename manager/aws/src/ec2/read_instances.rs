//! Reading instances and the interfaces that stand in for them.

use super::adapter::SdkEc2;
use super::{FargateEni, Filter, Instance, InstanceId, convert};
use crate::Error;
use crate::sdk::failed;

/// Page size of filtered calls. EC2 counts paged calls in the larger of its two request buckets.
const PAGE: i32 = 1000;

/// All states but terminated: what counts when a node is looked up by name or address.
pub(super) const LIVING: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

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
    /// Instances that pass all filters. Each page is converted before the next one is asked for, since the SDK's form
    /// of an instance is many times larger than ours.
    pub(super) async fn instances(&self, filters: &[Filter]) -> Result<Vec<Instance>, Error> {
        self.map_instances(filters, |instance| instance).await
    }

    async fn map_instances<T>(&self, filters: &[Filter], map: impl Fn(Instance) -> T) -> Result<Vec<T>, Error> {
        let mut pages = self
            .client
            .describe_instances()
            .set_filters(Some(convert::sdk_filters(filters)))
            .into_paginator()
            .page_size(PAGE)
            .send();
        let mut instances = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| failed("DescribeInstances", error))?;
            instances.extend(convert::instances(page.reservations).map(&map));
        }
        Ok(instances)
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

    pub(super) async fn read_by_private_ip(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<Instance>, Error> {
        self.instances(&[
            Filter::new("private-ip-address", ips.iter().cloned()),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("instance-state-name", LIVING),
        ])
        .await
    }

    /// Of a large cluster these are thousands, so no more is kept than is asked for.
    pub(super) async fn read_running(
        &self,
        vpc_id: &str,
        tag: &Filter,
    ) -> Result<Vec<(InstanceId, Option<i64>)>, Error> {
        let filters = [
            tag.clone(),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("instance-state-name", ["running"]),
        ];
        self.map_instances(&filters, |instance| (instance.id, instance.launched))
            .await
    }

    pub(super) async fn read_interfaces_of_group(&self, group_id: &str) -> Result<Vec<String>, Error> {
        let filters = [Filter::new("group-id", [group_id])];
        let mut pages = self
            .client
            .describe_network_interfaces()
            .set_filters(Some(convert::sdk_filters(&filters)))
            .into_paginator()
            .page_size(PAGE)
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| failed("DescribeNetworkInterfaces", error))?;
            let interfaces = page.network_interfaces.unwrap_or_default().into_iter();
            // One without an ID still has the group.
            found.extend(interfaces.map(|interface| interface.network_interface_id.unwrap_or_default()));
        }
        Ok(found)
    }

    pub(super) async fn read_fargate_interfaces(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>, Error> {
        let filters = [
            Filter::new("attachment.status", ["attached"]),
            Filter::new("vpc-id", [vpc_id]),
            Filter::new("private-ip-address", ips.iter().cloned()),
        ];
        let mut pages = self
            .client
            .describe_network_interfaces()
            .set_filters(Some(convert::sdk_filters(&filters)))
            .into_paginator()
            .page_size(PAGE)
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| failed("DescribeNetworkInterfaces", error))?;
            let interfaces = page.network_interfaces.unwrap_or_default();
            found.extend(interfaces.into_iter().map(convert::fargate_eni));
        }
        Ok(found)
    }
}
