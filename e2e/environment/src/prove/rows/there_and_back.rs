//! Scenario 1: both directions.

use anyhow::Result;

use super::Cluster;
use crate::demo::migrate::QUIET;

pub(super) async fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.hosted().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.roll_back().await?;
    cluster.migrate().await?;
    cluster.complete().await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}
