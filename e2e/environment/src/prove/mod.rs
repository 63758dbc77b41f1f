//! Scenarios of leadership on real components, each with one measurement of its whole record.

mod cluster;
mod false_status;
mod mutation;
mod options;
mod page;
mod results;
mod rows;
mod scenario;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_timeline::{Bounds, Component, Inputs, Joined, Measurement, Report, Rules, Side};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use crate::Progress;
use cluster::{Cluster, Random};
use mutation::Mutation;
pub use options::{Options, USAGE};
use page::Row;
use results::{Key, Results, Run};
use scenario::Scenario;

/// Runs the scenarios, prints their figures, and returns whether every bound holds. With a page to write, the runs that
/// are recorded beside it are not repeated.
///
/// # Errors
/// When an environment cannot be built, or the page cannot be written.
pub async fn prove(options: &Options, progress: &Progress) -> Result<bool> {
    let places = Arc::new(Semaphore::new(options.jobs));
    let beside = options.write.as_ref().map(|page| page.with_extension("jsonl"));
    let mut results = Results::read(beside)?;
    let tasks = LocalSet::new();
    let mut running = JoinSet::new();
    for run in 0..options.runs {
        for scenario in options.scenarios.clone() {
            let key = options.key(scenario, run);
            if results.has(&key) {
                progress.line(&format!("scenario {}, run {}: recorded", scenario.number(), run + 1));
                continue;
            }
            let progress = match options.jobs {
                1 => progress.clone(),
                _ => progress.named(&scenario.number().to_string()),
            };
            let one = run_one(scenario, key, options.clone(), progress, Arc::clone(&places));
            running.spawn_local_on(one, &tasks);
        }
    }

    let collect = async {
        while let Some(run) = running.join_next().await {
            let run = run.context("a scenario ended with a panic")??;
            results.add(run)?;
            if let Some(path) = &options.write {
                let page = page::page(&results.rows(), options);
                std::fs::write(path, page).with_context(|| path.display().to_string())?;
            }
        }
        anyhow::Ok(())
    };
    tasks.run_until(collect).await?;

    let rows = results.rows();
    progress.step("Measurements");
    progress.line(&page::table(&rows));
    let violations: Vec<String> = rows.iter().flat_map(Row::violations).collect();
    violations.iter().for_each(|violation| progress.line(violation));

    Ok(violations.is_empty())
}

async fn run_one(
    scenario: Scenario,
    key: Key,
    options: Options,
    progress: Progress,
    places: Arc<Semaphore>,
) -> Result<Run> {
    let _place = places.acquire().await?;
    let number = scenario.number();
    progress.step(&format!("Scenario {number}, run {}: {}", key.run + 1, scenario.title()));
    let random = Random::new(key.seed.wrapping_add(u64::from(key.run)).wrapping_mul(256) ^ u64::from(number));
    let folder = RunFolder::new(&format!("outrigger-prove-{number}-"))?;
    let special = (options.size, scenario.needs_node_restriction());
    let mut cluster = Cluster::build(folder.path(), scenario.tools(), random, special, &progress).await?;

    let ended = rows::run(scenario, &mut cluster).await;
    let mut problems = std::mem::take(&mut cluster.problems);
    if let Err(error) = ended {
        problems.push(format!("it did not come to its end: {error:#}"));
    }

    cluster.environment.snapshot().await?;
    let mut record = cluster.environment.record().await?;
    record.joins.clone_from(&cluster.joins);
    let rules = rules(&cluster, scenario);
    let bounds = Bounds {
        observed: cluster.observed,
        ..scenario.bounds()
    };
    problems.extend(undiscovered(&record, &rules, scenario, &bounds));
    if let Some(mutation) = options.mutation {
        mutation.plant(&mut record);
    }

    let report = outrigger_timeline::analyse(&record, &rules);
    let mut measurement = Measurement::of(&report, &bounds);
    measurement.violations.extend(problems);
    progress.line(&report.table());
    std::fs::write(folder.path().join("timeline.txt"), report.table())?;
    if !measurement.violations.is_empty() {
        progress.line(&format!("logs: {}", folder.keep().display()));
    }
    for violation in &measurement.violations {
        progress.line(&format!("VIOLATION: {violation}"));
    }

    let mut notes = std::mem::take(&mut cluster.notes);
    notes.extend(switches(&report));
    cluster.end(Duration::from_secs(10)).await;

    Ok(Run {
        key,
        commit: options.commit,
        measurement,
        notes,
    })
}

fn rules(cluster: &Cluster, scenario: Scenario) -> Rules {
    let mut rules = Rules::new(Component::outrigger_manager());
    rules
        .components
        .push(Component::aws_cloud_controller_manager().on(Side::Old));
    rules.limits = scenario.limits();
    rules.unchanged.clone_from(&cluster.unchanged);
    rules.changed = cluster.joins.iter().map(|join| join.target.clone()).collect();
    rules.route_note = match scenario {
        Scenario::Routes | Scenario::BothRoutes => "by leases and calls".into(),
        _ => "by leases; no routes are configured".into(),
    };
    rules
}

/// The figures of changes of hands in which a Node joined.
fn switches(report: &Report) -> Vec<String> {
    let text = |time: Option<Duration>| time.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
    let one = |joined: &Joined| {
        let mut hand_overs = report.hand_overs.iter().rev();
        let hand_over = hand_overs.find(|one| one.to == joined.owner);
        let read = text(hand_over.and_then(|one| one.all_observed));
        let owner = &joined.owner.component;
        format!(
            "{owner} asked AWS about every load balancer after {read}, and added the Node that joined to each after {}",
            text(joined.took)
        )
    };
    report.joined.iter().map(one).collect()
}

/// The mutations of this record that break no bound. There must be none: a measurement that cannot fail shows nothing.
fn undiscovered(record: &Inputs, rules: &Rules, scenario: Scenario, bounds: &Bounds) -> Vec<String> {
    let violations = |record: &Inputs| {
        let report = outrigger_timeline::analyse(record, rules);
        Measurement::of(&report, bounds).violations
    };
    let real = violations(record);
    let is_found = |mutation: &Mutation| {
        let mut planted = record.clone();
        mutation.plant(&mut planted);
        let found = violations(&planted)
            .into_iter()
            .filter(|violation| !real.contains(violation));
        found.into_iter().any(|violation| mutation.is_shown_by(&violation))
    };

    let concerned = Mutation::all().filter(|mutation| mutation.concerns(scenario));
    concerned
        .filter(|mutation| !is_found(mutation))
        .map(|mutation| format!("the planted defect {} breaks no bound", mutation.name()))
        .collect()
}
