//! The node controller before an API server and an AWS in memory.

use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::fake::FakeAws;
use outrigger_leader::Permit;
use outrigger_manager::cloud_config::IpFamily;
use outrigger_manager::controllers::node::desired::ClusterSettings;
use outrigger_manager::controllers::node::topology::Pattern;
use outrigger_manager::controllers::node::{self, Deps, EVENT_COMPONENT};
use outrigger_manager::events::Recorder;
use outrigger_manager::instances::Instances;
use outrigger_manager::metrics::Metrics;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Api, eventually};

/// The taint of a new Node.
pub const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The node controller, at work.
pub struct Running {
    pub api: Api,
    pub aws: Arc<FakeAws>,
    pub metrics: Metrics,
    pub external: watch::Sender<bool>,
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), node::Error>>,
}

impl Running {
    pub async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

pub fn start(api: Api, aws: Arc<FakeAws>) -> Running {
    start_with(api, aws, Permit::always())
}

pub fn start_with(api: Api, aws: Arc<FakeAws>, permit: Permit) -> Running {
    start_in(api, aws, permit, |_| {})
}

/// With what `change` makes of what the controller works with.
pub fn start_in(api: Api, aws: Arc<FakeAws>, permit: Permit, change: impl FnOnce(&mut Deps)) -> Running {
    let (external, kubelets_external) = watch::channel(false);
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let mut deps = Deps {
        client: api.client(),
        nodes: api.cache.clone(),
        instances: Instances::new(aws.clone(), "prod".into(), "vpc-1".into()),
        ec2: aws.clone(),
        topology: Pattern::BuiltIn,
        place: ClusterSettings {
            region: "us-east-1".into(),
            families: vec![IpFamily::V4],
        },
        initializations: 32,
        refreshes: 32,
        refresh_period: Duration::from_secs(300),
        window: Duration::from_millis(50),
        kubelets_external,
        metrics: metrics.clone(),
        events: Recorder::new(api.client(), EVENT_COMPONENT),
        permit,
    };
    change(&mut deps);
    let task = tokio::spawn(node::run(deps, stop.clone()));
    Running {
        api,
        aws,
        metrics,
        external,
        stop,
        task,
    }
}

pub fn tainted(node: &Value) -> bool {
    node["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TAINT))
}

pub async fn initialized(running: &Running, name: &str) -> Value {
    eventually("the taint is off", || !tainted(&running.api.node(name).unwrap())).await;
    running.api.node(name).unwrap()
}

pub async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
