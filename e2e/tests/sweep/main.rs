//! Orphaned resources of two Services that lost their finalizer while no manager ran. A manager names all of them in
//! its log and its metric, and deletes nothing. One with deletion enabled deletes them after two searches found them. A
//! resource stays if it has a Service or may belong to another cluster, also to one with the same ID.
//!
//! A minute is the shortest time between two searches, so that this takes two.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::Api;
use kube::api::DeleteParams;
use outrigger_aws_sim::{Call, Fault, Service as AwsService, When};
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_cluster_harness::process::free_port;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster, differences, node_of};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Much longer than anything takes here but waiting for a search.
const LIMIT: Duration = Duration::from_secs(90);
const PERIOD: Duration = Duration::from_secs(60);
const ONLY_SERVICES: [&str; 2] = ["--leader-elect=false", "--controllers=service-lb-controller"];
/// Nobody writes to AWS for so long: what was to be made is made.
const QUIET: Duration = Duration::from_secs(2);

/// Something that is left over, as the log tells it: kind, ID, and what it was made for.
type Leftovers = BTreeSet<(String, String, String)>;

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_told_and_go_only_where_that_is_asked_for_and_after_two_searches() {
    let options = Options {
        name: "outrigger-sweep-",
        service_range: "127.83.0.0/16",
        instances: 3,
        global: &["NLBSecurityGroupMode = Managed"],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    let mut kubelets = Vec::new();
    for instance in &cluster.account.instances {
        kubelets.push(
            Kubelet::start(&cluster.kube_config, node_of(instance))
                .await
                .expect("joins"),
        );
    }
    let maker = cluster.manager("maker", &ONLY_SERVICES).expect("the manager starts");
    make(&cluster, &maker, ["here-classic", "here-network"], 31080).await;
    others::make(&cluster, "default/here-classic").await;
    let used = others::make_of_same_id(&cluster).await;
    let kept = cluster.read_account(&[]).await.expect("an account");
    make(&cluster, &maker, ["gone-classic", "gone-network"], 31090).await;
    maker.kill().await.expect("killed");
    created_with_uid(&cluster).await;
    let mut expected = expected(&cluster).await;
    expected.insert(("classic-load-balancer".into(), used.name.clone(), others::GONE.into()));
    for name in ["gone-classic", "gone-network"] {
        remove_by_force(&cluster, name).await;
    }
    let full = cluster.read_account(&[]).await.expect("an account");
    assert_ne!(full, kept, "nothing is left over");

    let port = free_port().expect("a port");
    let reporter = sweeper(&cluster, "reporter", "report", port);
    let deleter = sweeper(&cluster, "deleter", "delete", 0);
    let begin = cluster.proxy.mark();
    searched(&cluster, &reporter, 1).await;
    told(&reporter, port, &expected).await;
    searched(&cluster, &deleter, 1).await;
    logs_why_it_keeps(&deleter, &used).await;
    // The second search of the deleter waits until everything is compared.
    let second = Fault::on("DescribeLoadBalancers").hold(When::BeforeForwarding);
    let second = cluster.proxy.add_fault(second.by(deleter.name()));
    sleep(QUIET).await;
    unwritten(&cluster, begin);
    searched(&cluster, &reporter, 2).await;
    told(&reporter, port, &expected).await;
    unwritten(&cluster, begin);
    assert_eq!(
        differences(&full, &cluster.read_account(&[]).await.expect("an account")),
        [""; 0]
    );
    drop(second);
    searched(&cluster, &deleter, 2).await;
    deleted(&cluster, &deleter, &kept).await;
    let writes = writes_since(&cluster, begin);
    let lines: Vec<String> = writes.iter().map(ToString::to_string).collect();
    println!("{lines:#?}");
    assert!(writes.iter().all(|call| call.caller == deleter.name()), "{lines:#?}");
    assert_eq!(by_action(&writes), expected_writes());
}

/// New load balancers have the UID of the cluster in a tag.
async fn created_with_uid(cluster: &SingleCluster) {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let uid = namespaces.get("kube-system").await.expect("readable").metadata.uid;
    let services = cluster.list_services().await.expect("listed");
    let of_service = services
        .iter()
        .find(|service| service.metadata.name.as_deref() == Some("here-classic"));
    let of_service = of_service
        .and_then(|service| service.metadata.uid.as_deref())
        .expect("a UID");
    let name = format!("a{}", &of_service.replace('-', "")[..31]);
    assert!(uid.is_some());
    assert_eq!(others::uid_of(cluster, &name).await, uid);
}

/// Waits until a manager has logged why it keeps the load balancer of the other cluster.
async fn logs_why_it_keeps(manager: &Manager, used: &others::Used) {
    let reason = async || {
        let log = manager.log().expect("a log");
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut about = lines.filter(|line| line["id"] == *used.name);
        about.find_map(|line| Some(line["verdict"].as_str()?.to_owned()))
    };
    let reason = manager.until("reason", LIMIT, reason).await.expect("a reason");
    assert!(
        reason.starts_with("kept: ") && reason.contains(&used.instance),
        "{reason}"
    );
}

/// A classic and a network load balancer.
async fn make(cluster: &SingleCluster, manager: &Manager, [classic, network]: [&str; 2], node_port: u16) {
    let mark = cluster.proxy.mark();
    let ports = |node_port: u16| json!({"ports": [{"port": 80, "nodePort": node_port, "protocol": "TCP"}]});
    let before = cluster.list_services().await.expect("listed").len();
    let created = cluster.create_service(classic, &[], &ports(node_port)).await;
    created.expect("created");
    let created = cluster
        .create_service(network, &[("type", "nlb")], &ports(node_port + 1))
        .await;
    created.expect("created");
    cluster.served(before + 2, manager, LIMIT).await.expect("served");
    let quiet = cluster.silence(manager, mark, (QUIET, LIMIT), Call::is_write).await;
    quiet.expect("it rests");
}

/// Deletes a Service, and takes away the finalizer that would hold it until its load balancer is gone.
async fn remove_by_force(cluster: &SingleCluster, name: &str) {
    let services = Api::<Service>::default_namespaced(cluster.client.clone());
    let deleted = services.delete(name, &DeleteParams::default()).await;
    let held = deleted.expect("deleted").left().expect("it is held");
    assert!(held.metadata.finalizers.is_some_and(|all| all.len() == 1));
    let patch = json!({"metadata": {"finalizers": null}});
    cluster.patch_service(name, &patch).await.expect("forced");
    assert!(services.get_opt(name).await.expect("readable").is_none());
}

fn sweeper(cluster: &SingleCluster, name: &str, mode: &str, port: u16) -> Manager {
    let (mode, port) = (format!("--load-balancer-sweep={mode}"), format!("--secure-port={port}"));
    let mut flags = ONLY_SERVICES.to_vec();
    flags.extend([
        mode.as_str(),
        "--load-balancer-sweep-period=1m",
        "--logging-format=json",
        "--bind-address=127.0.0.1",
        "--authorization-always-allow-paths=/metrics",
        port.as_str(),
    ]);
    cluster.manager(name, &flags).expect("the manager starts")
}

/// The resources that a search has to find.
async fn expected(cluster: &SingleCluster) -> Leftovers {
    let mut all = Leftovers::new();
    let mut add = |kind: &str, id: &str, of: &str| all.insert((kind.to_owned(), id.to_owned(), of.to_owned()));
    let services = cluster.list_services().await.expect("listed");
    let uid = |name: &str| {
        let service = services
            .iter()
            .find(|service| service.metadata.name.as_deref() == Some(name));
        service.and_then(|service| service.metadata.uid.clone()).expect("a UID")
    };
    let (of_classic, of_network) = ("default/gone-classic", "default/gone-network");
    let name = |uid: String| format!("a{}", &uid.replace('-', "")[..31]);
    let (classic, network) = (name(uid("gone-classic")), name(uid("gone-network")));
    add("classic-load-balancer", &classic, of_classic);
    let balancers = others::ask(cluster, AwsService::ElbV2, "DescribeLoadBalancers", Vec::new()).await;
    for item in balancers.items("LoadBalancers") {
        if item.value("LoadBalancerName") == network {
            add("network-load-balancer", item.value("LoadBalancerArn"), of_network);
        }
    }
    let groups = others::ask(cluster, AwsService::ElbV2, "DescribeTargetGroups", Vec::new()).await;
    for item in groups.items("TargetGroups") {
        if item.value("TargetGroupName").starts_with("k8s-default-gonenetw-") {
            add("target-group", item.value("TargetGroupArn"), of_network);
        }
    }
    let rule = format!(
        "{} kubernetes.io/rule/nlb/client={network}",
        cluster.account.security_group_id
    );
    add("security-group-rule", &rule, &network);
    let groups = others::ask(cluster, AwsService::Ec2, "DescribeSecurityGroups", Vec::new()).await;
    for item in groups.items("securityGroupInfo") {
        match item.value("groupName") {
            name if name == format!("k8s-elb-{classic}") => add("security-group", item.value("groupId"), of_classic),
            name if name.starts_with("k8s-default-gonenetw-") => add("security-group", item.value("groupId"), name),
            _ => false,
        };
    }
    assert_eq!(all.len(), 6, "{all:#?}");
    all
}

/// Waits until a manager has ended its `nth` search.
async fn searched(cluster: &SingleCluster, manager: &Manager, nth: usize) {
    let look = |calls: &[Call]| {
        let own = calls.iter().filter(|call| call.caller == manager.name());
        (ended_searches(own) >= nth).then_some(())
    };
    let what = format!("search {nth} of {}", manager.name());
    let seen = cluster.proxy.wait_for(&what, PERIOD + LIMIT, look).await;
    seen.unwrap_or_else(|error| panic!("{error}\n{}", manager.log_tail()));
    manager.alive().expect("it runs");
}

/// A search begins with all load balancers, which nothing else lists, and ends with all security groups of the VPC.
fn ended_searches<'a>(own: impl Iterator<Item = &'a Call>) -> usize {
    let (mut ended, mut under_way) = (0, false);
    for call in own {
        match call.action.as_str() {
            "DescribeLoadBalancers" if call.service == AwsService::Elb => {
                under_way |= call.parameters.list("LoadBalancerNames.member").is_empty();
            }
            "DescribeSecurityGroups" if under_way && call.outcome.is_some() => {
                let ends = matches!(&call.parameters.filters()[..], [("vpc-id", _)]);
                ended += usize::from(ends);
                under_way = !ends;
            }
            _ => {}
        }
    }
    ended
}

/// Waits until log and metric name all that is expected, and checks that they name nothing else, and each once.
async fn told(manager: &Manager, port: u16, expected: &Leftovers) {
    let all = async || told_in_log(manager).len() >= expected.len();
    manager.until("log lines for all", LIMIT, all).await.expect("in time");
    let lines = told_in_log(manager);
    let distinct: Leftovers = lines.iter().cloned().collect();
    assert_eq!((&distinct, lines.len()), (expected, expected.len()));
    let mut counts = BTreeMap::new();
    for (kind, ..) in expected {
        *counts.entry(kind.clone()).or_insert(0_u32) += 1;
    }
    let counted = async || match metric(port).await {
        metric if metric == counts => Ok(()),
        metric => Err(format!("{metric:?}")),
    };
    manager
        .until("values of the metric", LIMIT, counted)
        .await
        .expect("in time");
}

fn told_in_log(manager: &Manager) -> Vec<(String, String, String)> {
    let log = manager.log().expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let about = lines.filter(|line| line["msg"] == "found orphaned AWS resource: its Service does not exist");
    let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    about
        .map(|line| (text(&line, "kind"), text(&line, "id"), text(&line, "of")))
        .collect()
}

/// The metric's values by kind.
async fn metric(port: u16) -> BTreeMap<String, u32> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().expect("a URL"));
    config.accept_invalid_certs = true; // the manager has signed its own
    let client = kube::Client::try_from(config).expect("a client");
    let request = Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("metrics");
    let values = text.lines().filter_map(|line| {
        let (kind, value) = line
            .strip_prefix("outrigger_load_balancer_leftovers{kind=\"")?
            .split_once("\"} ")?;
        Some((kind.to_owned(), value.parse().expect("a number")))
    });
    values.collect()
}

/// Waits until everything that was left over is gone, and nothing else.
async fn deleted(cluster: &SingleCluster, deleter: &Manager, kept: &Value) {
    let deleted = async || {
        let account = cluster.read_account(&[]).await.expect("an account");
        match differences(kept, &account) {
            open if open.is_empty() => Ok(()),
            open => Err(format!("{open:#?}")),
        }
    };
    deleter
        .until("end of the deletions", LIMIT, deleted)
        .await
        .expect("in time");
}

fn unwritten(cluster: &SingleCluster, mark: u64) {
    let writes = writes_since(cluster, mark);
    let lines: Vec<String> = writes.iter().map(ToString::to_string).collect();
    assert_eq!(lines, [""; 0]);
}

fn writes_since(cluster: &SingleCluster, mark: u64) -> Vec<Call> {
    let calls = cluster.proxy.calls_since(mark).into_iter();
    calls.filter(Call::is_write).collect()
}

fn by_action(calls: &[Call]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.action.as_str()).or_default() += 1;
    }
    counts
}

/// One rule names the load balancer, one the classic one's security group.
fn expected_writes() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("DeleteLoadBalancer", 2),
        ("DeleteTargetGroup", 1),
        ("RevokeSecurityGroupIngress", 2),
        ("DeleteSecurityGroup", 2),
    ])
}
