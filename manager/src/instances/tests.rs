//! The store against an EC2 in memory.

use std::collections::BTreeMap;

use outrigger_aws::fake::{FakeAws, World};
use outrigger_aws::limit::{Limited, Share};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const DESCRIBE: &str = "DescribeInstances";
const NEW: Duration = Duration::ZERO;
const MINUTE: Duration = Duration::from_secs(60);

fn node(name: &str, provider_id: Option<&str>) -> Arc<NodeView> {
    parsed(json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": provider_id}}))
}

fn parsed(node: Value) -> Arc<NodeView> {
    Arc::new(serde_json::from_value(node).unwrap())
}

fn id(n: usize) -> InstanceId {
    InstanceId::new(format!("i-{n:08x}"))
}

fn named(id: InstanceId, dns: &str, cluster: &str) -> Instance {
    let mut instance = Instance::new(id);
    instance.private_dns_name = Some(dns.into());
    instance.vpc_id = Some("vpc-1".into());
    instance
        .tags
        .insert(format!("kubernetes.io/cluster/{cluster}"), "owned".into());
    instance
}

fn aws(instances: impl IntoIterator<Item = Instance>) -> Arc<FakeAws> {
    let instances = instances
        .into_iter()
        .map(|instance| (instance.id.clone(), instance))
        .collect();
    Arc::new(FakeAws::new(World {
        instances,
        ..World::default()
    }))
}

fn store(aws: &Arc<FakeAws>) -> Instances {
    Instances::new(aws.clone(), "prod".into(), "vpc-1".into())
}

async fn describe(store: &Instances, nodes: Vec<Arc<NodeView>>) -> Vec<Answer> {
    let answers = store.describe(nodes, Priority::Initialize, NEW).await.into_iter();
    answers.map(|(_, answer)| answer).collect()
}

fn is(answer: &Answer, id: &InstanceId) -> bool {
    matches!(answer, Answer::Found(instance) if instance.id == *id)
}

#[tokio::test(start_paused = true)]
async fn five_hundred_nodes_cost_three_calls_and_one_once_they_are_known() {
    let aws = aws((0..500).map(|n| Instance::new(id(n))));
    let store = store(&aws);
    let nodes = || {
        (0..500)
            .map(|n| node(&format!("n{n}"), Some(&format!("aws:///z/{}", id(n)))))
            .collect()
    };
    for calls in [3, 4] {
        let answers = describe(&store, nodes()).await;
        assert!(answers.iter().enumerate().all(|(n, answer)| is(answer, &id(n))));
        assert_eq!(aws.calls().len(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn five_thousand_known_instances_are_refreshed_by_five_calls() {
    let aws = aws((0..5000).map(|n| Instance::new(id(n))));
    let (store, ids) = (store(&aws), (0..5000).map(id).collect::<Vec<_>>());
    store.by_id(&ids, Priority::Initialize, NEW).await;
    assert_eq!(aws.calls().len(), 25);
    aws.forget_calls();
    let answers = store.by_id(&ids, Priority::Refresh, NEW).await;
    assert_eq!(aws.calls().len(), 5);
    assert!(ids.iter().all(|id| is(&answers[id], id)));
}

#[tokio::test(start_paused = true)]
async fn five_thousand_new_nodes_cost_twenty_five_calls_at_once_and_none_is_throttled() {
    let aws = aws((0..5000).map(|n| Instance::new(id(n))));
    aws.throttle_like_aws();
    let limited = Arc::new(Limited::new(aws.clone(), Share::default()));
    let store = Instances::new(limited, "prod".into(), "vpc-1".into());
    let ids: Vec<InstanceId> = (0..5000).map(id).collect();
    let start = tokio::time::Instant::now();
    let new = store.by_id(&ids, Priority::Initialize, NEW).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(aws.calls().len(), 25);
    for _ in 0..20 {
        let again = store.by_id(&ids, Priority::Lifecycle, NEW).await;
        assert!(
            again
                .values()
                .chain(new.values())
                .all(|answer| matches!(answer, Answer::Found(_)))
        );
    }
    assert_eq!(aws.calls().len(), 25 + 20 * 5);
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_the_same_at_the_same_time_shares_a_call() {
    let aws = aws((0..20).map(|n| Instance::new(id(n))));
    let store = store(&aws);
    let asks = (0..20).map(|n| {
        let store = store.clone();
        async move { store.by_id(&[id(n), id(0)], Priority::Initialize, NEW).await }
    });
    let answers = futures::future::join_all(asks).await;
    assert!(
        answers
            .iter()
            .enumerate()
            .all(|(n, answer)| is(&answer[&id(n)], &id(n)) && answer.len() <= 2)
    );
    assert_eq!(aws.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_asked_is_waited_for_unless_it_would_be_too_old() {
    let aws = aws([Instance::new(id(1))]);
    let store = store(&aws);
    let ask = |priority, max_age| {
        let store = store.clone();
        async move { store.by_id(&[id(1)], priority, max_age).await }
    };
    tokio::join!(ask(Priority::Initialize, NEW), ask(Priority::Refresh, NEW));
    assert_eq!(
        aws.calls().len(),
        1,
        "a call of lower priority joins one of higher priority"
    );
    tokio::join!(ask(Priority::Refresh, NEW), ask(Priority::Initialize, NEW));
    assert_eq!(
        aws.calls().len(),
        3,
        "a call of higher priority does not wait for one of lower priority"
    );
    ask(Priority::Refresh, MINUTE).await;
    assert_eq!(aws.calls().len(), 3, "fresh enough");
    tokio::time::advance(MINUTE * 2).await;
    ask(Priority::Refresh, MINUTE).await;
    assert_eq!(aws.calls().len(), 4);
    ask(Priority::Refresh, NEW).await;
    assert_eq!(aws.calls().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_no_answer_away() {
    let aws = aws([Instance::new(id(1))]);
    let store = store(&aws);
    let (ids, other) = ([id(1)], store.clone());
    let patient = tokio::spawn(async move { other.by_id(&[id(1)], Priority::Refresh, NEW).await });
    let hasty = tokio::time::timeout(Duration::from_millis(1), store.by_id(&ids, Priority::Refresh, NEW));
    assert!(hasty.await.is_err());
    assert!(is(&patient.await.unwrap()[&id(1)], &id(1)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_by_plain_ids_is_asked_again_without_those_that_are_named() {
    let aws = aws((0..300).map(|n| Instance::new(id(n))));
    let (store, ids) = (store(&aws), (0..300).map(id).collect::<Vec<_>>());
    store.by_id(&ids, Priority::Refresh, NEW).await;
    aws.forget_calls();
    aws.change(|world| _ = world.instances.remove(&id(7)));
    let answers = store.by_id(&ids, Priority::Refresh, NEW).await;
    assert_eq!(aws.calls().len(), 2);
    assert!(matches!(answers[&id(7)], Answer::Absent));
    assert_eq!(
        answers
            .values()
            .filter(|answer| matches!(answer, Answer::Found(_)))
            .count(),
        299
    );
}

#[tokio::test(start_paused = true)]
async fn throttling_is_never_answered_by_more_calls() {
    let aws = aws((0..1000).map(|n| Instance::new(id(n))));
    let (store, ids) = (store(&aws), (0..1000).map(id).collect::<Vec<_>>());
    store.by_id(&ids, Priority::Refresh, NEW).await;
    aws.forget_calls();
    aws.fail_next(DESCRIBE, Error::answered(DESCRIBE, "RequestLimitExceeded", "slow down"));
    let answers = store.by_id(&ids, Priority::Refresh, NEW).await;
    assert_eq!(aws.calls().len(), 1);
    assert!(answers.values().all(|answer| matches!(answer, Answer::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn names_find_only_instances_of_the_cluster_and_two_are_ambiguous() {
    let aws = aws([
        named(id(1), "one.internal", "prod"),
        named(id(2), "one.internal", "test"),
        named(id(3), "two.internal", "prod"),
        named(id(4), "two.internal", "prod"),
    ]);
    let nodes = ["one.internal", "two.internal", "three.internal"].map(|name| node(name, None));
    let answers = describe(&store(&aws), nodes.into()).await;
    assert!(is(&answers[0], &id(1)));
    assert!(matches!(answers[1], Answer::Ambiguous(2)));
    assert!(matches!(answers[2], Answer::Absent));
    assert_eq!(aws.calls().len(), 1);
}

/// A Node with an address and a name; which instance it finds, and how.
async fn found(instances: Vec<Instance>, name: &str) -> Option<(InstanceId, FoundBy)> {
    let node = parsed(json!({
        "metadata": {"name": name, "creationTimestamp": "1970-01-01T00:01:40Z"},
        "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }));
    let answers = describe(&store(&aws(instances)), vec![Arc::clone(&node)]).await;
    match &answers[0] {
        Answer::Found(instance) => Some((instance.id.clone(), found_by(&node, instance))),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_private_dns_name_goes_before_an_id_in_the_name_and_that_before_the_address() {
    let name = format!("worker-{}", id(2));
    let at = |mut instance: Instance| {
        instance.private_ip = Some("10.0.0.1".into());
        instance.launched = Some(100);
        instance
    };
    let (dns, by_id, by_ip) = (
        named(id(1), &name, "prod"),
        named(id(2), "x", "prod"),
        at(named(id(3), "y", "prod")),
    );
    let all = vec![dns, by_id.clone(), by_ip.clone()];
    assert_eq!(found(all, &name).await, Some((id(1), FoundBy::PrivateDns)));
    assert_eq!(
        found(vec![by_id.clone(), by_ip.clone()], &name).await,
        Some((id(2), FoundBy::IdInName))
    );
    assert_eq!(found(vec![by_ip.clone()], &name).await, Some((id(3), FoundBy::Ip)));
    assert_eq!(found(vec![by_ip.clone()], "custom").await, Some((id(3), FoundBy::Ip)));
    let foreign = [named(id(2), "x", "test"), at(named(id(3), "y", "test"))];
    assert_eq!(found(foreign.into(), &name).await, None, "another cluster's");
    let mut dead = by_id;
    dead.state = Some(InstanceState::Terminated);
    assert_eq!(found(vec![dead], &name).await, None, "a guess at a dead one is none");
    for launched in [Some(101), None] {
        let mut next = by_ip.clone();
        next.launched = launched;
        assert_eq!(
            found(vec![next], "custom").await,
            None,
            "the address may have been another's: {launched:?}"
        );
    }
    let mut elsewhere = by_ip;
    elsewhere.vpc_id = Some("vpc-2".into());
    assert_eq!(
        found(vec![elsewhere], "custom").await,
        None,
        "addresses repeat from VPC to VPC"
    );
}

#[tokio::test(start_paused = true)]
async fn fargate_nodes_are_found_by_their_interfaces_in_one_call() {
    let aws = aws([]);
    let eni = |ip: &str, vpc: &str| FargateEni {
        private_ip: Some(ip.into()),
        vpc_id: Some(vpc.into()),
        ..FargateEni::default()
    };
    aws.change(|world| {
        world.fargate = vec![
            eni("10.0.0.1", "vpc-1"),
            eni("10.0.0.2", "vpc-2"),
            eni("10.0.0.3", "vpc-1"),
            eni("10.0.0.3", "vpc-1"),
        ];
    });
    let nodes = ["fargate-10.0.0.1", "fargate-ip-10-0-0-2.internal", "fargate-10.0.0.3"];
    let nodes = nodes.map(|id| node(id, Some(&format!("aws:///z/x/{id}"))));
    let answers = describe(&store(&aws), nodes.into()).await;
    assert!(matches!(&answers[0], Answer::Fargate(eni) if eni.private_ip.as_deref() == Some("10.0.0.1")));
    assert!(matches!(answers[1], Answer::Absent));
    assert!(matches!(answers[2], Answer::Ambiguous(2)));
    assert_eq!(aws.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn foreign_nodes_cost_no_call() {
    let aws = aws([]);
    let nodes = ["gce://p/z/n", "aws:///z/mi-0123456789abcdef0", "kwok://n"].map(|id| node("n", Some(id)));
    let answers = describe(&store(&aws), nodes.into()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Foreign(_))));
    assert!(aws.calls().is_empty());
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Good,
    /// Was there when the store first asked.
    Vanished,
    NeverThere,
    Malformed,
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        8 => Just(Shape::Good),
        1 => Just(Shape::Vanished),
        1 => Just(Shape::NeverThere),
        1 => Just(Shape::Malformed),
    ]
}

fn fault() -> impl Strategy<Value = Option<Error>> {
    let answered = |code: &'static str| Just(Some(Error::answered(DESCRIBE, code, "no names here")));
    prop_oneof![
        4 => Just(None),
        1 => answered("RequestLimitExceeded"),
        1 => answered("InternalError"),
        1 => answered("InvalidInstanceID.NotFound"),
        1 => answered("InvalidInstanceID.Malformed"),
        1 => answered("InvalidID"),
        1 => Just(Some(Error::unanswered(DESCRIBE, "no answer in time"))),
    ]
}

fn id_of(n: usize, shape: Shape) -> InstanceId {
    match shape {
        Shape::Malformed => InstanceId::new(format!("i-made-up-{n}")),
        _ => id(n),
    }
}

/// Several callers ask for their parts at the same time. Returns what each got, and the answers' calls in order.
async fn ask_all(
    shapes: &[Shape],
    known: bool,
    callers: usize,
    faults: &[Option<Error>],
) -> (Vec<(InstanceId, Answer)>, Vec<String>) {
    let ids: Vec<InstanceId> = shapes.iter().enumerate().map(|(n, shape)| id_of(n, *shape)).collect();
    let there = shapes
        .iter()
        .enumerate()
        .filter(|(_, shape)| matches!(shape, Shape::Good | Shape::Vanished));
    let aws = aws(there.map(|(n, _)| Instance::new(id(n))));
    let store = store(&aws);
    if known {
        store.by_id(&ids, Priority::Refresh, NEW).await;
    }
    for (n, shape) in shapes.iter().enumerate() {
        if matches!(shape, Shape::Vanished) {
            aws.change(|world| _ = world.instances.remove(&id(n)));
        }
    }
    aws.forget_calls();
    faults.iter().for_each(|fault| aws.plan_next(DESCRIBE, fault.clone()));
    let asks = (0..callers).map(|caller| {
        let (store, part) = (
            store.clone(),
            ids.iter().skip(caller).step_by(callers).cloned().collect::<Vec<_>>(),
        );
        async move {
            let mut answers = store.by_id(&part, Priority::Refresh, NEW).await;
            assert_eq!(answers.len(), part.len(), "an answer for each, and for nothing else");
            part.into_iter()
                .map(move |id| (id.clone(), answers.remove(&id).unwrap()))
                .collect::<Vec<_>>()
        }
    });
    let answers = futures::future::join_all(asks).await.into_iter().flatten().collect();
    (answers, aws.calls().into_iter().map(|call| call.about).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// For any IDs and any responses of EC2, each caller gets the correct results for its own IDs, or the failure of
    /// the last call with them, and n IDs cost at most ⌈n/200⌉ + 2 calls.
    #[test]
    fn everyone_gets_his_own_answer_and_calls_are_bounded(
        shapes in prop_oneof![
            prop::collection::vec(shape(), 1..30),
            prop::collection::vec(shape(), 190..420),
            prop::collection::vec(shape(), 1900..2600),
        ],
        known: bool,
        callers in 1_usize..5,
        faults in prop::collection::vec(fault(), 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (answers, calls) = runtime.block_on(ask_all(&shapes, known, callers, &faults));
        prop_assert!(calls.len() <= shapes.len().div_ceil(200) + 2, "{} calls for {}", calls.len(), shapes.len());
        let mut last_call: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, about) in calls.iter().enumerate() {
            for word in about.split([',', ' ']).filter(|word| word.starts_with("i-")) {
                last_call.insert(word, number);
            }
        }
        for (n, shape) in shapes.iter().enumerate() {
            let wanted = id_of(n, *shape);
            let (_, answer) = answers.iter().find(|(id, _)| *id == wanted).unwrap();
            let call = last_call.get(wanted.as_str()).copied();
            prop_assert!(call.is_some(), "{wanted} was never asked for");
            let failed = call.and_then(|call| faults.get(call)).is_some_and(Option::is_some);
            let right = match shape {
                _ if failed => matches!(answer, Answer::Failed(_)),
                Shape::Good => is(answer, &wanted),
                _ => matches!(answer, Answer::Absent),
            };
            prop_assert!(right, "{wanted} {shape:?} {answer:?} in call {call:?}");
        }
    }
}
