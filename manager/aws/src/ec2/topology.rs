//! Where instances are in EC2's network.

use aws_sdk_ec2::types::InstanceTopology;

use super::InstanceId;
use crate::sdk::failed;
use crate::{Error, Page};

const ACTION: &str = "DescribeInstanceTopology";

/// A page of the network nodes of instances. EC2 takes no page size beside IDs and pages as it likes.
pub(super) async fn describe(
    client: &aws_sdk_ec2::Client,
    ids: &[InstanceId],
    token: Option<String>,
) -> Result<Page<(InstanceId, Vec<String>)>, Error> {
    let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
    let answer = client
        .describe_instance_topology()
        .set_instance_ids(Some(ids))
        .set_next_token(token)
        .send()
        .await
        .map_err(|error| failed(ACTION, error))?;
    let items = answer.instances.unwrap_or_default().into_iter().filter_map(convert);

    Ok(Page::new(items.collect(), answer.next_token))
}

/// An item without an ID is ignored. An empty name of a network node would shift the layers, so it ends the list.
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
