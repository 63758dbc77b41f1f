//! Many new Services at once, at AWS's rates: ten load balancers can be made at once, then one in five seconds.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::candidate::start;
use super::environment::{Asked, Environment, Kind};
use super::result::Burst;
use crate::manager::candidate::{Candidate, Programs};

/// Three times what AWS's rate allows for one load balancer.
const EACH: Duration = Duration::from_secs(15);
const START: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

/// Measures how `candidate` makes so many classic load balancers.
///
/// # Errors
/// When the manager ends, or a Service gets no address.
pub async fn measure(
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
    let deadline = begin + START + EACH * u32::try_from(services)?;
    environment.all_addressed(services, &process, deadline).await?;

    let last = begin.elapsed();
    let asked = Asked::of(&environment.cloud.proxy.calls_since(mark));
    process.stop(GRACE).await?;

    Ok(Burst {
        candidate,
        services,
        last,
        asked,
    })
}
