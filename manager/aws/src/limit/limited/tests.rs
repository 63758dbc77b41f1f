//! Budgets against the fake AWS, with its own buckets.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Lane;
use super::*;
use crate::fake::FakeAws;
use crate::{InstanceId, Kind, Tags};

fn limited(aws: &Arc<FakeAws>) -> Arc<Limited> {
    Arc::new(Limited::new(aws.clone(), Share::default()))
}

fn throttled(action: &'static str) -> Error {
    Error::answered(action, "RequestLimitExceeded", "slow down")
}

async fn tag(ec2: &Limited) -> Result<(), Error> {
    ec2.create_tags(&[], &Tags::new()).await
}

#[tokio::test(start_paused = true)]
async fn a_throttled_action_pauses_and_no_other_does() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    aws.fail_next("CreateTags", throttled("CreateTags"));
    let start = Instant::now();
    assert_eq!(tag(&ec2).await.unwrap_err().kind(), Kind::Throttled);
    for _ in 0..20 {
        ec2.instances_by_id(&[InstanceId::new("i-1")]).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "describes go on");
    tag(&ec2).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_the_throttling_calls_go_through_again_within_seconds() {
    let aws = Arc::new(FakeAws::default());
    let ec2 = limited(&aws);
    let start = Instant::now();
    let mut refused = 0;
    while start.elapsed() < Duration::from_secs(60) {
        aws.fail_next("CreateTags", throttled("CreateTags"));
        tag(&ec2).await.unwrap_err();
        refused += 1;
    }
    assert!(refused < 20, "{refused} calls against the wall");
    let over = Instant::now();
    tag(&ec2).await.unwrap();
    assert!(over.elapsed() <= Duration::from_secs(10), "{:?}", over.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_long_row_of_calls_is_never_throttled_by_an_aws_with_its_real_buckets() {
    let aws = Arc::new(FakeAws::default());
    aws.throttle_like_aws();
    let ec2 = Limited::new(aws.clone(), Share::new(1.0).unwrap());
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
    for _ in 0..25 {
        tag(&ec2).await.unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |lane: Lane| {
        let (ec2, order) = (Arc::clone(&ec2), Arc::clone(&order));
        async move {
            lane.run(tag(&ec2)).await.unwrap();
            order.lock().unwrap().push(lane);
        }
    };
    let lanes = [Lane::Background, Lane::Refresh, Lane::Lifecycle, Lane::Initialize];
    let hasty = tokio::time::timeout(Duration::from_millis(1), call(Lane::Initialize));
    let all = futures_of(lanes.map(call));
    let (given_up, ()) = tokio::join!(hasty, all);
    assert!(given_up.is_err());
    let mut wanted = lanes;
    wanted.reverse();
    assert_eq!(*order.lock().unwrap(), wanted);
}

async fn futures_of(calls: [impl Future<Output = ()>; 4]) {
    let [a, b, c, d] = calls;
    tokio::join!(a, b, c, d);
}

#[tokio::test(start_paused = true)]
async fn thirty_new_load_balancers_come_at_the_rate_of_aws_and_each_knows_its_wait() {
    let aws = Arc::new(FakeAws::new(crate::fake::World {
        subnets: vec![crate::ec2::Subnet {
            id: "subnet-1".into(),
            availability_zone: Some("eu-central-1a".into()),
            ..crate::ec2::Subnet::default()
        }],
        ..crate::fake::World::default()
    }));
    aws.throttle_like_aws();
    let elbv2: Arc<dyn Elbv2> = Arc::new(Limited::elbv2(aws.clone(), Share::default()));
    let start = Instant::now();
    for number in 0..30_u32 {
        let expected = elbv2.expected_wait("CreateLoadBalancer", 0);
        let before = Instant::now();
        let new = crate::elbv2::NewNetworkLoadBalancer {
            name: format!("a{number}"),
            subnets: vec![crate::elbv2::SubnetMapping {
                subnet_id: "subnet-1".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        elbv2.create_load_balancer(&new).await.unwrap();
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
    let elb: Arc<dyn Elb> = Arc::new(Limited::elb(aws, Share::default()));
    let start = Instant::now();
    for number in 0..60 {
        assert_eq!(elb.describe(&number.to_string()).await.unwrap(), None);
    }
    assert_eq!(start.elapsed().as_secs(), 20, "10 at once, then 2.5 a second");
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
