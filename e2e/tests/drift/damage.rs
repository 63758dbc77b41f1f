//! Manual changes at AWS.

use outrigger_aws_sim::Service::{Ec2, Elb, ElbV2};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{AwsError, Service};
use outrigger_e2e::single_cluster::SingleCluster;

/// A change, and what the manager has to do about it.
#[derive(Debug)]
pub struct Damage {
    /// For the reader.
    pub name: &'static str,
    /// The only action that puts it right.
    pub repair: &'static str,
    /// The reason that the Event gives for it.
    pub reason: &'static str,
    service: Service,
    action: &'static str,
    parameters: Parameters,
}

impl Damage {
    pub async fn happen(&self, cluster: &SingleCluster) {
        let done = cluster
            .proxy
            .ask(&self.service, self.action, self.parameters.clone())
            .await;
        done.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}

/// Everything that can be done to the classic load balancer, one after the other.
pub async fn of_classic(cluster: &SingleCluster) -> Vec<Damage> {
    let balancers = ask(cluster, Elb, "DescribeLoadBalancers", &[]).await;
    let name = balancers.items("LoadBalancerDescriptions")[0]
        .value("LoadBalancerName")
        .to_owned();
    let own_group = group(cluster, &format!("k8s-elb-{name}")).await;
    let name = ("LoadBalancerName", name.as_str());
    let mut damages = vec![
        Damage {
            name: "the rule that lets clients in",
            repair: "AuthorizeSecurityGroupIngress",
            reason: "ports or client networks are missing",
            ..revoke(&own_group, &clients())
        },
        Damage {
            name: "the nodes' rule for the load balancer",
            repair: "AuthorizeSecurityGroupIngress",
            reason: "rules are missing: all traffic from sg-",
            ..revoke(
                &cluster.account.security_group_id,
                &[
                    ("IpPermissions.1.IpProtocol", "-1"),
                    ("IpPermissions.1.Groups.1.GroupId", &own_group),
                ],
            )
        },
        Damage {
            name: "a listener",
            repair: "CreateLoadBalancerListeners",
            reason: "ports of the Service have no such listener",
            ..by_hand(
                Elb,
                "DeleteLoadBalancerListeners",
                &[name, ("LoadBalancerPorts.member.1", "81")],
            )
        },
    ];
    damages.extend(classic_settings(name));
    damages
}

fn classic_settings(name: (&str, &str)) -> Vec<Damage> {
    vec![
        Damage {
            name: "the health check",
            repair: "ConfigureHealthCheck",
            reason: "the health check TCP:22 differs in target, interval, timeout or thresholds",
            ..by_hand(
                Elb,
                "ConfigureHealthCheck",
                &[
                    name,
                    ("HealthCheck.Target", "TCP:22"),
                    ("HealthCheck.Interval", "10"),
                    ("HealthCheck.Timeout", "5"),
                    ("HealthCheck.HealthyThreshold", "2"),
                    ("HealthCheck.UnhealthyThreshold", "6"),
                ],
            )
        },
        Damage {
            name: "the idle timeout",
            repair: "ModifyLoadBalancerAttributes",
            reason: "attributes differ: idle time-out",
            ..by_hand(
                Elb,
                "ModifyLoadBalancerAttributes",
                &[name, ("LoadBalancerAttributes.ConnectionSettings.IdleTimeout", "99")],
            )
        },
        Damage {
            name: "the tag that names the Service",
            repair: "AddTags",
            reason: "tags are missing or differ",
            ..by_hand(
                Elb,
                "RemoveTags",
                &[
                    ("LoadBalancerNames.member.1", name.1),
                    ("Tags.member.1.Key", "kubernetes.io/service-name"),
                ],
            )
        },
    ]
}

/// The same for the network load balancer, as many.
pub async fn of_network(cluster: &SingleCluster, node_port: &str) -> Vec<Damage> {
    let balancers = ask(cluster, ElbV2, "DescribeLoadBalancers", &[]).await;
    let balancer = &balancers.items("LoadBalancers")[0];
    let (arn, own_group) = (balancer.value("LoadBalancerArn"), texts(balancer, "SecurityGroups"));
    let client_rule = format!("kubernetes.io/rule/nlb/client={}", balancer.value("LoadBalancerName"));
    let listeners = ask(cluster, ElbV2, "DescribeListeners", &[("LoadBalancerArn", arn)]).await;
    let listener = listeners.items("Listeners")[0].value("ListenerArn").to_owned();
    let groups = ask(cluster, ElbV2, "DescribeTargetGroups", &[("LoadBalancerArn", arn)]).await;
    let group = groups.items("TargetGroups")[0].value("TargetGroupArn").to_owned();
    let mut damages = vec![
        Damage {
            name: "the rule that lets clients in",
            repair: "AuthorizeSecurityGroupIngress",
            reason: "ports or client networks are missing",
            ..revoke(&own_group[0], &clients())
        },
        Damage {
            name: "the nodes' rule for clients",
            repair: "AuthorizeSecurityGroupIngress",
            reason: "rules are missing: tcp ",
            ..revoke(
                &cluster.account.security_group_id,
                &[
                    ("IpPermissions.1.IpProtocol", "tcp"),
                    ("IpPermissions.1.FromPort", node_port),
                    ("IpPermissions.1.ToPort", node_port),
                    ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
                    ("IpPermissions.1.IpRanges.1.Description", &client_rule),
                ],
            )
        },
        Damage {
            name: "a listener",
            repair: "CreateListener",
            reason: "the port has no listener",
            ..by_hand(ElbV2, "DeleteListener", &[("ListenerArn", &listener)])
        },
        Damage {
            name: "zones of the load balancer",
            repair: "ModifyLoadBalancerAttributes",
            reason: "attributes differ: load_balancing.cross_zone.enabled",
            ..by_hand(
                ElbV2,
                "ModifyLoadBalancerAttributes",
                &[
                    ("LoadBalancerArn", arn),
                    ("Attributes.member.1.Key", "load_balancing.cross_zone.enabled"),
                    ("Attributes.member.1.Value", "false"),
                ],
            )
        },
    ];
    damages.extend(target_group_settings(&group));
    damages
}

fn target_group_settings(group: &str) -> Vec<Damage> {
    vec![
        Damage {
            name: "an attribute of a target group",
            repair: "ModifyTargetGroupAttributes",
            reason: "attributes differ: preserve_client_ip.enabled",
            ..by_hand(
                ElbV2,
                "ModifyTargetGroupAttributes",
                &[
                    ("TargetGroupArn", group),
                    ("Attributes.member.1.Key", "preserve_client_ip.enabled"),
                    ("Attributes.member.1.Value", "true"),
                ],
            )
        },
        Damage {
            name: "the health check",
            repair: "ModifyTargetGroup",
            reason: "the health check differs",
            ..by_hand(
                ElbV2,
                "ModifyTargetGroup",
                &[("TargetGroupArn", group), ("HealthyThresholdCount", "7")],
            )
        },
    ]
}

fn clients() -> [(&'static str, &'static str); 4] {
    [
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "80"),
        ("IpPermissions.1.ToPort", "80"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
    ]
}

fn revoke(group: &str, rule: &[(&str, &str)]) -> Damage {
    let parameters: Vec<_> = [("GroupId", group)].iter().chain(rule).copied().collect();
    by_hand(Ec2, "RevokeSecurityGroupIngress", &parameters)
}

fn by_hand(service: Service, action: &'static str, parameters: &[(&str, &str)]) -> Damage {
    Damage {
        name: "",
        repair: "",
        reason: "",
        service,
        action,
        parameters: parameters.iter().copied().collect(),
    }
}

async fn group(cluster: &SingleCluster, name: &str) -> String {
    let named = [("Filter.1.Name", "group-name"), ("Filter.1.Value.1", name)];
    let groups = ask(cluster, Ec2, "DescribeSecurityGroups", &named).await;
    groups.items("securityGroupInfo")[0].value("groupId").to_owned()
}

fn texts(item: &Element, list: &str) -> Vec<String> {
    let members = item.child(list).map_or(&[][..], |list| &list.children);
    members.iter().map(|member| member.text.clone()).collect()
}

async fn ask(cluster: &SingleCluster, service: Service, action: &str, parameters: &[(&str, &str)]) -> Element {
    let answer: Result<Element, AwsError> = cluster
        .proxy
        .ask(&service, action, parameters.iter().copied().collect())
        .await;
    answer.unwrap_or_else(|error| panic!("{action}: {error}"))
}
