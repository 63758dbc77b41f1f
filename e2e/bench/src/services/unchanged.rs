//! One classic and one network load balancer in place; their Services change in nothing that matters.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::candidate::start;
use super::environment::{Asked, Environment, Kind};
use super::result::Unchanged;
use crate::manager::candidate::{Candidate, Programs};
use outrigger_cluster_harness::process::Process;

/// So long without a call, and a look is over.
const QUIET: Duration = Duration::from_secs(2);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOKS: usize = 5;
const GRACE: Duration = Duration::from_secs(10);

/// Measures looks of `candidate` at both.
///
/// # Errors
/// When a Service gets no address, or the manager ends.
pub async fn measure(
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
    environment
        .all_addressed(kinds.len(), &process, Instant::now() + PATIENCE)
        .await?;
    environment.quiet(mark, 1, QUIET, &process, PATIENCE).await?;

    let mut measured = Vec::new();
    for kind in kinds {
        let asked = poke(environment, &process, *kind, LOOKS).await?;
        measured.push(Unchanged {
            candidate,
            kind: *kind,
            looks: LOOKS,
            asked,
        });
    }

    process.stop(GRACE).await?;

    Ok(measured)
}

async fn poke(environment: &Environment, process: &Process, kind: Kind, looks: usize) -> Result<Asked> {
    let first = environment.cloud.proxy.mark();
    for look in 0..looks {
        let mark = environment.cloud.proxy.mark();
        // A value that it never had.
        let value = usize::try_from(mark)? + look;
        environment.poke(&format!("{}-0", kind.name()), value).await?;
        environment.quiet(mark, 1, QUIET, process, PATIENCE).await?;
    }

    Ok(Asked::of(&environment.cloud.proxy.calls_since(first)))
}
