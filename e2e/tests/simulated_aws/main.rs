//! The proxy in front of a real moto: what it records, limits, injects and corrects.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod iam;
mod network;

use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response};
use outrigger_aws_sim::query::{Parameters, Query};
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Answer, Caller, Fault, Moto, Proxy, SeededAccount, Service, When};
use outrigger_cluster_harness::loopback::LoopbackClient;
use outrigger_cluster_harness::tools::{Tool, Tools};

const SOON: Duration = Duration::from_secs(20);

/// A moto with a seeded account, a proxy, and one caller.
struct Simulation {
    moto: Moto,
    proxy: Proxy,
    account: SeededAccount,
    caller: Caller,
    client: LoopbackClient,
}

impl Simulation {
    async fn start(run: &Path) -> Self {
        let tools = Tools::load(&[Tool::MotoPython]).await.expect("moto");
        let moto = Moto::start(&tools, run).await.expect("moto starts");
        let account = SeededAccount::seed(&moto, "prod", 3).await.expect("seeded");
        let caller = Caller::new("tester");
        let proxy = Proxy::start(&moto, std::slice::from_ref(&caller), Some(&run.join("aws.jsonl")))
            .await
            .expect("starts");
        Self {
            moto,
            proxy,
            account,
            caller,
            client: LoopbackClient::default(),
        }
    }

    async fn call(
        &self,
        service: Service,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Option<Response<bytes::Bytes>> {
        let query = Query {
            action: action.to_owned(),
            version: service.api_version().to_owned(),
            parameters: Parameters::from_iter(parameters.iter().copied()),
        };
        let credential = format!(
            "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/{}/aws4_request, SignedHeaders=host, Signature=0",
            self.caller.access_key_id,
            service.scope()
        );
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_str(&credential).expect("a header"));
        headers.insert("user-agent", HeaderValue::from_static("test/1"));
        self.client
            .post(self.proxy.url(), headers, query.encode().into())
            .await
            .ok()
    }

    /// Calls until AWS throttles: a slow machine sends some calls after a token is there again.
    async fn throttled(&self, service: Service, action: &str, parameters: &[(&str, &str)]) -> Response<bytes::Bytes> {
        for _ in 0..30 {
            let answer = self.call(service.clone(), action, parameters).await.expect("answered");
            let last = self.proxy.calls().pop().and_then(|call| call.outcome);
            if last.is_some_and(|outcome| outcome.answer == Answer::Throttle) {
                return answer;
            }
        }
        panic!("{action} is never throttled");
    }

    async fn good(&self, service: Service, action: &str, parameters: &[(&str, &str)]) -> Element {
        let response = self.call(service, action, parameters).await.expect("answered");
        let body = String::from_utf8_lossy(response.body()).into_owned();
        assert!(response.status().is_success(), "{action}: {body}");
        Element::parse(&body).expect("XML")
    }

    async fn create_balancer(&self) {
        let listeners = [
            ("LoadBalancerName", "a1"),
            ("Subnets.member.1", self.account.subnets[0].id.as_str()),
            ("SecurityGroups.member.1", &self.account.security_group_id),
            ("Listeners.member.1.Protocol", "SSL"),
            ("Listeners.member.1.LoadBalancerPort", "443"),
            ("Listeners.member.1.InstanceProtocol", "tcp"),
            ("Listeners.member.1.InstancePort", "30443"),
            ("Listeners.member.2.Protocol", "TCP"),
            ("Listeners.member.2.LoadBalancerPort", "80"),
            ("Listeners.member.2.InstancePort", "30080"),
            ("Listeners.member.3.Protocol", "TCP"),
            ("Listeners.member.3.LoadBalancerPort", "81"),
            ("Listeners.member.3.InstancePort", "30081"),
        ];
        self.good(Service::Elb, "CreateLoadBalancer", &listeners).await;
    }

    async fn balancer(&self) -> Element {
        let answer = self.good(Service::Elb, "DescribeLoadBalancers", &[]).await;
        answer
            .items("LoadBalancerDescriptions")
            .first()
            .expect("a load balancer")
            .clone()
    }
}

fn ports(balancer: &Element) -> Vec<&str> {
    let listeners = balancer.items("ListenerDescriptions").iter();
    listeners
        .filter_map(|member| member.child("Listener"))
        .map(|listener| listener.value("LoadBalancerPort"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seeded_account_is_what_the_in_tree_provider_needs_and_calls_are_recorded() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    assert_eq!(aws.account.instances.len(), 3);
    assert_ne!(aws.account.subnets[0].zone, aws.account.subnets[1].zone);
    let first = &aws.account.instances[0];
    assert!(
        first.private_dns_name.ends_with(".ec2.internal") && first.private_ip.starts_with("172."),
        "{first:?}"
    );
    let filter = [
        ("Filter.1.Name", "tag:kubernetes.io/cluster/prod"),
        ("Filter.1.Value.1", "owned"),
    ];
    let answer = aws.good(Service::Ec2, "DescribeInstances", &filter).await;
    assert_eq!(
        answer
            .items("reservationSet")
            .iter()
            .map(|item| item.items("instancesSet").len())
            .sum::<usize>(),
        3
    );
    assert!(
        aws.call(
            Service::Ec2,
            "TerminateInstances",
            &[("InstanceId.1", "i-0123456789abcdef0")]
        )
        .await
        .is_some()
    );
    let calls = aws.proxy.calls();
    assert_eq!(calls.len(), 2, "the harness's own calls are not recorded");
    assert_eq!(
        (calls[0].caller.as_str(), calls[0].user_agent.as_str()),
        ("tester", "test/1")
    );
    assert!(calls[0].succeeded() && !calls[0].is_write());
    let outcome = calls[1].outcome.clone().expect("ended");
    assert_eq!(
        (outcome.status, outcome.error_code.as_deref()),
        (Some(400), Some("InvalidInstanceID.NotFound"))
    );
    assert!(calls[1].is_write() && calls[1].offset > calls[0].offset);
    let file = std::fs::read_to_string(run.path().join("aws.jsonl")).expect("a record");
    let lines: Vec<serde_json::Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        lines[0]["parameters"]["Filter.1.Name"],
        "tag:kubernetes.io/cluster/prod"
    );
    assert_eq!(lines[1]["outcome"]["error_code"], "InvalidInstanceID.NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moto_gets_wrong_is_put_right() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let topology = aws.good(Service::Ec2, "DescribeInstanceTopology", &[]).await;
    assert_eq!(topology.child("instanceSet").map(|set| set.children.len()), Some(0));
    let attached = [("Filter.1.Name", "attachment.status"), ("Filter.1.Value.1", "attached")];
    let interfaces = aws.good(Service::Ec2, "DescribeNetworkInterfaces", &attached).await;
    assert_eq!(
        interfaces.items("networkInterfaceSet").len(),
        3,
        "one for each instance"
    );
    let detached = [("Filter.1.Name", "attachment.status"), ("Filter.1.Value.1", "detached")];
    let interfaces = aws.good(Service::Ec2, "DescribeNetworkInterfaces", &detached).await;
    assert!(interfaces.items("networkInterfaceSet").is_empty());

    aws.create_balancer().await;
    let balancer = aws.balancer().await;
    assert_eq!(
        balancer
            .at(&["HealthCheck", "Target"])
            .map(|target| target.text.as_str()),
        Some("TCP:30443")
    );
    let first = balancer.items("ListenerDescriptions")[0]
        .child("Listener")
        .expect("a listener")
        .clone();
    assert_eq!(
        (first.value("Protocol"), first.value("InstanceProtocol")),
        ("SSL", "TCP")
    );
    let two = [
        ("LoadBalancerName", "a1"),
        ("LoadBalancerPorts.member.1", "80"),
        ("LoadBalancerPorts.member.2", "81"),
    ];
    aws.good(Service::Elb, "DeleteLoadBalancerListeners", &two).await;
    assert_eq!(ports(&aws.balancer().await), ["443"]);
    assert_eq!(
        aws.proxy.counts()[&("tester".to_owned(), "DeleteLoadBalancerListeners".to_owned())],
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_limited_when_asked_for_and_refusals_look_like_aws() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    aws.proxy.set_limits(true);
    aws.good(Service::Ec2, "DescribeInstanceTopology", &[]).await;
    let refused = aws.throttled(Service::Ec2, "DescribeInstanceTopology", &[]).await;
    assert_eq!(refused.status(), 503);
    let body = Element::parse(&String::from_utf8_lossy(refused.body())).expect("XML");
    assert_eq!(
        body.at(&["Errors", "Error", "Code"]).map(|code| code.text.as_str()),
        Some("RequestLimitExceeded")
    );
    let last = aws.proxy.calls().pop().and_then(|call| call.outcome);
    assert_eq!(last.map(|outcome| outcome.answer), Some(Answer::Throttle));

    for _ in 0..10 {
        let answer = aws
            .call(Service::Elb, "CreateLoadBalancer", &[("LoadBalancerName", "x")])
            .await
            .expect("answered");
        assert!(
            !String::from_utf8_lossy(answer.body()).contains("Throttling"),
            "within the burst"
        );
    }
    let refused = aws
        .throttled(Service::Elb, "CreateLoadBalancer", &[("LoadBalancerName", "x")])
        .await;
    let body = Element::parse(&String::from_utf8_lossy(refused.body())).expect("XML");
    assert_eq!(refused.status(), 400);
    assert_eq!(
        body.at(&["Error", "Code"]).map(|code| code.text.as_str()),
        Some("Throttling")
    );
    aws.proxy.set_limits(false);
    aws.good(Service::Ec2, "DescribeInstanceTopology", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_held_after_forwarding_has_happened_although_its_caller_is_gone() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let fault = aws.proxy.add_fault(
        Fault::on("CreateLoadBalancer")
            .hold(When::AfterForwarding)
            .by("tester")
            .times(1),
    );
    tokio::select! {
        _ = aws.create_balancer() => panic!("an answer while it is held"),
        reached = fault.reached(1, SOON) => assert!(reached),
    }
    assert_eq!(aws.balancer().await.value("LoadBalancerName"), "a1");
    assert!(aws.proxy.calls()[0].outcome.is_none(), "still under way");
    fault.release();
    let ended = aws
        .proxy
        .wait_for("end of the held call", SOON, |calls| calls[0].outcome.clone())
        .await
        .expect("ends");
    assert_eq!((ended.status, ended.forwarded), (Some(200), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_held_before_forwarding_and_discarded_never_happened() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let fault = aws
        .proxy
        .add_fault(Fault::on("CreateSecurityGroup").hold(When::BeforeForwarding));
    let parameters = [
        ("GroupName", "g"),
        ("GroupDescription", "d"),
        ("VpcId", aws.account.vpc_id.as_str()),
    ];
    let (answer, ()) = tokio::join!(aws.call(Service::Ec2, "CreateSecurityGroup", &parameters), async {
        assert!(fault.reached(1, SOON).await);
        fault.discard();
    });
    assert!(answer.is_none(), "the connection was dropped");
    let call = aws.proxy.calls().remove(0);
    let outcome = call.outcome.expect("ended");
    assert_eq!(
        (outcome.status, outcome.forwarded, outcome.answer),
        (None, false, Answer::Fault)
    );
    let filter = Parameters::from_iter([("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "g")]);
    let groups = aws
        .moto
        .call(&Service::Ec2, "DescribeSecurityGroups", filter)
        .await
        .expect("answered");
    assert!(groups.items("securityGroupInfo").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_latency_and_dropped_answers_are_injected_and_end_with_their_handle() {
    let run = tempfile::tempdir().expect("folder");
    let aws = Simulation::start(run.path()).await;
    let fault = aws
        .proxy
        .add_fault(Fault::on("DescribeVpcs").error(503, "Unavailable").times(1));
    let answer = aws.call(Service::Ec2, "DescribeVpcs", &[]).await.expect("answered");
    assert_eq!(answer.status(), 503);
    aws.good(Service::Ec2, "DescribeVpcs", &[]).await;
    assert_eq!(fault.hits(), 1);
    drop(fault);

    let slow = aws
        .proxy
        .add_fault(Fault::on("DescribeVpcs").latency(Duration::from_millis(400)));
    aws.good(Service::Ec2, "DescribeVpcs", &[]).await;
    drop(slow);
    let last = aws.proxy.calls().pop().and_then(|call| call.outcome).expect("ended");
    assert!(last.duration >= Duration::from_millis(400), "{last:?}");

    let lost = aws
        .proxy
        .add_fault(Fault::on("CreateLoadBalancer").drop_connection(When::AfterForwarding));
    let parameters = [
        ("LoadBalancerName", "b1"),
        ("Listeners.member.1.Protocol", "TCP"),
        ("Listeners.member.1.LoadBalancerPort", "80"),
        ("Listeners.member.1.InstancePort", "80"),
        ("Subnets.member.1", aws.account.subnets[0].id.as_str()),
    ];
    assert!(
        aws.call(Service::Elb, "CreateLoadBalancer", &parameters)
            .await
            .is_none()
    );
    drop(lost);
    assert_eq!(
        aws.balancer().await.value("LoadBalancerName"),
        "b1",
        "the answer was lost, the load balancer is there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_can_be_added_stopped_and_terminated() {
    let run = tempfile::tempdir().expect("folder");
    let mut aws = Simulation::start(run.path()).await;
    let added = aws.account.add_instances(&aws.moto, 3).await.expect("added");
    assert_eq!((added.len(), aws.account.instances.len()), (3, 6));
    aws.account
        .terminate(&aws.moto, &[&added[0].id])
        .await
        .expect("terminated");
    aws.account.stop(&aws.moto, &[&added[1].id]).await.expect("stopped");
    for (instance, state) in [
        (&added[0], "terminated"),
        (&added[1], "stopped"),
        (&added[2], "running"),
    ] {
        let answer = aws
            .good(Service::Ec2, "DescribeInstances", &[("InstanceId.1", &instance.id)])
            .await;
        let found = answer.find("instanceState").map(|found| found.value("name").to_owned());
        assert_eq!(found.as_deref(), Some(state));
    }
    assert!(added[0].provider_id().starts_with("aws:///us-east-1"));
}
