//! A cold start: all Nodes exist and are tainted, then the manager starts. The time is from the start of its process
//! until the harness's watch observes the last Node as initialized.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arrivals::{Arrivals, Wanted};
use super::candidate::{Candidate, Programs, TUNING, until_idle};
use super::cloud::{Cloud, Machines};
use super::cluster::{Cluster, NODES, patch};
use super::node;
use super::result::{Subject, Work};
use crate::usage::Usage;
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::loopback::LoopbackClient;

/// Nodes of the baseline under way at once: the default of Outrigger.
const AT_ONCE: usize = 32;
/// The most IDs that EC2 takes in one call.
const IDS: usize = 1000;
const BASELINE: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(10);
/// A manager without requests for this time is done.
const QUIET: Duration = Duration::from_secs(2);
const TAIL: Duration = Duration::from_secs(90);

/// Measures one cold start of `candidate`.
///
/// # Errors
/// When the manager ends, or a Node is wrong in the end. Nodes that are not initialized in time are no error here.
pub async fn measure(
    cluster: &Cluster,
    cloud: &Cloud,
    machines: &Machines,
    programs: &Programs,
    candidate: Candidate,
    limited: bool,
) -> Result<Work> {
    let nodes = machines.instances.len();
    let mut arrivals = Arrivals::watch(&cluster.admin, Wanted::Initialized).await?;
    let (mark, before) = (cloud.proxy.mark(), cluster.requests().await?);
    cloud.proxy.set_limits(limited);

    let begin = Instant::now();
    let process = programs.start(candidate, cloud, cluster, &[], &TUNING)?;
    let complete = arrivals.reach(nodes, begin + patience(candidate, nodes)).await?;
    process.ensure_running()?;
    if complete {
        // Events follow the Nodes. Lists and watches of other clients are not counted.
        let count = async || {
            let requests = cluster.requests().await?;
            let written = requests.of("POST events") + requests.of("PATCH nodes");
            Ok(usize::try_from(written)?)
        };
        until_idle(&process, 1, QUIET, TAIL, count).await?;
        cluster.verify(&machines.instances).await?;
    }

    let usage = Usage::of(process.pid())?;
    let requests = cluster.requests().await?.since(&before).counted();
    let aws = cloud.calls(mark, candidate.name());
    cloud.proxy.set_limits(false);
    process.stop(GRACE).await?;

    let (first, last) = arrivals
        .span()
        .with_context(|| format!("{} initialized no Node:\n{}", candidate.name(), process.log_tail()))?;
    Ok(Work {
        by: Subject::Manager(candidate),
        nodes,
        done: arrivals.count(),
        limited,
        first: first - begin,
        last: last - begin,
        aws,
        requests,
        usage: Some(usage),
    })
}

/// With its defaults the incumbent takes a fifth of a second for each Node.
fn patience(candidate: Candidate, nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let each = match candidate {
        Candidate::Incumbent => Duration::from_millis(400),
        Candidate::Outrigger | Candidate::Tuned => Duration::from_millis(100),
    };
    Duration::from_secs(60) + each * nodes
}

/// Measures a minimal loop of the harness, without watches, decisions and Events: the describes, and two PATCHes for each
/// Node. No manager can be faster on these servers.
pub async fn baseline(cluster: &Cluster, cloud: &Cloud, machines: &Machines) -> Result<Work> {
    let instances = &machines.instances;
    let mut arrivals = Arrivals::watch(&cluster.admin, Wanted::Initialized).await?;
    let (mark, before) = (cloud.proxy.mark(), cluster.requests().await?);
    let begin = Instant::now();

    for chunk in instances.chunks(IDS) {
        describe(cloud, chunk).await?;
    }

    stream::iter(instances)
        .map(|instance| initialize(cluster, instance))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    ensure!(
        arrivals.reach(instances.len(), begin + BASELINE).await?,
        "the baseline's own Nodes are not initialized"
    );

    let (first, last) = arrivals.span().context("no Node")?;
    Ok(Work {
        by: Subject::Baseline,
        nodes: instances.len(),
        done: arrivals.count(),
        limited: false,
        first: first - begin,
        last: last - begin,
        aws: cloud.calls(mark, Subject::Baseline.name()),
        requests: cluster.requests().await?.since(&before).counted(),
        usage: None,
    })
}

/// One DescribeInstances by IDs; returns its time.
pub async fn describe(cloud: &Cloud, instances: &[Instance]) -> Result<Duration> {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", "DescribeInstances");
    form.append_pair("Version", "2016-11-15");
    for (number, instance) in instances.iter().enumerate() {
        form.append_pair(&format!("InstanceId.{}", number + 1), &instance.id);
    }

    let key = cloud.caller(Subject::Baseline.name()).access_key_id;
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={key}/20260101/{}/ec2/aws4_request, SignedHeaders=host, Signature=00",
        outrigger_aws_sim::REGION
    );
    let media = HeaderValue::from_static("application/x-www-form-urlencoded");
    let authorization = HeaderValue::from_str(&authorization)?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, authorization), (CONTENT_TYPE, media)]);

    let (begin, client) = (Instant::now(), LoopbackClient::default());
    let answer = client.post(cloud.proxy.url(), headers, form.finish().into()).await?;
    let took = begin.elapsed();

    let (status, text) = (answer.status(), String::from_utf8_lossy(answer.body()));
    ensure!(status.is_success(), "the baseline's describe: {status} {text}");

    Ok(took)
}

async fn initialize(cluster: &Cluster, instance: &Instance) -> Result<()> {
    let path = format!("{NODES}/{}", instance.private_dns_name);
    let media = "application/json-patch+json";
    let addresses = json!([{"op": "replace", "path": "/status/addresses", "value": node::addresses(instance)}]);
    let add = |(label, value): (&str, String)| {
        let path = format!("/metadata/labels/{}", label.replace('/', "~1"));
        json!({"op": "add", "path": path, "value": value})
    };

    let mut operations: Vec<Value> = node::labels(instance).map(add).into();
    operations.push(json!({"op": "add", "path": "/spec/providerID", "value": instance.provider_id()}));
    operations.push(json!({"op": "remove", "path": "/spec/taints/0"}));

    let status = patch(&format!("{path}/status"), media, &addresses)?;
    cluster.admin.request_text(status).await?;
    let node = patch(&path, media, &Value::from(operations))?;
    cluster.admin.request_text(node).await?;

    Ok(())
}
