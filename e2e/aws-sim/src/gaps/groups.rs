//! The rules of security groups, and the deletion of these: EC2 deletes none that something refers to.

use outrigger_aws_quotas::{Quotas, Source};

use super::upstream::{Reply, Upstream, query, read, texts};
use crate::query::Query;
use crate::service::Service;
use crate::xml::{Element, XmlError};

/// Load balancers in an answer; more than a test has.
const PAGE: &str = "400";

/// A kind of sources of rules: how the quota of rules counts one, the last part of its key in a call, and its list and
/// field in an answer.
type Kind = (Source, &'static str, &'static str, &'static str);
const KINDS: [Kind; 4] = [
    (Source::Ipv4, "CidrIp", "ipRanges", "cidrIp"),
    (Source::Ipv6, "CidrIpv6", "ipv6Ranges", "cidrIpv6"),
    (Source::Both, "GroupId", "groups", "groupId"),
    (Source::Both, "PrefixListId", "prefixListIds", "prefixListId"),
];

/// A rule with one source, without its description, by which EC2 does not tell rules apart.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// Protocol, first port, last port, network or ID.
    fields: [String; 4],
    source: Source,
}

/// AWS's refusal of rules that are too many together with those of the group.
pub(super) async fn beyond_quota<U: Upstream>(
    moto: &U,
    asked: &Query,
    quotas: &Quotas,
) -> Result<Option<Reply>, XmlError> {
    let id = asked.parameters.get("GroupId").unwrap_or_default();
    let old = rules(moto, id).await?;
    let new = asked_rules(asked);

    // EC2 checks for duplicates first, and moto names them.
    let has_duplicate = new.iter().any(|rule| old.contains(rule));
    let all = old.iter().chain(&new).map(|rule| rule.source);
    let refusal = quotas.check_rules(all).err().filter(|_| !has_duplicate);

    Ok(refusal.map(Reply::from))
}

/// The rules that a call adds.
fn asked_rules(asked: &Query) -> Vec<Rule> {
    let rule = |(key, value): (&str, &str)| {
        let mut parts = key.strip_prefix("IpPermissions.")?.split('.');
        let permission = format!("IpPermissions.{}", parts.next()?);
        let last = parts.next_back()?;
        let (source, ..) = KINDS.into_iter().find(|(_, key, ..)| *key == last)?;
        let of = |field: &str| {
            let value = asked.parameters.get(&format!("{permission}.{field}"));
            value.unwrap_or_default().to_owned()
        };
        let fields = [of("IpProtocol"), of("FromPort"), of("ToPort"), value.to_owned()];
        Some(Rule { fields, source })
    };

    asked.parameters.iter().filter_map(rule).collect()
}

/// The rules that a group has.
async fn rules<U: Upstream>(moto: &U, id: &str) -> Result<Vec<Rule>, XmlError> {
    let group = query(&Service::Ec2, "DescribeSecurityGroups", &[("GroupId.1", id)]);
    let group = read(moto, &Service::Ec2, &group).await?.unwrap_or_default();
    let group = group.items("securityGroupInfo").first().cloned().unwrap_or_default();

    let mut rules = Vec::new();
    for permission in group.list("ipPermissions") {
        let of = |field: &str| permission.value(field).to_owned();
        for (source, _, list, field) in KINDS {
            rules.extend(permission.list(list).iter().map(|item| Rule {
                fields: [
                    of("ipProtocol"),
                    of("fromPort"),
                    of("toPort"),
                    item.value(field).to_owned(),
                ],
                source,
            }));
        }
    }

    Ok(rules)
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
    use super::{Quotas, beyond_quota, delete};
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

    /// A group with as many rules for networks, and one for a group.
    fn group(networks: usize) -> String {
        let range = |number| format!("<item><cidrIp>10.0.0.{number}/32</cidrIp></item>");
        let ranges: String = (0..networks).map(range).collect();
        let sources = format!("<groups><item><groupId>sg-2</groupId></item></groups><ipRanges>{ranges}</ipRanges>");
        let permission =
            format!("<item><ipProtocol>tcp</ipProtocol><fromPort>80</fromPort><toPort>80</toPort>{sources}</item>");
        format!(
            "<R><securityGroupInfo><item><ipPermissions>{permission}</ipPermissions></item></securityGroupInfo></R>"
        )
    }

    /// Whether rules of these sources are refused because of the quota.
    async fn exceed(quotas: Quotas, networks: usize, sources: &str) -> bool {
        let moto = Script::default().on("DescribeSecurityGroups", &group(networks));
        let permission = "IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=80&IpPermissions.1.ToPort=80";
        let form =
            format!("Action=AuthorizeSecurityGroupIngress&Version=2016-11-15&GroupId=sg-1&{permission}&{sources}");
        let reply = beyond_quota(&moto, &Query::parse(form.as_bytes()), &quotas).await;
        match reply.expect("XML") {
            Some(Reply::Refused(code, _)) => code == "RulesPerSecurityGroupLimitExceeded",
            Some(other) => panic!("{other:?}"),
            None => false,
        }
    }

    #[tokio::test]
    async fn each_source_of_a_rule_counts() {
        let two = "IpPermissions.1.IpRanges.1.CidrIp=1.0.0.0/8&IpPermissions.1.IpRanges.1.Description=d&IpPermissions.1.Groups.1.GroupId=sg-3";
        let quotas = Quotas::default();
        assert!(!exceed(quotas, 57, two).await);
        assert!(exceed(quotas, 58, two).await);
        let small = Quotas { rules: 4, ..quotas };
        assert!(!exceed(small, 1, two).await);
        assert!(exceed(small, 2, two).await);
    }

    #[tokio::test]
    async fn address_families_count_apart_and_moto_names_duplicates() {
        let small = Quotas {
            rules: 3,
            ..Quotas::default()
        };
        let one = |key: &str| format!("IpPermissions.1.{key}");
        assert!(exceed(small, 2, &one("IpRanges.1.CidrIp=1.0.0.0/8")).await);
        assert!(exceed(small, 2, &one("PrefixListIds.1.PrefixListId=pl-1")).await);
        assert!(!exceed(small, 2, &one("Ipv6Ranges.1.CidrIpv6=::/0")).await);
        assert!(!exceed(small, 2, &one("IpRanges.1.CidrIp=10.0.0.0/32")).await);
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
