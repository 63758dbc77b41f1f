//! EC2 deletes no security group that something refers to.

use super::{Reply, Upstream, query, read, texts};
use crate::aws::query::Query;
use crate::aws::service::Service;
use crate::aws::xml::{Element, XmlError};

/// Load balancers in an answer; more than a test has.
const PAGE: &str = "400";

/// Deletes a security group, unless a rule of another group or a load balancer refers to it.
pub(super) async fn delete<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    if let Some(id) = asked.parameters.get("GroupId")
        && let Some(user) = user(moto, id).await?
    {
        let message = format!("resource {id} has a dependent object: {user}");
        return Ok(Reply::Refused("DependencyViolation", message));
    }
    Ok(Reply::Moto(moto.ask(&Service::Ec2, asked).await))
}

async fn user<U: Upstream>(moto: &U, id: &str) -> Result<Option<String>, XmlError> {
    let filter = [("Filter.1.Name", "ip-permission.group-id"), ("Filter.1.Value.1", id)];
    let groups = query(&Service::Ec2, "DescribeSecurityGroups", &filter);
    let groups = read(moto, &Service::Ec2, &groups).await?.unwrap_or_default();
    let referring = groups.items("securityGroupInfo").iter();
    if let Some(group) = referring.map(|group| group.value("groupId")).find(|group| *group != id) {
        return Ok(Some(group.to_owned()));
    }
    let sources = [
        (Service::Elb, "LoadBalancerDescriptions"),
        (Service::ElbV2, "LoadBalancers"),
    ];
    for (service, list) in sources {
        let all = query(&service, "DescribeLoadBalancers", &[("PageSize", PAGE)]);
        let all = read(moto, &service, &all).await?.unwrap_or_default();
        let uses = |balancer: &&Element| texts(balancer.child("SecurityGroups")).iter().any(|group| group == id);
        if let Some(balancer) = all.items(list).iter().find(uses) {
            return Ok(Some(balancer.value("LoadBalancerName").to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::super::fixture::Script;
    use super::delete;
    use crate::aws::query::Query;

    async fn refused(groups: &str, balancers: &str) -> Option<&'static str> {
        let moto = Script::default()
            .on("DescribeSecurityGroups", groups)
            .on("DescribeLoadBalancers", balancers)
            .on("DeleteSecurityGroup", "<R/>");
        let asked = Query::parse(b"Action=DeleteSecurityGroup&Version=2016-11-15&GroupId=sg-1");
        let reply = delete(&moto, &asked).await.expect("XML");
        let deleted = moto.asked().iter().any(|query| query.action == "DeleteSecurityGroup");
        match reply {
            Reply::Refused(code, _) => {
                assert!(!deleted);
                Some(code)
            }
            _ => {
                assert!(deleted);
                None
            }
        }
    }

    #[tokio::test]
    async fn a_group_that_something_refers_to_is_kept() {
        let group =
            |id: &str| format!("<R><securityGroupInfo><item><groupId>{id}</groupId></item></securityGroupInfo></R>");
        let balancer = "<R><LoadBalancers><member><LoadBalancerName>a</LoadBalancerName><SecurityGroups><member>sg-1</member></SecurityGroups></member></LoadBalancers></R>";
        assert_eq!(refused(&group("sg-2"), "<R/>").await, Some("DependencyViolation"));
        assert_eq!(refused("<R/>", balancer).await, Some("DependencyViolation"));
        assert_eq!(
            refused(&group("sg-1"), "<R/>").await,
            None,
            "its own rules do not count"
        );
        assert_eq!(refused("<R/>", "<R/>").await, None);
    }
}
