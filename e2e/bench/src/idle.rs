//! The end of a process's work.

use std::time::Duration;

use anyhow::Result;
use outrigger_cluster_harness::process::Process;
use tokio::time::{Instant, sleep};

/// Waits until `count` is at least `least` and has not grown for `quiet`; `false` after `within`.
///
/// # Errors
/// When the process has ended, and those of `count`.
pub async fn until_idle(
    process: &Process,
    least: usize,
    quiet: Duration,
    within: Duration,
    count: impl AsyncFn() -> Result<usize>,
) -> Result<bool> {
    let begin = Instant::now();
    let (mut last, mut since) = (count().await?, begin);
    while begin.elapsed() < within {
        sleep(quiet / 4).await;
        process.ensure_running()?;

        let now = count().await?;
        if now != last {
            (last, since) = (now, Instant::now());
        } else if now >= least && since.elapsed() >= quiet {
            return Ok(true);
        }
    }

    Ok(false)
}
