//! An IAM policy in front of moto: a denied call gets AWS's answer and does not reach moto, and tags count as they are.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use outrigger_aws_sim::iam::Policy;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Answer, Service};

use super::Simulation;

const TAGGED: &str = r#"{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"ec2:ResourceTag/owner": "me"}}},
    {"Effect": "Allow", "Action": "elasticloadbalancing:*", "Resource": "*",
     "Condition": {"StringEquals": {"elasticloadbalancing:ResourceTag/owner": "me"}}},
    {"Effect": "Allow", "Action": "elasticloadbalancing:Create*", "Resource": "*",
     "Condition": {"StringEquals": {"aws:RequestTag/owner": "me"}}}]}"#;

fn set(aws: &Simulation, policy: Option<&str>) {
    let policy = policy.map(|text| Arc::new(Policy::parse(text).expect("a policy")));
    aws.proxy.set_policy(policy);
}

fn refusal(response: &Response<Bytes>) -> (u16, String, String) {
    let body = Element::parse(&String::from_utf8_lossy(response.body())).expect("XML");
    let of = |name: &str| body.find(name).map(|element| element.text.clone()).unwrap_or_default();
    (response.status().as_u16(), of("Code"), of("Message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_is_answered_as_by_aws_and_does_not_reach_moto() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let group = aws.account.security_group_id.clone();
    set(&aws, Some(TAGGED));
    let delete = [("GroupId", group.as_str())];
    let denied = aws.call(Service::Ec2, "DeleteSecurityGroup", &delete).await;
    let (status, code, message) = refusal(&denied.expect("answered"));
    assert_eq!((status, code.as_str()), (403, "UnauthorizedOperation"));
    assert!(
        message.contains("ec2:DeleteSecurityGroup") && message.contains(&group),
        "{message}"
    );
    let outcome = aws.proxy.calls()[0].outcome.clone().expect("an outcome");
    assert_eq!((outcome.answer, outcome.forwarded), (Answer::Denial, false));

    let read = aws.call(Service::ElbV2, "DescribeTags", &[]).await.expect("answered");
    let (status, code, message) = refusal(&read);
    assert_eq!((status, code.as_str()), (403, "AccessDenied"));
    assert!(
        message.contains("perform: elasticloadbalancing:DescribeTags because"),
        "{message}"
    );

    set(&aws, None);
    let there = aws
        .good(Service::Ec2, "DescribeSecurityGroups", &[("GroupId.1", &group)])
        .await;
    assert_eq!(there.items("securityGroupInfo").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_count_as_they_are_at_the_moment_of_the_call() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let table = aws.account.route_table_id.clone();
    let route = [
        ("RouteTableId", table.as_str()),
        ("DestinationCidrBlock", "10.9.0.0/24"),
        ("InstanceId", aws.account.instances[0].id.as_str()),
    ];
    set(&aws, Some(TAGGED));
    let denied = aws.call(Service::Ec2, "CreateRoute", &route).await.expect("answered");
    assert_eq!(denied.status(), 403);
    set(&aws, None);
    let tag = [
        ("ResourceId.1", table.as_str()),
        ("Tag.1.Key", "owner"),
        ("Tag.1.Value", "me"),
    ];
    aws.good(Service::Ec2, "CreateTags", &tag).await;
    set(&aws, Some(TAGGED));
    aws.good(Service::Ec2, "CreateRoute", &route).await;

    let subnet = aws.account.subnets[0].id.as_str();
    let balancer = |owner| {
        [
            ("LoadBalancerName", "a1"),
            ("Subnets.member.1", subnet),
            ("Listeners.member.1.Protocol", "TCP"),
            ("Listeners.member.1.LoadBalancerPort", "80"),
            ("Listeners.member.1.InstancePort", "30080"),
            ("Tags.member.1.Key", "owner"),
            ("Tags.member.1.Value", owner),
        ]
    };
    let other = aws.call(Service::Elb, "CreateLoadBalancer", &balancer("other")).await;
    assert_eq!(other.expect("answered").status(), 403);
    aws.good(Service::Elb, "CreateLoadBalancer", &balancer("me")).await;
    let named = [("LoadBalancerName", "a1")];
    aws.good(Service::Elb, "DeleteLoadBalancer", &named).await;
}
