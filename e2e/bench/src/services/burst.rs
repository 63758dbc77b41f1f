//! Many new Services at once, at AWS's rates: ten load balancers can be made at once, then one in five seconds.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::candidate::start;
use super::environment::{Asked, Field, Kind};
use super::result::Rush;
use crate::manager::candidate::{Contender, Programs};

/// Three times what AWS's rate allows for one load balancer.
const EACH: Duration = Duration::from_secs(15);
const START: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

/// Measures how `contender` makes so many classic load balancers.
///
/// # Errors
/// When the manager ends, or a Service gets no address.
pub async fn measure(field: &Field, programs: &Programs, contender: Contender, services: usize) -> Result<Rush> {
    field.create(Kind::Classic, services).await?;
    let mark = field.cloud.proxy.mark();
    field.cloud.proxy.set_limits(true);
    let begin = Instant::now();
    let process = start(programs, contender, field)?;
    let deadline = begin + START + EACH * u32::try_from(services)?;
    field.all_addressed(services, &process, deadline).await?;
    let last = begin.elapsed();
    let asked = Asked::of(&field.cloud.proxy.calls_since(mark));
    process.stop(GRACE).await?;
    Ok(Rush {
        contender,
        services,
        last,
        asked,
    })
}
