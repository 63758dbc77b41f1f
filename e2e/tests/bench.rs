//! The load generator of `make bench` on the real webhook: the benchmark measures right answers.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says on stdout what it has seen"
)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrigger_e2e::bench::answer::Depth;
use outrigger_e2e::bench::client::Connections;
use outrigger_e2e::bench::ground::Ground;
use outrigger_e2e::bench::load::{Course, Tally, pace, saturate};
use outrigger_e2e::bench::review::{Object, Reviews, Stream, uid};
use outrigger_e2e::bench::server::{Contender, Server};
use outrigger_e2e::bench::{answer, client};
use outrigger_e2e::stage::Binaries;
use outrigger_e2e::tools::Tools;
use serde_json::{Value, json};

const IN_FLIGHT: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_under_load_is_the_right_one() {
    if let Err(error) = drive().await {
        panic!("{error:#}");
    }
}

async fn drive() -> Result<()> {
    let run = tempfile::tempdir()?;
    let tools = Tools::load(&Ground::TOOLS).await?;
    let ground = Ground::build(&tools, run.path(), "127.97.0.0/16").await?;
    let server = Server::start(Contender::Outrigger, Binaries::find()?.webhook, &ground, None).await?;
    println!("ready after {:?}, {:?}", server.ready_after, server.usage()?);
    let reviews = Reviews::default();
    let connections = Connections::open(server.address, &ground.authority, IN_FLIGHT).await?;
    changes_are_the_expected_ones(&connections, &reviews).await?;

    let references = server.references(&ground, &reviews).await?;
    let course = |depth| Course::new(reviews.clone(), Stream::Mixed, references.clone(), depth);
    let before = server.histogram().await?;
    let saturated = saturate(&connections, course(Depth::Whole), IN_FLIGHT, Duration::from_secs(1)).await?;
    let paced = pace(&connections, course(Depth::Quick), 100, Duration::from_secs(1)).await?;
    for tally in [&saturated, &paced] {
        all_is_well(tally)?;
    }
    ensure!(
        (95..=101).contains(&paced.answered),
        "not 100 requests in a second: {}",
        paced.answered
    );
    let measured = server.histogram().await?.since(&before)?;
    let (ours, theirs) = (saturated.answered + paced.answered, measured.count());
    ensure!(
        theirs == Some(ours),
        "the server counts {theirs:?} requests, not {ours}"
    );
    server.stop().await
}

fn all_is_well(tally: &Tally) -> Result<()> {
    println!("{} answers, p99 {:?}", tally.answered, tally.latencies.quantile(990));
    ensure!(
        tally.failed == 0 && tally.shed == 0 && tally.answered >= 40,
        "{} answers, {} shed, {} failed: {:?}",
        tally.answered,
        tally.shed,
        tally.failed,
        tally.failure
    );
    Ok(())
}

/// The references are what the server says itself, so what it says is looked at once with other eyes.
async fn changes_are_the_expected_ones(connections: &Connections, reviews: &Reviews) -> Result<()> {
    let outcome = async |object| -> Result<Value> {
        let (_, body) = client::post(&mut connections.lane(0)?, reviews.of(object).body(&uid(1))).await?;
        answer::outcome(&reviews.of(object).object, &uid(1), &body)
    };
    let node = outcome(Object::Node).await?;
    let taint =
        json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    ensure!(node["spec"]["taints"] == taint, "{node:#}");
    let deployment = outcome(Object::ControllerManager).await?;
    let command = deployment.pointer("/spec/template/spec/containers/0/command");
    let flags: Vec<&str> = command
        .and_then(Value::as_array)
        .context("no command")?
        .iter()
        .filter_map(Value::as_str)
        .filter(|flag| flag.starts_with("--cloud-"))
        .collect();
    ensure!(flags == ["--cloud-provider=external"], "{deployment:#}");
    for object in [Object::Pod, Object::Big] {
        ensure!(
            outcome(object).await? == reviews.of(object).object,
            "{object:?} is changed"
        );
    }
    Ok(())
}
