//! EC2 takes rules of a security group all together or not at all, and deletes none that something refers to.

use super::upstream::{Reply, Upstream, query, read, texts};
use crate::query::Query;
use crate::service::Service;
use crate::xml::{Element, XmlError};

/// Load balancers in an answer; more than a test has.
const PAGE: &str = "400";

/// Rules that a security group takes, as AWS counts by default and moto always.
const MOST_RULES: usize = 60;
/// The sources of a rule, in calls and answers: networks of both kinds, groups, lists of networks.
const SOURCES: [&str; 4] = ["CidrIp", "CidrIpv6", "GroupId", "PrefixListId"];
const SOURCE_LISTS: [&str; 4] = ["ipRanges", "ipv6Ranges", "groups", "prefixListIds"];

/// Adds rules to a security group, if there is room for all of them.
pub(super) async fn authorize<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let is_rule = |key: &str| {
        let source = key.rsplit('.').next().unwrap_or_default();
        key.starts_with("IpPermissions.") && SOURCES.contains(&source)
    };
    let new = asked.parameters.iter().filter(|(key, _)| is_rule(key)).count();
    let id = asked.parameters.get("GroupId").unwrap_or_default();
    // One rule cannot be taken in part.
    if new > 1 && new + rules(moto, id).await? > MOST_RULES {
        let message = "The maximum number of rules per security group has been reached.".to_owned();
        return Ok(Reply::Refused("RulesPerSecurityGroupLimitExceeded", message));
    }

    Ok(Reply::Moto(moto.ask(&Service::Ec2, asked).await))
}

/// The number of rules that a group has.
async fn rules<U: Upstream>(moto: &U, id: &str) -> Result<usize, XmlError> {
    let group = query(&Service::Ec2, "DescribeSecurityGroups", &[("GroupId.1", id)]);
    let group = read(moto, &Service::Ec2, &group).await?.unwrap_or_default();
    let group = group.items("securityGroupInfo").first().cloned().unwrap_or_default();
    let permissions = group.child("ipPermissions").cloned().unwrap_or_default();
    let lists = permissions
        .children
        .iter()
        .flat_map(|permission| SOURCE_LISTS.map(|list| permission.child(list)));

    Ok(lists.flatten().map(|list| list.children.len()).sum())
}

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
        let uses = |balancer: &&Element| texts(balancer.list("SecurityGroups")).iter().any(|group| group == id);
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
    use super::{authorize, delete};
    use crate::query::Query;

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
    async fn rules_come_all_together_or_not_at_all() {
        let range = "<item><cidrIp>10.0.0.0/8</cidrIp></item>";
        let group = |number: usize| {
            format!(
                "<R><securityGroupInfo><item><ipPermissions><item><groups><item><groupId>sg-2</groupId></item></groups><ipRanges>{}</ipRanges></item></ipPermissions></item></securityGroupInfo></R>",
                range.repeat(number)
            )
        };
        let form = b"Action=AuthorizeSecurityGroupIngress&Version=2016-11-15&GroupId=sg-1&IpPermissions.1.IpRanges.1.CidrIp=1.0.0.0/8&IpPermissions.1.IpRanges.1.Description=d&IpPermissions.1.Groups.1.GroupId=sg-3";
        for (there, refused) in [(57, false), (58, true)] {
            let moto = Script::default()
                .on("DescribeSecurityGroups", &group(there))
                .on("AuthorizeSecurityGroupIngress", "<R/>");
            let reply = authorize(&moto, &Query::parse(form)).await.expect("XML");
            let is_refused = matches!(reply, Reply::Refused("RulesPerSecurityGroupLimitExceeded", _));
            let sent = moto.asked().iter().any(|query| query.action.starts_with("Authorize"));
            assert_eq!((is_refused, sent), (refused, !refused), "{there}");
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
