//! The permissions that a call needs: one action on each of its resources, after AWS's reference of actions, resources
//! and condition keys. Pure.
//!
//! EC2: <https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html>; load balancers:
//! <https://docs.aws.amazon.com/service-authorization/latest/reference/list_awselasticloadbalancingv2.html> and
//! `list_awselasticloadbalancing.html`. Tags at creation need the permission to tag as well:
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html>.
//!
//! Resources that a call only refers to (subnets, groups and instances of a load balancer) are not evaluated.

use crate::query::{Parameters, Query};
use crate::service::{REGION, Service};

/// The simulated account.
pub(super) const ACCOUNT: &str = "123456789012";

/// Pairs of key and value.
pub(super) type Tags = Vec<(String, String)>;

/// One action on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needed {
    /// With the prefix of the service: `ec2:CreateTags`.
    pub(super) action: String,
    pub(super) resource: Resource,
    /// The tags of the request.
    pub(super) request: Tags,
    /// The action that creates the resource with tags.
    pub(super) create_action: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    /// The action has no resource-level permissions.
    Any,
    /// It exists only after the call, with these tags.
    New { arn: String, tags: Tags },
    /// It exists; its tags have to be asked for.
    There { arn: String, tags: TagsOf },
}

/// Where the tags of a resource are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TagsOf {
    Ec2(String),
    /// A classic load balancer, by name.
    Classic(String),
    /// A network load balancer, its listeners and target groups, by ARN.
    Network(String),
}

/// Everything that has to be allowed for a call.
pub(super) fn needed(service: &Service, query: &Query) -> Vec<Needed> {
    let reads = query.action.starts_with("Describe");
    let mut needed = match service {
        _ if reads => Vec::new(),
        Service::Ec2 => ec2(query),
        Service::Elb => classic(query),
        Service::ElbV2 => network(query),
        Service::Sts | Service::Other(_) => Vec::new(),
    };

    if needed.is_empty() {
        needed.push(of(service, query, Resource::Any));
    }

    needed
}

fn of(service: &Service, query: &Query, resource: Resource) -> Needed {
    Needed {
        action: format!("{}:{}", service.scope(), query.action),
        resource,
        request: Tags::new(),
        create_action: None,
    }
}

fn ec2(query: &Query) -> Vec<Needed> {
    let service = &Service::Ec2;
    let parameters = &query.parameters;
    match query.action.as_str() {
        "CreateSecurityGroup" => {
            let tags = tags(parameters, "TagSpecification.1.Tag");
            let vpc = parameters.get("VpcId").unwrap_or_default();
            let mut needed = created(service, query, ec2_arn("security-group", "*"), tags, "ec2:CreateTags");
            needed.push(of(service, query, existing(vpc)));
            needed
        }
        "CreateTags" | "DeleteTags" => {
            let request = tags(parameters, "Tag");
            let ids = parameters.list("ResourceId").into_iter();
            ids.map(|id| Needed {
                request: request.clone(),
                ..of(service, query, existing(id))
            })
            .collect()
        }
        _ => {
            let id = ["GroupId", "RouteTableId", "InstanceId"]
                .iter()
                .find_map(|key| parameters.get(key));
            vec![of(service, query, id.map_or(Resource::Any, existing))]
        }
    }
}

fn classic(query: &Query) -> Vec<Needed> {
    let service = &Service::Elb;
    let parameters = &query.parameters;
    let request = tags(parameters, "Tags.member");
    let arn = |name: &str| elb_arn(&format!("loadbalancer/{name}"));
    if query.action == "CreateLoadBalancer" {
        let arn = arn(parameters.get("LoadBalancerName").unwrap_or_default());
        return created(service, query, arn, request, "elasticloadbalancing:AddTags");
    }

    let mut names = parameters.list("LoadBalancerNames.member");
    names.extend(parameters.get("LoadBalancerName"));

    let names = names.into_iter().map(|name| Needed {
        request: request.clone(),
        ..of(
            service,
            query,
            Resource::There {
                arn: arn(name),
                tags: TagsOf::Classic(name.to_owned()),
            },
        )
    });

    names.collect()
}

fn network(query: &Query) -> Vec<Needed> {
    let service = &Service::ElbV2;
    let parameters = &query.parameters;
    let request = tags(parameters, "Tags.member");
    let there = |arn: &str| Resource::There {
        arn: arn.to_owned(),
        tags: TagsOf::Network(arn.to_owned()),
    };
    let name = parameters.get("Name").unwrap_or_default();
    let add_tags = "elasticloadbalancing:AddTags";

    match query.action.as_str() {
        "CreateLoadBalancer" => {
            let arn = elb_arn(&format!("loadbalancer/net/{name}/*"));
            created(service, query, arn, request, add_tags)
        }
        "CreateTargetGroup" => {
            let arn = elb_arn(&format!("targetgroup/{name}/*"));
            created(service, query, arn, request, add_tags)
        }
        "CreateListener" => {
            let balancer = parameters.get("LoadBalancerArn").unwrap_or_default();
            let mut needed = created(service, query, elb_arn("listener/net/*"), request, add_tags);
            // The action itself is about the load balancer.
            if let Some(first) = needed.first_mut() {
                first.resource = there(balancer);
            }
            needed
        }
        _ => {
            let mut arns = parameters.list("ResourceArns.member");
            let keys = ["ListenerArn", "TargetGroupArn", "LoadBalancerArn"];
            arns.extend(keys.iter().find_map(|key| parameters.get(key)));

            let needed = arns.into_iter().map(|arn| Needed {
                request: request.clone(),
                ..of(service, query, there(arn))
            });
            needed.collect()
        }
    }
}

/// A creation, and the permission to give tags to what it creates. For the latter the new resource counts as having
/// the tags: kOps' role allows AddTags only for `aws:ResourceTag`, and creates load balancers with tags.
fn created(service: &Service, query: &Query, arn: String, tags: Tags, tagging: &str) -> Vec<Needed> {
    let creation = Needed {
        request: tags.clone(),
        ..of(
            service,
            query,
            Resource::New {
                arn: arn.clone(),
                tags: Tags::new(),
            },
        )
    };
    if tags.is_empty() {
        return vec![creation];
    }

    let tagging = Needed {
        action: tagging.to_owned(),
        resource: Resource::New {
            arn,
            tags: tags.clone(),
        },
        request: tags,
        create_action: Some(query.action.clone()),
    };

    vec![creation, tagging]
}

/// A resource of EC2 by its ID.
fn existing(id: &str) -> Resource {
    let kind = match id.split_once('-').map_or(id, |(kind, _)| kind) {
        "i" => "instance",
        "sg" => "security-group",
        "rtb" => "route-table",
        "eni" => "network-interface",
        "vol" => "volume",
        other => other, // subnet, vpc
    };
    Resource::There {
        arn: ec2_arn(kind, id),
        tags: TagsOf::Ec2(id.to_owned()),
    }
}

fn ec2_arn(kind: &str, id: &str) -> String {
    format!("arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{id}")
}

fn elb_arn(resource: &str) -> String {
    format!("arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:{resource}")
}

fn tags(parameters: &Parameters, prefix: &str) -> Tags {
    let pair = |number: usize| {
        let key = parameters.get(&format!("{prefix}.{number}.Key"))?;
        let value = parameters.get(&format!("{prefix}.{number}.Value")).unwrap_or_default();
        Some((key.to_owned(), value.to_owned()))
    };
    (1..).map_while(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::{Needed, Resource, needed};
    use crate::query::Query;
    use crate::service::Service;

    fn lines(service: &Service, form: &str) -> Vec<String> {
        let line = |needed: &Needed| {
            let resource = match &needed.resource {
                Resource::Any => "*".to_owned(),
                Resource::New { arn, tags } => format!("new {arn} {tags:?}"),
                Resource::There { arn, .. } => arn.clone(),
            };
            let create = needed.create_action.as_deref().unwrap_or("-");
            format!("{} {resource} {:?} {create}", needed.action, needed.request)
        };
        needed(service, &Query::parse(form.as_bytes()))
            .iter()
            .map(line)
            .collect()
    }

    #[test]
    fn a_read_names_no_resource() {
        let form = "Action=DescribeTags&LoadBalancerNames.member.1=a";
        assert_eq!(lines(&Service::Elb, form), ["elasticloadbalancing:DescribeTags * [] -"]);
    }

    #[test]
    fn a_call_without_a_resource_is_evaluated_too() {
        for service in [Service::Ec2, Service::Elb, Service::ElbV2] {
            let needed = lines(&service, "Action=DeleteTags");
            assert_eq!(needed, [format!("{}:DeleteTags * [] -", service.scope())]);
        }
    }

    #[test]
    fn a_group_with_tags_needs_the_group_its_tags_and_the_vpc() {
        let form =
            "Action=CreateSecurityGroup&VpcId=vpc-1&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.Tag.1.Value=v";
        let arn = "arn:aws:ec2:us-east-1:123456789012:security-group/*";
        assert_eq!(
            lines(&Service::Ec2, form),
            [
                format!("ec2:CreateSecurityGroup new {arn} [] [(\"k\", \"v\")] -"),
                format!("ec2:CreateTags new {arn} [(\"k\", \"v\")] [(\"k\", \"v\")] CreateSecurityGroup"),
                "ec2:CreateSecurityGroup arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1 [] -".to_owned(),
            ]
        );
    }

    #[test]
    fn every_resource_of_a_call_is_evaluated() {
        let form = "Action=CreateTags&ResourceId.1=i-1&ResourceId.2=sg-1&Tag.1.Key=k&Tag.1.Value=v";
        let arn = "arn:aws:ec2:us-east-1:123456789012";
        assert_eq!(
            lines(&Service::Ec2, form),
            [
                format!("ec2:CreateTags {arn}:instance/i-1 [(\"k\", \"v\")] -"),
                format!("ec2:CreateTags {arn}:security-group/sg-1 [(\"k\", \"v\")] -"),
            ]
        );
        let form = "Action=ReplaceRoute&RouteTableId=rtb-1&InstanceId=i-1";
        assert_eq!(
            lines(&Service::Ec2, form),
            [format!("ec2:ReplaceRoute {arn}:route-table/rtb-1 [] -")]
        );
    }

    #[test]
    fn a_listener_is_created_on_its_load_balancer() {
        let form = "Action=CreateListener&LoadBalancerArn=arn:lb&Tags.member.1.Key=k&Tags.member.1.Value=v";
        let arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:listener/net/*";
        assert_eq!(
            lines(&Service::ElbV2, form),
            [
                "elasticloadbalancing:CreateListener arn:lb [(\"k\", \"v\")] -".to_owned(),
                format!("elasticloadbalancing:AddTags new {arn} [(\"k\", \"v\")] [(\"k\", \"v\")] CreateListener"),
            ]
        );
        assert_eq!(
            lines(&Service::ElbV2, "Action=RegisterTargets&TargetGroupArn=arn:tg"),
            ["elasticloadbalancing:RegisterTargets arn:tg [] -"]
        );
    }
}
