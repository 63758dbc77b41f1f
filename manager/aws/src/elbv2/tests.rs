//! The requests that the adapter sends, and the results that it returns for responses.

use aws_credential_types::Credentials;
use aws_sdk_elasticloadbalancingv2::config::{BehaviorVersion, Region};

use super::adapter::SdkElbv2;
use super::*;
use crate::stub::{Asked, no, serve, yes};
use crate::{InstanceId, Kind};

const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:x/1";

async fn elbv2(answers: Vec<(u16, String)>) -> (SdkElbv2, Asked) {
    let (url, asked) = serve(answers).await;
    let config = aws_sdk_elasticloadbalancingv2::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(url)
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .retry_classifier(crate::retry::NotWhenThrottled)
        .build();
    (
        SdkElbv2 {
            client: aws_sdk_elasticloadbalancingv2::Client::from_conf(config),
        },
        asked,
    )
}

/// The parameters of the only call, without its version.
fn sent(asked: &Asked) -> Vec<String> {
    let mut asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let mut form = asked.remove(0);
    form.retain(|pair| pair != "Version=2015-12-01");
    form
}

fn balancer(name: &str, kind: &str) -> String {
    format!(
        "<member><LoadBalancerArn>{ARN}</LoadBalancerArn><LoadBalancerName>{name}</LoadBalancerName><Type>{kind}</Type>\
         <State><Code>provisioning</Code></State><AvailabilityZones><member><SubnetId>subnet-1</SubnetId></member>\
         </AvailabilityZones></member>"
    )
}

fn balancers(inside: &str) -> String {
    format!("<LoadBalancers>{inside}</LoadBalancers>")
}

#[tokio::test]
async fn a_load_balancer_is_made_with_addresses_tags_and_groups_in_one_call() {
    let (elbv2, asked) = elbv2(vec![yes("CreateLoadBalancer", &balancers(&balancer("a1", "network")))]).await;
    let new = NewNetworkLoadBalancer {
        name: "a1".into(),
        internal: true,
        subnets: vec![SubnetMapping {
            subnet_id: "subnet-1".into(),
            private_ipv4_address: Some("10.0.0.9".into()),
            ..SubnetMapping::default()
        }],
        security_groups: vec!["sg-1".into()],
        tags: Tags::from([("k".into(), "v w".into())]),
    };
    let made = elbv2.create_load_balancer(&new).await.unwrap();
    assert_eq!((made.arn.as_str(), made.state.as_deref()), (ARN, Some("provisioning")));
    assert_eq!(made.subnets.len(), 1);
    let wanted = [
        "Action=CreateLoadBalancer",
        "Name=a1",
        "Scheme=internal",
        "SecurityGroups.member.1=sg-1",
        "SubnetMappings.member.1.PrivateIPv4Address=10.0.0.9",
        "SubnetMappings.member.1.SubnetId=subnet-1",
        "Tags.member.1.Key=k",
        "Tags.member.1.Value=v w",
        "Type=network",
    ];
    assert_eq!(sent(&asked), wanted);
}

#[tokio::test]
async fn what_is_left_to_aws_is_not_sent() {
    let (elbv2, asked) = elbv2(vec![yes("CreateLoadBalancer", &balancers(&balancer("a1", "network")))]).await;
    let new = NewNetworkLoadBalancer {
        name: "a1".into(),
        subnets: vec![SubnetMapping {
            subnet_id: "subnet-1".into(),
            allocation_id: Some("eipalloc-1".into()),
            ..SubnetMapping::default()
        }],
        ..NewNetworkLoadBalancer::default()
    };
    elbv2.create_load_balancer(&new).await.unwrap();
    let sent = sent(&asked);
    assert!(
        sent.contains(&"SubnetMappings.member.1.AllocationId=eipalloc-1".to_owned()),
        "{sent:?}"
    );
    assert!(
        !sent
            .iter()
            .any(|pair| pair.starts_with("Scheme") || pair.starts_with("SecurityGroups")),
        "{sent:?}"
    );
}

#[tokio::test]
async fn a_target_group_has_a_path_only_where_its_check_knows_one() {
    let answer = || {
        let group =
            format!("<member><TargetGroupArn>{ARN}</TargetGroupArn><TargetGroupName>k8s-1</TargetGroupName></member>");
        yes("CreateTargetGroup", &format!("<TargetGroups>{group}</TargetGroups>"))
    };
    for (protocol, path) in [("TCP", None), ("HTTP", Some("HealthCheckPath=/healthz"))] {
        let (elbv2, asked) = elbv2(vec![answer()]).await;
        let new = NewTargetGroup {
            name: "k8s-1".into(),
            port: 30_000,
            protocol: "TCP".into(),
            vpc_id: "vpc-1".into(),
            health_check: TargetHealthCheck {
                protocol: protocol.into(),
                port: "traffic-port".into(),
                path: Some("/healthz".into()),
                interval: 30,
                healthy_threshold: 3,
                unhealthy_threshold: 2,
            },
            tags: Tags::new(),
        };
        assert_eq!(elbv2.create_target_group(&new).await.unwrap(), ARN);
        let check = format!("HealthCheckProtocol={protocol}");
        let mut wanted = vec!["Action=CreateTargetGroup", "HealthCheckIntervalSeconds=30"];
        wanted.extend(path);
        wanted.extend([
            "HealthCheckPort=traffic-port",
            &check,
            "HealthyThresholdCount=3",
            "Name=k8s-1",
            "Port=30000",
        ]);
        wanted.extend([
            "Protocol=TCP",
            "Tags=",
            "TargetType=instance",
            "UnhealthyThresholdCount=2",
            "VpcId=vpc-1",
        ]);
        assert_eq!(sent(&asked), wanted);
    }
}

#[tokio::test]
async fn a_listener_is_changed_as_a_whole() {
    let (elbv2, asked) = elbv2(vec![yes("ModifyListener", "")]).await;
    let settings = ListenerSettings {
        port: 443,
        protocol: "TLS".into(),
        target_group_arn: Some("tg-1".into()),
        certificate: Some("cert-1".into()),
        ssl_policy: None,
    };
    elbv2.modify_listener(ARN, &settings).await.unwrap();
    let arn = format!("ListenerArn={ARN}");
    let wanted = [
        "Action=ModifyListener",
        "Certificates.member.1.CertificateArn=cert-1",
        "DefaultActions.member.1.TargetGroupArn=tg-1",
        "DefaultActions.member.1.Type=forward",
        &arn,
        "Port=443",
        "Protocol=TLS",
    ];
    assert_eq!(sent(&asked), wanted);
}

#[tokio::test]
async fn a_name_that_another_type_of_load_balancer_has_is_an_error_that_says_so() {
    let (elbv2, _) = elbv2(vec![yes(
        "DescribeLoadBalancers",
        &balancers(&balancer("a1", "application")),
    )])
    .await;
    let error = elbv2.load_balancers(&["a1".to_owned()]).await.unwrap_err();
    assert!(error.to_string().contains("a1 is of type application"), "{error}");
}

#[tokio::test]
async fn one_unknown_name_does_not_make_the_other_one_unknown() {
    let known = || yes("DescribeLoadBalancers", &balancers(&balancer("a1", "network")));
    let (elbv2, asked) = elbv2(vec![no("LoadBalancerNotFound"), known(), no("LoadBalancerNotFound")]).await;
    let names = ["a1".to_owned(), "a2".to_owned()];
    let found = elbv2.load_balancers(&names).await.unwrap();
    assert_eq!(found.into_iter().map(|lb| lb.name).collect::<Vec<_>>(), ["a1"]);
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn lists_are_read_to_the_last_page() {
    let listener = |port: u32| {
        format!("<member><ListenerArn>{ARN}{port}</ListenerArn><Port>{port}</Port><Protocol>TCP</Protocol></member>")
    };
    let first = format!("<Listeners>{}</Listeners><NextMarker>more</NextMarker>", listener(80));
    let last = format!("<Listeners>{}</Listeners>", listener(81));
    let (elbv2, asked) = elbv2(vec![yes("DescribeListeners", &first), yes("DescribeListeners", &last)]).await;
    let ports: Vec<i32> = elbv2
        .listeners(ARN)
        .await
        .unwrap()
        .iter()
        .map(|l| l.settings.port)
        .collect();
    assert_eq!(ports, [80, 81]);
    assert!(asked.lock().unwrap()[1].contains(&"Marker=more".to_owned()));
}

#[tokio::test]
async fn what_is_gone_already_is_deleted_and_what_is_in_use_is_not() {
    let (gone, _) = elbv2(vec![
        no("ListenerNotFound"),
        no("TargetGroupNotFound"),
        no("LoadBalancerNotFound"),
    ])
    .await;
    gone.delete_listener(ARN).await.unwrap();
    gone.delete_target_group(ARN).await.unwrap();
    gone.delete_load_balancer(ARN).await.unwrap();
    let (used, _) = elbv2(vec![no("ResourceInUse")]).await;
    let error = used.delete_target_group(ARN).await.unwrap_err();
    assert_eq!(error.kind(), Kind::DependencyViolation);
}

#[tokio::test]
async fn targets_are_instances_with_ports_and_draining_ones_say_why() {
    let target = "<Target><Id>i-1</Id><Port>30000</Port></Target><TargetHealth><State>draining</State>\
                  <Reason>Target.DeregistrationInProgress</Reason></TargetHealth>";
    let health = format!("<TargetHealthDescriptions><member>{target}</member></TargetHealthDescriptions>");
    let (elbv2, asked) = elbv2(vec![yes("RegisterTargets", ""), yes("DescribeTargetHealth", &health)]).await;
    let target = Target {
        id: InstanceId::new("i-1"),
        port: 30_000,
    };
    elbv2
        .register_targets(ARN, std::slice::from_ref(&target))
        .await
        .unwrap();
    assert!(asked.lock().unwrap()[0].contains(&"Targets.member.1.Port=30000".to_owned()));
    let seen = elbv2.target_health(ARN).await.unwrap();
    let wanted = TargetHealth {
        target,
        state: Some("draining".into()),
        reason: Some("Target.DeregistrationInProgress".into()),
    };
    assert_eq!(seen, [wanted]);
}

#[tokio::test]
async fn a_throttled_call_is_left_to_whoever_keeps_the_budget() {
    let (elbv2, asked) = elbv2(vec![no("Throttling"), no("Throttling"), no("Throttling")]).await;
    let error = elbv2.target_health(ARN).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
    assert_eq!(asked.lock().unwrap().len(), 1);
}
