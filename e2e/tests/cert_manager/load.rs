//! Requests that need the webhook, all the time, from several clients.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use outrigger_environment::review::{self, Answer};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

const CALLERS: usize = 4;
/// Between two calls of a caller: often enough for each connection, of which each lives for a second.
const PAUSE: Duration = Duration::from_millis(120);
/// Messages of failed requests that are kept for each caller.
const EXAMPLES: usize = 3;
/// A namespace with the label that turns on the entries with `Fail`.
pub const GUARDED: &str = "guarded";

pub struct Load {
    stop: watch::Sender<bool>,
    callers: JoinSet<Outcome>,
}

#[derive(Default)]
pub struct Outcome {
    pub requests: u64,
    pub failed: u64,
    pub examples: Vec<String>,
}

impl Load {
    pub fn start(admin: &Client) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(call(admin.clone(), stopped.clone()));
        }
        Self { stop, callers }
    }

    pub async fn stop(self) -> Outcome {
        self.stop.send_replace(true);
        let mut sum = Outcome::default();
        for outcome in self.callers.join_all().await {
            sum.requests += outcome.requests;
            sum.failed += outcome.failed;
            sum.examples.extend(outcome.examples);
        }
        sum
    }
}

async fn call(admin: Client, stop: watch::Receiver<bool>) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome::default();
    while !*stop.borrow() {
        for result in [try_pod(&admin).await, try_node(&admin).await] {
            outcome.requests += 1;
            let Err(error) = result.and_then(Answer::granted) else {
                continue;
            };
            outcome.failed += 1;
            if outcome.examples.len() < EXAMPLES {
                outcome
                    .examples
                    .push(format!("after {:.1?}: {error:#}", start.elapsed()));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    outcome
}

/// Creates a Pod of a kube-controller-manager as a dry run. An entry with `Fail` matches it.
pub async fn try_pod(admin: &Client) -> Result<Answer> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kcm", "namespace": GUARDED, "labels": {"app": "kube-controller-manager"}},
        "spec": {"containers": [{"name": "kube-controller-manager", "image": "none", "command": ["kube-controller-manager"]}]},
    });
    review::create(
        admin,
        &format!("/api/v1/namespaces/{GUARDED}/pods"),
        "?dryRun=All",
        &pod,
    )
    .await
}

/// Creates a Node as a dry run. An entry with `Ignore` matches it.
pub async fn try_node(admin: &Client) -> Result<Answer> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "joins"}});
    review::create(admin, "/api/v1/nodes", "?dryRun=All", &node).await
}
