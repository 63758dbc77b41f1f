//! A minimal loop of the harness, without watches, decisions and Events: the describes, and two PATCHes for each Node.
//! No manager can be faster on these servers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arrivals::{Arrivals, Wanted};
use super::cloud::{Cloud, Machines};
use super::cluster::{Cluster, NODES, patch};
use super::node;
use super::result::{Subject, Work};
use outrigger_aws_sim::Instance;
use outrigger_cluster_harness::loopback::LoopbackClient;

/// Nodes under way at once: the default of Outrigger.
const AT_ONCE: usize = 32;
/// The most IDs that EC2 takes in one call.
const IDS: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn measure(cluster: &Cluster, cloud: &Cloud, machines: &Machines) -> Result<Work> {
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
        arrivals.reach(instances.len(), begin + PATIENCE).await?,
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
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&authorization)?);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );

    let begin = Instant::now();
    let answer = LoopbackClient::default()
        .post(cloud.proxy.url(), headers, form.finish().into())
        .await?;
    let took = begin.elapsed();

    ensure!(
        answer.status().is_success(),
        "the baseline's describe: {} {}",
        answer.status(),
        String::from_utf8_lossy(answer.body())
    );

    Ok(took)
}

async fn initialize(cluster: &Cluster, instance: &Instance) -> Result<()> {
    let path = format!("{NODES}/{}", instance.private_dns_name);
    let media = "application/json-patch+json";
    let addresses = json!([{"op": "replace", "path": "/status/addresses", "value": node::addresses(instance)}]);
    let mut operations: Vec<Value> = node::labels(instance)
        .iter()
        .map(|(label, value)| {
            let path = format!("/metadata/labels/{}", label.replace('/', "~1"));
            json!({"op": "add", "path": path, "value": value})
        })
        .collect();

    operations.push(json!({"op": "add", "path": "/spec/providerID", "value": instance.provider_id()}));
    operations.push(json!({"op": "remove", "path": "/spec/taints/0"}));
    let admin = &cluster.admin;
    admin
        .request_text(patch(&format!("{path}/status"), media, &addresses)?)
        .await?;
    admin
        .request_text(patch(&path, media, &Value::from(operations))?)
        .await?;

    Ok(())
}
