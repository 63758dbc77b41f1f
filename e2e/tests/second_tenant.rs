//! Another tenant of the account takes half of each of AWS's request buckets all the time. A new Service gets its
//! address within twice the time that it needs without that tenant, by itself and among many, and no failure is
//! reported again and again. Both accounts, with and without the tenant, are run beside each other.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::BTreeSet;
use std::time::Duration;

use outrigger_aws_sim::Answer;
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_e2e::single_cluster::{Manager, Options, ServiceEvent, SingleCluster, has_address, node_of};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The other tenant's part of each bucket's refill.
const HALF: f64 = 0.5;
/// New Services of each kind. AWS has a bucket of creations for classic load balancers and one for network load
/// balancers.
const NEW: usize = 22;
/// So many creations of a kind AWS allows at once, and then one in this time
/// (<https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/throttling.html>).
const AT_ONCE: usize = 10;
const INTERVAL: Duration = Duration::from_secs(5);
/// Until the manager takes the buckets of creations to be full again after the first Services.
const FULL_AGAIN: Duration = Duration::from_secs(6);
/// The longest pause after a throttled call (`manager/aws/src/limit/bucket.rs`). A token may come at its beginning, so
/// a load balancer may be later by this than AWS allows, which is twice the time without the tenant.
const PAUSE: Duration = Duration::from_secs(10);
/// Shorter times are not compared: they are the machine's, and twice this is less than a [`PAUSE`] with the work itself.
const SHORT: Duration = Duration::from_secs(5);
/// A busy machine may run one manager so much later than the other.
const LATE: Duration = Duration::from_secs(5);
/// Much longer than anything takes.
const LIMIT: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(200);

/// Annotations of both kinds.
const KINDS: [(&str, &[(&str, &str)]); 2] = [("classic", &[]), ("network", &[("type", "nlb")])];

/// An account and its cluster.
struct Setting {
    name: &'static str,
    service_range: &'static str,
    taken: f64,
}

struct Measured {
    /// The time of one new Service of each kind, while the cluster is idle.
    first: Vec<Duration>,
    /// The times of many that are created at once, in order.
    many: Vec<Duration>,
    throttled: usize,
    warnings: Vec<ServiceEvent>,
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_tenant_who_takes_half_of_each_bucket_a_new_service_takes_twice_the_time_at_most() {
    let alone = measure(Setting {
        name: "outrigger-one-tenant-",
        service_range: "127.77.0.0/16",
        taken: 0.0,
    });
    let beside = measure(Setting {
        name: "outrigger-second-tenant-",
        service_range: "127.78.0.0/16",
        taken: HALF,
    });
    let (alone, beside) = tokio::join!(alone, beside);

    // Else nothing is shown: the buckets bind, and the tenant takes of them.
    let bound = INTERVAL * u32::try_from(NEW - AT_ONCE).expect("not many");
    // The tenant takes every other token, and the first is not theirs.
    let bound_beside = 2 * bound - INTERVAL;
    let last = |measured: &Measured| *measured.many.last().expect("many");
    assert!(last(&alone) >= bound, "{:?} of {bound:?}", last(&alone));
    assert!(last(&beside) >= bound_beside, "{:?} of {bound_beside:?}", last(&beside));
    assert!(beside.throttled > 0, "AWS throttled nothing");

    for (alone, beside) in alone.first.iter().zip(&beside.first) {
        let limit = 2 * *alone.max(&SHORT);
        assert!(*beside <= limit, "one new Service: {beside:?} beside, {alone:?} alone");
    }
    for (number, (alone, beside)) in alone.many.iter().zip(&beside.many).enumerate() {
        let limit = 2 * *alone + PAUSE + LATE;
        assert!(*beside <= limit, "Service {number}: {beside:?} beside, {alone:?} alone");
    }
    for measured in [&alone, &beside] {
        assert!(measured.warnings.is_empty(), "{:#?}", measured.warnings);
    }
}

async fn measure(setting: Setting) -> Measured {
    let options = Options {
        name: setting.name,
        service_range: setting.service_range,
        instances: 2,
        // Rules for so many load balancers do not fit into the nodes' security group.
        global: &["DisableSecurityGroupIngress = true"],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    cluster.proxy.set_limits_beside(setting.taken);
    let mut kubelets = Vec::new();
    for instance in &cluster.account.instances {
        let kubelet = Kubelet::start(&cluster.kube_config, node_of(instance)).await;
        kubelets.push(kubelet.expect("joins"));
    }
    let flags = ["--leader-elect=false", "--controllers=service-lb-controller"];
    let manager = cluster.manager("manager", &flags).expect("the manager starts");

    let mut first = Vec::new();
    for kind in KINDS {
        let times = create(&cluster, &manager, "first", &[kind], 1).await;
        first.extend(times);
    }
    sleep(FULL_AGAIN).await;
    cluster.proxy.set_limits_beside(setting.taken);
    let many = create(&cluster, &manager, "new", &KINDS, NEW).await;

    let measured = Measured {
        first,
        many,
        throttled: throttled(&cluster),
        warnings: warnings(&cluster).await,
    };
    println!("{setting}: {measured}");
    manager.stop(LIMIT).await.expect("it ends");
    measured
}

/// Creates so many Services of each of these kinds; how long after the first was created each had its address, the
/// shortest first.
async fn create(
    cluster: &SingleCluster,
    manager: &Manager,
    name: &str,
    kinds: &[(&str, &[(&str, &str)])],
    count: usize,
) -> Vec<Duration> {
    let begun = Instant::now();
    let mut waiting = BTreeSet::new();
    for number in 0..count {
        for (kind, annotations) in kinds {
            // The beginning alone tells them apart in the names of target groups.
            let name = format!("{name}{number:02}-{kind}");
            let ports = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
            cluster
                .create_service(&name, annotations, &ports)
                .await
                .expect("created");
            waiting.insert(name);
        }
    }

    let deadline = Instant::now() + LIMIT;
    let mut times = Vec::new();
    while !waiting.is_empty() {
        let services = cluster.list_services().await.expect("listed").into_iter();
        let addressed = services.filter(has_address).filter_map(|service| service.metadata.name);
        times.extend(addressed.filter(|name| waiting.remove(name)).map(|_| begun.elapsed()));
        manager.alive().expect("it runs");
        let late = Instant::now() > deadline;
        assert!(!late, "{waiting:?} without an address:\n{}", manager.log_tail());
        sleep(LOOK).await;
    }
    times.sort();
    times
}

fn throttled(cluster: &SingleCluster) -> usize {
    let calls = cluster.proxy.calls();
    let outcomes = calls.iter().filter_map(|call| call.outcome.as_ref());
    outcomes.filter(|outcome| outcome.answer == Answer::Throttle).count()
}

async fn warnings(cluster: &SingleCluster) -> Vec<ServiceEvent> {
    let told = cluster.service_events().await.expect("Events");
    told.into_iter().filter(|told| told.warning).collect()
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "another tenant takes {}", self.taken)
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let median = self.many.get(self.many.len() / 2);
        write!(
            f,
            "one new Service {:.1?}; of many, median {median:.1?}, last {:.1?}; {} calls throttled, {} Warnings",
            self.first,
            self.many.last(),
            self.throttled,
            self.warnings.len()
        )
    }
}
