//! The cloud node controller: gives a new Node its provider ID, labels and addresses and takes its uninitialized
//! taint off; keeps addresses true afterwards; completes Nodes that never had the taint; keeps old and new topology
//! labels equal; labels Nodes with their place in EC2's network.
//!
//! ```text
//! node cache ─names of new Nodes───▶ initialize: observe ─▶ desired ─▶ plan ─▶ apply      priority Initialize
//!            ─every period, all────▶ refresh:    observe ─▶ addresses, complete ─▶ apply  priority Refresh
//!            ─names without layers─▶ topology:   observe ─▶ plan ─▶ apply                 priority Background
//! ```
//!
//! The three flows share the cache and the store of instances, and nothing else: whatever the others do, a new Node
//! does not wait for it.

mod apply;
mod deps;
pub mod desired;
mod error;
pub mod host;
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

/// Source of this controller's Events.
pub const EVENT_COMPONENT: &str = "cloud-node-controller";

/// Runs until `stop`, and returns only when no write is under way any more.
///
/// # Errors
/// [`Error::NotLeader`], when a write was due and not allowed any more.
pub async fn run(deps: Deps, stop: CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = deps.nodes.ready() => {}
    }
    let zone_ids = ZoneIds::default();
    // Whichever flow ends first takes the others with it, and all are waited for.
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
