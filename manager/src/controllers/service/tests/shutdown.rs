//! Ending the controller.

use std::time::Duration;

use kube::client::Body;
use outrigger_aws::fake::{FakeAws, World};
use tokio_util::sync::CancellationToken;

use super::super::*;

#[tokio::test(start_paused = true)]
async fn it_ends_at_once_although_the_services_were_never_listed() {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    let nodes = NodeCache::new();
    nodes.observe(watcher::Event::InitDone);
    let aws = Arc::new(FakeAws::new(World::default()));
    let deps = Deps {
        client: Client::new(silent, "default"),
        nodes,
        instances: crate::instances::Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        ec2: aws.clone(),
        elb: aws.clone(),
        elbv2: aws,
        settings: Settings::default(),
        concurrent_syncs: 1,
        sweep: SweepSettings {
            mode: crate::args::Sweep::Delete,
            period: Duration::from_secs(60),
            metrics: sweep::SweepMetrics::default(),
        },
        metrics: Metrics::new(),
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(deps, Permit::always(), stop.clone()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!running.is_finished());
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(2), running).await;
    assert!(ended.is_ok_and(|joined| joined.is_ok_and(|result| result.is_ok())));
}
