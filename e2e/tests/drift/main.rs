//! Somebody changes load balancers at AWS by hand. With a short `--load-balancer-resync-period` each change is put
//! right, by one write and with one Event; with the period 0 nothing comes back until the Service is touched, and then
//! all of it. Where nothing was changed, nothing is written.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod damage;

use std::time::Duration;

use outrigger_aws_sim::Call;
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_e2e::single_cluster::{Manager, Options, ServiceEvent, SingleCluster, differences, node_of};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use damage::Damage;

/// Much longer than anything takes here.
const LIMIT: Duration = Duration::from_secs(90);
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_FLAG: &str = "--load-balancer-resync-period=1s";
/// Two periods, with what may be added to each.
const TWO_PERIODS: Duration = Duration::from_millis(2400);
/// A manager that reads nothing for so long has ended its first reads. A busy machine does not run it for seconds.
const FIRST_READS: Duration = Duration::from_secs(8);
/// The first node port of the network load balancer's Service.
const NODE_PORT: u16 = 31090;
const NAMES: [&str; 2] = ["classic", "network"];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_by_hand_comes_back_in_time_or_when_the_service_is_touched() {
    let options = Options {
        name: "outrigger-drift-",
        service_range: "127.84.0.0/16",
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
    create(&cluster).await;
    let first = start(&cluster, "manager-1", PERIOD_FLAG);
    ensured(&cluster, &first).await;
    let whole = settled(&cluster, &first).await;
    repaired_in_time(&cluster, &first, &whole).await;
    first.kill().await.expect("killed");

    let second = start(&cluster, "manager-2", "--load-balancer-resync-period=0");
    repaired_when_touched(&cluster, &second, &whole).await;
}

async fn create(cluster: &SingleCluster) {
    let ports = |first: u16| {
        json!({"ports": [
            {"name": "a", "port": 80, "nodePort": first, "protocol": "TCP"},
            {"name": "b", "port": 81, "nodePort": first + 1, "protocol": "TCP"},
        ]})
    };
    let network = [
        ("type", "nlb"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("target-group-attributes", "preserve_client_ip.enabled=false"),
    ];
    let [classic_name, network_name] = NAMES;
    let made = cluster.create_service(classic_name, &[], &ports(31080)).await;
    made.expect("created");
    let made = cluster.create_service(network_name, &network, &ports(NODE_PORT)).await;
    made.expect("created");
}

fn start(cluster: &SingleCluster, name: &str, period: &str) -> Manager {
    let flags = [
        "--leader-elect=false",
        "--controllers=service-lb-controller",
        "--aws-api-budget-share=1",
        period,
    ];
    cluster.manager(name, &flags).expect("the manager starts")
}

/// Waits until each Service has all of its load balancer.
async fn ensured(cluster: &SingleCluster, manager: &Manager) {
    let ensured = async || {
        let events = cluster.service_events().await.expect("Events");
        let has_event = |name: &str| {
            let mut own = events.iter().filter(|event| event.service == name);
            own.any(|event| event.reason == "EnsuredLoadBalancer")
        };
        NAMES.into_iter().all(has_event)
    };
    manager
        .until("both load balancers", LIMIT, ensured)
        .await
        .expect("in time");
}

/// The state once the manager writes no more.
async fn settled(cluster: &SingleCluster, manager: &Manager) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mark = cluster.proxy.mark();
        sleep(TWO_PERIODS).await;
        if !cluster.proxy.calls_since(mark).iter().any(Call::is_write) {
            return state(cluster).await;
        }
        manager.alive().expect("it runs");
        assert!(Instant::now() < deadline, "it never rests:\n{}", manager.log_tail());
    }
}

async fn state(cluster: &SingleCluster) -> Value {
    let services = cluster.list_services().await.expect("listed");
    cluster.read_account(&services).await.expect("an account")
}

/// Each change comes back by itself, by one write that an Event tells.
async fn repaired_in_time(cluster: &SingleCluster, manager: &Manager, whole: &Value) {
    for round in 0..damage::of_classic(cluster).await.len() {
        // Listeners that were deleted come back under other names, so that the list is made anew for each round.
        let (classic, network) = (damage::of_classic(cluster).await, of_network(cluster).await);
        assert_eq!(classic.len(), network.len());
        let pair = [&classic[round], &network[round]];
        let names = format!("{}, and {}", pair[0].name, pair[1].name);
        let (mark, before) = (cluster.proxy.mark(), cluster.service_events().await.expect("Events"));
        let began = Instant::now();
        for damage in pair {
            damage.happen(cluster).await;
        }
        comes_back(cluster, manager, whole, &names).await;
        println!("{names}: after {:.1?}", began.elapsed());
        let told = async || {
            let told = cluster.service_events().await.expect("Events");
            NAMES
                .into_iter()
                .all(|service| !new(&before, &told, service).is_empty())
        };
        manager
            .until("Events of the repairs", LIMIT, told)
            .await
            .expect("in time");
        sleep(TWO_PERIODS).await;
        let expected = pair.map(|damage| damage.repair);
        assert_eq!(writes_since(cluster, mark), sorted(expected), "{names}");
        let told = cluster.service_events().await.expect("Events");
        for (service, damage) in NAMES.into_iter().zip(pair) {
            repair_is_told(&new(&before, &told, service), damage);
        }
    }
    let (mark, before) = (cluster.proxy.mark(), cluster.service_events().await.expect("Events"));
    let looks = |calls: &[Call]| {
        let looks = calls
            .iter()
            .filter(|call| call.seq >= mark && call.action == "DescribeLoadBalancers");
        (looks.count() > 2 * NAMES.len()).then_some(())
    };
    let seen = cluster.proxy.wait_for("two looks at each", LIMIT, looks).await;
    seen.expect("it goes on looking");
    assert_eq!(writes_since(cluster, mark), Vec::<String>::new());
    assert_eq!(cluster.service_events().await.expect("Events"), before);
}

async fn of_network(cluster: &SingleCluster) -> Vec<Damage> {
    damage::of_network(cluster, &NODE_PORT.to_string()).await
}

fn repair_is_told(told: &[ServiceEvent], damage: &Damage) {
    let beginning = format!("Repaired load balancer, which was changed at AWS: {} (", damage.repair);
    let [told] = told else {
        panic!("{}: not one Event: {told:#?}", damage.name);
    };
    println!("  {}: {}", told.reason, told.message);
    assert_eq!(told.reason, "RepairedLoadBalancer");
    let reason = told.message.strip_prefix(&beginning).expect("the one repair");
    assert!(reason.starts_with(damage.reason), "{}: {reason}", damage.name);
    assert_eq!(reason.matches('(').count(), 0, "only one repair: {reason}");
}

/// Without a period a change stays until someone touches the Service.
async fn repaired_when_touched(cluster: &SingleCluster, manager: &Manager, whole: &Value) {
    let looks = |call: &Call| call.action.starts_with("Describe");
    let quiet = cluster.silence(manager, cluster.proxy.mark(), (FIRST_READS, LIMIT), looks);
    quiet.await.expect("its first looks");
    let mut damages = damage::of_classic(cluster).await;
    damages.extend(of_network(cluster).await);
    let (mark, before) = (cluster.proxy.mark(), cluster.service_events().await.expect("Events"));
    for damage in &damages {
        damage.happen(cluster).await;
    }
    let damaged = state(cluster).await;
    sleep(4 * PERIOD).await;
    let calls = cluster.proxy.calls_since(mark);
    assert!(calls.is_empty(), "it looks without being asked: {calls:#?}");
    assert_eq!(differences(&damaged, &state(cluster).await), Vec::<String>::new());
    assert_eq!(cluster.service_events().await.expect("Events"), before);

    let touch = json!({"metadata": {"annotations": {"outrigger.dev/reconcile": "1"}}});
    for name in NAMES {
        cluster.patch_service(name, &touch).await.expect("touched");
    }
    comes_back(cluster, manager, whole, "touched").await;
    let ensured = async || {
        let told = cluster.service_events().await.expect("Events");
        let is_ensured = |name| new(&before, &told, name).len() >= 2;
        NAMES.into_iter().all(is_ensured)
    };
    manager
        .until("two Events of each", LIMIT, ensured)
        .await
        .expect("in time");
    let quiet = cluster.silence(manager, mark, (TWO_PERIODS, LIMIT), Call::is_write);
    quiet.await.expect("it rests");
    let told = cluster.service_events().await.expect("Events");
    for name in NAMES {
        let reasons: Vec<String> = new(&before, &told, name).into_iter().map(|told| told.reason).collect();
        assert_eq!(reasons, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"], "{name}");
    }
    let written = writes_since(cluster, mark);
    println!("touched: {written:?}");
    assert_eq!(written, sorted(damages.iter().map(|damage| damage.repair)));
    assert_eq!(state(cluster).await, *whole);
}

async fn comes_back(cluster: &SingleCluster, manager: &Manager, whole: &Value, what: &str) {
    let repaired = async || match differences(whole, &state(cluster).await) {
        open if open.is_empty() => Ok(()),
        open => Err(open.join("\n")),
    };
    let what = format!("repair of {what}");
    manager.until(&what, LIMIT, repaired).await.expect("in time");
}

/// Successful or not: there is to be no other.
fn writes_since(cluster: &SingleCluster, mark: u64) -> Vec<String> {
    let calls = cluster.proxy.calls_since(mark);
    let writes = calls.iter().filter(|call| call.is_write());
    sorted(writes.map(|call| call.action.as_str()))
}

fn sorted<'a>(actions: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut actions: Vec<String> = actions.into_iter().map(str::to_owned).collect();
    actions.sort();
    actions
}

/// The Events of a Service since `before`.
fn new(before: &[ServiceEvent], now: &[ServiceEvent], service: &str) -> Vec<ServiceEvent> {
    let of = |all: &[ServiceEvent]| {
        let own = all.iter().filter(|told| told.service == service);
        own.cloned().collect::<Vec<_>>()
    };
    of(now).split_off(of(before).len())
}
