//! The cloud node controller. It initializes a new Node: provider ID, labels, addresses, then removes the uninitialized
//! taint. Afterwards it refreshes addresses, completes Nodes that never had the taint, keeps old and new topology labels
//! equal, and labels Nodes with EC2's network topology.
//!
//! ```text
//! node cache ─names of new Nodes───▶ initialize: observe ─▶ desired ─▶ plan ─▶ apply      priority Initialize
//!            ─every period, all────▶ refresh:    observe ─▶ addresses, complete ─▶ apply  priority Refresh
//!            ─names without layers─▶ topology:   observe ─▶ plan ─▶ apply                 priority Background
//! ```
//!
//! The three flows share only the Node cache and the instance cache, so a new Node never waits for the other flows.

mod apply;
mod deps;
pub mod desired;
mod error;
mod initialize;
mod log_summary;
mod observe;
pub mod plan;
mod refresh;
mod retry;
pub mod topology;

use tokio_util::sync::CancellationToken;

pub use deps::Deps;
pub use error::{Error, Waiting};
use observe::ZoneIds;

pub const EVENT_COMPONENT: &str = "cloud-node-controller";

/// Runs until `stop`, and returns only when no write is in flight.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and no longer permitted.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }

    let zone_ids = ZoneIds::default();
    // The first flow that ends stops the others; wait for all.
    let all = stop.child_token();
    let (initialized, refreshed, labelled) = tokio::join!(
        async { stop_after(Box::pin(initialize::run(&deps, &zone_ids, &all)).await, &all) },
        async { stop_after(Box::pin(refresh::run(&deps, &zone_ids, &all)).await, &all) },
        async { stop_after(Box::pin(topology::run(&deps, &all)).await, &all) },
    );

    initialized.and(refreshed).and(labelled)
}

fn stop_after<T>(result: T, stop: &CancellationToken) -> T {
    stop.cancel();
    result
}
