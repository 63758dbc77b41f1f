//! Before a migration: a dry run of our manager beside a real kube-controller-manager 1.26 finds nothing to change in the
//! load balancers that it has made, and each later change of them.
//!
//! `OUTRIGGER_ADOPTION=all` takes all recorded Services (a quarter of an hour); otherwise it is a part of them.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Quotas, Service as AwsService};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_environment::operator::{NEW_MANAGER, OLD_MANAGER};
use outrigger_environment::{CLUSTER, Environment, Progress};
use outrigger_parity::services::{Case, case};
use outrigger_shared::migration::{Adoption, condition};
use serde_json::{Value, json};

const NODES: usize = 2;
const ROLL: Duration = Duration::from_secs(120);
/// One in so many of the recorded Services.
const PART: usize = 4;
/// Services that the manager would change, with the reason why that is right.
const CHANGED: [(&str, &str); 1] = [(
    "network-attributes",
    "kube-controller-manager 1.26 does not know the annotation for attributes of target groups",
)];
/// Of a dry run, with a tenth of AWS's limits.
const DRY_RUN: Duration = Duration::from_secs(900);

/// The Services of the recorded cases that need no further resources at AWS and get a load balancer.
fn services() -> Vec<Value> {
    let cases = case::load(&PathBuf::from("parity/services")).expect("cases");
    let all: Vec<Value> = cases.iter().filter(|case| is_plain(case)).map(manifest).collect();
    let part = match std::env::var("OUTRIGGER_ADOPTION").as_deref() {
        Ok("all") => 1,
        _ => PART,
    };
    all.into_iter().step_by(part).collect()
}

fn is_plain(case: &Case) -> bool {
    let outcome = case.recorded.as_ref().and_then(|outcomes| outcomes.first());
    let has_address = outcome
        .and_then(|outcome| outcome.service.as_ref())
        .is_some_and(|service| !service.ingress.is_empty());
    let is_alone = case.neighbour.is_none() && case.config.is_empty();
    let is_usual = case.aws == case::Aws::default() && case.nodes == case::Nodes::default();
    // A name in angle brackets is that of a resource, and the tag names another cluster.
    let text = case.service.to_string();
    has_address && is_alone && is_usual && !text.contains('<') && !text.contains("kubernetes.io/cluster/")
}

/// With node ports that the API server chooses: those of the cases are the same.
fn manifest(case: &Case) -> Value {
    let mut manifest = case.manifest();
    manifest["apiVersion"] = json!("v1");
    manifest["kind"] = json!("Service");
    manifest["metadata"]["namespace"] = json!("default");
    let spec = manifest["spec"].as_object_mut().expect("a spec");
    spec.remove("healthCheckNodePort");
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        port.as_object_mut().expect("a port").remove("nodePort");
    }
    manifest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_finds_what_was_changed_after_the_in_tree_manager_and_nothing_else() {
    let progress = &Progress::loud();
    let run = RunFolder::new("outrigger-adoption-").expect("a folder for the run");
    let mut environment = Environment::build(run.path(), NODES, &[], progress)
        .await
        .expect("built");
    let names = in_tree(&mut environment, progress).await;
    let listener = Listener::delete(&environment, "web").await;

    install(&mut environment, progress).await;
    let is_there = |name: &&str| names.iter().any(|other| other == name);
    let known: BTreeSet<&str> = CHANGED.iter().map(|(name, _)| *name).filter(is_there).collect();
    let found = adoption(&environment, progress, known.len() + 1).await;
    let changed: BTreeSet<&str> = found.first.iter().map(|change| service_of(&change.object)).collect();
    assert_eq!(changed, &known | &BTreeSet::from(["web"]), "{found:#?}");
    let of_web = found.first.iter().filter(|change| service_of(&change.object) == "web");
    let actions: Vec<&str> = of_web.map(|change| change.action.as_str()).collect();
    assert_eq!(actions, ["CreateLoadBalancerListeners"]);

    listener.create(&environment).await;
    let found = adoption(&environment, progress, known.len()).await;
    assert_eq!(
        (found.services as usize, found.nodes as usize),
        (names.len() + 1, NODES)
    );
    let calls = environment.proxy.calls();
    let of_balancers = calls
        .iter()
        .filter(|call| call.caller.starts_with("outrigger-manager") && call.service != AwsService::Ec2);
    let of_balancers: Vec<_> = of_balancers.collect();
    assert!(of_balancers.len() > names.len());
    let others: Vec<_> = of_balancers.iter().filter(|call| !call.preflight).collect();
    assert!(others.is_empty(), "no part of a dry run: {others:#?}");
    environment.end(Duration::from_secs(10)).await;
}

fn service_of(object: &str) -> &str {
    object.strip_prefix("Service default/").unwrap_or(object)
}

/// Has the old manager make the load balancers. The names of their Services, without `web`.
async fn in_tree(environment: &mut Environment, progress: &Progress) -> Vec<String> {
    environment.proxy.set_limits(false);
    environment.proxy.set_quotas(Quotas {
        rules: 1000,
        ..Quotas::default()
    });
    for index in 0..NODES {
        environment.join_in_tree(index).await.expect("a Node");
    }
    environment
        .deploy_old_manager(&["--concurrent-service-syncs=4"])
        .await
        .expect("deployed");
    let runs = "the old kube-controller-manager runs";
    environment
        .wait_rolled(OLD_MANAGER, runs, ROLL, progress, |_| true)
        .await
        .expect("rolled");
    environment
        .wait_holder(Lease::K, None, ROLL, progress)
        .await
        .expect("leads");

    let services = services();
    let names: Vec<&str> = services
        .iter()
        .filter_map(|service| service["metadata"]["name"].as_str())
        .collect();
    environment
        .create_load_balancer_service("web", 80)
        .await
        .expect("created");
    environment.apply_to_tenant(&services).await.expect("created");
    println!("{} Services: {}", names.len(), names.join(" "));
    let all: Vec<&str> = names.iter().copied().chain(["web"]).collect();
    environment
        .wait_host_names(&all, Duration::from_secs(600), progress)
        .await
        .expect("addresses");

    names.into_iter().map(str::to_owned).collect()
}

async fn install(environment: &mut Environment, progress: &Progress) {
    environment.install_management(progress).await.expect("installed");
    environment.install_tenant(progress).await.expect("installed");
    environment.start_webhook().await.expect("started");
    environment.create_migration().await.expect("created");
    environment.install_manager(1).await.expect("installed");
    let runs = "our manager runs";
    environment
        .wait_rolled(NEW_MANAGER, runs, ROLL, progress, |_| true)
        .await
        .expect("rolled");
}

/// The result of the dry run, once it has so many changes.
async fn adoption(environment: &Environment, progress: &Progress, changes: usize) -> Adoption {
    let found = async || {
        let status = environment.migrations().get(CLUSTER).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let clean = conditions.find(|row| row.type_ == condition::ADOPTION_CLEAN);
        let clean = clean.map_or("", |row| row.status.as_str());
        let expected = if changes == 0 { "True" } else { "False" };
        Ok(match status.adoption {
            Some(found) if found.changes as usize == changes && clean == expected => Ok(found),
            other => Err(format!("AdoptionClean {clean}, {other:#?}")),
        })
    };
    let what = format!("a dry run has found {changes} changes");
    progress
        .wait(&what, DRY_RUN, found)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"))
}

/// The listener of a classic load balancer.
struct Listener {
    balancer: String,
    instance_port: String,
}

impl Listener {
    async fn delete(environment: &Environment, service: &str) -> Self {
        let host = environment.host_name(service).await.expect("read").expect("an address");
        let name = host.split('.').next().expect("a name");
        let named = [("LoadBalancerNames.member.1", name)];
        let all = call(environment, "DescribeLoadBalancers", &named).await;
        let [balancer] = all.items("LoadBalancerDescriptions") else {
            panic!("{all:?}");
        };
        let [listener] = balancer.items("ListenerDescriptions") else {
            panic!("{balancer:?}");
        };
        let this = Self {
            balancer: balancer.value("LoadBalancerName").to_owned(),
            instance_port: listener
                .child("Listener")
                .expect("a listener")
                .value("InstancePort")
                .to_owned(),
        };
        let port = [
            ("LoadBalancerName", this.balancer.as_str()),
            ("LoadBalancerPorts.member.1", "80"),
        ];
        call(environment, "DeleteLoadBalancerListeners", &port).await;
        this
    }

    async fn create(&self, environment: &Environment) {
        let parameters = [
            ("LoadBalancerName", self.balancer.as_str()),
            ("Listeners.member.1.Protocol", "tcp"),
            ("Listeners.member.1.LoadBalancerPort", "80"),
            ("Listeners.member.1.InstanceProtocol", "tcp"),
            ("Listeners.member.1.InstancePort", self.instance_port.as_str()),
        ];
        call(environment, "CreateLoadBalancerListeners", &parameters).await;
    }
}

async fn call(environment: &Environment, action: &str, parameters: &[(&str, &str)]) -> Element {
    let parameters: Parameters = parameters.iter().copied().collect();
    environment
        .moto
        .call(&AwsService::Elb, action, parameters)
        .await
        .expect(action)
}
