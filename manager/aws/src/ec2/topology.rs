//! Where instances are in EC2's network.

use aws_sdk_ec2::types::InstanceTopology;

use super::{InstanceId, MAX_TOPOLOGY_IDS};
use crate::Error;
use crate::sdk::failed;

const ACTION: &str = "DescribeInstanceTopology";

/// Asks for the network nodes of instances. EC2 takes no page size beside IDs and pages as it likes.
pub(super) async fn describe(
    client: &aws_sdk_ec2::Client,
    ids: &[InstanceId],
) -> Result<Vec<(InstanceId, Vec<String>)>, Error> {
    let mut found = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(MAX_TOPOLOGY_IDS) {
        let ids = chunk.iter().map(|id| id.as_str().to_owned()).collect();
        let pages = client.describe_instance_topology().set_instance_ids(Some(ids));
        let items = pages
            .into_paginator()
            .items()
            .send()
            .collect::<Result<Vec<_>, _>>()
            .await
            .map_err(|error| failed(ACTION, error))?;
        found.extend(items.into_iter().filter_map(convert));
    }
    Ok(found)
}

/// An answer without an ID is about nobody; empty names of network nodes would shift the layers, so they end the list.
fn convert(item: InstanceTopology) -> Option<(InstanceId, Vec<String>)> {
    let id = item.instance_id.filter(|id| !id.is_empty())?;
    let nodes = item.network_nodes.unwrap_or_default();
    let layers = nodes.into_iter().take_while(|node| !node.is_empty()).collect();
    Some((InstanceId::new(id), layers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_field_of_the_answer_may_be_missing() {
        let bare = InstanceTopology::builder().build();
        assert_eq!(convert(bare), None);
        let without_nodes = InstanceTopology::builder().instance_id("i-1").build();
        assert_eq!(convert(without_nodes), Some((InstanceId::new("i-1"), vec![])));
        let with_a_hole = InstanceTopology::builder()
            .instance_id("i-1")
            .network_nodes("nn-1")
            .network_nodes("")
            .network_nodes("nn-3")
            .build();
        assert_eq!(
            convert(with_a_hole),
            Some((InstanceId::new("i-1"), vec!["nn-1".to_owned()]))
        );
    }
}
