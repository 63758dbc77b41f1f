//! The measurements. Each candidate runs its service controller alone, so that no other controller calls AWS.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use tokio::time::Instant;

use super::environment::{Environment, Kind};
use crate::manager::candidate::{Candidate, Programs};
use crate::manager::result::AwsCalls;
use crate::usage::Usage;
use outrigger_aws_sim::Call;
use outrigger_cluster_harness::process::Process;

/// Flags of the tuned incumbent.
pub const TUNING: [&str; 3] = [
    "--concurrent-service-syncs=10",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
];
/// Cloud config without node rules: hundreds of them fit neither into a security group of AWS, nor into moto's.
pub const WITHOUT_NODE_RULES: &str = "DisableSecurityGroupIngress = true\n";
/// A reconciliation is over after this time without a call.
const RECONCILED: Duration = Duration::from_secs(2);
/// A start is over after this time without a call: longer than the first backoff after a failure.
const STARTED: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);
/// Three times the time that AWS's rate needs for one load balancer.
const EACH_NEW: Duration = Duration::from_secs(15);
const RECONCILIATIONS: usize = 5;
/// One call describes at most so many load balancers.
const MOST_AT_ONCE: usize = 20;
const GRACE: Duration = Duration::from_secs(10);

/// Reconciliations of a Service that is already as it should be.
#[derive(Debug, Clone)]
pub struct Unchanged {
    pub candidate: Candidate,
    pub kind: Kind,
    pub reconciliations: usize,
    /// The calls of all of them.
    pub calls: AwsCalls,
}

/// A start with existing load balancers.
#[derive(Debug, Clone)]
pub struct Restart {
    pub candidate: Candidate,
    pub classic: usize,
    pub network: usize,
    /// From the start of the process to its last call of AWS, except for reads of attributes.
    pub last: Duration,
    /// The calls until then.
    pub calls: AwsCalls,
    /// The calls since then: a manager may read attributes after everything else.
    pub later: AwsCalls,
    /// From the start to the last call of all.
    pub last_of_all: Duration,
    pub usage: Usage,
}

impl Restart {
    pub fn in_all(&self) -> usize {
        self.calls.total() + self.later.total()
    }
}

/// A Node that joins a cluster with many load balancers, with AWS's limits.
#[derive(Debug, Clone)]
pub struct Join {
    pub candidate: Candidate,
    pub classic: usize,
    pub network: usize,
    /// From the creation of the Node to the last call of AWS.
    pub last: Duration,
    pub calls: AwsCalls,
}

/// Many new Services at once.
#[derive(Debug, Clone)]
pub struct Burst {
    pub candidate: Candidate,
    pub services: usize,
    /// Time until the last had its address.
    pub last: Duration,
    pub calls: AwsCalls,
}

/// All results of one run.
#[derive(Debug, Clone, Default)]
pub struct Results {
    pub unchanged: Vec<Unchanged>,
    pub restarts: Vec<Restart>,
    pub joins: Vec<Join>,
    pub bursts: Vec<Burst>,
    /// Errors. With one, the run has no result.
    pub failures: Vec<String>,
}

fn start(programs: &Programs, candidate: Candidate, environment: &Environment) -> Result<Process> {
    let (cloud, cluster) = (&environment.cloud, &environment.cluster);
    programs.start(candidate, cloud, cluster, &["--controllers=service"], &TUNING)
}

/// Creates a load balancer of each kind, then changes its Service in an annotation without effect.
pub async fn unchanged(
    environment: &Environment,
    programs: &Programs,
    candidate: Candidate,
    kinds: &[Kind],
) -> Result<Vec<Unchanged>> {
    for kind in kinds {
        environment.create(*kind, 1).await?;
    }

    let mark = environment.cloud.proxy.mark();
    let process = start(programs, candidate, environment)?;
    environment.all_addressed(kinds.len(), &process, PATIENCE).await?;
    environment
        .quiet((mark, any), 1, RECONCILED, &process, PATIENCE)
        .await?;

    let mut measured = Vec::new();
    for kind in kinds {
        let first = environment.cloud.proxy.mark();
        for number in 0..RECONCILIATIONS {
            let mark = environment.cloud.proxy.mark();
            let new_value = usize::try_from(mark)? + number;
            environment.touch(&format!("{}-0", kind.name()), new_value).await?;
            // A manager may have nothing to do.
            environment
                .quiet((mark, any), 0, RECONCILED, &process, PATIENCE)
                .await?;
        }

        measured.push(Unchanged {
            candidate,
            kind: *kind,
            reconciliations: RECONCILIATIONS,
            calls: AwsCalls::of_calls(&environment.cloud.proxy.calls_since(first)),
        });
    }

    process.stop(GRACE).await?;

    Ok(measured)
}

/// Creates the Services and lets the tuned incumbent create their load balancers.
pub async fn prepare(environment: &Environment, programs: &Programs, classic: usize, network: usize) -> Result<()> {
    environment.create(Kind::Classic, classic).await?;
    environment.create(Kind::Network, network).await?;

    let count = classic + network;
    let process = start(programs, Candidate::Tuned, environment)?;
    environment.all_addressed(count, &process, patience(count)).await?;
    process.stop(GRACE).await?;

    Ok(())
}

/// A start beside the load balancers of [`prepare`], and a Node that joins after it.
pub async fn restart(
    environment: &mut Environment,
    programs: &Programs,
    candidate: Candidate,
    (classic, network): (usize, usize),
) -> Result<(Restart, Join)> {
    let count = classic + network;
    environment.delete_leases().await?;

    let (mark, begin) = (environment.cloud.proxy.mark(), Timestamp::now());
    let process = start(programs, candidate, environment)?;
    let patience = patience(count);
    let calls = environment.quiet(
        (mark, is_of_no_attributes),
        count / MOST_AT_ONCE,
        STARTED,
        &process,
        patience,
    );
    let mut calls = calls.await?;
    let is_last = |call: &Call| is_of_no_attributes(call);
    calls.truncate(calls.iter().rposition(is_last).map_or(0, |last| last + 1));
    let all = environment.quiet((mark, any), 0, STARTED, &process, patience).await?;
    let usage = Usage::of(process.pid())?;
    let addressed = environment.addressed().await?;
    let complete = addressed == count;
    ensure!(complete, "only {addressed} of {count} Services have an address");
    let restart = Restart {
        candidate,
        classic,
        network,
        last: until_last(begin, &calls)?,
        last_of_all: until_last(begin, &all)?,
        later: AwsCalls::of_calls(&all[calls.len()..]),
        calls: AwsCalls::of_calls(&calls),
        usage,
    };

    environment.cloud.proxy.set_limits(true);
    let joined = joined(environment, &process, count).await;
    environment.cloud.proxy.set_limits(false);
    process.stop(GRACE).await?;

    let (last, calls) = joined.context("a Node joins")?;
    let join = Join {
        candidate,
        classic,
        network,
        last,
        calls,
    };
    Ok((restart, join))
}

/// The time until the last call after a Node has joined, and all calls. Each load balancer gets it by at least one write.
async fn joined(environment: &mut Environment, process: &Process, count: usize) -> Result<(Duration, AwsCalls)> {
    let (mark, begin) = (environment.cloud.proxy.mark(), Timestamp::now());
    environment.add_node().await?;
    let calls = environment
        .quiet((mark, any), count, STARTED, process, patience(2 * count))
        .await?;
    Ok((until_last(begin, &calls)?, AwsCalls::of_calls(&calls)))
}

fn any(_: &Call) -> bool {
    true
}

fn is_of_no_attributes(call: &Call) -> bool {
    !(call.action.starts_with("Describe") && call.action.ends_with("Attributes"))
}

fn until_last(begin: Timestamp, calls: &[Call]) -> Result<Duration> {
    let last = calls.last().context("no call of AWS")?;
    Ok(Duration::try_from(last.at.duration_since(begin))?)
}

/// moto works on one call at a time, and a new load balancer takes some 15 calls.
fn patience(count: usize) -> Duration {
    PATIENCE + Duration::from_secs(1) * u32::try_from(count).unwrap_or(u32::MAX)
}

/// New Services with classic load balancers, with AWS's limits.
pub async fn burst(
    environment: &Environment,
    programs: &Programs,
    candidate: Candidate,
    services: usize,
) -> Result<Burst> {
    environment.create(Kind::Classic, services).await?;

    let mark = environment.cloud.proxy.mark();
    environment.cloud.proxy.set_limits(true);
    let begin = Instant::now();
    let process = start(programs, candidate, environment)?;
    let patience = PATIENCE + EACH_NEW * u32::try_from(services)?;
    environment.all_addressed(services, &process, patience).await?;

    let burst = Burst {
        candidate,
        services,
        last: begin.elapsed(),
        calls: AwsCalls::of_calls(&environment.cloud.proxy.calls_since(mark)),
    };
    process.stop(GRACE).await?;

    Ok(burst)
}
