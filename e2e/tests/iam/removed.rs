//! Each action of the documented policy is removed in turn: an Event names it.
//!
//! An action of Services is removed while a recorded case runs that calls it. The others are removed one after the other in
//! one cluster whose Nodes, routes and tags need all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use outrigger_aws_sim::Service;
use outrigger_aws_sim::iam::Policy;
use outrigger_aws_sim::iam::roles::{self, Role};
use outrigger_aws_sim::query::Parameters;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_e2e::pod_routes::{self, CLUSTER_CIDR, name, range};
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster};
use outrigger_parity::Subject;
use outrigger_parity::services::{self, Case, Ran};
use serde_json::json;

use super::{SERVICES_OUT_OF, all, cases};

/// Actions of Nodes, routes and tags. The source/destination check comes first: it is on only until it was allowed once.
const IN_A_CLUSTER: [&str; 11] = [
    "ec2:ModifyInstanceAttribute",
    "ec2:CreateRoute",
    "ec2:CreateTags",
    "ec2:DeleteRoute",
    "ec2:DeleteTags",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:ReplaceRoute",
];

/// Actions of Services with a case that calls them, where the record does not tell: cases record writes only, and v1.37
/// makes some that ours does not need there.
const CASES: [(&str, &str); 14] = [
    ("ec2:DescribeSecurityGroups", "classic-default"),
    ("ec2:DescribeSubnets", "classic-default"),
    (
        "elasticloadbalancing:AttachLoadBalancerToSubnets",
        "classic-subnets-more",
    ),
    ("elasticloadbalancing:DescribeListeners", "network-default"),
    ("elasticloadbalancing:DescribeLoadBalancerAttributes", "classic-default"),
    ("elasticloadbalancing:DescribeLoadBalancers", "classic-default"),
    ("elasticloadbalancing:DescribeTags", "classic-default"),
    (
        "elasticloadbalancing:DescribeTargetGroupAttributes",
        "network-attributes",
    ),
    ("elasticloadbalancing:DescribeTargetGroups", "network-default"),
    ("elasticloadbalancing:DescribeTargetHealth", "network-default"),
    (
        "elasticloadbalancing:DetachLoadBalancerFromSubnets",
        "classic-subnets-swapped",
    ),
    ("elasticloadbalancing:ModifyListener", "network-certificate-later"),
    (
        "elasticloadbalancing:ModifyLoadBalancerAttributes",
        "classic-idle-timeout",
    ),
    ("elasticloadbalancing:ModifyTargetGroup", "network-health-unhealthy"),
];

/// Documented actions that nothing here can call, each with the reason.
const NOT_CALLED: [(&str, &str); 2] = [
    (
        "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
        "a denial is no failure: the rule keeps its description",
    ),
    (
        "elasticloadbalancing:SetLoadBalancerListenerSSLCertificate",
        "a denial is no failure: the listener is created again",
    ),
];

/// AWS evaluates tags of a creation as an action of its own, and the answer to CreateSecurityGroup names it.
const TAG_OF_A_NEW_GROUP: (&str, &str) = ("ec2:CreateTags", "classic-health-default");
/// After this no Event comes any more.
const LIMIT: Duration = Duration::from_secs(120);
/// A Node on Fargate, which has a network interface and no instance.
const FARGATE: &str = "fargate-ip-10-0-120-10.ec2.internal";
const FLAGS: [&str; 8] = [
    "--leader-elect=false",
    "--controllers=cloud-node-controller,node-route-controller,tagging-controller",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.200.0.0/16",
    "--route-reconciliation-period=2s",
    "--resources=instance",
    "--tags=key1=value1",
    "--aws-api-budget-share=1",
];

/// A role with the documented actions but this one.
fn role_without(action: &str) -> Role {
    let actions = roles::documented_actions().expect("actions");
    let others = actions.iter().map(String::as_str).filter(|other| *other != action);
    Role {
        name: "documented, but one action",
        policy: Arc::new(Policy::allowing(others)),
        legacy_tags: false,
    }
}

fn bare(action: &str) -> &str {
    action.split_once(':').map_or(action, |(_, bare)| bare)
}

/// Whether a message names the action, and not another whose name begins alike.
fn names(message: &str, action: &str) -> bool {
    let mut words = message.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word == bare(action))
}

fn service_cases() -> Vec<Case> {
    services::case::load(&cases("services")).expect("cases")
}

/// The shortest case that calls an action of Services.
fn case_with<'a>(cases: &'a [Case], action: &str) -> Option<&'a Case> {
    if let Some((_, name)) = CASES.iter().find(|(of, _)| *of == action) {
        return cases.iter().find(|case| case.name == *name);
    }
    let call = format!("{} ", bare(action));
    let writes = |case: &&Case| {
        let outcomes = case.recorded.iter().flatten();
        outcomes
            .flat_map(|outcome| &outcome.writes)
            .any(|write| write.starts_with(&call))
    };
    cases.iter().filter(writes).min_by_key(|case| case.steps.len())
}

/// Documented actions that are removed while a case of Services runs.
fn of_services(cases: &[Case]) -> Vec<(String, &Case)> {
    let actions = roles::documented_actions().expect("actions").into_iter();
    let others = actions.filter(|action| !IN_A_CLUSTER.contains(&action.as_str()));
    others
        .filter_map(|action| case_with(cases, &action).map(|case| (action, case)))
        .collect()
}

#[test]
fn every_documented_action_is_removed_in_a_test_or_listed_with_a_reason() {
    let documented: BTreeSet<String> = roles::documented_actions().expect("actions").into_iter().collect();
    let cases = service_cases();
    let removed = of_services(&cases).into_iter().map(|(action, _)| action);
    let removed: BTreeSet<String> = removed.chain(IN_A_CLUSTER.map(str::to_owned)).collect();
    let not_called: BTreeSet<String> = NOT_CALLED.iter().map(|(action, _)| (*action).to_owned()).collect();

    let forgotten: Vec<&String> = documented
        .iter()
        .filter(|action| !removed.contains(*action) && !not_called.contains(*action))
        .collect();
    assert!(
        forgotten.is_empty(),
        "documented, and removed in no test: {forgotten:?}"
    );
    let unknown: Vec<&String> = removed
        .union(&not_called)
        .filter(|action| !documented.contains(*action))
        .collect();
    assert!(unknown.is_empty(), "not documented: {unknown:?}");
    let both: Vec<&String> = removed.intersection(&not_called).collect();
    assert!(both.is_empty(), "removed in a test, and listed as not called: {both:?}");
    assert!(NOT_CALLED.iter().all(|(_, reason)| !reason.is_empty()));
    assert!(
        CASES.iter().all(|(action, _)| documented.contains(*action)),
        "{CASES:?}"
    );
}

/// Returns what Events say of a case without one action if none names it.
fn silent(action: &str, case: &Case, ran: Ran) -> Option<String> {
    let outcomes = ran.all().unwrap_or_else(|error| panic!("{action}: {error:#}"));
    let events = outcomes.values().flatten().flat_map(|outcome| &outcome.events);
    let messages: Vec<&str> = events.map(|event| event.message.as_str()).collect();
    let named = messages.iter().any(|message| names(message, action));
    (!named).then(|| format!("{action} in {}: {messages:#?}", case.name))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_names_each_action_of_services_that_is_removed() {
    let cases = service_cases();
    let mut removed = of_services(&cases);
    if let Ok(wanted) = std::env::var("OUTRIGGER_IAM_ACTIONS") {
        removed.retain(|(action, _)| wanted.split(',').any(|wanted| wanted == action));
    } else if !all() {
        removed = removed.into_iter().step_by(SERVICES_OUT_OF).collect();
    }
    let (action, name) = TAG_OF_A_NEW_GROUP;
    let case = cases.iter().find(|case| case.name == name).expect("the case");
    removed.push((action.to_owned(), case));

    let folder = RunFolder::new("outrigger-iam-").expect("folder");
    let without = |(action, case): &(String, &Case)| (role_without(action), (*case).clone());
    let of_roles: Vec<_> = removed.iter().map(without).collect();
    let ran = services::run_without_an_action(Subject::Ours, &of_roles, folder.path()).await;
    let ran = ran.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(ran.len(), removed.len());
    let each = removed.iter().zip(ran);
    let silent: Vec<String> = each
        .filter_map(|((action, case), ran)| silent(action, case, ran))
        .collect();
    assert!(silent.is_empty(), "no Event names these:\n{}", silent.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_names_each_action_of_nodes_routes_and_tags_that_is_removed() {
    let cluster = Cluster::start().await;
    let mut silent = Vec::new();
    for action in IN_A_CLUSTER {
        let began = Instant::now();
        if let Err(messages) = cluster.run_without(action).await {
            silent.push(format!("{action}: {messages:#?}"));
        }
        println!("{action}: {:.1} s", began.elapsed().as_secs_f64());
    }
    assert!(silent.is_empty(), "no Event names these:\n{}", silent.join("\n"));
}

/// Nodes 0 to 2 of instances 0 to 2, one of instance 4, and one on Fargate. Instance 3 is terminated.
struct Cluster {
    cluster: SingleCluster,
    nodes: Api<Node>,
    events: Api<Event>,
}

impl Cluster {
    async fn start() -> Self {
        let options = Options {
            name: "outrigger-iam-",
            service_range: "127.92.0.0/16",
            instances: 5,
            global: &["SupportedTopologyInstanceTypePattern = ^t3"],
        };
        let cluster = SingleCluster::start(&options).await.expect("a tenant");
        let gone = [cluster.account.instances[3].id.as_str()];
        cluster
            .account
            .terminate(&cluster.moto, &gone)
            .await
            .expect("terminated");
        cluster.proxy.instances_terminated(&gone);
        Self {
            nodes: Api::all(cluster.client.clone()),
            events: Api::default_namespaced(cluster.client.clone()),
            cluster,
        }
    }

    /// Waits for an Event that names the removed action. Otherwise returns all messages.
    async fn run_without(&self, action: &str) -> Result<(), Vec<String>> {
        self.prepare().await;
        self.cluster.proxy.set_policy(Some(role_without(action).policy));
        let manager = self.cluster.manager(bare(action), &FLAGS).expect("the manager starts");
        let named = self.wait_for_event(action, &manager).await;
        manager.kill().await.expect("killed");
        self.clear().await;
        named
    }

    async fn wait_for_event(&self, action: &str, manager: &Manager) -> Result<(), Vec<String>> {
        let began = Instant::now();
        let mut deleted = false;
        loop {
            manager.alive().expect("the manager runs");
            let messages = self.messages().await;
            if messages.iter().any(|message| names(message, action)) {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(messages);
            }
            // The tags of a Node that leaves are deleted.
            if !deleted && self.is_labelled(2).await {
                let params = DeleteParams::default();
                self.nodes.delete(&name(2), &params).await.expect("deleted");
                deleted = true;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn prepare(&self) {
        for number in 0..3 {
            let instance = &self.cluster.account.instances[number];
            let created = pod_routes::create(&self.nodes, number, instance).await;
            created.expect("a Node");
        }
        self.create_uninitialized("uninitialized", &self.cluster.account.instances[4].provider_id())
            .await;
        let fargate = format!("aws:///us-east-1a/1abc-2def/{FARGATE}");
        self.create_uninitialized(FARGATE, &fargate).await;
        // A blackhole to be replaced, and a route without a Node to be deleted.
        self.create_route(&range(1), 3).await;
        self.create_route(&range(9), 0).await;
    }

    async fn create_uninitialized(&self, name: &str, provider_id: &str) {
        let taint = json!({
            "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule",
        });
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id, "taints": [taint]}});
        let node = serde_json::from_value(node).expect("a Node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
    }

    async fn create_route(&self, range: &str, instance: usize) {
        let account = &self.cluster.account;
        let call = Parameters::from_iter([
            ("RouteTableId", account.route_table_id.as_str()),
            ("DestinationCidrBlock", range),
            ("InstanceId", account.instances[instance].id.as_str()),
        ]);
        let created = self.cluster.moto.call(&Service::Ec2, "CreateRoute", call).await;
        created.expect("a route");
    }

    async fn clear(&self) {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.nodes.delete_collection(&delete, &all).await.expect("no Nodes");
        self.events.delete_collection(&delete, &all).await.expect("no Events");
        let (moto, table) = (&self.cluster.moto, &self.cluster.account.route_table_id);
        for range in pod_routes::to_instances(moto, table).await.expect("routes").keys() {
            pod_routes::delete(moto, table, range).await.expect("deleted");
        }
    }

    async fn messages(&self) -> Vec<String> {
        let events = self.events.list(&ListParams::default()).await.expect("listed");
        events.items.into_iter().filter_map(|event| event.message).collect()
    }

    async fn is_labelled(&self, number: usize) -> bool {
        let node = self.nodes.get_opt(&name(number)).await.expect("read");
        let labels = node.and_then(|node| node.metadata.labels);
        labels.is_some_and(|labels| labels.contains_key("k8s.io/cloud-provider-aws"))
    }
}

#[test]
fn the_flags_have_the_range_of_the_nodes() {
    assert!(FLAGS.contains(&format!("--cluster-cidr={CLUSTER_CIDR}").as_str()));
}
