//! EC2 tags nothing at all with a call that names an instance which does not exist.

use std::collections::BTreeSet;

use super::upstream::{Reply, Upstream, query, read};
use crate::query::Query;
use crate::service::Service;
use crate::xml::XmlError;

/// Tags resources, if all instances among them exist.
pub(super) async fn create<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let unknown = unknown(moto, asked).await?;
    let message = match unknown.as_slice() {
        [] => return Ok(Reply::Moto(moto.ask(&Service::Ec2, asked).await)),
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    };
    Ok(Reply::Refused("InvalidInstanceID.NotFound", message))
}

async fn unknown<U: Upstream>(moto: &U, asked: &Query) -> Result<Vec<String>, XmlError> {
    let mut ids = asked.parameters.list("ResourceId");
    ids.retain(|id| id.starts_with("i-"));
    if ids.is_empty() {
        return Ok(Vec::new());
    }

    let keys: Vec<String> = (1..=ids.len())
        .map(|number| format!("Filter.1.Value.{number}"))
        .collect();
    let mut filter = vec![("Filter.1.Name", "instance-id")];
    filter.extend(keys.iter().map(String::as_str).zip(ids.iter().copied()));

    let answer = read(moto, &Service::Ec2, &query(&Service::Ec2, "DescribeInstances", &filter)).await?;
    let answer = answer.unwrap_or_default();
    let reservations = answer.items("reservationSet").iter();
    let instances = reservations.flat_map(|reservation| reservation.items("instancesSet"));
    let known: BTreeSet<&str> = instances.map(|instance| instance.value("instanceId")).collect();
    ids.retain(|id| !known.contains(id));

    Ok(ids.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Script;
    use super::*;

    const KNOWN: &str = "<R><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item>\
        <item><instanceId>i-2</instanceId></item></instancesSet></item></reservationSet></R>";

    async fn refusal(resources: &[&str]) -> Option<String> {
        let moto = Script::default()
            .on("DescribeInstances", KNOWN)
            .on("CreateTags", "<R/>");
        let numbered = resources.iter().zip(1..);
        let named: String = numbered.map(|(id, n)| format!("&ResourceId.{n}={id}")).collect();
        let asked = Query::parse(format!("Action=CreateTags&Version=2016-11-15{named}").as_bytes());
        let reply = create(&moto, &asked).await.expect("XML");
        let tagged = moto.asked().iter().any(|query| query.action == "CreateTags");
        match reply {
            Reply::Refused(code, message) => {
                assert_eq!((code, tagged), ("InvalidInstanceID.NotFound", false));
                Some(message)
            }
            _ => {
                assert!(tagged);
                None
            }
        }
    }

    #[tokio::test]
    async fn one_unknown_instance_fails_the_call() {
        assert_eq!(refusal(&["i-1", "i-2"]).await, None);
        assert_eq!(
            refusal(&["sg-1", "subnet-1"]).await,
            None,
            "only instances are looked for"
        );
        let one = refusal(&["i-1", "i-3"]).await;
        assert_eq!(one.as_deref(), Some("The instance ID 'i-3' does not exist"));
        let two = refusal(&["i-4", "i-1", "i-3"]).await;
        assert_eq!(two.as_deref(), Some("The instance IDs 'i-4, i-3' do not exist"));
    }
}
