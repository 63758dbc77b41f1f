//! Network load balancers: what moto gets wrong, put right by the proxy.

use bytes::Bytes;
use http::Response;
use outrigger_aws_sim::Service;
use outrigger_aws_sim::xml::Element;

use crate::Simulation;

const CERTIFICATE: &str = "arn:aws:iam::123456789012:server-certificate/one";

impl Simulation {
    async fn v2(&self, action: &str, parameters: &[(&str, &str)]) -> Element {
        self.good(Service::ElbV2, action, parameters).await
    }

    /// The code of a refusal.
    async fn refused(&self, service: Service, action: &str, parameters: &[(&str, &str)]) -> String {
        let response: Response<Bytes> = self.call(service, action, parameters).await.expect("answered");
        let body = String::from_utf8_lossy(response.body()).into_owned();
        assert!(!response.status().is_success(), "{action}: {body}");
        Element::parse(&body)
            .expect("XML")
            .find("Code")
            .expect("a code")
            .text
            .clone()
    }

    async fn network_load_balancer(&self) -> Element {
        let parameters = [
            ("Name", "n1"),
            ("Type", "network"),
            ("SubnetMappings.member.1.SubnetId", self.account.subnets[0].id.as_str()),
            ("SecurityGroups", ""),
        ];
        let made = self.v2("CreateLoadBalancer", &parameters).await;
        made.items("LoadBalancers")[0].clone()
    }

    async fn group(&self, name: &str, protocol: &str, port: &str) -> String {
        let parameters = [
            ("Name", name),
            ("Protocol", protocol),
            ("Port", port),
            ("VpcId", self.account.vpc_id.as_str()),
            ("TargetType", "instance"),
        ];
        let made = self.v2("CreateTargetGroup", &parameters).await;
        made.find("TargetGroupArn").expect("an ARN").text.clone()
    }

    async fn listener(&self, balancer: &str, protocol: &str, port: &str, group: &str) -> Element {
        let made = self
            .v2("CreateListener", &listener(balancer, protocol, port, group))
            .await;
        made.items("Listeners")[0].clone()
    }

    async fn groups_of(&self, balancer: &str) -> Vec<String> {
        let answer = self.v2("DescribeTargetGroups", &[("LoadBalancerArn", balancer)]).await;
        let groups = answer.items("TargetGroups").iter();
        groups.map(|group| group.value("TargetGroupName").to_owned()).collect()
    }

    async fn live(&self, balancer: &str) -> Vec<Element> {
        let answer = self.v2("DescribeListeners", &[("LoadBalancerArn", balancer)]).await;
        answer.items("Listeners").to_vec()
    }
}

fn listener<'a>(balancer: &'a str, protocol: &'a str, port: &'a str, group: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("LoadBalancerArn", balancer),
        ("Protocol", protocol),
        ("Port", port),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group),
    ]
}

fn modification<'a>(listener: &'a str, protocol: &'a str, group: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("ListenerArn", listener),
        ("Protocol", protocol),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group),
    ]
}

fn certificate(listener: &Element) -> &str {
    listener
        .items("Certificates")
        .first()
        .map_or("", |c| c.value("CertificateArn"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_load_balancer_is_named_and_described_as_aws_does() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let made = aws.network_load_balancer().await;
    let arn = made.value("LoadBalancerArn");
    let number = arn.rsplit('/').next().expect("a number");
    assert_eq!(
        (made.value("DNSName"), made.value("Scheme")),
        (
            format!("n1-{number}.elb.us-east-1.amazonaws.com").as_str(),
            "internet-facing"
        )
    );
    assert!(made.items("SecurityGroups").is_empty());
    let again = aws.network_load_balancer().await;
    assert_eq!(
        again.value("LoadBalancerArn"),
        arn,
        "the same settings give the same one"
    );
    let other = [
        ("Name", "n1"),
        ("Type", "network"),
        ("Scheme", "internal"),
        ("SubnetMappings.member.1.SubnetId", aws.account.subnets[0].id.as_str()),
    ];
    let code = aws.refused(Service::ElbV2, "CreateLoadBalancer", &other).await;
    assert_eq!(code, "DuplicateLoadBalancerName");
    let attributes = aws
        .v2("DescribeLoadBalancerAttributes", &[("LoadBalancerArn", arn)])
        .await;
    let listed = attributes.items("Attributes").iter();
    let logs: Vec<_> = listed.filter(|a| a.value("Key") == "access_logs.s3.enabled").collect();
    assert_eq!(logs.iter().map(|a| a.value("Value")).collect::<Vec<_>>(), ["false"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_one_for_each_port_and_fit_their_target_groups() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let balancer = aws.network_load_balancer().await.value("LoadBalancerArn").to_owned();
    assert!(aws.groups_of(&balancer).await.is_empty(), "none is no error");
    let tcp = aws.group("tcp", "TCP", "30080").await;
    let udp = aws.group("udp", "UDP", "30080").await;
    assert_eq!(
        aws.group("tcp", "TCP", "30080").await,
        tcp,
        "the same settings give the same one"
    );
    let mut settings = vec![
        ("Name", "tcp"),
        ("Protocol", "TCP"),
        ("VpcId", aws.account.vpc_id.as_str()),
    ];
    settings.push(("Port", "30081"));
    let code = aws.refused(Service::ElbV2, "CreateTargetGroup", &settings).await;
    assert_eq!(code, "DuplicateTargetGroupName");

    let unfit = listener(&balancer, "TCP", "80", &udp);
    assert_eq!(
        aws.refused(Service::ElbV2, "CreateListener", &unfit).await,
        "InvalidConfigurationRequest"
    );
    let made = aws.listener(&balancer, "TCP", "80", &tcp).await;
    assert!(made.child("SslPolicy").is_none(), "a policy is for TLS");
    let second = listener(&balancer, "UDP", "80", &udp);
    let code = aws.refused(Service::ElbV2, "CreateListener", &second).await;
    assert_eq!(code, "DuplicateListener");
    assert_eq!(aws.groups_of(&balancer).await, ["tcp"]);
    let code = aws
        .refused(Service::ElbV2, "DeleteTargetGroup", &[("TargetGroupArn", &tcp)])
        .await;
    assert_eq!(code, "ResourceInUse");
    let arn = made.value("ListenerArn");
    aws.v2("DeleteListener", &[("ListenerArn", arn)]).await;
    assert!(aws.groups_of(&balancer).await.is_empty());
    let named = aws.v2("DescribeTargetGroups", &[("Names.member.1", "tcp")]).await;
    assert!(named.items("LoadBalancerArns").is_empty(), "no listener leads to it");
    aws.v2("DeleteTargetGroup", &[("TargetGroupArn", &tcp)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_becomes_another_by_modification() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let balancer = aws.network_load_balancer().await.value("LoadBalancerArn").to_owned();
    let tcp = aws.group("tcp", "TCP", "30080").await;
    let other = aws.group("other", "TCP", "30081").await;
    let made = aws.listener(&balancer, "TCP", "443", &tcp).await;
    let arn = made.value("ListenerArn");
    let without = modification(arn, "TLS", &tcp);
    assert_eq!(
        aws.refused(Service::ElbV2, "ModifyListener", &without).await,
        "ValidationError"
    );
    let mut tls = modification(arn, "TLS", &other);
    tls.push(("Certificates.member.1.CertificateArn", CERTIFICATE));
    let changed = aws.v2("ModifyListener", &tls).await;
    let changed = &changed.items("Listeners")[0];
    assert_eq!((changed.value("Protocol"), certificate(changed)), ("TLS", CERTIFICATE));
    let live = aws.live(&balancer).await;
    assert_eq!((live[0].value("Protocol"), certificate(&live[0])), ("TLS", CERTIFICATE));
    assert!(live[0].value("SslPolicy").starts_with("ELBSecurityPolicy-"));
    assert_eq!(aws.groups_of(&balancer).await, ["other"]);
    let named = aws.v2("DescribeTargetGroups", &[("Names.member.1", "other")]).await;
    assert_eq!(named.items("LoadBalancerArns")[0].text, balancer);
    aws.v2("DeleteTargetGroup", &[("TargetGroupArn", &tcp)]).await;

    aws.v2("ModifyListener", &modification(arn, "TCP", &other)).await;
    let live = aws.live(&balancer).await;
    assert_eq!((live[0].value("Protocol"), certificate(&live[0])), ("TCP", ""));
    assert!(live[0].child("SslPolicy").is_none());
    let udp = aws.group("udp", "UDP", "30090").await;
    aws.v2("ModifyListener", &modification(arn, "UDP", &udp)).await;
    assert_eq!(aws.live(&balancer).await[0].value("Protocol"), "UDP");
}

#[tokio::test(flavor = "multi_thread")]
async fn target_groups_have_the_attributes_of_instances() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let group = aws.group("tcp", "TCP", "30080").await;
    let change = [
        ("TargetGroupArn", group.as_str()),
        ("Attributes.member.1.Key", "preserve_client_ip.enabled"),
        ("Attributes.member.1.Value", "false"),
    ];
    let own = |answer: &Element| {
        let attributes = answer.items("Attributes").iter();
        let own = attributes
            .filter(|a| ["preserve_client_ip.enabled", "proxy_protocol_v2.enabled"].contains(&a.value("Key")));
        let mut own: Vec<String> = own
            .map(|a| format!("{}={}", a.value("Key"), a.value("Value")))
            .collect();
        own.sort();
        own
    };
    let read = [("TargetGroupArn", group.as_str())];
    let before = aws.v2("DescribeTargetGroupAttributes", &read).await;
    assert_eq!(
        own(&before),
        ["preserve_client_ip.enabled=true", "proxy_protocol_v2.enabled=false"]
    );
    aws.v2("ModifyTargetGroupAttributes", &change).await;
    let after = aws.v2("DescribeTargetGroupAttributes", &read).await;
    assert_eq!(
        own(&after),
        ["preserve_client_ip.enabled=false", "proxy_protocol_v2.enabled=false"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_security_group_in_use_is_not_deleted() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    aws.create_balancer().await;
    let group = [("GroupId", aws.account.security_group_id.as_str())];
    let code = aws.refused(Service::Ec2, "DeleteSecurityGroup", &group).await;
    assert_eq!(code, "DependencyViolation");
    aws.good(Service::Elb, "DeleteLoadBalancer", &[("LoadBalancerName", "a1")])
        .await;
    aws.good(Service::Ec2, "DeleteSecurityGroup", &group).await;
}
