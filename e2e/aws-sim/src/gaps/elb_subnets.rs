//! A classic load balancer has at most one subnet in a zone, and never none.

use std::collections::BTreeSet;

use super::upstream::{Reply, Upstream, query, read, texts};
use crate::query::Query;
use crate::service::Service;
use crate::xml::XmlError;

const REFUSAL: &str = "InvalidConfigurationRequest";
const ASKED: &str = "Subnets.member";

/// Attaches subnets, unless one would stand in the zone of another.
pub(super) async fn attach<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let mut subnets = attached(moto, asked).await?;
    subnets.extend(asked.parameters.list(ASKED).into_iter().map(str::to_owned));

    let zones = zones(moto, &subnets).await?;
    if zones.iter().collect::<BTreeSet<_>>().len() < zones.len() {
        let message = "a load balancer stands in one subnet of a zone only".to_owned();
        return Ok(Reply::Refused(REFUSAL, message));
    }

    Ok(Reply::Moto(moto.ask(&Service::Elb, asked).await))
}

/// Detaches subnets, unless none would be left.
pub(super) async fn detach<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let mut subnets = attached(moto, asked).await?;
    let any = !subnets.is_empty();
    subnets.retain(|subnet| !asked.parameters.list(ASKED).contains(&subnet.as_str()));
    if any && subnets.is_empty() {
        let message = "a load balancer has to stay in one subnet at least".to_owned();
        return Ok(Reply::Refused(REFUSAL, message));
    }

    Ok(Reply::Moto(moto.ask(&Service::Elb, asked).await))
}

async fn attached<U: Upstream>(moto: &U, asked: &Query) -> Result<BTreeSet<String>, XmlError> {
    let name = asked.parameters.get("LoadBalancerName").unwrap_or_default();
    let parameters = [("LoadBalancerNames.member.1", name)];
    let describe = query(&Service::Elb, "DescribeLoadBalancers", &parameters);
    let answer = read(moto, &Service::Elb, &describe).await?.unwrap_or_default();
    let balancer = answer.items("LoadBalancerDescriptions").first();
    let subnets = balancer.map(|balancer| texts(balancer.child("Subnets")));
    Ok(subnets.unwrap_or_default().into_iter().collect())
}

/// The zone of each subnet that there is.
async fn zones<U: Upstream>(moto: &U, subnets: &BTreeSet<String>) -> Result<Vec<String>, XmlError> {
    let all = query(&Service::Ec2, "DescribeSubnets", &[]);
    let answer = read(moto, &Service::Ec2, &all).await?.unwrap_or_default();
    let listed = answer.items("subnetSet").iter();
    let wanted = listed.filter(|subnet| subnets.contains(subnet.value("subnetId")));
    Ok(wanted
        .map(|subnet| subnet.value("availabilityZone").to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::super::fixture::Script;
    use super::{attach, detach};
    use crate::query::Query;

    const BALANCER: &str = "<R><LoadBalancerDescriptions><member><Subnets><member>a1</member><member>b1</member></Subnets></member></LoadBalancerDescriptions></R>";
    const SUBNETS: &str = "<R><subnetSet>\
        <item><subnetId>a1</subnetId><availabilityZone>a</availabilityZone></item>\
        <item><subnetId>a2</subnetId><availabilityZone>a</availabilityZone></item>\
        <item><subnetId>b1</subnetId><availabilityZone>b</availabilityZone></item>\
        <item><subnetId>c1</subnetId><availabilityZone>c</availabilityZone></item></subnetSet></R>";

    async fn taken(action: &'static str, subnets: &[&str]) -> bool {
        let moto = Script::default()
            .on("DescribeLoadBalancers", BALANCER)
            .on("DescribeSubnets", SUBNETS)
            .on(action, "<R/>");
        let listed = subnets.iter().enumerate();
        let listed: String = listed
            .map(|(n, id)| format!("&Subnets.member.{}={id}", n + 1))
            .collect();
        let form = format!("Action={action}&Version=2012-06-01&LoadBalancerName=lb{listed}");
        let asked = Query::parse(form.as_bytes());
        let reply = if action.starts_with("Attach") {
            attach(&moto, &asked).await
        } else {
            detach(&moto, &asked).await
        };
        let taken = moto.asked().iter().any(|query| query.action == action);
        assert_eq!(taken, !matches!(reply.expect("XML"), Reply::Refused(..)));
        taken
    }

    #[tokio::test]
    async fn one_subnet_in_a_zone_and_one_at_least() {
        let attach = "AttachLoadBalancerToSubnets";
        assert!(taken(attach, &["c1"]).await);
        assert!(taken(attach, &["a1"]).await, "it is there already");
        assert!(!taken(attach, &["a2"]).await);
        assert!(!taken(attach, &["c1", "a2"]).await);
        let detach = "DetachLoadBalancerFromSubnets";
        assert!(taken(detach, &["a1"]).await);
        assert!(!taken(detach, &["b1", "a1"]).await);
    }
}
