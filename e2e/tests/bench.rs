//! A small `make bench`: every answer of the real webhook under load is right, and both managers finish every scenario
//! with plausible numbers.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints its measurements"
)]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrigger_bench::answer::Depth;
use outrigger_bench::client::Connections;
use outrigger_bench::environment::Environment;
use outrigger_bench::load::{Tally, Workload, pace, saturate};
use outrigger_bench::manager;
use outrigger_bench::manager::candidate::{Candidate as Manager, Programs};
use outrigger_bench::manager::result::{Results, Subject, Work};
use outrigger_bench::manager::scenarios::{Bench, Extent};
use outrigger_bench::review::{Object, Reviews, Stream, uid};
use outrigger_bench::server::{Candidate, Server};
use outrigger_bench::services;
use outrigger_bench::services::environment::Kind;
use outrigger_bench::{answer, client};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::Binaries;
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
    let tools = Tools::load(&Environment::TOOLS).await?;
    let environment = Environment::build(&tools, run.path(), "127.97.0.0/16").await?;
    let server = Server::start(Candidate::Outrigger, Binaries::find()?.webhook, &environment, None).await?;
    println!("ready after {:?}, {:?}", server.ready_after, server.usage()?);
    let reviews = Reviews::default();
    let connections = Connections::open(server.address, &environment.authority, IN_FLIGHT).await?;
    changes_are_the_expected_ones(&connections, &reviews).await?;

    let references = server.references(&environment, &reviews).await?;
    let workload = |depth| Workload::new(reviews.clone(), Stream::Mixed, references.clone(), depth);
    let before = server.histogram().await?;
    let saturated = saturate(&connections, workload(Depth::Whole), IN_FLIGHT, Duration::from_secs(1)).await?;
    let paced = pace(&connections, workload(Depth::Quick), 100, Duration::from_secs(1)).await?;
    all_is_well(&saturated, IN_FLIGHT)?;
    // A busy machine may not run this program for a part of the second.
    all_is_well(&paced, 1)?;
    ensure!(
        paced.answered <= 101,
        "more than 100 requests in a second: {}",
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

fn all_is_well(tally: &Tally, least: usize) -> Result<()> {
    println!("{} answers, p99 {:?}", tally.answered, tally.latencies.quantile(990));
    ensure!(
        tally.failed == 0 && tally.shed == 0 && tally.answered >= least,
        "{} answers, {} shed, {} failed: {:?}",
        tally.answered,
        tally.shed,
        tally.failed,
        tally.failure
    );
    Ok(())
}

/// The references are answers of the server itself, so this compares them with the expected ones.
async fn changes_are_the_expected_ones(connections: &Connections, reviews: &Reviews) -> Result<()> {
    let outcome = async |object| -> Result<Value> {
        let (_, body) = client::post(&mut connections.sender(0)?, reviews.of(object).body(&uid(1))).await?;
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

const NODES: usize = 20;
const LEAVING: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn both_managers_get_to_the_end_and_the_numbers_can_be() {
    match compete().await.and_then(|results| sane(&results)) {
        Ok(table) => println!("{table}"),
        Err(error) => panic!("{error:#}"),
    }
}

async fn components() -> Result<Tools> {
    let wanted = [
        Tool::Etcd,
        Tool::ApiServer136,
        Tool::MotoPython,
        Tool::AwsCloudControllerManager,
    ];
    Ok(Tools::load(&wanted).await?)
}

fn bench<'a>(tools: &'a Tools, folder: &'a Path, range: &'a str) -> Result<Bench<'a>> {
    Ok(Bench {
        tools,
        folder,
        range,
        programs: Programs {
            ours: Binaries::one("outrigger-manager")?,
            incumbent: tools.path(Tool::AwsCloudControllerManager)?.to_owned(),
        },
        progress: &|text| println!("{text}"),
    })
}

async fn compete() -> Result<Results> {
    let run = tempfile::tempdir()?;
    let tools = components().await?;
    let bench = bench(&tools, run.path(), "127.96.0.0/16")?;
    let options = manager::steady::Options {
        // A busy machine does not run a manager for seconds.
        quiet: Duration::from_secs(6),
        window: Duration::from_secs(2),
        leaving: LEAVING,
    };
    let cold = Extent {
        sizes: vec![NODES],
        full: false,
        steady: None,
        limited: Vec::new(),
        candidates: vec![Manager::Outrigger, Manager::Incumbent],
    };
    let steady = Extent {
        sizes: Vec::new(),
        steady: Some((NODES, options)),
        candidates: vec![Manager::Outrigger],
        ..cold.clone()
    };
    let (mut results, rest) = tokio::try_join!(bench.manager(&cold), bench.manager(&steady))?;
    results.steady = rest.steady;
    results.leaving = rest.leaving;
    results.failures.extend(rest.failures);
    Ok(results)
}

/// Checks the results; the table of them.
fn sane(results: &Results) -> Result<String> {
    ensure!(results.failures.is_empty(), "{:?}", results.failures);
    let of = |by| {
        results
            .cold(by, NODES, false)
            .with_context(|| format!("no row of {by:?}"))
    };
    let (baseline, ours) = (of(Subject::Baseline)?, of(Subject::Manager(Manager::Outrigger))?);
    let incumbent = of(Subject::Manager(Manager::Incumbent))?;
    for work in [baseline, ours, incumbent] {
        ensure!(work.done == NODES && work.first <= work.last, "{work:?}");
        let patches = work.requests.of("PATCH nodes") + work.requests.of("PATCH nodes/status");
        let puts = work.requests.of("PUT nodes") + work.requests.of("PUT nodes/status");
        ensure!(patches + puts >= 2 * NODES as u64, "too few writes: {work:?}");
    }
    ensure!(
        baseline.requests.total() == 2 * NODES as u64,
        "the baseline sends more than it must: {baseline:?}"
    );
    for work in [ours, incumbent] {
        let usage = work.usage.context("no usage")?;
        ensure!(usage.peak > 1024 && !usage.processor.is_zero(), "{work:?}");
    }
    ensure!(
        ours.aws.of("DescribeInstances") >= 1 && ours.aws.total() < incumbent.aws.total(),
        "{ours:?} {incumbent:?}"
    );
    let steady = results.steady.first().context("no steady state")?;
    ensure!(
        steady.aws.of("DescribeInstances") == 0 && steady.start.total() >= 1,
        "{steady:?}"
    );
    let left: &Work = results.leaving.first().context("no Nodes left")?;
    ensure!(
        left.done == LEAVING && left.requests.of("DELETE nodes") == LEAVING as u64,
        "{left:?}"
    );
    Ok(manager::report::manager(results, "A test."))
}

/// Services with load balancers at a start, and new ones.
const CLASSIC: usize = 3;
const NETWORK: usize = 1;
const NEW: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn both_service_controllers_get_to_the_end_and_ours_writes_nothing_at_a_start() {
    match serve().await.and_then(|results| calm(&results)) {
        Ok(table) => println!("{table}"),
        Err(error) => panic!("{error:#}"),
    }
}

/// Without unchanged load balancers: each reconciliation is followed by seconds without a call.
async fn serve() -> Result<services::measure::Results> {
    let run = tempfile::tempdir()?;
    let tools = components().await?;
    let bench = bench(&tools, run.path(), "127.95.0.0/16")?;
    let extent = services::scenarios::Extent {
        unchanged: false,
        classic: CLASSIC,
        network: NETWORK,
        new: NEW,
        kinds: vec![Kind::Classic, Kind::Network],
        candidates: vec![Manager::Outrigger, Manager::Incumbent],
    };
    Ok(bench.services(&extent).await)
}

/// Checks the results; the table of them.
fn calm(results: &services::measure::Results) -> Result<String> {
    ensure!(results.failures.is_empty(), "{:?}", results.failures);
    let start = |candidate| {
        let row = results.restarts.iter().find(|row| row.candidate == candidate);
        row.with_context(|| format!("no start of {candidate:?}"))
    };
    let (ours, incumbent) = (start(Manager::Outrigger)?, start(Manager::Incumbent)?);
    for row in [ours, incumbent] {
        ensure!(
            row.calls.reads() >= CLASSIC + NETWORK && row.usage.peak > 1024 && !row.last.is_zero(),
            "{row:?}"
        );
    }
    ensure!(ours.calls.writes() == 0, "{ours:?}");
    ensure!(
        incumbent.calls.writes() >= CLASSIC && ours.calls.reads() < incumbent.calls.reads(),
        "{ours:?} {incumbent:?}"
    );
    ensure!(results.bursts.len() == 2, "{:?}", results.bursts);
    for row in &results.bursts {
        ensure!(
            row.calls.of("CreateLoadBalancer") == NEW && row.calls.throttled == 0,
            "{row:?}"
        );
    }
    Ok(services::report::services(results, "A test."))
}
