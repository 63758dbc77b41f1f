//! Budgets against the fake AWS, with its own buckets.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Priority;
use super::*;
use crate::fake::FakeAws;
use crate::{Error, InstanceId, Kind, Tags};

fn limited(aws: &Arc<FakeAws>) -> Arc<Limited> {
    Arc::new(Limited::new(aws.clone(), Share::default()))
}

fn throttled(action: &'static str) -> Error {
    Error::answered(action, "RequestLimitExceeded", "slow down")
}

async fn tag(ec2: &Limited) -> Result<()> {
    ec2.create_tags(&[], &Tags::new()).await
}

fn calls_of(aws: &FakeAws, action: &str) -> usize {
    aws.calls().iter().filter(|call| call.action == action).count()
}

#[tokio::test(start_paused = true)]
async fn a_throttled_action_pauses_and_no_other_does() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    aws.fail_next("CreateTags", throttled("CreateTags"));
    let start = Instant::now();
    let others = async {
        for _ in 0..20 {
            ec2.instances_by_id(&[InstanceId::new("i-1")]).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "describes go on");
    };
    let (tagged, ()) = tokio::join!(tag(&ec2), others);
    tagged.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_sent_again_up_to_five_times_within_a_minute() {
    for (throttles, calls, succeeds) in [(1, 2, true), (5, 6, true), (6, 6, false)] {
        let aws = Arc::new(FakeAws::default());
        let ec2 = limited(&aws);
        for _ in 0..throttles {
            aws.fail_next("CreateTags", throttled("CreateTags"));
        }
        let start = Instant::now();
        let answer = tag(&ec2).await;
        assert_eq!(answer.is_ok(), succeeds, "{throttles} throttles: {answer:?}");
        assert_eq!(calls_of(&aws, "CreateTags"), calls, "{throttles} throttles");
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        if let Err(error) = answer {
            assert_eq!(error.kind(), Kind::Throttled);
            assert!(start.elapsed() > Duration::from_secs(12), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_failure_is_not_repeated() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    for error in [
        Error::answered("CreateTags", "InternalError", "no"),
        Error::unanswered("CreateTags", "no answer in time"),
    ] {
        aws.forget_calls();
        aws.fail_next("CreateTags", error);
        tag(&ec2).await.unwrap_err();
        assert_eq!(calls_of(&aws, "CreateTags"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_keeps_its_position_before_those_that_arrived_later() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    aws.fail_next("CreateTags", throttled("CreateTags"));
    let order = Mutex::new(Vec::new());
    let call = |name: &'static str, after: Duration| {
        let (ec2, order) = (&ec2, &order);
        async move {
            tokio::time::sleep(after).await;
            tag(ec2).await.unwrap();
            order.lock().unwrap().push(name);
        }
    };
    let later = Duration::from_millis(100);
    tokio::join!(
        call("first", Duration::ZERO),
        call("second", later),
        call("third", later)
    );
    assert_eq!(*order.lock().unwrap(), ["first", "second", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_that_is_given_up_stops_waiting_at_once() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    aws.fail_next("CreateTags", throttled("CreateTags"));
    let given_up = tokio::time::timeout(Duration::from_millis(100), tag(&ec2)).await;
    assert!(given_up.is_err());
    assert_eq!(calls_of(&aws, "CreateTags"), 1);
    let start = Instant::now();
    tag(&ec2).await.unwrap();
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_the_throttling_calls_go_through_again_within_seconds() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    let start = Instant::now();
    for _ in 0..12 {
        aws.fail_next("CreateTags", throttled("CreateTags"));
    }
    for _ in 0..2 {
        tag(&ec2).await.unwrap_err();
    }
    assert!(start.elapsed() > Duration::from_secs(30), "{:?}", start.elapsed());
    let over = Instant::now();
    tag(&ec2).await.unwrap();
    assert!(over.elapsed() <= Duration::from_secs(10), "{:?}", over.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_long_row_of_calls_is_never_throttled_by_an_aws_with_its_real_buckets() {
    let aws = Arc::new(FakeAws::default());
    aws.throttle_like_aws();
    let ec2 = Limited::new(aws.clone(), Share::fixed(1.0).unwrap());
    let start = Instant::now();
    for _ in 0..300 {
        tag(&ec2).await.unwrap();
    }
    assert_eq!(start.elapsed().as_secs(), 20, "100 at once, then 10 a second");
    for _ in 0..100 {
        let id = InstanceId::new("i-0000000a");
        let error = ec2.instances_by_plain_id(&[id]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn earlier_lanes_go_first_and_whoever_gives_up_holds_nobody_back() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    for _ in 0..100 {
        tag(&ec2).await.unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |priority: Priority| {
        let (ec2, order) = (Arc::clone(&ec2), Arc::clone(&order));
        async move {
            priority.run(tag(&ec2)).await.unwrap();
            order.lock().unwrap().push(priority);
        }
    };
    let priorities = [
        Priority::Background,
        Priority::Refresh,
        Priority::Lifecycle,
        Priority::Initialize,
    ];
    let hasty = tokio::time::timeout(Duration::from_millis(1), call(Priority::Initialize));
    let all = futures_of(priorities.map(call));
    let (given_up, ()) = tokio::join!(hasty, all);
    assert!(given_up.is_err());
    let mut wanted = priorities;
    wanted.reverse();
    assert_eq!(*order.lock().unwrap(), wanted);
}

async fn futures_of(calls: [impl Future<Output = ()>; 4]) {
    let [a, b, c, d] = calls;
    tokio::join!(a, b, c, d);
}

fn aws_with_a_subnet() -> Arc<FakeAws> {
    Arc::new(FakeAws::new(crate::fake::World {
        subnets: vec![crate::ec2::Subnet {
            id: "subnet-1".into(),
            availability_zone: Some("eu-central-1a".into()),
            ..crate::ec2::Subnet::default()
        }],
        ..crate::fake::World::default()
    }))
}

fn new_load_balancer(number: u32) -> crate::elbv2::NewNetworkLoadBalancer {
    crate::elbv2::NewNetworkLoadBalancer {
        name: format!("a{number}"),
        subnets: vec![crate::elbv2::SubnetMapping {
            subnet_id: "subnet-1".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// How long it takes to make so many load balancers, each with the reads and writes of a new Service, and how many calls
/// AWS throttles, beside another tenant who takes this part of each bucket.
async fn made_beside(taken: f64, load_balancers: u32) -> (Duration, usize) {
    let aws = aws_with_a_subnet();
    aws.throttle_beside(taken);
    let elbv2: Arc<dyn Elbv2> = Arc::new(Limited::elbv2(aws.clone(), Share::default()));
    let start = Instant::now();
    for number in 0..load_balancers {
        let new = new_load_balancer(number);
        assert_eq!(elbv2.load_balancers(std::slice::from_ref(&new.name)).await.unwrap(), []);
        let made = elbv2.create_load_balancer(&new).await.unwrap();
        let attributes = elbv2.attributes(&made.arn).await.unwrap();
        elbv2.modify_attributes(&made.arn, &attributes).await.unwrap();
        elbv2
            .add_tags(std::slice::from_ref(&made.arn), &Tags::new())
            .await
            .unwrap();
        assert_eq!(elbv2.target_groups(&made.arn).await.unwrap(), []);
    }
    let needed = 6 * usize::try_from(load_balancers).unwrap();
    (start.elapsed(), aws.calls().len() - needed)
}

#[tokio::test(start_paused = true)]
async fn beside_a_tenant_who_takes_half_of_each_bucket_new_load_balancers_take_twice_the_time_and_no_call_fails() {
    for load_balancers in [1, 10, 30] {
        let (alone, throttled_alone) = made_beside(0.0, load_balancers).await;
        let (beside, throttled) = made_beside(0.5, load_balancers).await;
        println!("{load_balancers}: {alone:?} alone, {beside:?} beside, {throttled} calls throttled");
        assert_eq!(throttled_alone, 0);
        // The call that ends the last pause may come late by all of it.
        assert!(beside <= 2 * alone + Duration::from_secs(10), "{alone:?}, {beside:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn thirty_new_load_balancers_come_at_the_rate_of_aws_and_each_knows_its_wait() {
    let aws = aws_with_a_subnet();
    aws.throttle_like_aws();
    let elbv2: Arc<dyn Elbv2> = Arc::new(Limited::elbv2(aws.clone(), Share::default()));
    let start = Instant::now();
    for number in 0..30 {
        let expected = elbv2.expected_wait("CreateLoadBalancer", 0);
        let before = Instant::now();
        elbv2.create_load_balancer(&new_load_balancer(number)).await.unwrap();
        let waited = before.elapsed();
        assert!(
            waited.abs_diff(expected) < Duration::from_millis(5),
            "{waited:?}, not {expected:?}"
        );
    }
    assert_eq!(start.elapsed().as_secs(), 100, "10 at once, then one in five seconds");
    assert_eq!(elbv2.expected_wait("CreateLoadBalancer", 0).as_secs_f64().round(), 5.0);
    assert_eq!(elbv2.expected_wait("CreateLoadBalancer", 2).as_secs_f64().round(), 15.0);
    assert_eq!(elbv2.expected_wait("CreateListener", 0), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn many_reads_about_load_balancers_keep_to_the_share_and_are_never_throttled() {
    let aws = Arc::new(FakeAws::default());
    aws.throttle_like_aws();
    let elb: Arc<dyn Elb> = Arc::new(Limited::elb(aws, Share::fixed(0.25).unwrap()));
    let start = Instant::now();
    for number in 0..60 {
        assert_eq!(elb.describe(&number.to_string()).await.unwrap(), None);
    }
    assert_eq!(start.elapsed().as_secs(), 20, "10 at once, then 2.5 a second");
}

/// The reads of a start beside 700 load balancers. Alone, they are never throttled; beside a tenant who takes half of each
/// bucket, a few are.
#[tokio::test(start_paused = true)]
async fn the_share_of_reads_adapts_to_what_others_take() {
    let read = async |taken: f64, share: Share| {
        let aws = Arc::new(FakeAws::default());
        aws.throttle_beside(taken);
        let elb: Arc<dyn Elb> = Arc::new(Limited::elb(aws.clone(), share));
        let start = Instant::now();
        for number in 0..700 {
            assert_eq!(elb.describe(&number.to_string()).await.unwrap(), None);
        }
        (start.elapsed().as_secs(), aws.calls().len() - 700)
    };
    let (quarter, alone) = (
        read(0.0, Share::fixed(0.25).unwrap()).await,
        read(0.0, Share::default()).await,
    );
    let beside = read(0.5, Share::default()).await;
    println!("a quarter: {quarter:?}; alone: {alone:?}; beside: {beside:?}");
    assert_eq!((quarter.1, alone.1), (0, 0), "throttled");
    assert!(alone.0 * 2 < quarter.0 && beside.0 < quarter.0);
    assert!(beside.1 < 30);
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_split_read_is_counted() {
    let aws = Arc::new(FakeAws::default());
    let elbv2: Arc<dyn Elbv2> = Arc::new(Limited::elbv2(aws.clone(), Share::default()));
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let start = Instant::now();
    assert_eq!(elbv2.load_balancers(&names).await.unwrap(), []);
    assert_eq!(aws.calls().len(), 39, "20 names, halved down to one");
    assert!(start.elapsed() >= Duration::from_secs(11), "{:?}", start.elapsed());
}

fn target_groups_page(name: &str, next: Option<&str>) -> (u16, String) {
    let arn = format!("arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/{name}/1");
    let group = format!(
        "<TargetGroups><member><TargetGroupArn>{arn}</TargetGroupArn><TargetGroupName>{name}</TargetGroupName>\
         <Port>80</Port><Protocol>TCP</Protocol></member></TargetGroups>"
    );
    let marker = next.map_or_else(String::new, |next| format!("<NextMarker>{next}</NextMarker>"));
    crate::stub::yes("DescribeTargetGroups", &format!("{group}{marker}"))
}

/// [`Elbv2`] by way of the SDK, within a budget, with these answers.
async fn elbv2_that_answers(answers: Vec<(u16, String)>) -> (Arc<dyn Elbv2>, crate::stub::Asked) {
    let (url, asked) = crate::stub::serve(answers).await;
    let credentials = aws_credential_types::Credentials::new("id", "secret", None, None, "test");
    let config = aws_sdk_elasticloadbalancingv2::Config::builder()
        .behavior_version(aws_sdk_elasticloadbalancingv2::config::BehaviorVersion::latest())
        .region(aws_sdk_elasticloadbalancingv2::config::Region::new("eu-central-1"))
        .endpoint_url(url)
        .credentials_provider(credentials)
        .retry_classifier(crate::retry::NotWhenThrottled)
        .build();
    let client = aws_sdk_elasticloadbalancingv2::Client::from_conf(config);
    let elbv2 = Limited::elbv2(Arc::new(crate::elbv2::adapter::SdkElbv2 { client }), Share::default());
    (Arc::new(elbv2), asked)
}

#[tokio::test]
async fn a_throttled_second_page_is_read_again_and_not_the_first() {
    let answers = vec![
        target_groups_page("a", Some("m1")),
        crate::stub::no("Throttling"),
        target_groups_page("b", None),
    ];
    let (elbv2, asked) = elbv2_that_answers(answers).await;
    let found = elbv2.all_target_groups().await.unwrap();
    let names: Vec<&str> = found.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let asked = asked.lock().unwrap();
    let marker = |form: &Vec<String>| form.iter().find(|field| field.starts_with("Marker=")).cloned();
    let markers: Vec<Option<String>> = asked.iter().map(marker).collect();
    assert_eq!(
        markers,
        [None, Some("Marker=m1".to_owned()), Some("Marker=m1".to_owned())]
    );
}

#[tokio::test]
async fn each_page_of_a_list_waits_for_a_token() {
    let pages = 14;
    let page = |number: usize| {
        let next = (number + 1 < pages).then(|| format!("m{number}"));
        target_groups_page(&format!("g{number}"), next.as_deref())
    };
    let (elbv2, _) = elbv2_that_answers((0..pages).map(page).collect()).await;
    let start = Instant::now();
    assert_eq!(elbv2.all_target_groups().await.unwrap().len(), pages);
    assert!(
        start.elapsed() >= Duration::from_millis(1500),
        "10 at once, then 2.5 a second; took {:?}",
        start.elapsed()
    );
}
