//! Thirty new load balancers at once, at AWS's rates: of each kind an account may make ten at once, and then one in
//! five seconds. All are created, none is requested too early, and in the order of their Services. An Event names the
//! time that a Service waits, and the time is right. While they wait, a Node that joins becomes a target everywhere
//! within seconds. A changed Service does not wait until a manager that has just started has observed all of them.
//!
//! `OUTRIGGER_NEW_LOAD_BALANCERS=30` makes more of each kind; each that has to wait takes five seconds.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod record;

use std::time::Duration;

use jiff::Timestamp;
use outrigger_aws_sim::{Answer, Call, Instance};
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster, has_address, node_of};
use serde_json::json;
use tokio::time::Instant;

use record::{Kind, New, creations, has_listener, looked_at, promises, registrations};

/// How many of each kind, if not [`USUAL`].
const NEW: &str = "OUTRIGGER_NEW_LOAD_BALANCERS";
const USUAL: usize = 15;
/// So many can be made at once.
const AT_ONCE: usize = 10;
/// AWS's time between two.
const INTERVAL: Duration = Duration::from_secs(5);
/// Much longer than anything takes but the waiting.
const LIMIT: Duration = Duration::from_secs(120);
/// A Node that joins is a target of every load balancer within this, or before the last of those that wait is created.
const SECONDS: Duration = Duration::from_secs(15);
/// A load balancer comes at most so much earlier than was told, in seconds: an Event's time has no fractions of one.
const EARLY: f64 = 2.0;
/// And so much later: its look waits for others, of load balancers that get the Node, and a busy machine runs it late.
const LATE: f64 = 12.0;
/// So many, at least, are still to be looked at after a start when a change that somebody made meanwhile is done.
const WAITING: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn new_load_balancers_come_in_their_turn_and_hold_up_nobody() {
    let count = std::env::var(NEW).map_or(USUAL, |text| text.parse().expect("a number"));
    let options = Options {
        name: "outrigger-creation-line-",
        service_range: "127.82.0.0/16",
        instances: 4,
        // Rules for so many load balancers do not fit into the nodes' security group.
        global: &["DisableSecurityGroupIngress = true"],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    cluster.proxy.set_limits(true);
    let (last, machines) = cluster.account.instances.split_last().expect("instances");
    let mut kubelets = Vec::new();
    for instance in machines {
        kubelets.push(
            Kubelet::start(&cluster.kube_config, node_of(instance))
                .await
                .expect("joins"),
        );
    }
    // Nobody else uses the account. With a part of its reads, a Node that joins keeps all workers for longer.
    let flags = [
        "--leader-elect=false",
        "--controllers=service-lb-controller",
        "--aws-api-budget-share=1",
    ];
    let manager = cluster.manager("manager", &flags).expect("the manager starts");
    let before = create(&cluster, "old", 1).await;
    cluster.served(before.len(), &manager, LIMIT).await.expect("served");

    let began = Instant::now();
    let new = create(&cluster, "new", count).await;
    let waiting = count.saturating_sub(AT_ONCE);
    told(&cluster, &manager, 2).await;
    let joined = Timestamp::now();
    let standing = standing(&cluster, before.iter().chain(&new)).await;
    let kubelet = Kubelet::start(&cluster.kube_config, node_of(last)).await;
    kubelets.push(kubelet.expect("joins"));
    let patience = LIMIT + INTERVAL * u32::try_from(waiting).expect("not many");
    let all = before.len() + new.len();
    cluster.served(all, &manager, patience).await.expect("served");
    println!("{all} load balancers after {:.1?}", began.elapsed());

    let joined_everywhere = |calls: &[Call]| {
        let mut all = before.iter().chain(&new);
        let done = all.all(|new| registrations(calls, new, &last.id).next().is_some());
        done.then_some(())
    };
    let seen = cluster
        .proxy
        .wait_for("the Node as target everywhere", LIMIT, joined_everywhere);
    seen.await.expect("a target");

    let calls = cluster.proxy.calls();
    none_is_asked_for_too_early(&calls, all);
    promises_come_true(&cluster, &calls, &new).await;
    let of_new: Vec<&New> = new.iter().collect();
    let (_, created) = creations(&calls, &of_new).pop().expect("creations");
    everywhere_soon(&calls, &standing, &last.id, (joined, created));
    let all: Vec<&New> = before.iter().chain(&new).collect();
    complete(&calls, &all, &cluster.account.instances);
    manager.stop(LIMIT).await.expect("it ends");
    a_start_holds_up_nobody(&cluster, &all).await;
}

/// A second manager has all these load balancers to look at, with a small part of AWS's reads. A Service that is
/// changed meanwhile does not wait for them.
async fn a_start_holds_up_nobody(cluster: &SingleCluster, all: &[&New]) {
    const SECOND: &str = "second";
    let flags = [
        "--leader-elect=false",
        "--controllers=service-lb-controller",
        "--aws-api-budget-share=0.1",
        "--aws-api-budget-share-limit=0.1",
    ];
    let _manager = cluster.manager(SECOND, &flags).expect("the manager starts");
    let begun = |calls: &[Call]| (looked_at(calls, SECOND, all) > 0).then_some(());
    let begun = cluster.proxy.wait_for("the looks of a start", LIMIT, begun).await;
    begun.expect("it starts");

    let changed = all.first().expect("one");
    let ports = json!([{"name": "http", "port": 80}, {"name": "more", "port": 81}]);
    let patch = json!({"spec": {"ports": ports}});
    cluster.patch_service(&changed.service, &patch).await.expect("patched");
    let written = |calls: &[Call]| has_listener(calls, SECOND, changed).then(|| looked_at(calls, SECOND, all));
    let written = cluster.proxy.wait_for("the listener", LIMIT, written).await;
    let looked_at = written.expect("a listener");
    println!(
        "the changed Service had its listener when {looked_at} of {} were looked at",
        all.len()
    );
    assert!(
        looked_at + WAITING <= all.len(),
        "{looked_at} of {} came before",
        all.len()
    );
}

/// So many of each kind.
async fn create(cluster: &SingleCluster, name: &str, count: usize) -> Vec<New> {
    let mut made = Vec::new();
    for number in 0..count {
        for kind in [Kind::Classic, Kind::Network] {
            // The beginning alone tells them apart in the names of target groups.
            let name = format!("{name}{number:02}-{}", kind.name());
            let ports = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
            let service = cluster.create_service(&name, kind.annotations(), &ports).await;
            made.push(New::of(kind, &service.expect("created")));
        }
    }
    made
}

/// Waits until so many Services have been told that they wait.
async fn told(cluster: &SingleCluster, manager: &Manager, count: usize) {
    let waiting = async || {
        let told = cluster.service_events().await.expect("Events");
        told.iter().filter(|told| told.reason == record::WAITING).count() >= count
    };
    let what = format!("Events of {count} Services that wait");
    manager.until(&what, LIMIT, waiting).await.expect("in time");
}

/// Services with an address.
async fn standing<'a>(cluster: &SingleCluster, all: impl Iterator<Item = &'a New>) -> Vec<&'a New> {
    let services = cluster.list_services().await.expect("listed");
    let addressed: Vec<String> = services
        .into_iter()
        .filter(has_address)
        .filter_map(|service| service.metadata.name)
        .collect();
    let standing: Vec<&New> = all.filter(|new| addressed.contains(&new.service)).collect();
    assert!(standing.len() > 2, "hardly any load balancer stands: {addressed:?}");
    standing
}

fn none_is_asked_for_too_early(calls: &[Call], all: usize) {
    let is_throttled = |call: &&Call| call.outcome.as_ref().is_some_and(|end| end.answer == Answer::Throttle);
    let throttled: Vec<&Call> = calls.iter().filter(is_throttled).collect();
    println!("{} of {} calls were throttled", throttled.len(), calls.len());
    let made: Vec<&Call> = calls
        .iter()
        .filter(|call| call.action == "CreateLoadBalancer")
        .collect();
    assert!(made.iter().all(|call| call.succeeded()), "{made:#?}");
    assert_eq!(made.len(), all, "one call for each");
}

/// Load balancers are created at the times of the Events, and in the order of these times.
async fn promises_come_true(cluster: &SingleCluster, calls: &[Call], new: &[New]) {
    let told = cluster.service_events().await.expect("Events");
    for kind in [Kind::Classic, Kind::Network] {
        let of_kind: Vec<&New> = new.iter().filter(|new| new.kind == kind).collect();
        let mut promises = promises(&told, &of_kind);
        let creations = creations(calls, &of_kind);
        assert_eq!(creations.len(), of_kind.len());
        promises.sort_by(|a, b| a.at.total_cmp(&b.at));
        let promised: Vec<&String> = promises.iter().map(|promise| &promise.service).collect();
        for promise in &promises {
            let (_, at) = creations
                .iter()
                .find(|(service, _)| *service == promise.service)
                .expect("it was made");
            let late = at - promise.at;
            println!(
                "{}: {} came first, expected after {} s, {late:+.1} s off",
                promise.service, promise.ahead, promise.wait
            );
            assert!((-EARLY..LATE).contains(&late), "{promise:?}: {late:+.1} s off");
        }
        no_long_wait_is_untold(&of_kind, &creations, &promised);
        let made = creations.iter().map(|(service, _)| service);
        let order: Vec<&String> = made.filter(|service| promised.contains(service)).collect();
        assert_eq!(order, promised, "in the order of their turn");
    }
}

/// A Service without an Event did not wait longer than until the next creation. How many there are depends on the machine:
/// AWS allows one more in each interval in which the first ones are created.
fn no_long_wait_is_untold(of_kind: &[&New], creations: &[(String, f64)], promised: &[&String]) {
    for (service, at) in creations.iter().filter(|(service, _)| !promised.contains(&service)) {
        let new = of_kind.iter().find(|new| new.service == *service).expect("one of them");
        let waited = at - new.created;
        let most = INTERVAL.as_secs_f64() + LATE;
        assert!(waited < most, "{service} waited {waited:.1} s, and no Event says so");
    }
}

/// The Node became a target of each load balancer that stood when it joined, while others waited for their creation. The
/// last creation was requested at `created`, in seconds since 1970.
fn everywhere_soon(calls: &[Call], standing: &[&New], instance: &str, (joined, created): (Timestamp, f64)) {
    let mut slowest = Duration::ZERO;
    for new in standing {
        let at = registrations(calls, new, instance).next();
        let at = at.unwrap_or_else(|| panic!("{} never got the Node", new.service));
        let after = at.at.duration_since(joined).unsigned_abs();
        let is_before_others = at.at.as_duration().as_secs_f64() < created;
        assert!(
            after < SECONDS || is_before_others,
            "{} got the Node after {after:.1?}",
            new.service
        );
        slowest = slowest.max(after);
    }
    println!("the Node was a target of {} after {slowest:.1?}", standing.len());
}

/// Every instance became a target of every load balancer, and none was taken out.
fn complete(calls: &[Call], all: &[&New], instances: &[Instance]) {
    for new in all {
        for instance in instances {
            let registered = registrations(calls, new, &instance.id).next().is_some();
            assert!(registered, "{} never got {}", new.service, instance.id);
        }
    }
    let gone: Vec<&Call> = calls
        .iter()
        .filter(|call| call.action.starts_with("Deregister"))
        .collect();
    assert!(gone.is_empty(), "{gone:#?}");
}
