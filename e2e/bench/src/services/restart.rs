//! Load balancers are in place for many Services; then a manager starts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use tokio::time::Instant;

use super::candidate::start;
use super::environment::{Asked, Environment, Kind};
use super::result::Restart;
use crate::manager::candidate::{Candidate, Programs};
use crate::usage::Usage;

/// No node rules: hundreds of them do not fit into a security group of AWS, nor into moto's.
pub const CONFIG: &str = "DisableSecurityGroupIngress = true\n";
/// So long without a call, and the manager is done: longer than the first pause after a failure.
const QUIET: Duration = Duration::from_secs(8);
const GRACE: Duration = Duration::from_secs(10);

/// Creates the Services and lets the tuned incumbent make their load balancers.
///
/// # Errors
/// When one gets no address in time.
pub async fn prepare(environment: &Environment, programs: &Programs, classic: usize, network: usize) -> Result<()> {
    environment.create(Kind::Classic, classic).await?;
    environment.create(Kind::Network, network).await?;

    let count = classic + network;
    let process = start(programs, Candidate::Tuned, environment)?;
    environment
        .all_addressed(count, &process, Instant::now() + patience(count))
        .await?;
    process.stop(GRACE).await?;

    Ok(())
}

/// Measures a start of `candidate`.
///
/// # Errors
/// When the manager ends, comes to no rest, or a Service has lost its address.
pub async fn measure(
    environment: &Environment,
    programs: &Programs,
    candidate: Candidate,
    classic: usize,
    network: usize,
) -> Result<Restart> {
    let count = classic + network;
    environment.free_leases().await?;

    let (mark, begin) = (environment.cloud.proxy.mark(), Timestamp::now());
    let process = start(programs, candidate, environment)?;
    let calls = environment.quiet(mark, count, QUIET, &process, patience(count)).await?;
    let usage = Usage::of(process.pid())?;
    process.stop(GRACE).await?;

    let addressed = environment.addressed().await?;
    ensure!(
        addressed == count,
        "only {addressed} of {count} Services have an address"
    );

    let last = calls.last().context("no call of AWS")?;
    Ok(Restart {
        candidate,
        classic,
        network,
        last: Duration::try_from(last.at.duration_since(begin))?,
        asked: Asked::of(&calls),
        usage,
    })
}

/// moto works on one call at a time, and a new load balancer takes some 15 calls.
fn patience(count: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_secs(1) * u32::try_from(count).unwrap_or(u32::MAX)
}
